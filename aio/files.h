/* files.h: one path of a store: its directory, the file system that holds it, and the extent file
 * with the drive that serves it. One thread at a time, unless said otherwise. */
#ifndef AIO_FILES_H
#define AIO_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "aio/drive.h"
#include "core/base/clock.h"

/* ---- directories ---- */

/* A directory for this process alone. Its path has no symbolic links; it belongs to our user, is
 * closed to others (mode & 077 is 0) and is locked while it is open. Files are created exclusively
 * with mode 0600. Only files that were created or opened here are removed; they are identified by
 * inode. */

struct aio_dir;

/* Opens the directory, or creates it (its parent must exist). Returns -ELOOP for a symbolic link.
 * Returns -EPERM if it belongs to another user, if others can access it, or if it is new and
 * everybody can write to its parent, unless the parent is sticky (as /tmp is). Returns -EBUSY if
 * another run uses it. All errors have a message. */
int aio_dir_open(const char *path, struct aio_dir **out);

/* Unlocks the directory, and removes it if aio_dir_open created it and it is empty. Returns -ESTALE
 * if the path now leads to another directory; nothing is removed then. Accepts NULL. */
int aio_dir_close(struct aio_dir *dir);

int aio_dir_fd(const struct aio_dir *dir);

/* Creates and locks a file, which must not exist. Returns the descriptor, or -errno with a
 * message. */
int aio_dir_create(struct aio_dir *dir, const char *name, bool direct);
/* Opens a file, which must be regular, ours, closed to others and with one link, and locks it.
 * *locked is false if another process has it locked, for example a child of a run that died.
 * Returns the descriptor, or -errno with a message; -ENOENT without a message if there is no such
 * file. */
int aio_dir_open_file(struct aio_dir *dir, const char *name, bool direct, bool *locked);
/* Removes a file if it is still the one that `fd` refers to; else returns -ESTALE with a
 * message. */
int aio_dir_remove(struct aio_dir *dir, const char *name, int fd);

/* Opens any directory without following symbolic links; no other rule applies. Returns the
 * descriptor, or -errno with a message. */
int aio_dir_look(const char *path);

/* ---- file systems ---- */

/* These functions tell which file system holds a directory, and whether it supports direct I/O. No
 * state; any thread. */

enum aio_fs_verdict {
    AIO_FS_DIRECT,   /* direct I/O works */
    AIO_FS_BUFFERED, /* usable through the page cache; warn with the reason */
    AIO_FS_REFUSED,  /* not usable; fail with the reason */
};

struct aio_fs {
    char type[24]; /* "ext4", "tmpfs" ..., or its magic number */
    enum aio_fs_verdict verdict;
    char reason[200];      /* why the verdict is not AIO_FS_DIRECT, or a remark; else "" */
    uint64_t free_bytes;   /* free bytes for our user */
    uint32_t memory_align; /* alignments that the kernel reports (STATX_DIOALIGN), else 4096 */
    uint32_t offset_align;
};

/* Fills type, verdict and reason from the magic number of statfs. `direct` is true if a block
 * written with direct I/O could be read back. */
void aio_fs_judge(uint64_t magic, bool direct, struct aio_fs *out);

/* Examines a directory: calls statfs, and writes one block to a temporary file with direct I/O and
 * reads it back. Returns 0 with a verdict, even for a file system that is not usable; -errno with a
 * message if nothing can be written (EACCES, ENOSPC, EROFS). */
int aio_fs_look(int directory_fd, const char *name, struct aio_fs *out);

/* Creates an unnamed file, which disappears with its last descriptor. `direct`: with O_DIRECT.
 * Returns the descriptor, or -errno with a message. */
int aio_fs_scratch(int directory_fd, const char *name, bool direct);

/* ---- extent files ---- */

/* One path of a store: its directory, the extent file in it and the drive that serves the file. The
 * file is created at its full size and, unless `unwritten`, filled with zeros, so that writes of a
 * run never change metadata of the file system. It begins with a header that identifies it. It is
 * removed when the path is closed; after a crash the next run reuses or replaces it if header and
 * lock prove that it is ours and not in use. Set-up thread. */

struct aio_path;

#define AIO_PATH_FILE_NAME "tide-extents"
enum { AIO_HEADER_BYTES = 4096, AIO_HEADER_VERSION = 1 };

/* The first bytes of an extent file, little-endian. */
struct aio_header {
    char magic[8]; /* "TIDEEXT" */
    uint32_t version;
    uint32_t path_index, paths_count;
    uint32_t formatted; /* 1: every byte of the file has been written */
    uint64_t run;
    uint64_t file_bytes, data_offset, align_bytes;
    uint64_t owner; /* user id */
    uint64_t process;
    uint64_t sum; /* XXH3-64 of the bytes before it */
};

struct aio_path_options {
    const char *directory; /* NULL: `disk` is used (back end mem) */
    struct aio_mem_disk *disk;
    uint64_t data_bytes; /* a multiple of align_bytes */
    uint64_t align_bytes;
    uint64_t run;
    /* this path's index among the store's paths, and their number */
    uint32_t index, count;
    const char *backend;              /* NULL: chosen by probing */
    const struct aio_backend *recipe; /* borrowed; used in place of `backend`; NULL: none */
    struct aio_drive_options drive;   /* all but name, context and backend are used */
    /* Write no zeros if the file system can reserve the space, because every extent is written
     * before it is read. */
    bool unwritten;
    /* Called repeatedly while zeros are written; if it does not return 0, aio_path_open fails with
     * -ECANCELED. May be NULL. */
    int (*progress)(void *user, const char *directory, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
};

int aio_path_open(const struct aio_path_options *options, struct aio_path **out);
/* Removes the file, and the directory if aio_path_open created it. All queues must already be
 * closed. Returns -ESTALE if the path now leads to another file. Returns -ETIMEDOUT as
 * aio_drive_destroy does. Accepts NULL. */
int aio_path_close(struct aio_path *path);

/* Removes the extent file that an ended run left in a directory. Returns -ENOENT without a message
 * if there is none, -EBUSY if a run uses the directory. A file that is not ours is an error and is
 * left alone. */
int aio_path_discard(const char *directory);

struct aio_drive *aio_path_drive(const struct aio_path *path);
uint32_t aio_path_file(const struct aio_path *path);
uint64_t aio_path_data_offset(const struct aio_path *path);

/* Returns -EBADMSG with a message if this is not a valid header of an extent file. */
int aio_header_check(const struct aio_header *header, const char *name);
void aio_header_seal(struct aio_header *header);

/* ---- inspecting an extent file ---- */

/* The header of an extent file. Reading it writes nothing and does not lock the directory, so a run
 * that uses the file is not disturbed. Any thread. */

struct aio_look {
    /* true if the file is locked by a running process, or by a killed one whose I/O has not
     * ended */
    bool in_use;
    uint64_t run;     /* run that created it; 0: no valid header */
    uint64_t process; /* process that created it; 0: no valid header */
    uint64_t bytes;   /* current size of the file */
    /* index of this path in its store, and the number of the store's paths */
    uint32_t path, paths;
};

/* Inspects the extent file of a directory. Returns -ENOENT without a message if there is none.
 * Returns -EBADMSG with a message if the file is invalid; *out is filled in even then. */
int aio_look(const char *directory, struct aio_look *out);

#endif
