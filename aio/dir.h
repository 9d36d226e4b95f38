/* dir.h: a directory that is ours alone, and files in it that are never somebody else's.
 * Rules: no symbolic link anywhere on the way; owned by us, mode 0700; locked while it is open;
 * files made exclusively with mode 0600; what is removed is what we made, compared by inode. One
 * thread at a time. */
#ifndef AIO_DIR_H
#define AIO_DIR_H

#include <stdbool.h>
#include <stdint.h>

struct aio_dir;

/* Opens `path`, or makes it (its parent must exist). -ELOOP: a symbolic link; -EPERM: not ours, or
 * others may write; -EBUSY: another run has it; each with a sentence that says what to do. */
int aio_dir_open(const char *path, struct aio_dir **out);

/* Unlocks, and removes the directory if this open made it and it is empty. 0, or
 * -ESTALE: the path leads elsewhere by now, nothing was removed. NULL is fine. */
int aio_dir_close(struct aio_dir *dir);

int aio_dir_fd(const struct aio_dir *dir);
const char *aio_dir_path(const struct aio_dir *dir);

/* Makes a file that must not exist. The descriptor, or -errno with a sentence. */
int aio_dir_create(struct aio_dir *dir, const char *name, bool direct);
/* Opens one that is there: a regular file of ours, mode 0600, one name, not locked by anybody.
 * -ENOENT without a sentence: there is none. The descriptor, locked, or -errno with a sentence. */
int aio_dir_open_file(struct aio_dir *dir, const char *name, bool direct);
/* Removes the name if it still leads to what `fd` is; else -ESTALE with a sentence, and it stays. */
int aio_dir_remove(struct aio_dir *dir, const char *name, int fd);
/* Makes names created, renamed or removed in it durable (fsync). */
int aio_dir_sync(struct aio_dir *dir);

/* Opens any directory for looking or for scratch files: no symbolic link on the way, no other rule.
 * The descriptor, or -errno with a sentence. */
int aio_dir_look(const char *path);

#endif
