/* child.h: runs a function in a child process: for changes that cannot be undone and for failed
 * asserts. */
#ifndef TESTS_HARNESS_CHILD_H
#define TESTS_HARNESS_CHILD_H

#include <stdbool.h>

/* Time after which a stopped child is continued. */
enum { TEST_STOP_MS = 2500 };

/* Runs `run` in a child with one thread, without standard error. Returns the low 8 bits of the
 * result of `run`, 255 if no child could be started, or 256 + the signal that ended the child. A
 * failed check in the child fails the caller's case. */
int test_child(int (*run)(void *argument), void *argument);

/* Ends this process like _exit(), but with exit() in a coverage build, because _exit() drops the
 * counters of a shared libtide. */
_Noreturn void test_child_end(int code);

/* A process whose child outlives it. */
struct test_orphan {
    int process;
    int release; /* the child ends when this is closed */
};
/* Runs `run` in a new process, which then forks a child and sleeps. Fails the case if `run` does
 * not return 0. Skips the case under TSan, which ends a child that starts a thread. */
void test_orphan_begin(int (*run)(void *argument), void *argument, struct test_orphan *out);
/* Kills the process; its child continues to run. */
void test_orphan_kill(const struct test_orphan *orphan);
void test_orphan_end(const struct test_orphan *orphan);

/* Makes later calls of io_uring_setup fail with `code`, like a container's filter; if `libaio`,
 * also io_setup. Affects this thread, and threads and processes that it starts. */
int test_child_refuse_uring(int code, bool libaio);

/* Calls `body` in two children: for EPERM (io_uring is forbidden) and for ENOSYS (the kernel has
 * none). `code` points to this errno, an int, for test_child_refuse_uring(). A nonzero result fails
 * the case. Skips the case under TSan. */
void test_without_uring(int (*body)(void *code));
/* Checks the error of a request for io_uring in such a child, or in a build without liburing. */
void test_uring_is_refused(int code, int rc, const char *message);

/* Becomes the user "nobody" without capabilities; -EPERM: the process is not root's. */
int test_child_drop_root(void);

#endif
