/* refuse_syscall.h: makes calls of syscall(2) fail, as an old kernel or a filter does. Link with
 * refuse_syscall.c and -Wl,--wrap=syscall. One thread. */
#ifndef TESTS_HARNESS_REFUSE_SYSCALL_H
#define TESTS_HARNESS_REFUSE_SYSCALL_H

/* Makes later calls with this number fail with errno `cause`; 0: no call fails. */
void test_refuse_syscall(long number, int cause);
/* Returns the number of calls that were refused since the program began. */
unsigned test_refused_syscalls(void);

#endif
