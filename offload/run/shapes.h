/* shapes.h: a model as the planner sees it: the blocks' programs for one shape of micro-batch,
 * their sizes and costs. Immutable once created. */
#ifndef OFFLOAD_RUN_SHAPES_H
#define OFFLOAD_RUN_SHAPES_H

#include "offload/model/program.h"
#include "offload/model/rows.h"
#include "offload/model/sections.h"
#include "offload/run/lent.h"
#include "offload/run/options.h"

struct run_shapes {
    /* borrowed; NULL: an application computes, so only `blocks` is used */
    const struct model *model;
    uint32_t block_count;
    /* An entry is owned if block->like is the block itself, else shared; NULL: a data block. */
    struct model_program **programs;
    /* An entry is owned unless block->like has the same sections; NULL: none. */
    struct model_sections **sections;
    struct model_program *one;           /* owned: the head for one token, in tiles (logits.c) */
    struct model_sections *one_sections; /* owned; NULL: the head has no sections */
    struct plan_block_shape *blocks;     /* owned, [block_count] */
    struct model_stored **stored; /* owned with its entries, [block_count]; NULL entry: not stored
                                   * in fewer bits. NULL: an application computes */
    /* scratch of the compute queue, besides that of blocks */
    uint64_t scratch_bytes;
};

int run_shapes_create(const struct model *model, const struct run_options *options,
                      struct run_shapes **out);
/* Creates the shapes of an application's parameters. */
int run_shapes_create_lent(const struct blocks *blocks, const struct run_lent *lent,
                           const struct run_options *options, struct run_shapes **out);
void run_shapes_destroy(struct run_shapes *shapes);

/* Returns the offset of kept activations in a block's scratch, after temporaries. */
uint64_t run_shapes_kept_offset(const struct model_program *program);

/* Returns the bytes from one micro-batch's activations in a group to the next one's. */
uint64_t run_shapes_stride(uint64_t bytes);

/* Describes how micro-batches use the embedding's rows. */
struct model_rows run_shapes_rows(const struct model *model, const struct run_options *options);

/* Returns a block's shape for commands that compute `group` micro-batches. */
struct plan_block_shape run_shapes_grouped(const struct plan_block_shape *shape, uint32_t group);

/* Returns the planner's input: blocks, formats, wishes, budgets, and the caller's rates. */
struct plan_input run_shapes_input(const struct run_shapes *shapes,
                                   const struct run_options *options,
                                   const struct plan_rates *rates);

#endif
