/* shapes.h: a model as the planner sees it: the programs of its blocks for one shape of micro-batch,
 * and of each block its sizes and costs. Immutable once created. */
#ifndef OFFLOAD_RUN_SHAPES_H
#define OFFLOAD_RUN_SHAPES_H

#include "offload/model/program.h"
#include "offload/run/options.h"

struct run_shapes {
    const struct model *model;       /* borrowed */
    struct model_program **programs; /* owned where block->like is the block; else borrowed */
    struct model_program *one;       /* owned: the head for one token, by tile (logits.c) */
    struct plan_block_shape *blocks; /* owned, [block_count] */
    uint64_t scratch_bytes;          /* of the compute queue, on top of what blocks say */
};

int run_shapes_create(const struct model *model, const struct run_options *options,
                      struct run_shapes **out);
void run_shapes_destroy(struct run_shapes *shapes);

/* Kept activations behind temporaries: where they begin in a block's scratch. */
uint64_t run_shapes_kept_offset(const struct model_program *program);

/* Between the activations of one micro-batch of a group and the next. */
uint64_t run_shapes_stride(uint64_t bytes);

/* A block as the planner sees it where a command does `group` micro-batches. */
struct plan_block_shape run_shapes_grouped(const struct plan_block_shape *shape, uint32_t group);

/* What the planner is asked: blocks, formats, wishes and budgets; rates are the caller's. */
struct plan_input run_shapes_input(const struct run_shapes *shapes,
                                   const struct run_options *options,
                                   const struct plan_rates *rates);

#endif
