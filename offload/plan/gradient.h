/* gradient.h: where a block's gradients go: sums over micro-batches, between ranks, to where the
 * update finds them, and into the norm. Pure. */
#ifndef OFFLOAD_PLAN_GRADIENT_H
#define OFFLOAD_PLAN_GRADIENT_H

#include "offload/plan/move.h"

/* The buffers that the block's gradients go to: its own, or the next in turn. */
void plan_gradient_begin(struct plan_step *step, uint32_t block);

/* Names what a backward adds to or leaves. */
void plan_gradient_name(struct plan_step *step, struct plan_command *backward);

/* After the block's last backward of a step: brings its gradient to where the update finds it and
 * folds its sums of squares. */
int plan_gradient_finish(struct plan_step *step, uint32_t block);

/* All sums to norm, factor and verdict. */
int plan_gradient_norm(struct plan_step *step);

#endif
