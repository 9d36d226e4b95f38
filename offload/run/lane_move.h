/* lane_move.h: the lanes that move bytes: copies between HOST and DEVICE, a drive's requests, and
 * collectives. The rank's thread submits. */
#ifndef OFFLOAD_RUN_LANE_MOVE_H
#define OFFLOAD_RUN_LANE_MOVE_H

#include "core/coll/coll.h"
#include "offload/run/executor.h"
#include "offload/run/inputs.h"
#include "offload/run/memory.h"
#include "offload/run/options.h"
#include "offload/store/store.h"

struct dev_queue;

/* Rows of an embedding that a lane's commands move. */
struct run_rows {
    const struct run_inputs *inputs; /* borrowed; NULL: none */
    uint32_t micro_batches;
    uint32_t group;                /* micro-batches of a command */
    struct run_rows_cursor cursor; /* progress of the current command */
};

struct run_copy {
    const struct run_memory *memory; /* borrowed, like the other pointers */
    struct dev_queue *queue;
    struct run_rows rows;
};
/* Returns the micro-batches of a command that moves rows; sets *first to the first. */
uint32_t run_rows_micros(const struct run_rows *rows, const struct plan_command *command,
                         uint32_t *first);

struct run_lane run_copy_lane(struct run_copy *copy);

struct run_io {
    const struct run_memory *memory; /* borrowed, like the other pointers */
    struct store *store;
    struct aio_queue *queue;
    const struct plan *plan;
    unsigned submitted; /* requests of the current command that the queue has taken */
    /* bytes of the current command with `pages` that the queue has taken */
    uint64_t submitted_bytes;
    struct run_rows rows;
};
struct run_lane run_io_lane(struct run_io *io);

/* most collectives in flight */
enum { RUN_COLLECT_DEPTH = 64 };

/* A shard of weights, or a whole gradient, that the coll's thread turns into codes for other
 * ranks. */
struct run_pack {
    enum kern_type type;    /* shard: type of the weights */
    enum coll_type numbers; /* gradient: type of its numbers */
    const char *from;
    uint64_t elements;
    char *to;
};

/* Gathers weights, and sums gradients and squares. */
struct run_collect {
    const struct run_memory *memory; /* borrowed, like the next two */
    const struct plan_input *input;
    struct coll *coll;
    enum kern_type type; /* of weights, like the next member */
    enum coll_type weight_type;
    enum coll_type grad_type;
    uint64_t *borders; /* owned, [block_count][world + 1]: borders of shards, in elements */
    /* owned, [RUN_COLLECT_DEPTH + 1][world + 1]: other collectives' borders, used in turn */
    uint64_t *parts;
    struct run_pack *packs; /* owned, [RUN_COLLECT_DEPTH + 1]: used in turn */
    uint32_t parts_turn;
};

/* Whole pages of weights, gathered from the ranks that have them. */
struct run_collect_pages {
    uint32_t block;
    uint64_t first; /* first byte of the pages in the block */
    uint64_t bytes;
    const char *from; /* this rank's part */
    char *to;
};
int run_collect_pages(struct run_collect *collect, const struct run_collect_pages *pages,
                      struct core_fence *out);

/* `coll` is borrowed. */
int run_collect_init(struct run_collect *collect, const struct run_options *options,
                     const struct plan_input *input, const struct run_memory *memory,
                     struct coll *coll);
/* Accepts a zeroed struct. */
void run_collect_fini(struct run_collect *collect);
struct run_lane run_collect_lane(struct run_collect *collect);

#endif
