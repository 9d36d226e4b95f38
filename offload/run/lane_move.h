/* lane_move.h: the lanes that move bytes: copies between HOST and DEVICE, requests to a drive, and
 * collectives between ranks. Each such queue of the tape has one of these lanes. The thread of the
 * rank submits. */
#ifndef OFFLOAD_RUN_LANE_MOVE_H
#define OFFLOAD_RUN_LANE_MOVE_H

#include "core/coll/coll.h"
#include "offload/run/executor.h"
#include "offload/run/inputs.h"
#include "offload/run/memory.h"
#include "offload/run/options.h"
#include "offload/store/store.h"

struct dev_queue;

/* Which rows of an embedding the commands of a lane move. */
struct run_rows {
    const struct run_inputs *inputs; /* borrowed; NULL: none */
    uint32_t micro_batches;
    uint32_t group;                /* micro-batches of a command */
    struct run_rows_cursor cursor; /* how much of the current command was moved */
};

struct run_copy {
    const struct run_memory *memory; /* borrowed, like the other pointers */
    struct dev_queue *queue;
    struct run_rows rows;
};
/* Returns the number of micro-batches of a command that moves rows. Sets *first to the first. */
uint32_t run_rows_micros(const struct run_rows *rows, const struct plan_command *command,
                         uint32_t *first);

struct run_lane run_copy_lane(struct run_copy *copy);

struct run_io {
    const struct run_memory *memory; /* borrowed, like the other pointers */
    struct store *store;
    struct aio_queue *queue;
    const struct plan *plan;
    unsigned submitted; /* requests of the current command that the drive's queue has taken */
    /* bytes of the current command with `pages` that the drive's queue has taken */
    uint64_t submitted_bytes;
    struct run_rows rows;
};
struct run_lane run_io_lane(struct run_io *io);

/* the maximum number of collectives in flight */
enum { RUN_COLLECT_DEPTH = 64 };

/* A shard of weights, or a whole gradient, that the coll's thread turns into codes before ranks
 * exchange the codes. */
struct run_pack {
    enum kern_type type;    /* for a shard: type of the weights */
    enum coll_type numbers; /* for a gradient: type of its numbers */
    const char *from;
    uint64_t elements;
    char *to;
};

/* Gathers weights, and sums gradients and the sums of their squares. */
struct run_collect {
    const struct run_memory *memory; /* borrowed, like the next two */
    const struct plan_input *input;
    struct coll *coll;
    enum kern_type type; /* type of weights, like the next member */
    enum coll_type weight_type;
    enum coll_type grad_type;
    uint64_t *borders; /* owned, [block_count][world + 1]: borders of shards, in elements */
    /* owned, [RUN_COLLECT_DEPTH + 1][world + 1]: borders of those collectives in flight for which
     * `borders` has none, used in turn */
    uint64_t *parts;
    struct run_pack *packs; /* owned, [RUN_COLLECT_DEPTH + 1]: used in turn, like `parts` */
    uint32_t parts_turn;
};

/* Whole pages of a block's weights, gathered from the ranks that have them. */
struct run_collect_pages {
    uint32_t block;
    uint64_t first; /* the byte of the block at which the pages begin */
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
