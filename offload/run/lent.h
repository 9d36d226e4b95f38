/* lent.h: weights and gradients in an application's memory, with separate arrays for each
 * parameter. Sums squares and updates weights on the update's thread. The application's thread sets
 * a part's gradient before commands of its block are submitted. */
#ifndef OFFLOAD_RUN_LENT_H
#define OFFLOAD_RUN_LENT_H

#include "cpu_adam/norm.h"
#include "offload/blocks/blocks.h"
#include "offload/run/options.h"

/* A parameter, or this process's share of it. */
struct run_lent_part {
    uint64_t first; /* the first element, counted in the block */
    uint64_t count;
    uint64_t inside; /* elements of the parameter before this part, in other processes */
    uint64_t whole;  /* elements of the parameter */
    uint32_t index;  /* of the parameter, and of its group in the update's terms */
    char *weights;   /* borrowed for the whole run */
    /* borrowed until it is used; NULL: none in this step, so the part is not updated */
    const char *gradient;
    uint64_t seal; /* with run_lent.checks: the gradient's hash at submission */
};

struct run_lent_block {
    enum core_update_master master;
    enum core_update_type gradients; /* type of submitted gradients */
    struct run_lent_part *parts;     /* ascending; gaps between parts are padding */
    size_t part_count;
};

struct run_lent {
    struct run_lent_block *blocks; /* owned by the code that filled in this struct */
    size_t part_count;             /* number of parameters; a part's index is less */
    /* Gradients are summed in fp32 in the plan's buffers; `gradient` only says whether there is
     * one. */
    bool sums;
    /* The update fails with -EFAULT if a gradient changed after it was submitted. */
    bool checks;
};

uint64_t run_lent_seal(const struct run_lent_block *block, const struct run_lent_part *part);

/* Returns a part's elements in [first, first + count) of its block, counted in the block; there may
 * be none. */
struct plan_span run_lent_overlap(const struct run_lent_part *part, uint64_t first, uint64_t count);

/* Sets a part's masters in a chunk to the weights. `chunk` has the states. */
void run_lent_begin_masters(const struct run_lent_block *block, const struct run_lent_part *part,
                            const struct adam_arrays *chunk);

int run_lent_adam_create(const struct run_lent *lent, const struct run_lent_block *block,
                         const struct run_lent_part *part, const struct run_options *options,
                         struct core_team *team, struct adam **out);
/* Returns a part's arrays in `span` of its block: its weights, and its states in `chunk`, which
 * contains the span. */
struct adam_arrays run_lent_states(const struct run_lent_part *part,
                                   const struct plan_format *format,
                                   const struct adam_arrays *chunk, struct plan_span span);

struct run_lent_update;

/* Borrows all arguments except `out`. The update runs on the team of `norm`. */
int run_lent_update_create(const struct run_lent *lent, const struct blocks *blocks,
                           const struct adam_norm *norm, const struct run_options *options,
                           struct run_lent_update **out);
void run_lent_update_destroy(struct run_lent_update *update); /* Accepts NULL */

/* Sums the squares of a block's gradients by tile; missing gradients count as zero. `sum` is the
 * block's sum, if gradients are summed. */
int run_lent_sums(struct run_lent_update *update, uint32_t block, const char *sum, double *tiles);

struct run_lent_step {
    const struct adam_arrays *chunk; /* states, and with `sums` the sums of gradients */
    const struct adam_group *groups; /* the groups of all parameters */
    double scale;                    /* of gradients */
    /* Receives the chunk's sums of squares, whose block must have one part; may be NULL. */
    double *tiles;
};

/* Updates the parameters of a chunk that have a gradient. */
int run_lent_step(struct run_lent_update *update, uint32_t block, const struct plan_format *format,
                  const struct run_lent_step *step);

#endif
