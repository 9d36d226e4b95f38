/* lock.c: each lock has a thread. If the kernel gives the thread its own table of descriptors, the
 * lock's descriptor is there. */
#include "core/base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/bell.h"
#include "core/base/thread.h"

enum { ASKED = 1 }; /* the thread has not tried yet */

struct core_lock {
    const char *name; /* borrowed during core_lock_take; NULL: the directory */
    /* during core_lock_take: the directory, borrowed; afterwards the locked descriptor, owned, if
     * the thread shares the table of descriptors, else -1 */
    int fd;
    /* ASKED, 0 (locked) or -errno; release and acquire */
    _Atomic int answer;
    _Atomic bool ending;
    struct core_bell bell;
    pthread_t thread;
};

static int open_and_lock(int fd, const char *name)
{
    const int own = name != NULL ? openat(fd, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC)
                                 : openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (own < 0) {
        return -errno;
    }
    if (flock(own, LOCK_EX | LOCK_NB) != 0) {
        const int cause = errno;
        close(own);
        return -cause;
    }
    return own;
}

/* Gives this thread its own table of descriptors, with `fd` alone, and locks. Returns the locked
 * descriptor or -errno; -ENOSYS: the table stays shared. */
static int lock_apart(int fd, const char *name)
{
    if (syscall(SYS_close_range, (unsigned)fd + 1, UINT_MAX, CLOSE_RANGE_UNSHARE) != 0) {
        return -ENOSYS;
    }
    if (fd > 0) {
        (void)syscall(SYS_close_range, 0, (unsigned)fd - 1, 0);
    }
    const int own = open_and_lock(fd, name);
    close(fd);
    return own;
}

static void *keep_lock(void *argument)
{
    struct core_lock *lock = argument;
    pthread_setname_np(pthread_self(), "tide-lock");
    const int own = lock_apart(lock->fd, lock->name);
    atomic_store_explicit(&lock->answer, own < 0 ? own : 0, memory_order_release);
    core_bell_ring(&lock->bell);
    for (;;) {
        const uint32_t seen = core_bell_look(&lock->bell);
        if (atomic_load_explicit(&lock->ending, memory_order_acquire)) {
            break;
        }
        core_bell_sleep(&lock->bell, seen, -1);
    }
    if (own >= 0) {
        close(own); /* the table may outlive pthread_join briefly */
    }
    return NULL;
}

void core_lock_drop(struct core_lock *lock)
{
    if (lock == NULL) {
        return;
    }
    atomic_store_explicit(&lock->ending, true, memory_order_release);
    core_bell_ring(&lock->bell);
    pthread_join(lock->thread, NULL);
    if (lock->fd >= 0) {
        close(lock->fd);
    }
    free(lock);
}

int core_lock_take(int directory_fd, const char *name, struct core_lock **out)
{
    struct core_lock *lock = calloc(1, sizeof *lock);
    if (lock == NULL) {
        return -ENOMEM;
    }
    lock->fd = directory_fd;
    lock->name = name;
    atomic_init(&lock->answer, ASKED);
    core_bell_init(&lock->bell);
    int rc = core_thread_start(&lock->thread, keep_lock, lock);
    if (rc != 0) {
        free(lock);
        /* EAGAIN is EWOULDBLOCK, which would mean locked */
        return rc == EAGAIN ? -ENOMEM : -rc;
    }
    for (;;) {
        const uint32_t seen = core_bell_look(&lock->bell);
        rc = atomic_load_explicit(&lock->answer, memory_order_acquire);
        if (rc != ASKED) {
            break;
        }
        core_bell_sleep(&lock->bell, seen, -1);
    }
    lock->fd = -1;
    if (rc == -ENOSYS) {
        rc = open_and_lock(directory_fd, name);
        lock->fd = rc >= 0 ? rc : -1;
    }
    if (rc < 0) {
        core_lock_drop(lock);
        return rc;
    }
    *out = lock;
    return 0;
}
