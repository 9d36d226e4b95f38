/* store.h: the extent store: bytes on one path or striped over several, every MiB with a checksum.
 * Extents are allocated at set-up; from then on reads and writes allocate nothing. The thread that
 * opened the store allocates and frees; each queue belongs to the thread that submits to it.
 * Order: a read that must see a write waits for its fence first, across queues and within one. */
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
    const char *directory;     /* ours alone, see dir.h; NULL: `disk` */
    struct aio_mem_disk *disk; /* borrowed; at least `bytes` long */
    uint64_t bytes;            /* for extents; a multiple of the align */
    double weight;             /* speed, in any unit common to the paths; 0: measured at open where
                                  there are several */
    const struct aio_backend *recipe; /* borrowed; replaces `backend` on this path; NULL: none */
};

struct aio_store_options {
    const struct aio_store_path *paths;
    unsigned paths_count;           /* 1 to AIO_PATHS_MAX */
    uint64_t run;                   /* tells runs apart: a random number, say */
    uint64_t align_bytes;           /* of extents; 0: AIO_EXTENT_ALIGN_BYTES; a multiple of 4096
                                       that divides 1 MiB, or a multiple of 1 MiB */
    const char *backend;            /* NULL: chosen by probing */
    bool no_sums;                   /* write and read without checksums */
    bool unwritten;                 /* files take their space but are not written at open: for who
                                       writes every extent before a run begins */
    struct aio_drive_options drive; /* depth, block_bytes, cpus, limits: of every path */
    int (*progress)(void *user, const char *directory, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
};

int aio_store_open(const struct aio_store_options *options, struct aio_store **out);
/* Queues closed before. Every path is closed in any case; the first error is returned. NULL is
 * fine. */
int aio_store_close(struct aio_store *store);

uint64_t aio_store_bytes(const struct aio_store *store);      /* for extents, all paths */
uint64_t aio_store_free_bytes(const struct aio_store *store); /* not taken by extents */
unsigned aio_store_paths(const struct aio_store *store);
struct aio_drive *aio_store_drive(const struct aio_store *store, unsigned path);
double aio_store_weight(const struct aio_store *store, unsigned path);
bool aio_store_reclaimed(const struct aio_store *store, unsigned path);
/* Registers memory with every drive (aio_drive_register). */
int aio_store_register(struct aio_store *store, const struct iovec *memory, unsigned count);

/* An extent of `bytes` (rounded up to 4096), spread over the paths in proportion to their weights.
 * `owner` tells it apart from all others in the checksums' seeds. -ENOSPC with the numbers: the
 * store is full. */
int aio_extent_alloc(struct aio_store *store, uint64_t bytes, uint64_t owner,
                     struct aio_extent **out);
/* An extent whose bytes lie in other files, one part behind the other: it is read as others are, with
 * the sums that aio_extent_hashed was told by who has read and checked them, and never written. Files
 * are those of the first path's drive (aio_drive_attach), and outlive it. -EINVAL: a part is not whole
 * MiB, or the last one not whole pages. */
struct aio_extent_part {
    uint32_t file;
    uint64_t offset;
    uint64_t bytes;
};
int aio_extent_adopt(struct aio_store *store, const struct aio_extent_part *parts, unsigned count,
                     uint64_t owner, struct aio_extent **out);
/* With nothing in flight on it. `store` NULL: the store has been closed. An extent of NULL is fine. */
void aio_extent_free(struct aio_store *store, struct aio_extent *extent);
uint64_t aio_extent_bytes(const struct aio_extent *extent);
/* How many of its bytes lie on a path. */
uint64_t aio_extent_on(const struct aio_extent *extent, unsigned path);

/* A queue over all paths of the store; closed by aio_queue_close. */
int aio_store_queue(struct aio_store *store, const struct aio_queue_options *options,
                    struct aio_queue **out);

/* Part of an extent: offset a multiple of 1 MiB, bytes a multiple of 1 MiB or up to the extent's
 * end; memory 4 KiB-aligned. As aio_queue_submit. A read fails with -EBADMSG (file, offset, both
 * sums) when what comes back is not what was written last, and with -ENODATA where nothing was. */
int aio_store_read(struct aio_queue *queue, const struct aio_extent *extent, uint64_t offset,
                   void *memory, uint64_t bytes, struct core_fence *out);
int aio_store_write(struct aio_queue *queue, struct aio_extent *extent, uint64_t offset,
                    const void *memory, uint64_t bytes, struct core_fence *out);

/* For whoever hashes data while it is hot: announces the next write of MiB `index` with the hash of
 * its bytes, core_hash(data, bytes, aio_extent_seed(extent, index)), and then uses
 * aio_store_write_hashed, which hashes nothing. */
uint64_t aio_extent_seed(const struct aio_extent *extent, uint64_t index);
void aio_extent_hashed(struct aio_extent *extent, uint64_t index, uint64_t hash);
int aio_store_write_hashed(struct aio_queue *queue, struct aio_extent *extent, uint64_t offset,
                           const void *memory, uint64_t bytes, struct core_fence *out);

#endif
