/* update.h: the lane of the optimizer: sums of squares, the norm with its verdict, and the update of
 * chunks, on a queue with a thread and a team of its own.
 * The engine's thread submits, and sets what a step needs while no update is under way; the queue's
 * thread does the work and writes the verdict. */
#ifndef OFFLOAD_RUN_UPDATE_H
#define OFFLOAD_RUN_UPDATE_H

#include "core/base/queue.h"
#include "cpu_adam/norm.h"
#include "offload/model/model.h"
#include "offload/run/executor.h"
#include "offload/run/memory.h"
#include "offload/run/options.h"

struct run_update;

struct run_update_options {
    const struct model *model; /* borrowed, as all here */
    const struct run_options *options;
    const struct plan_input *input;
    const struct plan *plan;
    const struct run_memory *memory;
    struct core_bell *bell;
};

int run_update_create(const struct run_update_options *options, struct run_update **out);
/* Abandon first where commands can no longer end. NULL is fine. */
void run_update_destroy(struct run_update *update);
void run_update_abandon(struct run_update *update, int code);

/* The point behind everything submitted so far. */
struct core_fence run_update_tail(struct run_update *update);

struct run_lane run_update_lane(struct run_update *update);
struct core_team *run_update_team(struct run_update *update);

/* What an update is done with. */
struct run_update_terms {
    double lr;
    double betas[2];
    uint64_t step; /* from 1 */
    double scale;  /* gradients are multiplied by it */
};
/* The terms of a step's update ahead of its norm, before its tape is pushed; and of one that is
 * pending, by its norm. */
void run_update_set_speculative(struct run_update *update, const struct run_update_terms *terms);
void run_update_set_deferred(struct run_update *update, const struct run_update_terms *terms);

/* What the last NORM found. */
struct run_verdict {
    double norm;   /* of the unscaled gradients, before clipping */
    double factor; /* that clips it */
    bool finite;
    uint32_t bad_block; /* the first one with a gradient that is not finite */
};
struct run_verdict run_update_verdict(const struct run_update *update);
/* The loss scale that gradients of the next NORM carry. */
void run_update_set_loss_scale(struct run_update *update, double loss_scale);

/* ---- of blocks that the card updates; the engine's thread ---- */

/* What SUMS asks for. */
struct core_vec_norm run_update_squares(const struct run_update *update,
                                        const struct plan_command *command);
/* The launches of an UPDATE, by the terms that hold now. */
int run_update_pieces(struct run_update *update, const struct plan_command *command,
                      adam_piece_fn *take, void *context);
/* Whether 8-bit moments keep the card from it: parameters of a model that are updated with different
 * numbers share a block of them. */
bool run_update_splits_q8_block(const struct model *model, const struct run_options *options);

/* Where a command's chunk is in memory: of an UPDATE, in the generation that it writes. */
struct adam_arrays run_update_chunk(const struct run_update *update,
                                    const struct plan_command *command);

/* Where the streams of a chunk lie: `weights`, and `states` packed as the plan says. */
struct adam_arrays run_update_arrays(const struct run_update *update, uint64_t first,
                                     uint64_t count, char *weights, char *states,
                                     const char *grads);

#endif
