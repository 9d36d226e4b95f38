/* truth.h: the machine's arithmetic (machine.h), and the results of training with it: simple loops
 * without buffers or tapes. */
#ifndef TESTS_PLAN_TRUTH_H
#define TESTS_PLAN_TRUTH_H

#include "offload/plan/plan.h"

struct machine_truth;

struct truth_cell {
    uint64_t weight;
    uint64_t state;
};

uint64_t truth_mix(uint64_t a, uint64_t b);
uint64_t truth_cells(const struct plan_input *input, uint32_t block);
/* Returns the number of cells of the trained parameter that `block` borrows, or 0. */
uint64_t truth_shared_cells(const struct plan_input *input, uint32_t block);
/* Returns the value that the embedding reads. */
uint64_t truth_data(uint32_t step, uint32_t rank, uint32_t micro);
/* Returns the gradient of IN; `after` is the gradient of OUT. */
uint64_t truth_backward(uint64_t in, uint64_t kept, uint64_t weights, uint64_t after);
/* Returns a micro-batch's gradient of a cell, small enough that sums are exact in any order. */
uint64_t truth_gradient(uint64_t digest, uint64_t cell, bool shared);
struct truth_cell truth_update(struct truth_cell was, uint64_t gradient, uint64_t factor);

bool truth_by_norm(const struct machine_truth *truth, uint32_t step);

/* Returns the value that ranks add for a gradient: rounded if they exchange codes. */
uint64_t truth_coded(const struct plan_input *input, uint64_t gradient);
/* Returns the weight with which forward and backward compute: rounded if weights are packed. */
uint64_t truth_rounded(const struct plan_input *input, uint32_t block, uint64_t weight);

/* Returns the cell after `steps` updates. */
struct truth_cell truth_cell_at(const struct machine_truth *truth, uint32_t steps, uint32_t block,
                                uint64_t cell);
uint64_t truth_gradient_at(const struct machine_truth *truth, uint32_t step, uint32_t block,
                           uint64_t cell);

#endif
