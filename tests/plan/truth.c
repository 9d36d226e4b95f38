/* truth.c: training in simple loops. */
#include "tests/plan/truth.h"

#include <stdlib.h>
#include <string.h>

#include "offload/plan/layout.h"
#include "tests/plan/machine.h"

enum { CELLS_MAX = 16, BLOCKS_MAX = 16 };

struct machine_truth {
    const struct plan_input *input;
    uint32_t by_norm;
    struct truth_cell cells[MACHINE_STEPS_MAX + 1][BLOCKS_MAX][CELLS_MAX];
    uint64_t gradients[MACHINE_STEPS_MAX][BLOCKS_MAX][CELLS_MAX];
    uint64_t own[BLOCKS_MAX][CELLS_MAX]; /* of one rank */
};

uint64_t truth_mix(uint64_t a, uint64_t b)
{
    uint64_t x = (a + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u ^ (b + 0x632be59bd9b4e019u);
    x = (x ^ x >> 29) * 0x94d049bb133111ebu;
    return x ^ x >> 32;
}

uint64_t truth_cells(const struct plan_input *input, uint32_t block)
{
    return plan_chunk_count(input->blocks[block].elements, PLAN_CUT_ELEMENTS);
}

uint64_t truth_shared_cells(const struct plan_input *input, uint32_t block)
{
    return plan_chunk_count(plan_layout_shared(input, block), PLAN_CUT_ELEMENTS);
}

uint64_t truth_data(uint32_t step, uint32_t rank, uint32_t micro)
{
    return truth_mix(step * 1000 + rank, micro);
}

uint64_t truth_backward(uint64_t in, uint64_t kept, uint64_t weights, uint64_t after)
{
    return truth_mix(truth_mix(in, kept), truth_mix(weights, after));
}

uint64_t truth_gradient(uint64_t digest, uint64_t cell, bool shared)
{
    return truth_mix(digest, cell * 2 + shared) & 0xffff;
}

struct truth_cell truth_update(struct truth_cell was, uint64_t gradient, uint64_t factor)
{
    uint64_t state = truth_mix(truth_mix(was.state, was.weight), truth_mix(gradient, factor));
    return (struct truth_cell){.weight = truth_mix(state, 7), .state = state};
}

struct truth_cell truth_cell_at(const struct machine_truth *truth, uint32_t steps, uint32_t block,
                                uint64_t cell)
{
    return truth->cells[steps][block][cell];
}

uint64_t truth_gradient_at(const struct machine_truth *truth, uint32_t step, uint32_t block,
                           uint64_t cell)
{
    return truth->gradients[step][block][cell];
}

uint64_t truth_rounded(const struct plan_input *input, uint32_t block, uint64_t weight)
{
    return plan_packs_weights(input, block) ? truth_mix(weight, 8) : weight;
}

uint64_t truth_coded(const struct plan_input *input, uint64_t gradient)
{
    return plan_codes_gradients(input) ? truth_mix(gradient, 9) & 0xffff : gradient;
}

static uint64_t weights_digest(const struct machine_truth *truth, uint32_t step, uint32_t block)
{
    const struct plan_input *input = truth->input;
    const struct plan_block_shape *shape = &input->blocks[block];
    uint64_t digest = 0;
    for (uint64_t i = 0; i < truth_cells(input, block); i++) {
        digest = truth_mix(digest,
                           truth_rounded(input, block, truth->cells[step][block][i].weight));
    }
    for (uint32_t j = 0; j < shape->borrow_count; j++) {
        for (uint64_t i = 0; i < truth_cells(input, shape->borrows[j]); i++) {
            const uint64_t weight = truth->cells[step][shape->borrows[j]][i].weight;
            digest = truth_mix(digest, truth_rounded(input, shape->borrows[j], weight));
        }
    }
    return digest;
}

/* Adds a micro-batch's gradients to those of its rank. */
static void micro_batch(struct machine_truth *truth, uint32_t step, uint32_t rank, uint32_t micro)
{
    const struct plan_input *input = truth->input;
    uint64_t acts[BLOCKS_MAX + 1] = {truth_data(step, rank, micro)};
    uint64_t after = 0;
    for (uint32_t b = 0; b < input->compute_count; b++) {
        acts[b + 1] = truth_mix(acts[b], weights_digest(truth, step, b));
    }
    for (uint32_t b = input->compute_count; b-- > 0;) {
        const struct plan_block_shape *shape = &input->blocks[b];
        uint64_t kept = shape->kept_bytes > 0 ? truth_mix(acts[b + 1], 1) : 0;
        uint64_t weights = shape->backward_reads_weights ? weights_digest(truth, step, b) : 0;
        after = truth_backward(acts[b], kept, weights, after);
        for (uint64_t i = 0; i < truth_cells(input, b); i++) {
            truth->own[b][i] += truth_gradient(after, i, false);
        }
        for (uint64_t i = 0; i < truth_shared_cells(input, b); i++) {
            truth->own[shape->borrows[0]][i] += truth_gradient(after, i, true);
        }
    }
}

bool truth_by_norm(const struct machine_truth *truth, uint32_t step)
{
    return (truth->by_norm >> step & 1) != 0;
}

static void step_once(struct machine_truth *truth, uint32_t step)
{
    const struct plan_input *input = truth->input;
    uint64_t norm = 0;
    for (uint32_t r = 0; r < (input->world > 1 ? input->world : 1); r++) {
        memset(truth->own, 0, sizeof truth->own);
        for (uint32_t g = 0; g < input->wishes.micro_batches; g++) {
            micro_batch(truth, step, r, g);
        }
        for (uint32_t b = 0; b < input->block_count; b++) {
            for (uint64_t i = 0; i < truth_cells(input, b); i++) {
                truth->gradients[step][b][i] += truth_coded(input, truth->own[b][i]);
            }
        }
    }
    for (uint32_t b = 0; b < input->block_count; b++) {
        for (uint64_t i = 0; input->blocks[b].trained && i < truth_cells(input, b); i++) {
            norm = truth_mix(norm, truth->gradients[step][b][i]);
        }
    }
    for (uint32_t b = 0; b < input->block_count; b++) {
        for (uint64_t i = 0; i < truth_cells(input, b); i++) {
            struct truth_cell was = truth->cells[step][b][i];
            truth->cells[step + 1][b][i] = input->blocks[b].trained
                                               ? truth_update(was, truth->gradients[step][b][i],
                                                              truth_by_norm(truth, step) ? norm : 0)
                                               : was;
        }
    }
}

struct machine_truth *machine_truth_create(const struct plan_input *input, uint32_t by_norm)
{
    struct machine_truth *truth = calloc(1, sizeof *truth);
    truth->input = input;
    truth->by_norm = by_norm;
    for (uint32_t b = 0; b < input->block_count; b++) {
        for (uint64_t i = 0; i < truth_cells(input, b); i++) {
            truth->cells[0][b][i] = (struct truth_cell){truth_mix(b, i), truth_mix(i, b + 100)};
        }
    }
    for (uint32_t step = 0; step < MACHINE_STEPS_MAX; step++) {
        step_once(truth, step);
    }
    return truth;
}

void machine_truth_destroy(struct machine_truth *truth)
{
    free(truth);
}
