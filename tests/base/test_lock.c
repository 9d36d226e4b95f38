/* test_lock.c: a lock excludes other processes until its process ends, whether or not the kernel
 * allows a separate table of descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/base/lock.h"
#include "tests/harness/child.h"
#include "tests/harness/refuse_syscall.h"
#include "tests/harness/test.h"

static int open_directory(void)
{
    const int fd = open(test_directory(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    check_int(fd, >=, 0);
    return fd;
}

static int take_elsewhere(void *argument)
{
    struct core_lock *lock = NULL;
    return -core_lock_take(*(const int *)argument, NULL, &lock);
}

static void excludes(bool shared_tables)
{
    struct core_lock *lock = NULL;
    struct core_lock *second = NULL;
    int fd = open_directory();
    int other = open_directory();
    /* ENOSYS: a kernel without close_range */
    test_refuse_syscall(SYS_close_range, shared_tables ? ENOSYS : 0);
    for (int i = 0; i < 3; i++) {
        check_int(core_lock_take(fd, NULL, &lock), ==, 0);
        check_int(core_lock_take(other, NULL, &second), ==, -EWOULDBLOCK);
        check_int(core_lock_take(fd, NULL, &second), ==, -EWOULDBLOCK);
        if (!TEST_RACES) { /* TSan ends a child that starts a thread */
            check_int(test_child(take_elsewhere, &other), ==, EWOULDBLOCK);
        }
        check_true(fcntl(fd, F_GETFD) >= 0 && second == NULL);
        core_lock_drop(lock);
    }
    close(fd);
    check_int(core_lock_take(fd, NULL, &lock), <, 0); /* the descriptor is closed */
    check_int(core_lock_take(other, NULL, &lock), ==, 0);
    close(other);
    core_lock_drop(lock);
    core_lock_drop(NULL);
    test_refuse_syscall(SYS_close_range, 0);
}

static void one_holder(void)
{
    excludes(false);
}

static void one_holder_without_tables(void)
{
    excludes(true);
}

/* A child does not keep its parent's lock, and the lock keeps no other descriptor open. */
static void a_child_does_not_hold_it(void)
{
    struct core_lock *lock = NULL;
    int said[2];
    int release[2];
    int kept[2];
    char byte = 0;
    const int fd = open_directory();
    check_true(pipe(said) == 0 && pipe(release) == 0 && pipe(kept) == 0);
    const pid_t parent = fork();
    if (parent == 0) {
        close(release[1]);
        if (core_lock_take(fd, NULL, &lock) != 0) {
            _exit(1);
        }
        close(kept[1]); /* only this process and the test can write */
        if (fork() == 0) {
            (void)!write(said[1], &byte, 1);
            (void)!read(release[0], &byte, 1);
            _exit(0);
        }
        for (;;) {
            pause();
        }
    }
    close(kept[1]);
    check_int(read(said[0], &byte, 1), ==, 1);
    check_int(read(kept[0], &byte, 1), ==, 0); /* end of file: no other writer */
    check_int(core_lock_take(fd, NULL, &lock), ==, -EWOULDBLOCK);
    check_int(kill(parent, SIGKILL), ==, 0);
    check_int(waitpid(parent, NULL, 0), ==, parent);
    check_int(core_lock_take(fd, NULL, &lock), ==, 0);
    core_lock_drop(lock);
    close(release[1]);
    close(release[0]);
    close(said[0]);
    close(said[1]);
    close(kept[0]);
    close(fd);
}

TEST_MAIN({"one_holder", one_holder}, {"one_holder_without_tables", one_holder_without_tables},
          {"a_child_does_not_hold_it", a_child_does_not_hold_it})
