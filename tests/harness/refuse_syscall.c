/* refuse_syscall.c: the wrapper of syscall(2), and its counter. */
#include "tests/harness/refuse_syscall.h"

#include <errno.h>
#include <stdarg.h>

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

static long refused_number;
static int refused_cause; /* 0: no call is refused */
static unsigned refused_count;

void test_refuse_syscall(long number, int cause)
{
    refused_number = number;
    refused_cause = cause;
}

unsigned test_refused_syscalls(void)
{
    return refused_count;
}

long __wrap_syscall(long number, ...)
{
    long values[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        values[i] = va_arg(list, long);
    }
    va_end(list);
    if (refused_cause != 0 && number == refused_number) {
        refused_count++;
        errno = refused_cause;
        return -1;
    }
    return __real_syscall(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}
