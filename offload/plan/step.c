/* step.c: forward, backward, norm and update as commands with operands.
 * Reads top down: what a block does forward and backward, and last the step itself. No edge is
 * named here; they follow from the operands (builder.h). */
#include "offload/plan/step.h"

#include <string.h>

#include "offload/plan/move.h"

static bool acts_wait_elsewhere(const struct plan_step *step)
{
    return step->choice->acts == PLAN_ACTS_HOST || step->choice->acts == PLAN_ACTS_STORE;
}

/* ---- what a block does ---- */

static int block_forward(struct plan_step *step, uint32_t block, uint32_t micro, bool training)
{
    const struct plan_block_shape *shape = &step->input->blocks[block];
    const struct plan_layout *layout = step->layout;
    uint16_t weights = PLAN_NONE;
    int rc = plan_move_weights(step, block, &weights);
    if (rc != 0) {
        return rc;
    }
    struct plan_command command = plan_move_command(PLAN_FWD, PLAN_Q_COMPUTE, block, micro);
    command.work = shape->forward_flops;
    plan_move_operand(&command, weights, PLAN_READS, 0, plan_move_weight_bytes(step, shape->owner));
    if (block > 0) {
        plan_move_operand(&command, layout->acts[plan_move_act_index(step, block - 1, micro)],
                          PLAN_READS, 0, step->input->blocks[block - 1].out_bytes);
    }
    bool last = block + 1 == step->input->block_count;
    if (!last) {
        plan_move_operand(&command, layout->acts[plan_move_act_index(step, block, micro)],
                          PLAN_WRITES, 0, shape->out_bytes);
    }
    if (training) {
        plan_move_whole(step, &command, layout->kept[plan_move_act_index(step, block, micro)],
                        PLAN_WRITES);
    }
    plan_move_whole(step, &command, layout->scratch, PLAN_WRITES);
    rc = plan_builder_add(step->builder, &command);
    if (rc == 0 && training && !last && acts_wait_elsewhere(step)) {
        rc = plan_move_act(step, block, micro, true);
    }
    return rc;
}

/* The fp32 sum that a block's gradients go to: its own, or the next in turn. */
static void sum_begin(struct plan_step *step, uint32_t block)
{
    step->sum_of_turn = plan_move_block(step, block)->sum;
    if (step->sum_of_turn == PLAN_NONE) {
        step->sum_of_turn = step->layout->sums[step->sum_turn++ % step->choice->gradient_slots];
    }
}

static int block_backward(struct plan_step *step, uint32_t block, uint32_t micro)
{
    const struct plan_block_shape *shape = &step->input->blocks[block];
    const struct plan_layout *layout = step->layout;
    uint32_t micros = step->input->wishes.micro_batches;
    bool again = step->choice->acts != PLAN_ACTS_KEEP;
    uint16_t weights = PLAN_NONE;
    int rc = plan_move_weights(step, block, &weights);
    if (rc == 0 && block > 0 && acts_wait_elsewhere(step)) {
        rc = plan_move_act(step, block - 1, micro, false);
    }
    if (rc != 0) {
        return rc;
    }
    struct plan_command command = plan_move_command(PLAN_BWD, PLAN_Q_COMPUTE, block, micro);
    bool last = block + 1 == step->input->block_count;
    command.work = shape->backward_flops + (again && !last ? shape->forward_flops : 0);
    plan_move_operand(&command, weights, PLAN_READS, 0, plan_move_weight_bytes(step, shape->owner));
    if (block > 0) {
        uint64_t in_bytes = step->input->blocks[block - 1].out_bytes;
        plan_move_operand(&command, layout->acts[plan_move_act_index(step, block - 1, micro)],
                          PLAN_READS, 0, in_bytes);
        plan_move_operand(&command, layout->out_grads[(block - 1) % 2 * micros + micro],
                          PLAN_WRITES, 0, in_bytes);
    }
    if (!last) {
        plan_move_operand(&command, layout->out_grads[block % 2 * micros + micro], PLAN_READS, 0,
                          shape->out_bytes);
    }
    plan_move_whole(step, &command, layout->kept[plan_move_act_index(step, block, micro)],
                    PLAN_READS);
    if (step->input->blocks[shape->owner].trained) {
        plan_move_operand(&command, step->sum_of_turn, PLAN_CHANGES, 0,
                          step->input->blocks[shape->owner].elements * PLAN_SUM_BYTES);
    }
    plan_move_whole(step, &command, layout->scratch, PLAN_WRITES);
    return plan_builder_add(step->builder, &command);
}

/* Rounds a block's sum to the gradient type, brings it to HOST and folds its sums of squares. A
 * shared parameter's two sums are added, head first, when its owner's backward is done. */
