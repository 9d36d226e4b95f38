/* step.c: adds forward, backward, norm and update; the builder derives the edges. */
#include "offload/plan/step.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "offload/model/sections.h"
#include "offload/plan/fetch.h"
#include "offload/plan/gradient.h"
#include "offload/plan/update.h"

static bool acts_wait_elsewhere(const struct plan_step *step)
{
    return step->choice->acts == PLAN_ACTS_HOST || step->choice->acts == PLAN_ACTS_STORE;
}

static bool is_last(const struct plan_step *step, uint32_t block)
{
    return block + 1 == step->input->compute_count;
}

/* ---- operands that forward and backward have in common ---- */

/* Adds the weights of the block and of those that it borrows, except weights in sections. */
static int name_weights(struct plan_step *step, struct plan_command *command)
{
    uint32_t block = command->block;
    const struct plan_block_shape *shape = &step->input->blocks[block];
    const uint32_t sectioned = plan_layout_sectioned(step->input, step->layout, block);
    struct plan_piece own = {.buffer = PLAN_NONE};
    int rc = sectioned != block ? plan_fetch_rows(step, block, command->micro, &own) : 0;
    plan_move_operand(command, PLAN_AS_WEIGHTS, PLAN_READS, own);
    for (uint32_t i = 0; rc == 0 && i < shape->borrow_count; i++) {
        if (shape->borrows[i] == sectioned) {
            continue;
        }
        uint32_t weights = PLAN_NONE;
        rc = plan_fetch_weights(step, shape->borrows[i], &weights);
        plan_move_operand(command, PLAN_AS_BORROWED, PLAN_READS,
                          plan_move_part(weights, plan_move_weight_bytes(step, shape->borrows[i])));
    }
    return rc;
}

static void name_in(struct plan_step *step, struct plan_command *command)
{
    if (command->block > 0) {
        uint32_t before = command->block - 1u;
        uint32_t in = step->layout->acts[plan_move_act_index(step, before, command->micro)];
        plan_move_operand(command, PLAN_AS_IN, PLAN_READS,
                          plan_move_part(in, step->input->blocks[before].out_bytes));
    }
}

static uint32_t kept_of(const struct plan_step *step, uint32_t block, uint32_t micro)
{
    return step->layout->kept[plan_move_act_index(step, block, micro)];
}

static double seconds_of(const struct plan_step *step, double seconds, double flops)
{
    double rate = step->input->rates.flops;
    return seconds > 0 ? seconds : rate > 0 ? flops / rate : 0;
}

/* ---- one block ---- */

/* Adds a command once per section. The scratch passes values between sections, and no other command
 * uses it meanwhile. */
