/* lock.h: an exclusive lock on a directory or a file. The lock ends with this process. A flock(2)
 * lock belongs to an open file description, and a forked child shares all descriptions of its
 * parent: a child that outlives a killed parent would keep the lock. Therefore a thread with its
 * own table of descriptors, which no fork copies, opens the description. If the kernel has no
 * close_range(2), the caller opens it. Any thread. */
#ifndef CORE_BASE_LOCK_H
#define CORE_BASE_LOCK_H

struct core_lock;

/* Locks the file `name` in a directory, or the directory itself if `name` is NULL. Returns
 * -EWOULDBLOCK without a message if it is locked. Other errors have no message either; -ENOMEM also
 * means that no thread could be started. */
int core_lock_take(int directory_fd, const char *name, struct core_lock **out);
/* Releases the lock. Accepts NULL. */
void core_lock_drop(struct core_lock *lock);

#endif
