/* lane_update.h: the optimizer's lane: sums of squares, the norm with its verdict, and updates of
 * chunks, on a queue with its own thread and team, or on one per NUMA node. The rank's thread
 * submits, and sets a step's terms while no update runs; the queue's thread writes the verdict. */
#ifndef OFFLOAD_RUN_LANE_UPDATE_H
#define OFFLOAD_RUN_LANE_UPDATE_H

#include "core/base/queue.h"
#include "cpu_adam/norm.h"
#include "offload/blocks/blocks.h"
#include "offload/run/executor.h"
#include "offload/run/lent.h"
#include "offload/run/memory.h"
#include "offload/run/options.h"
#include "offload/run/place.h"

struct run_update;

struct run_update_options {
    const struct blocks *blocks; /* borrowed, like all pointers here except `groups` */
    const struct run_options *options;
    /* Copied; valid settings, which each step replaces. */
    const struct adam_group *groups;
    uint32_t group_count;
    const struct plan_input *input;
    const struct plan *plan;
    const struct run_memory *memory;
    const struct run_lent *lent;   /* NULL: weights and gradients are in the plan's buffers */
    const struct run_place *place; /* NULL: nothing is placed */
    struct core_bell *bell;
    /* With `lent`: called on the queue's thread when all chunks of a block are updated. */
    void (*updated)(void *user, uint32_t block);
    /* Sums the squares over all processes, from this process's tiles; NULL: no other process. */
    int (*total)(void *user, const double *tiles, double *squares);
    void *user;
};

int run_update_create(const struct run_update_options *options, struct run_update **out);
/* Waits for submitted commands; if they can no longer end, call run_update_abandon first. Accepts
 * NULL. */
void run_update_destroy(struct run_update *update);
void run_update_abandon(struct run_update *update, int code);

/* Waits for submitted commands. Returns -ETIMEDOUT if those of a queue take longer than
 * `limit_ns`. */
int run_update_wait(struct run_update *update, int64_t limit_ns);

struct run_lane run_update_lane(struct run_update *update);
struct core_team *run_update_team(struct run_update *update);

struct run_update_terms {
    const struct adam_group *groups; /* as many as in the options; copied */
    double scale;                    /* of gradients */
};
/* Set the terms of speculative updates, before their tape is released, and of deferred ones, after
 * the norm. */
void run_update_set_speculative(struct run_update *update, const struct run_update_terms *terms);
void run_update_set_deferred(struct run_update *update, const struct run_update_terms *terms);

struct run_verdict {
    double norm;   /* of the unscaled gradients, before clipping */
    double factor; /* factor that clips the norm */
    bool finite;
    /* if not `finite`: the last block with gradients that are not finite here, or else the last
     * block */
    uint32_t bad_block;
};
struct run_verdict run_update_verdict(const struct run_update *update);
/* Sets the loss scale of the gradients of the next NORM. */
void run_update_set_loss_scale(struct run_update *update, double loss_scale);

/* ---- blocks that the card updates; the thread of the rank ---- */

struct core_squares_args run_update_squares(const struct run_update *update,
                                            const struct plan_command *command);
/* Calls `take` for each launch of an UPDATE, with the current terms. */
int run_update_pieces(struct run_update *update, const struct plan_command *command,
                      adam_piece_fn *take, void *context);
/* Returns whether parameters with different terms share a block of 8-bit moments, which a card
 * cannot update. */
bool run_update_splits_q8_block(const struct blocks *blocks, const struct run_options *options);

/* Returns the arrays of a command's chunk, in the generation of run_memory_of(). */
struct adam_arrays run_update_chunk(const struct run_update *update,
                                    const struct plan_command *command);

/* Returns a chunk's streams in memory: `weights`, and `states` packed as `format` says. */
struct adam_arrays run_update_arrays(const struct plan_format *format, uint64_t first,
                                     uint64_t count, char *weights, char *states,
                                     const char *grads);

#endif
