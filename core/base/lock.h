/* lock.h: an exclusive lock on a directory or a file, which ends with this process. A lock of flock(2) belongs to an open
 * description, and a forked child shares all descriptions of its parent: a child that outlives a killed
 * parent would keep the lock. So the description is opened by a thread with a table of descriptors of its own,
 * which no fork copies. Where the kernel has no close_range(2), the lock is an ordinary one. Any thread. */
#ifndef CORE_BASE_LOCK_H
#define CORE_BASE_LOCK_H

struct core_lock;

/* Locks the directory that a descriptor refers to, or the file of this name in it (NULL: the directory itself).
 * -EWOULDBLOCK without a message: it is locked. Other errors have no message either; -ENOMEM also
 * says that no thread could be started. */
int core_lock_take(int directory_fd, const char *name, struct core_lock **out);
/* NULL is fine. */
void core_lock_drop(struct core_lock *lock);

#endif
