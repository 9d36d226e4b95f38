/* child.c: fork, run, report; the calling process only waits. */
#include "tests/harness/child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/harness/test.h"

enum { NOBODY = 65534 };

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
        _exit(rc & 255);
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
