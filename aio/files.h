/* files.h: the directory of a store's path, the kind of file system it lies on, and the extent file in
 * it. One thread at a time, except where it says otherwise. */
#ifndef AIO_FILES_H
#define AIO_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "aio/drive.h"
#include "core/base/clock.h"

/* ---- a directory of our own ---- */

/* a directory that is ours alone, and files in it that are never somebody else's.
 * Rules: no symbolic link anywhere on the way; owned by us, mode 0700; locked while it is open;
 * files made exclusively with mode 0600; what is removed is what we made, compared by inode. One
 * thread at a time. */

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

/* ---- its file system ---- */

/* what kind of file system a directory is on, and whether direct I/O is real there. No state;
 * any thread. */

enum aio_fs_verdict {
    AIO_FS_DIRECT,   /* direct I/O, as meant */
    AIO_FS_BUFFERED, /* works through the page cache: a warning with the reason */
    AIO_FS_REFUSED,  /* an error with the reason */
};

struct aio_fs {
    char type[24]; /* "ext4", "tmpfs" ..., or the magic number */
    enum aio_fs_verdict verdict;
    char reason[200];      /* of anything but AIO_FS_DIRECT, or a remark; else "" */
    uint64_t free_bytes;   /* for us */
    uint32_t memory_align; /* as the kernel says (STATX_DIOALIGN), else 4096 */
    uint32_t offset_align;
};

/* What follows from the magic number of statfs and from a probe: `direct` says that a direct write
 * came back by a direct read. Fills type, verdict and reason. */
void aio_fs_judge(uint64_t magic, bool direct, struct aio_fs *out);

/* Looks at a directory: statfs, and a block written, read back and gone again. 0, or -errno with a
 * sentence where nothing can be written (EACCES, ENOSPC, EROFS); a file system that is no good is 0
 * with its verdict. */
int aio_fs_look(int directory_fd, const char *name, struct aio_fs *out);

/* A file without a name in a directory, gone with the last descriptor. `direct` O_DIRECT. The
 * descriptor, or -errno with a sentence. */
int aio_fs_scratch(int directory_fd, const char *name, bool direct);

/* ---- the extent file and the drive that serves it ---- */

/* one path of a store: a directory of ours, the extent file in it and the drive that serves
 * it. The file is made once at its exact size and written with zeros, so that a run's writes never
 * change the file system's metadata; it starts with a header that says whose it is; it is removed at
 * a clean end, and taken over after a crash only where header and lock prove that it is ours and
 * nobody uses it. Set-up thread only. */

struct aio_path;

#define AIO_PATH_FILE_NAME "tide-extents"
enum { AIO_HEADER_BYTES = 4096, AIO_HEADER_VERSION = 1 };

/* The first bytes of an extent file, little-endian as the machine. */
struct aio_header {
    char magic[8]; /* "TIDEEXT" */
    uint32_t version;
    uint32_t path_index, paths_count;
    uint32_t formatted; /* 1: every byte has been written once */
    uint64_t run;
    uint64_t file_bytes, data_offset, align_bytes;
    uint64_t owner; /* user */
    uint64_t process;
    uint64_t sum; /* XXH3-64 of the bytes before it */
};

struct aio_path_options {
    const char *directory; /* NULL: `disk` serves (back end mem) */
    struct aio_mem_disk *disk;
    uint64_t data_bytes; /* a multiple of align_bytes */
    uint64_t align_bytes;
    uint64_t run;
    uint32_t index, count;            /* of the store's paths */
    const char *backend;              /* NULL: chosen by probing */
    const struct aio_backend *recipe; /* borrowed; replaces `backend`; NULL: none */
    struct aio_drive_options drive;   /* depth, block_bytes, cpus, limits ... are read */
    bool unwritten; /* space is taken but not written: for who writes every extent before use */
    /* Called now and then while the file is written; not 0 stops with -ECANCELED. NULL is fine. */
    int (*progress)(void *user, const char *directory, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
};

int aio_path_open(const struct aio_path_options *options, struct aio_path **out);
/* All queues closed before. Removes file and, if we made it, directory. 0, or -ESTALE where the path
 * leads elsewhere by now, or -ETIMEDOUT as aio_drive_destroy. NULL is fine. */
int aio_path_close(struct aio_path *path);

/* Removes an extent file that a run left which is not there any more, from a directory that is. -ENOENT
 * without a sentence: there is no such file. -EBUSY: a run has the directory. What is not ours is left
 * as it is and an error, as when it is taken over. */
int aio_path_discard(const char *directory);

struct aio_drive *aio_path_drive(const struct aio_path *path);
uint32_t aio_path_file(const struct aio_path *path);
uint64_t aio_path_data_offset(const struct aio_path *path);
bool aio_path_reclaimed(const struct aio_path *path); /* a dead run's file was taken over */

/* 0 if these are the first bytes of an extent file; else -EBADMSG with a sentence. */
int aio_header_check(const struct aio_header *header, const char *name);
void aio_header_seal(struct aio_header *header);

/* ---- looking at an extent file ---- */

/* what an extent file says of itself, for who only looks: nothing is written, its directory's
 * lock is not taken, and a run that has it, takes it over or ends meanwhile does not notice.
 * Any thread. */

struct aio_look {
    bool in_use;  /* a running process has the file, or had it a moment ago: the kernel ends what a
                             killed one had under way first */
    uint64_t run; /* that made it; 0 where the header is not there or not sound */
    uint64_t process;     /* the same */
    uint64_t bytes;       /* of the file, as it is */
    uint32_t path, paths; /* which of its store's paths this is, and how many these are */
};

/* Looks at the extent file of a directory. -ENOENT without a sentence: there is none. -EBADMSG: it is
 * not sound, and the sentence says what of it; *out is filled in all the same. */
int aio_look(const char *directory, struct aio_look *out);

#endif
