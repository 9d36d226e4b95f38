/* flow.h: tapes for an application whose gradients come in an order that is not known in advance.
 * The tapes are made while a step runs, with the same choice and layout as the plan's own tapes,
 * which serve only for the prediction. Blocks are added when their gradients have come, and chunks
 * of blocks that are expected next are fetched into empty state slots. A chunk that was fetched in
 * vain loses its slot to a chunk that is needed.
 * The tapes run in the order in which they were begun, at most two at a time (run/executor.h). One
 * thread at a time. Nothing is allocated after create, unless the builder has to remember more
 * ranges of a buffer than in any earlier tape. */
#ifndef OFFLOAD_PLAN_FLOW_H
#define OFFLOAD_PLAN_FLOW_H

#include "offload/plan/plan.h"

struct plan_flow;

/* `input` and `plan` are borrowed. */
int plan_flow_create(const struct plan_input *input, const struct plan *plan,
                     struct plan_flow **out);
void plan_flow_destroy(struct plan_flow *flow); /* Accepts NULL */
/* Returns the number of commands of the longest tape. */
uint32_t plan_flow_commands_max(const struct plan_flow *flow);

void plan_flow_begin(struct plan_flow *flow);
/* Returns whether one more block fits into the tape that was begun. The first block always does. */
bool plan_flow_has_room(const struct plan_flow *flow);
/* Adds the sums of squares of a block's gradient. */
int plan_flow_sums(struct plan_flow *flow, uint32_t block);
/* Adds the norm of all gradients; their sums are in this tape or in earlier ones. */
int plan_flow_norm(struct plan_flow *flow);
/* Adds the update of a block; `ahead`: it does not wait for the norm. */
int plan_flow_update(struct plan_flow *flow, uint32_t block, bool ahead);
/* Adds sums and update of a block ahead of the norm: each chunk's update also sums the squares of
 * its gradients. */
int plan_flow_update_sums(struct plan_flow *flow, uint32_t block);
/* Reads a block's states for a later tape. If too few slots are empty for all of them, sets *full,
 * which it does not change otherwise. */
int plan_flow_fetch(struct plan_flow *flow, uint32_t block, bool *full);
/* Ends the tape and returns it. It is valid until the third plan_flow_begin from now. */
const struct plan_tape *plan_flow_end(struct plan_flow *flow);

/* Returns the number of chunks that lost their slot before they were updated. */
uint32_t plan_flow_lost(const struct plan_flow *flow);
/* Forgets all fetched chunks, because slots were used for something else or states were changed.
 * Call it when all tapes have retired. */
void plan_flow_forget(struct plan_flow *flow);

#endif
