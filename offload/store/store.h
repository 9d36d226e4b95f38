/* store.h: stores the chunks of a plan: working weights, states, gradients and boundary
 * activations, each in its own extent, with the queues that move them. If the plan speculates, data
 * that an update overwrites has two extents: a write goes to the extent that is not current, which
 * becomes current when the write is done (chunk.h). The engine's thread opens, closes, reads and
 * writes. Reading and writing allocate nothing. An extent must be written before it is read, unless
 * it adopts data of a checkpoint or a kept base. */
#ifndef OFFLOAD_STORE_STORE_H
#define OFFLOAD_STORE_STORE_H

#include <stdint.h>
#include <sys/uio.h>

#include "aio/queue.h"
#include "aio/store.h"
#include "offload/plan/plan.h"

struct store;
struct store_checkpoint;

enum { STORE_PATHS_MAX = AIO_PATHS_MAX };

struct store_path {
    const char *directory; /* we create our own directory in it; NULL: `disk` is used */
    /* limit of the space that is used; 0: only the disk limits it */
    uint64_t bytes;
    double weight;                    /* speed, in any unit common to the paths; 0: measured */
    const struct aio_backend *recipe; /* borrowed; the drive's back end; NULL: the store's */
    struct aio_mem_disk *disk;        /* borrowed; for `mem` */
};

/* The bytes that a path without a limit counts for in a plan. */
#define STORE_UNLIMITED_BYTES (UINT64_C(1) << 40)

/* Returns the bytes of extents that fit into all paths together: the budget of a plan. */
uint64_t store_capacity(const struct store_path *paths, unsigned count);
/* Computes the size of each path's file for `bytes` of extents: in proportion to the weights; the
 * other paths take the part that exceeds a path's limit. If a weight is yet to be measured, each
 * path gets space for everything, up to its limit. Returns -ENOSPC only if `bytes` is more than
 * store_capacity. */
int store_share(const struct store_path *paths, unsigned count, uint64_t bytes,
                uint64_t shares[STORE_PATHS_MAX]);

/* The kinds of data in an extent. */
enum store_kind { STORE_WEIGHTS, STORE_STATES, STORE_GRADS, STORE_ACTS, STORE_KIND_COUNT };

struct store_options {
    const struct store_path *paths;
    unsigned path_count;
    /* [path_count] processors of each path's thread, read at open; an empty set: any processor;
     * NULL: any processor for all paths */
    const struct core_cpus *drive_cpus;
    const char *backend; /* NULL: chosen by probing */
    uint64_t run;
    unsigned rank; /* rank that is part of the directories' names */
    /* number of ranks of the run: rank 0 removes the folders of higher ranks that dead runs left in
     * the paths' directories; 0: nothing is removed */
    unsigned world;
    int64_t limit_ns; /* a piece of I/O in flight this long is an error; 0: the drive's own limit */
    int (*progress)(void *user, const char *directory, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
};

/* Creates the directories and files, and an extent for each chunk that `plan` keeps in STORE.
 * Returns -ENOSPC with a message if the paths have too little space. */
int store_open(const struct store_options *options, const struct plan_input *input,
               const struct plan *plan, struct store **out);
/* All queues must already be closed. Removes all files and directories that store_open created.
 * Accepts NULL. */
int store_close(struct store *store);

/* Registers memory that requests will use. */
int store_register(struct store *store, const struct iovec *memory, unsigned count);

int store_queue_open(struct store *store, const struct aio_queue_options *options,
                     struct aio_queue **out);

struct store_place {
    enum store_kind kind;
    uint32_t block;
    uint32_t index;
};

/* Moves a whole extent between STORE and `memory`, which is aligned to 4096 and has room for the
 * bytes rounded up to that. `index` is the chunk; for an activation it is the micro-batch, and
 * `block` is the block that produces it. Returns like aio_queue_submit. */
int store_read(struct store *store, struct aio_queue *queue, const struct store_place *place,
               void *memory, struct core_fence *out);
int store_write(struct store *store, struct aio_queue *queue, const struct store_place *place,
                const void *memory, struct core_fence *out);

/* Moves `bytes` of the weights of a block whose weights are moved by pages
 * (plan_block_layout.by_pages): whole pages from `offset` on, a multiple of 4096; the end of the
 * block is rounded up. If a range touches several chunks, only the part in the first chunk is
 * moved; *moved is its size. */
int store_read_pages(struct store *store, struct aio_queue *queue, uint32_t block, uint64_t offset,
                     void *memory, uint64_t bytes, uint64_t *moved, struct core_fence *out);
int store_write_pages(struct store *store, struct aio_queue *queue, uint32_t block, uint64_t offset,
                      const void *memory, uint64_t bytes, uint64_t *moved, struct core_fence *out);

/* Like store_write, before the step's norm is known: data with two extents becomes current only if
 * store_decide confirms it; a single extent is overwritten. */
int store_write_ahead(struct store *store, struct aio_queue *queue, const struct store_place *place,
                      const void *memory, struct core_fence *out);
/* Confirms or discards the next `count` writes ahead of the norm together, including those that are
 * not submitted yet. */
void store_decide(struct store *store, uint64_t count, bool stands);

/* ---- adopting a checkpoint ---- A store uses a checkpoint's files instead of writing the data
 * again. A chunk that was read from a checkpoint and verified stays in the checkpoint's file until
 * its first write is done. Every read of it is compared with checksums that were computed when it
 * was verified. This works if the checkpoint is on the same file system as a store with one path,
 * for chunks whose streams are whole MiB, but not for states with 8-bit moments; all others are
 * written. The checkpoint may be removed in the meantime, because its files stay open. */

/* Opens the checkpoint's files for the store; does nothing if nothing can be adopted. */
int store_adopt_begin(struct store *store, const struct store_checkpoint *checkpoint);

/* Adopts a chunk, `span` of its block, which was read into `memory` and verified: from now on reads
 * of `place` read it from the checkpoint. Returns 1 if the chunk is adopted, or 0 if the caller has
 * to write it. */
int store_adopt(struct store *store, const struct store_place *place,
                const struct store_checkpoint *checkpoint, struct plan_span span,
                const void *memory);

/* Returns the bytes that are still in a checkpoint's files. */
uint64_t store_adopted_bytes(struct store *store);
/* Closes the checkpoint's files if no chunk is in them any more. Accepts NULL. */
int store_adopt_release(struct store *store);

/* ---- reading a kept base ---- Chunks of frozen weights in a file on the same file system as a
 * store with one path, with the checksums of their units (aio_known_sums), are read from that file
 * and not copied. */

struct store_base {
    int fd; /* opened for direct I/O; outlives the store */
    const char *name;
    uint64_t bytes; /* size of the file */
};

/* Attaches the file. Returns 1 if chunks can be read from it, 0 if they cannot, because the store
 * has several paths or is on another file system, or -errno if the file cannot be attached. */
int store_base_begin(struct store *store, const struct store_base *base);
struct store_base_part {
    uint64_t offset, bytes;
    struct aio_known_sums sums;
};

/* From now on reads a chunk at `part->offset` of that file; part->bytes is the size of its
 * extent. */
int store_base_adopt(struct store *store, const struct store_place *place,
                     const struct store_base_part *part);

/* Bytes moved on one path. */
struct store_moved {
    uint64_t read_bytes, write_bytes;
};

/* Bytes that the drives moved since open. */
struct store_stats {
    uint64_t read_bytes, write_bytes;
    struct store_moved paths[STORE_PATHS_MAX]; /* of each path */
};
void store_stats_take(struct store *store, struct store_stats *out);

#endif