static int gradient_finish(struct plan_step *step, uint32_t block)
{
    const struct plan_block_shape *shape = &step->input->blocks[block];
    const struct plan_block_layout *where = plan_move_block(step, block);
    uint64_t bytes = shape->elements * step->input->format.grad_bytes;
    if (shape->owner != block || !shape->trained) {
        return 0;
    }
    struct plan_command round = plan_move_command(PLAN_ROUND, PLAN_Q_COMPUTE, block, PLAN_NONE);
    round.elements = shape->elements;
    for (uint32_t b = step->input->block_count; b-- > block + 1;) {
        if (step->input->blocks[b].owner == block) {
            plan_move_operand(&round, plan_move_block(step, b)->sum, PLAN_READS, 0,
                              shape->elements * PLAN_SUM_BYTES);
        }
    }
    plan_move_operand(&round, step->sum_of_turn, PLAN_READS, 0, shape->elements * PLAN_SUM_BYTES);
    uint16_t device = step->layout->rounded;
    plan_move_operand(&round, device != PLAN_NONE ? device : where->grads_host, PLAN_WRITES, 0,
                      bytes);
    int rc = plan_builder_add(step->builder, &round);
    if (rc == 0 && device != PLAN_NONE) {
        struct plan_operand from = {.buffer = device, .bytes = bytes};
        struct plan_operand to = {.buffer = where->grads_host, .bytes = bytes};
        rc = plan_move_copy(step, PLAN_D2H, block, PLAN_NONE, &from, &to);
    }
    if (rc != 0) {
        return rc;
    }
    uint64_t first_tile = 0;
    for (uint32_t b = 0; b < block; b++) {
        first_tile += (step->input->blocks[b].elements + PLAN_TILE_ELEMENTS - 1) /
                      PLAN_TILE_ELEMENTS;
    }
    uint64_t tiles = (shape->elements + PLAN_TILE_ELEMENTS - 1) / PLAN_TILE_ELEMENTS;
    struct plan_command sums = plan_move_command(PLAN_SUMS, PLAN_Q_UPDATE, block, PLAN_NONE);
    sums.elements = shape->elements;
    plan_move_operand(&sums, where->grads_host, PLAN_READS, 0, bytes);
    plan_move_operand(&sums, step->layout->tile_sums, PLAN_WRITES, first_tile * PLAN_TILE_SUM_BYTES,
                      tiles * PLAN_TILE_SUM_BYTES);
    return plan_builder_add(step->builder, &sums);
}

static int norm(struct plan_step *step)
{
    struct plan_command command = plan_move_command(PLAN_NORM, PLAN_Q_UPDATE, PLAN_NONE, PLAN_NONE);
    plan_move_whole(step, &command, step->layout->tile_sums, PLAN_READS);
    plan_move_whole(step, &command, step->layout->norm, PLAN_WRITES);
    return plan_builder_add(step->builder, &command);
}

/* ---- the step ---- */

static bool updates(const struct plan_step *step, uint32_t block)
{
    const struct plan_block_shape *shape = &step->input->blocks[block];
    return shape->owner == block && shape->trained;
}

static int backward_of(struct plan_step *step, uint32_t block, uint32_t first_micro,
                       uint32_t end_micro)
{
    sum_begin(step, block);
    int rc = 0;
    for (uint32_t g = first_micro; rc == 0 && g < end_micro; g++) {
        rc = block_backward(step, block, g);
    }
    if (rc == 0 && end_micro == step->input->wishes.micro_batches) {
        rc = gradient_finish(step, block);
        if (rc == 0 && step->choice->timing == PLAN_TIMING_INSIDE && updates(step, block)) {
            rc = plan_move_update(step, block, false);
        }
    }
    return rc;
}

/* Micro-batches [first, end) through the whole model and back: all of them at once, layer by layer,
 * or one at a time. */
static int pass(struct plan_step *step, uint32_t first_micro, uint32_t end_micro,
                bool update_pending)
{
    uint32_t blocks = step->input->block_count;
    int rc = 0;
    for (uint32_t b = 0; rc == 0 && b + 1 < blocks; b++) {
        if (update_pending && first_micro == 0 && updates(step, b)) {
            rc = plan_move_update(step, b, true);
        }
        for (uint32_t g = first_micro; rc == 0 && g < end_micro; g++) {
            rc = block_forward(step, b, g, true);
        }
    }
    if (rc == 0 && update_pending && first_micro == 0 && updates(step, blocks - 1)) {
        rc = plan_move_update(step, blocks - 1, true);
    }
    for (uint32_t b = blocks; rc == 0 && b-- > 0;) {
        rc = backward_of(step, b, first_micro, end_micro);
    }
    return rc;
}

static int train(struct plan_step *step, bool update_pending)
{
    uint32_t micros = step->input->wishes.micro_batches;
    uint32_t at_once = step->choice->order == PLAN_ORDER_LAYER ? micros : 1;
    int rc = 0;
    for (uint32_t g = 0; rc == 0 && g < micros; g += at_once) {
        rc = pass(step, g, g + at_once, update_pending);
    }
    return rc == 0 ? norm(step) : rc;
}

static int drain(struct plan_step *step)
{
    int rc = 0;
    for (uint32_t b = 0; rc == 0 && b < step->input->block_count; b++) {
        rc = updates(step, b) ? plan_move_update(step, b, false) : 0;
    }
    return rc;
}

static int evaluate(struct plan_step *step)
{
    int rc = 0;
    for (uint32_t b = 0; rc == 0 && b < step->input->block_count; b++) {
        rc = block_forward(step, b, 0, false);
    }
    return rc;
}

int plan_step_add(struct plan_builder *builder, const struct plan_input *input,
                  const struct plan_choice *choice, const struct plan_layout *layout,
                  enum plan_kind kind)
{
    struct plan_step step = {
        .builder = builder, .input = input, .choice = choice, .layout = layout};
    memset(step.slot_block, 0xff, sizeof step.slot_block);
    switch (kind) {
    case PLAN_FIRST: return train(&step, false);
    case PLAN_NEXT: return train(&step, true);
    case PLAN_DRAIN: return drain(&step);
    case PLAN_EVAL: return evaluate(&step);
    case PLAN_KIND_COUNT: break;
    }
    return 0;
}
