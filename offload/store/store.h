/* store.h: stores the chunks of a plan in extents, with the queues that move them. If the plan
 * speculates, data that an update overwrites has two extents (chunk.h). The engine's thread opens,
 * closes, reads and writes; reading and writing allocate nothing. An extent must be written before
 * it is read, unless its data is adopted. */
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
    /* limit of the space; 0: only the disk's */
    uint64_t bytes;
    double weight;                    /* speed, in any unit common to the paths; 0: measured */
    const struct aio_backend *recipe; /* borrowed; the drive's back end; NULL: the store's */
    struct aio_mem_disk *disk;        /* borrowed; for `mem` */
};

/* The bytes that a path without a limit counts for in a plan. */
#define STORE_UNLIMITED_BYTES (UINT64_C(1) << 40)

/* Returns the bytes of extents that fit into all paths together: the budget of a plan. */
uint64_t store_capacity(const struct store_path *paths, unsigned count);
/* Computes file sizes for `bytes` of extents, in proportion to the weights; other paths take what
 * exceeds a path's limit. If a weight is not measured yet, each path gets space for everything, up
 * to its limit. Returns -ENOSPC only if `bytes` exceeds store_capacity. */
int store_share(const struct store_path *paths, unsigned count, uint64_t bytes,
                uint64_t shares[STORE_PATHS_MAX]);

enum store_kind { STORE_WEIGHTS, STORE_STATES, STORE_GRADS, STORE_ACTS, STORE_KIND_COUNT };

struct store_options {
    const struct store_path *paths;
    unsigned path_count;
    /* [path_count] processors of each path's thread, read at open; NULL or an empty set: any */
    const struct core_cpus *drive_cpus;
    const char *backend; /* NULL: chosen by probing */
    uint64_t run;
    unsigned rank; /* rank in the directories' names */
    /* ranks of the run: rank 0 removes folders that dead runs left for higher ranks; 0: none */
    unsigned world;
    int64_t limit_ns; /* a piece of I/O in flight this long is an error; 0: the drive's own limit */
    int (*progress)(void *user, const char *directory, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
};

/* Creates the directories and files, and an extent for each chunk that `plan` keeps in STORE.
 * Returns -ENOSPC with a message if the paths have too little space. */
int store_open(const struct store_options *options, const struct plan_input *input,
               const struct plan *plan, struct store **out);
/* All queues must be closed. Removes what store_open created. Accepts NULL. */
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

/* Moves a whole extent. `memory` is aligned to 4096 and has room for the bytes rounded up to 4096.
 * `index` is the chunk; for an activation, `index` is the micro-batch and `block` the producing
 * block. Returns like aio_queue_submit. */
int store_read(struct store *store, struct aio_queue *queue, const struct store_place *place,
               void *memory, struct core_fence *out);
int store_write(struct store *store, struct aio_queue *queue, const struct store_place *place,
                const void *memory, struct core_fence *out);

/* Moves `bytes` of weights that move by pages (plan_block_layout.by_pages). `offset` is a multiple
 * of 4096; the end of the block is rounded up. Moves only the part in the first chunk; *moved is
 * its size. */
int store_read_pages(struct store *store, struct aio_queue *queue, uint32_t block, uint64_t offset,
                     void *memory, uint64_t bytes, uint64_t *moved, struct core_fence *out);
int store_write_pages(struct store *store, struct aio_queue *queue, uint32_t block, uint64_t offset,
                      const void *memory, uint64_t bytes, uint64_t *moved, struct core_fence *out);

/* Like store_write, before the step's norm is known: with two extents, data becomes current only if
 * store_decide confirms it. */
int store_write_ahead(struct store *store, struct aio_queue *queue, const struct store_place *place,
                      const void *memory, struct core_fence *out);
/* Confirms or discards the next `count` writes ahead of the norm, submitted or not. */
void store_decide(struct store *store, uint64_t count, bool stands);

/* ---- adopting a checkpoint ---- A chunk that was read from a checkpoint and verified stays in the
 * checkpoint's file until its first write is done. Every read is compared with checksums of the
 * verified data. Adopting needs a checkpoint on the file system of a store with one path, parts of
 * whole MiB and, for states, no 8-bit moments; other chunks are written. The checkpoint may be
 * removed meanwhile, because its files stay open. */

/* Opens the checkpoint's files for the store; does nothing if nothing can be adopted. */
int store_adopt_begin(struct store *store, const struct store_checkpoint *checkpoint);

/* Adopts a chunk, `span` of its block, that was read into `memory` and verified: later reads of
 * `place` use the checkpoint's file. Returns 1 if adopted, 0 if the caller must write the chunk. */
int store_adopt(struct store *store, const struct store_place *place,
                const struct store_checkpoint *checkpoint, struct plan_span span,
                const void *memory);

/* Returns the bytes that are still in a checkpoint's files. */
uint64_t store_adopted_bytes(struct store *store);
/* Closes the checkpoint's files if no chunk is in them any more. Accepts NULL. */
int store_adopt_release(struct store *store);

/* ---- reading a kept base ---- If the base's file is on the file system of a store with one path,
 * chunks of frozen weights are read from that file, with its checksums (aio_known_sums). */

struct store_base {
    int fd; /* opened for direct I/O; outlives the store */
    const char *name;
    uint64_t bytes; /* size of the file */
};

/* Attaches the file. Returns 1; 0 if the store has several paths or another file system; or
 * -errno. */
int store_base_begin(struct store *store, const struct store_base *base);
struct store_base_part {
    uint64_t offset, bytes;
    struct aio_known_sums sums;
};

/* Later reads of the chunk use `part->offset` of that file; part->bytes is the extent's size. */
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
