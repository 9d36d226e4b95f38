/* flow.h: makes tapes during a step, for an application whose gradients come in an unknown order,
 * with the choice and layout of a plan. Blocks are added when their gradients have come. Chunks
 * that are expected next are fetched into empty state slots; a chunk that is needed may take such a
 * slot. Tapes run in the order in which they were begun, at most two at a time (run/executor.h).
 * One thread at a time. Nothing is allocated after create, unless the builder remembers more ranges
 * than before. */
#ifndef OFFLOAD_PLAN_FLOW_H
#define OFFLOAD_PLAN_FLOW_H

#include "offload/plan/plan.h"

struct plan_flow;

/* `input` and `plan` are borrowed. */
int plan_flow_create(const struct plan_input *input, const struct plan *plan,
                     struct plan_flow **out);
void plan_flow_destroy(struct plan_flow *flow); /* Accepts NULL */
uint32_t plan_flow_commands_max(const struct plan_flow *flow);

void plan_flow_begin(struct plan_flow *flow);
/* Returns whether one more block fits into the tape. The first block always does. */
bool plan_flow_has_room(const struct plan_flow *flow);
/* Adds the sums of squares of a block's gradient. */
int plan_flow_sums(struct plan_flow *flow, uint32_t block);
/* Adds the norm of the gradients, whose sums are in this or earlier tapes. */
int plan_flow_norm(struct plan_flow *flow);
/* Adds the update of a block; `ahead`: without waiting for the norm. */
int plan_flow_update(struct plan_flow *flow, uint32_t block, bool ahead);
/* Adds an update ahead of the norm that also sums the squares of its gradients. */
int plan_flow_update_sums(struct plan_flow *flow, uint32_t block);
/* Reads a block's states for a later tape. Sets *full if too few slots are empty; else leaves it
 * unchanged. */
int plan_flow_fetch(struct plan_flow *flow, uint32_t block, bool *full);
/* Ends the tape and returns it, valid until the third plan_flow_begin from now. */
const struct plan_tape *plan_flow_end(struct plan_flow *flow);

/* Returns how many chunks lost their slot before their update. */
uint32_t plan_flow_lost(const struct plan_flow *flow);
/* Forgets the fetched chunks, for a caller that has changed slots or states. Call it when all tapes
 * have retired. */
void plan_flow_forget(struct plan_flow *flow);

#endif