static int add_sections(struct plan_step *step, const struct plan_command *whole,
                        enum model_pass pass, double work, double seconds)
{
    const struct model_sections *sections = step->input->blocks[whole->block].sections;
    const uint32_t source = plan_layout_sectioned(step->input, step->layout, whole->block);
    for (size_t i = sections->first[pass]; i < sections->first[pass + 1]; i++) {
        struct plan_command command = *whole;
        struct plan_piece weights;
        int rc = plan_fetch_section(step, source, &sections->list[i], &weights);
        if (rc != 0) {
            return rc;
        }
        command.section = &sections->list[i];
        command.work = work * command.section->share;
        command.seconds = seconds * command.section->share;
        plan_move_operand(&command, PLAN_AS_SECTION, PLAN_READS, weights);
        rc = plan_builder_add(step->builder, &command);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int add_forward(struct plan_step *step, struct plan_command *command)
{
    const struct plan_block_shape *shape = &step->input->blocks[command->block];
    const double seconds = seconds_of(step, shape->forward_seconds, shape->forward_flops);
    command->work = shape->forward_flops;
    command->seconds = seconds;
    return plan_layout_sectioned(step->input, step->layout, command->block) != PLAN_NONE
               ? add_sections(step, command, MODEL_PASS_FORWARD, shape->forward_flops, seconds)
               : plan_builder_add(step->builder, command);
}

/* `again`: with recomputation, which comes first. */
static int add_backward(struct plan_step *step, struct plan_command *command, bool again)
{
    const struct plan_block_shape *shape = &step->input->blocks[command->block];
    const double backward = seconds_of(step, shape->backward_seconds, shape->backward_flops);
    const double forward = again
                               ? seconds_of(step, shape->recompute_seconds, shape->recompute_flops)
                               : 0;
    const double recompute_flops = again ? shape->recompute_flops : 0;
    command->work = shape->backward_flops + recompute_flops;
    command->seconds = backward + forward;
    if (plan_layout_sectioned(step->input, step->layout, command->block) == PLAN_NONE) {
        return plan_builder_add(step->builder, command);
    }
    int rc = again ? add_sections(step, command, MODEL_PASS_RECOMPUTE, recompute_flops, forward)
                   : 0;
    return rc != 0
               ? rc
               : add_sections(step, command, MODEL_PASS_BACKWARD, shape->backward_flops, backward);
}

static int block_forward(struct plan_step *step, uint32_t block, uint32_t micro, bool training)
{
    const struct plan_block_shape *shape = &step->input->blocks[block];
    const struct plan_layout *layout = step->layout;
    struct plan_command command = plan_move_command(PLAN_FWD, PLAN_Q_COMPUTE, block, micro);
    int rc = name_weights(step, &command);
    if (rc != 0) {
        return rc;
    }
    command.single = !training;
    name_in(step, &command);
    if (!is_last(step, block)) {
        uint32_t out = layout->acts[plan_move_act_index(step, block, micro)];
        plan_move_operand(&command, PLAN_AS_OUT, PLAN_WRITES,
                          plan_move_part(out, shape->out_bytes));
    }
    plan_move_operand(
        &command, PLAN_AS_KEPT, PLAN_WRITES,
        plan_move_part(kept_of(step, block, micro), plan_layout_kept_bytes(step->input, block)));
    plan_move_operand(&command, PLAN_AS_SCRATCH, PLAN_WRITES,
                      plan_move_whole(step, layout->scratch));
    rc = add_forward(step, &command);
    bool returns = !is_last(step, block) && block + 1 >= layout->first_trained;
    if (rc == 0 && training && returns && acts_wait_elsewhere(step)) {
        rc = plan_move_act(step, block, micro, true);
    }
    return rc;
}

static int block_backward(struct plan_step *step, uint32_t block, uint32_t micro)
{
    const struct plan_block_shape *shape = &step->input->blocks[block];
    const struct plan_layout *layout = step->layout;
    uint32_t kept = kept_of(step, block, micro);
    bool again = kept == PLAN_NONE && shape->kept_bytes > 0;
    struct plan_command command = plan_move_command(PLAN_BWD, PLAN_Q_COMPUTE, block, micro);
    int rc = 0;
    if ((shape->backward_reads_weights && !step->input->application) || again) {
        rc = name_weights(step, &command);
    }
    if (rc == 0 && block > 0 && acts_wait_elsewhere(step)) {
        rc = plan_move_act(step, block - 1, micro, false);
    }
    if (rc != 0) {
        return rc;
    }
    name_in(step, &command);
    uint64_t out_bytes = is_last(step, block) && block > 0
                             ? step->input->blocks[block - 1].out_bytes
                             : shape->out_bytes;
    plan_move_operand(&command, PLAN_AS_OUT_GRAD, is_last(step, block) ? PLAN_WRITES : PLAN_CHANGES,
                      plan_move_part(layout->out_grads[micro % layout->in_flight], out_bytes));
    plan_move_operand(&command, PLAN_AS_KEPT, PLAN_READS,
                      plan_move_part(kept, plan_layout_kept_bytes(step->input, block)));
    plan_move_operand(&command, PLAN_AS_SCRATCH, PLAN_WRITES,
                      plan_move_whole(step, layout->scratch));
    plan_gradient_name(step, &command);
    return add_backward(step, &command, again);
}

/* ---- the step ---- */

static int backward_of(struct plan_step *step, uint32_t block, uint32_t first_micro,
                       uint32_t end_micro)
{
    bool trained = step->input->blocks[block].trained;
    int rc = 0;
    if (trained) {
        plan_gradient_begin(step, block);
    }
    for (uint32_t g = first_micro; rc == 0 && g < end_micro; g++) {
        rc = block_backward(step, block, g);
    }
    if (rc == 0 && trained && end_micro == step->input->wishes.micro_batches) {
        rc = plan_gradient_finish(step, block);
        if (rc == 0 && (step->guesses || !step->layout->places[block].pending)) {
            step->ahead = true;
            step->saves = step->saves_own;
            rc = plan_update_block(step, block, false);
            step->ahead = false;
        }
    }
    return rc;
}

/* Adds micro-batches layer by layer or one at a time. A head's backward includes its forward. */
static int pass(struct plan_step *step, uint32_t first_micro, uint32_t end_micro,
                bool update_pending)
{
    uint32_t blocks = step->input->compute_count;
    bool updates = update_pending && first_micro == 0;
    int rc = 0;
    const uint32_t computed = step->input->application ? 0 : blocks - 1;
    for (uint32_t b = 0; rc == 0 && b < blocks; b++) {
        if (updates && step->layout->places[b].pending) {
            step->saves = step->saves_pending;
            rc = plan_update_block(step, b, true);
        }
        for (uint32_t g = first_micro; rc == 0 && b < computed && g < end_micro; g++) {
            rc = block_forward(step, b, g, true);
        }
    }
    for (uint32_t b = blocks; rc == 0 && b-- > step->layout->first_trained;) {
        rc = backward_of(step, b, first_micro, end_micro);
    }
    return rc;
}

static int train(struct plan_step *step, bool update_pending)
{
    uint32_t micros = step->input->wishes.micro_batches;
    uint32_t at_once = step->layout->in_flight;
    int rc = 0;
    for (uint32_t g = 0; rc == 0 && g < micros; g += at_once) {
        rc = pass(step, g, g + at_once, update_pending);
    }
    return rc == 0 ? plan_gradient_norm(step) : rc;
}

static int drain(struct plan_step *step)
{
    int rc = 0;
    step->saves = step->saves_pending;
    for (uint32_t b = 0; rc == 0 && b < step->input->compute_count; b++) {
        rc = step->layout->places[b].pending ? plan_update_block(step, b, false) : 0;
    }
    return rc;
}

static int evaluate(struct plan_step *step)
{
    int rc = 0;
    for (uint32_t b = 0; rc == 0 && !step->input->application && b < step->input->compute_count;
         b++) {
        rc = block_forward(step, b, 0, false);
    }
    return rc;
}

static bool trains(enum plan_kind kind)
{
    return kind != PLAN_DRAIN && kind != PLAN_DRAIN_SAVE && kind != PLAN_EVAL;
}

static int add_kind(struct plan_step *step, enum plan_kind kind)
{
    switch (kind) {
    case PLAN_FIRST:
    case PLAN_FIRST_SAVE_OWN:
    case PLAN_GUESS: return train(step, false);
    case PLAN_NEXT:
    case PLAN_NEXT_SAVE:
    case PLAN_NEXT_SAVE_OWN:
    case PLAN_GUESS_NEXT: return train(step, true);
    case PLAN_DRAIN:
    case PLAN_DRAIN_SAVE: return drain(step);
    case PLAN_EVAL: return evaluate(step);
    case PLAN_KIND_COUNT: break;
    }
    return 0;
}

int plan_step_add(struct plan_builder *builder, const struct plan_input *input,
                  const struct plan_choice *choice, const struct plan_layout *layout,
                  enum plan_kind kind)
{
    struct plan_step step = plan_move_begin(builder, input, choice, layout);
    step.guesses = kind == PLAN_GUESS || kind == PLAN_GUESS_NEXT;
    step.saves_pending = kind == PLAN_NEXT_SAVE || kind == PLAN_DRAIN_SAVE;
    step.saves_own = kind == PLAN_FIRST_SAVE_OWN || kind == PLAN_NEXT_SAVE_OWN;
    if (plan_copies_weights(input) && trains(kind)) {
        step.copied = calloc(input->block_count, sizeof *step.copied);
        if (step.copied == NULL) {
            return core_err_set(-ENOMEM, "no memory to plan the copies of %u blocks",
                                input->block_count);
        }
    }
    int rc = add_kind(&step, kind);
    free(step.copied);
    return rc;
}
