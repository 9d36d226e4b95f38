/* store.h: the extent store: data on one path or striped over several, with a checksum per MiB or
 * page unless `no_sums` is set.
 * Reads and writes allocate nothing. One thread at a time allocates and frees extents, and one at a
 * time uses a queue. A read that must see a write needs the write's fence first, even on the same
 * queue. */
#ifndef AIO_STORE_H
#define AIO_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "aio/queue.h"

struct aio_store;
struct aio_extent;
struct aio_mem_disk;

#define AIO_EXTENT_ALIGN_BYTES ((uint64_t)2 << 20)

struct aio_store_path {
    const char *directory;            /* of this store alone, see files.h; NULL: `disk` */
    struct aio_mem_disk *disk;        /* borrowed; at least `bytes` long */
    uint64_t bytes;                   /* of extents; a multiple of align_bytes */
    double weight;                    /* speed, in any common unit; 0: measured at open if there are
                                * several paths */
    const struct aio_backend *recipe; /* borrowed; replaces `backend` on this path; NULL: none */
    const struct core_cpus *cpus;     /* where the drive's thread runs; NULL: on drive.cpus */
};

struct aio_store_options {
    const struct aio_store_path *paths;
    unsigned paths_count; /* 1 to AIO_PATHS_MAX */
    uint64_t run;         /* identifies the run, for example a random number */
    uint64_t align_bytes; /* alignment of extents: a multiple of 4096 that divides 1 MiB, or a
                           * multiple of 1 MiB; 0: AIO_EXTENT_ALIGN_BYTES */
    const char *backend;  /* NULL: chosen by probing */
    bool no_sums;
    /* write no zeros at open if space can be reserved: extents are written before they are read */
    bool unwritten;
    struct aio_drive_options drive; /* depth, block_bytes, cpus, limits of every path */
    /* see struct aio_path_options (files.h) */
    int (*progress)(void *user, const char *directory, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
};

int aio_store_open(const struct aio_store_options *options, struct aio_store **out);
/* All queues must be closed. Closes every path even after an error; returns the first error.
 * Accepts NULL. */
int aio_store_close(struct aio_store *store);

uint64_t aio_store_bytes(const struct aio_store *store); /* bytes for extents on all paths */
uint64_t aio_store_free_bytes(const struct aio_store *store);
unsigned aio_store_paths(const struct aio_store *store);
struct aio_drive *aio_store_drive(const struct aio_store *store, unsigned path);
/* Registers memory with every drive (aio_drive_register). */
int aio_store_register(struct aio_store *store, const struct iovec *memory, unsigned count);

/* Allocates an extent of `bytes`, rounded up to a multiple of 4096. It takes space in multiples of
 * align_bytes, on the paths by their weights. `owner` seeds the checksums and must be unique among
 * extents. Returns -ENOSPC with a message if the store is full. */
int aio_extent_alloc(struct aio_store *store, uint64_t bytes, uint64_t owner,
                     struct aio_extent **out);
/* As aio_extent_alloc, with a checksum per page (16 bytes of memory for 4 KiB) instead of per MiB,
 * so that single pages can be read and written. */
int aio_extent_alloc_paged(struct aio_store *store, uint64_t bytes, uint64_t owner,
                           struct aio_extent **out);

struct aio_extent_part {
    uint32_t file;
    uint64_t offset;
    uint64_t bytes;
};

/* Makes a read-only extent from parts of other files, in order. The caller has verified the data
 * and passes the checksums to aio_extent_hashed. The files are attached to the first path's drive
 * (aio_drive_attach) and outlive the extent. -EINVAL: a part is not whole MiB (the last part: whole
 * pages), or its offset is no multiple of 4 KiB. */
int aio_extent_adopt(struct aio_store *store, const struct aio_extent_part *parts, unsigned count,
                     uint64_t owner, struct aio_extent **out);
struct aio_known_sums {
    const uint64_t *values; /* borrowed during the call */
    uint64_t owner, first;
    bool pages;
};

/* Adopts one part, in whole pages, of a file whose checksums are known: per MiB or, with `pages`,
 * per page, from the part's beginning. Checksum i is core_hash(data, bytes, core_hash_seed(0,
 * owner, first + i, 1)), with `owner` and `first` of *sums. */
int aio_extent_adopt_known(struct aio_store *store, const struct aio_extent_part *part,
                           const struct aio_known_sums *sums, struct aio_extent **out);
/* Frees an extent without requests in flight. `store` is NULL if already closed. `extent` may be
 * NULL. */
void aio_extent_free(struct aio_store *store, struct aio_extent *extent);
uint64_t aio_extent_bytes(const struct aio_extent *extent);

/* Opens a queue over the store's paths; aio_queue_close closes it. */
int aio_store_queue(struct aio_store *store, const struct aio_queue_options *options,
                    struct aio_queue **out);

/* Reads or writes a part of an extent. `offset` and `bytes` are multiples of 1 MiB (of 4 KiB with a
 * checksum per page), except `bytes` at the extent's end; `memory` is aligned to 4 KiB. Returns
 * -EINVAL for another range, else as aio_queue_submit.
 * With checksums, a read fails the queue with -EBADMSG and a message if the data is not what was
 * written last, with -ENODATA if nothing was written. */
int aio_store_read(struct aio_queue *queue, const struct aio_extent *extent, uint64_t offset,
                   void *memory, uint64_t bytes, struct core_fence *out);
int aio_store_write(struct aio_queue *queue, struct aio_extent *extent, uint64_t offset,
                    const void *memory, uint64_t bytes, struct core_fence *out);

/* aio_extent_hashed sets the checksum that MiB (or page) `index` must have: core_hash(data, bytes,
 * aio_extent_seed(extent, index)). Only for adopted extents. */
uint64_t aio_extent_seed(const struct aio_extent *extent, uint64_t index);
void aio_extent_hashed(struct aio_extent *extent, uint64_t index, uint64_t hash);

#endif
