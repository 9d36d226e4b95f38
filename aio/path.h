/* path.h: one path of a store: a directory of ours, the extent file in it and the drive that serves
 * it. The file is made once at its exact size and written with zeros, so that a run's writes never
 * change the file system's metadata; it starts with a header that says whose it is; it is removed at
 * a clean end, and taken over after a crash only where header and lock prove that it is ours and
 * nobody uses it. Set-up thread only. */
#ifndef AIO_PATH_H
#define AIO_PATH_H

#include <stdbool.h>
#include <stdint.h>

#include "aio/drive.h"
#include "core/base/clock.h"

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

#endif
