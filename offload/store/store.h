/* store.h: where the chunks of a plan lie in the extent store: working weights, states, gradients
 * and boundary activations, each in an extent of its own, and the queues that move them.
 * What an update overwrites has two extents where the plan speculates: a write goes to the one that is
 * not current and makes it so when it is done (chunk.h).
 * The engine's thread opens, closes, reads and writes. Nothing is allocated after open, but to adopt a
 * checkpoint's bytes (adopt.h). Everything else in an extent was written by this run before it is read. */
#ifndef OFFLOAD_STORE_STORE_H
#define OFFLOAD_STORE_STORE_H

#include <stdint.h>
#include <sys/uio.h>

#include "aio/queue.h"
#include "aio/store.h"
#include "offload/plan/plan.h"

struct store;

enum { STORE_PATHS_MAX = AIO_PATHS_MAX };

struct store_path {
    const char *directory;            /* a directory of our own is made in it; NULL: `disk` */
    uint64_t bytes;                   /* the most that may be taken; 0: no limit but the disk's */
    double weight;                    /* speed, in any unit common to the paths; 0: measured */
    const struct aio_backend *recipe; /* borrowed; the drive's back end; NULL: the store's */
    struct aio_mem_disk *disk;        /* borrowed; for `mem` */
};

/* What a path without a limit counts for in a plan. */
#define STORE_UNLIMITED_BYTES (UINT64_C(1) << 40)

/* The bytes of extents that the limits of the paths admit together: the budget of a plan. */
uint64_t store_capacity(const struct store_path *paths, unsigned count);
/* The size of each path's file for `bytes` of extents: in proportion to the weights, and what a path's limit
 * does not admit goes to the others. Where a weight is yet to be measured each path gets room for all of
 * it. -ENOSPC only where `bytes` is more than store_capacity. */
int store_share(const struct store_path *paths, unsigned count, uint64_t bytes,
                uint64_t shares[STORE_PATHS_MAX]);

/* What an extent holds. */
enum store_kind { STORE_WEIGHTS, STORE_STATES, STORE_GRADS, STORE_ACTS, STORE_KIND_COUNT };

struct store_options {
    const struct store_path *paths;
    unsigned path_count;
    const char *backend; /* NULL: chosen by probing */
    uint64_t run;        /* tells runs apart */
    unsigned rank;       /* part of the directories' names */
    unsigned world;   /* ranks of the run, whose first one removes what dead runs of more ranks have
                            left beside its own; 0: nobody does */
    int64_t limit_ns; /* of one block's I/O; 0: the drive's own */
    int (*progress)(void *user, const char *directory, uint64_t done_bytes, uint64_t total_bytes);
    void *user;
};

/* Makes the directories and files and gives every chunk that `plan` keeps in STORE its extent.
 * -ENOSPC names the path and what is missing. */
int store_open(const struct store_options *options, const struct plan_input *input,
               const struct plan *plan, struct store **out);
/* Queues closed before. Removes what was made. NULL is fine. */
int store_close(struct store *store);

/* Memory that requests will point into. */
int store_register(struct store *store, const struct iovec *memory, unsigned count);

int store_queue_open(struct store *store, const struct aio_queue_options *options,
                     struct aio_queue **out);

/* Moves a whole extent between STORE and `memory`, which is aligned to 4096 and has room for its
 * bytes rounded up to that. `index` is the chunk; of an activation the micro-batch, `block` being the
 * one that hands it on.
 * As aio_queue_submit. */
struct store_place {
    enum store_kind kind;
    uint32_t block;
    uint32_t index;
};
int store_read(struct store *store, struct aio_queue *queue, const struct store_place *place,
               void *memory, struct core_fence *out);
int store_write(struct store *store, struct aio_queue *queue, const struct store_place *place,
                const void *memory, struct core_fence *out);

/* The same before the step's norm is known: it counts when store_decide says so. */
int store_write_ahead(struct store *store, struct aio_queue *queue, const struct store_place *place,
                      const void *memory, struct core_fence *out);
/* The next `count` writes ahead, handed on already or not, stand or fall together. */
void store_decide(struct store *store, uint64_t count, bool stands);

/* What the drives have moved and met since open. */
struct store_stats {
    uint64_t read_bytes, write_bytes;
    uint64_t retries, mismatches, stalls;
};
void store_stats_take(struct store *store, struct store_stats *out);

#endif
