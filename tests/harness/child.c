/* child.c: forks, runs and reports. */
#include "tests/harness/child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/test.h"

#ifdef TEST_COVERAGE
#include <gcov.h>
#endif

enum { NOBODY = 65534 };

#ifdef TEST_COVERAGE
_Noreturn void __real__exit(int code);
_Noreturn void __wrap__exit(int code);
/* Writes the coverage counters before the process ends. */
_Noreturn void __wrap__exit(int code)
{
    __gcov_dump();
    __real__exit(code);
}
#endif

void test_child_end(int code)
{
#ifdef TEST_COVERAGE
    exit(code); /* only exit() writes the counters of a shared libtide */
#else
    _exit(code);
#endif
}

int test_child(int (*run)(void *argument), void *argument)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        if (null >= 0) {
            dup2(null, STDERR_FILENO);
        }
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        int rc = run(argument);
        fflush(stdout);
        test_child_end(rc & 255);
    }
    int status = 0;
    for (bool ended = child < 0; !ended;) {
        if (waitpid(child, &status, WUNTRACED) < 0) {
            ended = errno != EINTR;
        } else if (WIFSTOPPED(status)) {
            nanosleep(&(struct timespec){.tv_sec = TEST_STOP_MS / 1000,
                                         .tv_nsec = TEST_STOP_MS % 1000 * 1000000},
                      NULL);
            kill(child, SIGCONT);
        } else {
            ended = true;
        }
    }
    if (child < 0) {
        return 255;
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_CHILD_FAILED) {
        test_fail(__FILE__, __LINE__, "a check failed in the child, above");
    }
    return WIFSIGNALED(status) ? 256 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Runs in the process that test_orphan_kill() kills. */
static void be_parent(int (*run)(void *argument), void *argument, int said, int release)
{
    char byte = 'n';
    if (run(argument) != 0) {
        (void)!write(said, &byte, 1);
        _exit(1);
    }
    if (fork() == 0) {
        byte = 'y';
        (void)!write(said, &byte, 1);
        (void)!read(release, &byte, 1); /* until the pipe is closed */
        _exit(0);
    }
    for (;;) {
        pause();
    }
}

void test_orphan_begin(int (*run)(void *argument), void *argument, struct test_orphan *out)
{
    int said[2];
    int release[2];
    char byte = 0;
    if (TEST_RACES) {
        test_skip("TSan ends a child that starts a thread");
    }
    check_true(pipe(said) == 0 && pipe(release) == 0);
    fflush(stdout);
    const pid_t process = fork();
    if (process == 0) {
        close(release[1]);
        be_parent(run, argument, said[1], release[0]);
    }
    close(said[1]);
    close(release[0]);
    check_int(read(said[0], &byte, 1), ==, 1);
    close(said[0]);
    check_int(byte, ==, 'y');
    *out = (struct test_orphan){.process = process, .release = release[1]};
}

void test_orphan_kill(const struct test_orphan *orphan)
{
    check_int(kill(orphan->process, SIGKILL), ==, 0);
    check_int(waitpid(orphan->process, NULL, 0), ==, orphan->process);
}

void test_orphan_end(const struct test_orphan *orphan)
{
    close(orphan->release);
}

int test_child_drop_root(void)
{
    if (geteuid() != 0) {
        return -EPERM;
    }
    if (setgroups(0, NULL) != 0 || setresgid(NOBODY, NOBODY, NOBODY) != 0 ||
        setresuid(NOBODY, NOBODY, NOBODY) != 0) {
        return -errno;
    }
    return 0;
}

int test_child_refuse_uring(int code, bool libaio)
{
    const uint32_t refuse = SECCOMP_RET_ERRNO | (uint32_t)code;
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, libaio ? SYS_io_setup : SYS_io_uring_setup, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, refuse),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                   prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0
               ? 0
               : -errno;
}

void test_without_uring(int (*body)(void *code))
{
    if (TEST_RACES) {
        test_skip("TSan ends a child that starts a thread");
    }
    for (int code = EPERM; code != 0; code = code == EPERM ? ENOSYS : 0) {
        check_int(test_child(body, &code), ==, 0);
    }
}

void test_uring_is_refused(int code, int rc, const char *message)
{
    if (rc == -ENOTSUP) {
        check_contains(message, "I/O back end \"uring\" is not built in");
        return;
    }
    check_int(rc, ==, -code);
    check_contains(message, code == ENOSYS ? "uring was requested, but this kernel has no"
                                           : "uring was requested, but io_uring is forbidden");
}
