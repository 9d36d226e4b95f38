/* child.h: runs a function in a process of its own, for changes that cannot be undone (memlock, another
 * user) and for defects that must end the process (assert). */
#ifndef TESTS_HARNESS_CHILD_H
#define TESTS_HARNESS_CHILD_H

/* A child that stops itself with raise(SIGSTOP) is continued after this time. */
enum { TEST_STOP_MS = 2500 };

/* Runs `run` in a child with one thread and waits for it. Returns the low 8 bits of its result, 255 if no
 * child could be started, or 256 + the signal that ended it. The child's standard error is dropped. A check
 * that fails in the child fails the case of the caller. */
int test_child(int (*run)(void *argument), void *argument);

/* Becomes the user "nobody" without any capability. 0, or -EPERM if we are not root. */
int test_child_drop_root(void);

#endif
