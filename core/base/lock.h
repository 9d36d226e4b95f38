/* lock.h: an exclusive lock on a directory or file, until core_lock_drop or the end of this
 * process. A forked child shares its parent's open files, and could keep a flock(2) lock longer.
 * Therefore a thread with its own table of descriptors opens the lock's descriptor; without
 * close_range(2), the calling thread does. Any thread. */
#ifndef CORE_BASE_LOCK_H
#define CORE_BASE_LOCK_H

struct core_lock;

/* Locks the file `name` in a directory, or the directory if `name` is NULL. Returns -EWOULDBLOCK if
 * it is locked, or another -errno, without a message. */
int core_lock_take(int directory_fd, const char *name, struct core_lock **out);
/* Releases the lock. Accepts NULL. */
void core_lock_drop(struct core_lock *lock);

#endif
