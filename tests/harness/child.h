/* child.h: runs a function in a separate process, for changes that cannot be undone (memlock,
 * another user) and for defects that must end the process (assert). */
#ifndef TESTS_HARNESS_CHILD_H
#define TESTS_HARNESS_CHILD_H

#include <stdbool.h>

/* A child that stops itself with raise(SIGSTOP) is continued after this time. */
enum { TEST_STOP_MS = 2500 };

/* Runs `run` in a child with one thread and waits for it. Returns the low 8 bits of its result, 255
 * if no child could be started, or 256 + the signal that ended it. The child's standard error is
 * dropped. A check that fails in the child fails the case of the caller. */
int test_child(int (*run)(void *argument), void *argument);

/* Ends this process like _exit(). In a build that measures coverage it is exit(), because _exit()
 * drops the counters. */
_Noreturn void test_child_end(int code);

/* A process whose child outlives it. It shows whether the child keeps anything that must end with
 * the process, for example a lock. */
struct test_orphan {
    int process; /* id of the process */
    int release; /* the child ends when this is closed */
};
/* Runs `run` in a separate process, which then forks a child; both sleep. A result of `run` other
 * than 0 fails the case. Skips the case under TSan, which ends a child that starts a thread. */
void test_orphan_begin(int (*run)(void *argument), void *argument, struct test_orphan *out);
/* Kills the process; its child continues to run. */
void test_orphan_kill(const struct test_orphan *orphan);
/* Ends the child. */
void test_orphan_end(const struct test_orphan *orphan);

/* Makes every later io_uring_setup of this process fail with `code`, like the filter of a
 * container; if `libaio`, also io_setup. Returns 0 or -errno. */
int test_child_refuse_uring(int code, bool libaio);

/* Calls `body` in a child with EPERM (io_uring is forbidden), and in another with ENOSYS (the
 * kernel has none). `code` points to this int, with which the body calls test_child_refuse_uring().
 * Fails the case if `body` does not return 0. Skips the case under TSan. */
void test_without_uring(int (*body)(void *code));
/* Checks the error of a request for io_uring in such a child, or in a build without liburing. */
void test_uring_is_refused(int code, int rc, const char *message);

/* Becomes the user "nobody" without any capability. Returns 0, or -EPERM if the process does not
 * belong to root. */
int test_child_drop_root(void);

#endif
