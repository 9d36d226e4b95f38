/* child.h: runs a function in a process of its own, for limits that cannot be taken back (memlock,
 * another user) and for defects that must end the process (assert). */
#ifndef TESTS_HARNESS_CHILD_H
#define TESTS_HARNESS_CHILD_H

/* A child that stops itself, raise(SIGSTOP), goes on after this time. */
enum { TEST_STOP_MS = 2500 };

/* What `run` returned (0 to 255, also in a child that checks fail in: 255), or 256 + the signal
 * that ended it. What the child writes to standard error is dropped. The child has one thread. */
int test_child(int (*run)(void *argument), void *argument);

/* Becomes the user "nobody" without any capability. 0, or -EPERM where we are not root. */
int test_child_drop_root(void);

#endif
