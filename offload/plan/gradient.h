/* gradient.h: the commands that sum a block's gradients over micro-batches and ranks, move them to
 * the update, and compute the norm. Pure. */
#ifndef OFFLOAD_PLAN_GRADIENT_H
#define OFFLOAD_PLAN_GRADIENT_H

#include "offload/plan/move.h"

/* Chooses the block's buffers of gradients: its own, or the next ones in turn. */
void plan_gradient_begin(struct plan_step *step, uint32_t block);

/* Adds to a backward command the gradients that it writes. */
void plan_gradient_name(struct plan_step *step, struct plan_command *backward);

/* Called after the block's last backward of a step: moves the gradient to where the update reads
 * it, and adds the command for its sums of squares. */
int plan_gradient_finish(struct plan_step *step, uint32_t block);

/* Adds the command that turns sums into norm, clip factor and verdict. */
int plan_gradient_norm(struct plan_step *step);

#endif
