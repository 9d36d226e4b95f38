/* files.h: one path of a store: its directory, the file system below, and the extent file with its
 * drive. One thread at a time, unless said otherwise. */
#ifndef AIO_FILES_H
#define AIO_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "aio/drive.h"
#include "core/base/clock.h"

/* ---- directories ---- */

/* A directory for this process alone: no symbolic link in its path, ours, closed to others (mode &
 * 077 is 0), locked while open. Files are created with mode 0600; only files created or opened here
 * are removed, identified by inode. */

struct aio_dir;

/* Opens the directory, or creates it (its parent must exist). All errors have a message.
 * -ELOOP: a symbolic link. -EPERM: not ours, open to others, or new in a parent that everybody can
 * write to and that is not sticky. -EBUSY: another run uses it. */
int aio_dir_open(const char *path, struct aio_dir **out);

/* Checks what aio_dir_open requires of the parent of a new directory; a missing parent is not an
 * error. -ELOOP, -EPERM: as aio_dir_open. */
int aio_dir_check_parent(const char *path);

/* Unlocks the directory, and removes it if aio_dir_open created it and it is empty. -ESTALE:
 * aio_dir_open created it, but the path now leads elsewhere; nothing is removed. Accepts NULL. */
int aio_dir_close(struct aio_dir *dir);

int aio_dir_fd(const struct aio_dir *dir);

/* Creates a file, which must not exist, and tries to lock it. Returns the descriptor, or -errno
 * with a message. */
int aio_dir_create(struct aio_dir *dir, const char *name, bool direct);
/* Opens a file, which must be regular, ours, closed to others and without other links, and tries to
 * lock it for a second. *locked: whether this worked. Returns the descriptor, or -errno with a
 * message; -ENOENT has none. */
int aio_dir_open_file(struct aio_dir *dir, const char *name, bool direct, bool *locked);
/* Removes the file if `name` still refers to the file of `fd`; else returns -ESTALE with a
 * message. */
int aio_dir_remove(struct aio_dir *dir, const char *name, int fd);

/* Opens any directory without following symbolic links. Returns the descriptor, or -errno with a
 * message. */
int aio_dir_look(const char *path);

/* ---- file systems ---- */

enum aio_fs_verdict {
    AIO_FS_DIRECT,   /* direct I/O works */
    AIO_FS_BUFFERED, /* usable through the page cache; warn with the reason */
    AIO_FS_REFUSED,  /* not usable; fail with the reason */
};

struct aio_fs {
    char type[24]; /* name, or magic number */
    enum aio_fs_verdict verdict;
    char reason[200];      /* why not AIO_FS_DIRECT, or a remark; else "" */
    uint64_t free_bytes;   /* free bytes for our user */
    uint32_t memory_align; /* from the kernel (STATX_DIOALIGN), else 4096 */
    uint32_t offset_align;
};

/* Fills type, verdict and reason from statfs's magic number. `direct`: a block written with direct
 * I/O could be read back. */
void aio_fs_judge(uint64_t magic, bool direct, struct aio_fs *out);

/* Examines a directory with statfs and one block of direct I/O. Fails with a message if nothing can
 * be written there. */
int aio_fs_look(int directory_fd, const char *name, struct aio_fs *out);

/* Creates an unnamed file, which disappears with its last descriptor. Returns the descriptor, or
 * -errno with a message. */
int aio_fs_scratch(int directory_fd, const char *name, bool direct);

/* ---- extent files ---- */

/* One path of a store: directory, extent file and drive. The file is created at its full size and
 * filled with zeros (see `unwritten`), so that a run's writes need not allocate space. It is
 * removed at close; after a crash the next run reuses or replaces it if it is ours and unused. */

struct aio_path;

#define AIO_PATH_FILE_NAME "tide-extents"
enum { AIO_HEADER_BYTES = 4096, AIO_HEADER_VERSION = 1 };

/* The first bytes of an extent file. */
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
    /* this path's index, and the number of the store's paths */
    uint32_t index, count;
    const char *backend;              /* NULL: chosen by probing */
    const struct aio_backend *recipe; /* borrowed; replaces `backend`; NULL: none */
    struct aio_drive_options drive;   /* all but name, context and backend are used */
    /* write no zeros if space can be reserved: extents are written before they are read */
    bool unwritten;
    /* Called while zeros are written; another result than 0 fails aio_path_open with -ECANCELED.
     * May be NULL. */
    int (*progress)(void *user, const char *directory, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
};

int aio_path_open(const struct aio_path_options *options, struct aio_path **out);
/* Removes the file, and the directory as aio_dir_close does. All queues must be closed.
 * Returns -ESTALE if the path now leads to another file, -ETIMEDOUT as aio_drive_destroy. Accepts
 * NULL. */
int aio_path_close(struct aio_path *path);

/* Removes the extent file of an ended run. Returns -ENOENT without a message if there is none,
 * -EBUSY if a run uses the directory. A file that is not ours is an error. */
int aio_path_discard(const char *directory);

struct aio_drive *aio_path_drive(const struct aio_path *path);
uint32_t aio_path_file(const struct aio_path *path);
uint64_t aio_path_data_offset(const struct aio_path *path);

/* Returns -EBADMSG with a message if the header is not valid. */
int aio_header_check(const struct aio_header *header, const char *name);
void aio_header_seal(struct aio_header *header);

/* ---- inspecting an extent file ---- */

/* The header of an extent file, read without writing or locking the directory. Any thread. */

struct aio_look {
    /* locked by a process, or by I/O of a killed one */
    bool in_use;
    uint64_t run;     /* creating run; 0: no valid header */
    uint64_t process; /* creating process; 0: no valid header */
    uint64_t bytes;   /* current size of the file */
    /* index of this path, and number of the store's paths */
    uint32_t path, paths;
};

/* Inspects a directory's extent file. Returns -ENOENT without a message if there is none, -EBADMSG
 * with a message if it is invalid; *out then has what could be read. */
int aio_look(const char *directory, struct aio_look *out);

#endif
