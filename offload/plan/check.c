/* check.c: checks shapes, ranks and requests. */
#include "offload/plan/check.h"

#include <errno.h>
#include <inttypes.h>

#include "core/base/err.h"
#include "offload/plan/layout.h"
#include "offload/plan/policy.h"
#include "offload/plan/shard.h"

static int check_borrows(const struct plan_input *input, uint32_t block)
{
    const struct plan_block_shape *shape = &input->blocks[block];
    if (shape->borrow_count > PLAN_BORROWS_MAX) {
        return core_err_set(-EINVAL, "block %u (%s) borrows %u blocks; at most %d are possible",
                            block, shape->name, shape->borrow_count, PLAN_BORROWS_MAX);
    }
    for (uint32_t i = 0; i < shape->borrow_count; i++) {
        const uint32_t from = shape->borrows[i];
        const uint64_t shared = i == 0 ? shape->shared_elements : 0;
        const bool there = from < block ||
                           (from >= input->compute_count && from < input->block_count);
        if (!there || shared > input->blocks[from].elements) {
            return core_err_set(-EINVAL,
                                "block %u (%s) borrows %" PRIu64
                                " elements of block %u; expected an "
                                "earlier block, or a data block, with at least as many",
                                block, shape->name, shared, from);
        }
    }
    return 0;
}

static int check_shapes(const struct plan_input *input)
{
    const uint32_t least = input->application ? 1 : 2;
    if (input->compute_count < least || input->block_count < input->compute_count ||
        input->block_count >= PLAN_NONE) {
        return core_err_set(-EINVAL, "a plan needs %s; %u blocks were given, %u of them computing",
                            input->application ? "a block" : "at least an embedding and a head",
                            input->block_count, input->compute_count);
    }
    for (uint32_t b = 0; b < input->block_count; b++) {
        const struct plan_block_shape *shape = &input->blocks[b];
        if (shape->elements == 0) {
            return core_err_set(-EINVAL, "block %u (%s) has no elements", b, shape->name);
        }
        if (input->wishes.micro_batches > 1 &&
            shape->format.grad_bytes != input->blocks[0].format.grad_bytes) {
            return core_err_set(
                -EINVAL,
                "with several micro-batches, the gradients of all blocks need the same type, but "
                "block 0 has %u bytes per element and block %u (%s) %u",
                input->blocks[0].format.grad_bytes, b, shape->name, shape->format.grad_bytes);
        }
        if (b >= input->compute_count && (shape->trained || shape->borrow_count > 0)) {
            return core_err_set(-EINVAL, "block %u (%s) does not compute, but %s", b, shape->name,
                                shape->trained ? "is trained" : "borrows blocks");
        }
        if (shape->stored_elements > 0 && (shape->trained || shape->rows_bytes > 0)) {
            return core_err_set(
                -EINVAL,
                "block %u (%s) is stored in fewer bits, so it must be frozen and read "
                "whole",
                b, shape->name);
        }
        int rc = check_borrows(input, b);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int check_ranks(const struct plan_input *input)
{
    if (input->stage > 3 || (input->world > 0 && input->rank >= input->world)) {
        return core_err_set(-EINVAL, "rank %u of %u at stage %u is invalid; stages are 0 to 3",
                            input->rank, input->world, input->stage);
    }
    if (input->packs && !input->budgets.device_is_host) {
        return core_err_set(-ENOTSUP, "weights are gathered in 8 bits on the CPU device only");
    }
    if (input->codes && !input->budgets.device_is_host) {
        return core_err_set(-ENOTSUP, "gradients are reduced in 4 bits on the CPU device only");
    }
    if (input->within > 0 && !input->budgets.device_is_host) {
        return core_err_set(-ENOTSUP,
                            "groups of ranks keep copies of weights on the CPU device only");
    }
    if (input->within == 1 || (input->within > 0 && input->world % input->within != 0)) {
        return core_err_set(-EINVAL,
                            "groups of %u ranks are not possible with %u ranks: a group has at "
                            "least two, and all have equally many",
                            input->within, input->world);
    }
    bool whole = input->world > 1 && (input->stage == 1 || input->stage == 2);
    if (whole && !input->budgets.device_is_host && input->wishes.weights == PLAN_WHERE_STORE) {
        return core_err_set(-EINVAL, "stages 1 and 2 keep whole weights on each rank, which is "
                                     "possible in STORE only on the CPU device; stage 3 keeps "
                                     "shards in STORE");
    }
    return 0;
}

/* A GPU updates the states that it keeps, so their weights and gradients must be on the GPU,
 * too. */
static int check_card(const struct plan_input *input)
{
    const struct plan_wishes *wishes = &input->wishes;
    if (wishes->states != PLAN_WHERE_DEVICE) {
        return wishes->grads != PLAN_WHERE_DEVICE
                   ? 0
                   : core_err_set(-EINVAL, "on a card, gradients stay in DEVICE only together with "
                                           "the states: use states=device");
    }
    if (wishes->timing == PLAN_TIMING_SPECULATIVE) {
        return core_err_set(-EINVAL, "states in DEVICE are updated after the norm is known; "
                                     "speculative updates would keep them twice");
    }
    if (input->world > 1) {
        return core_err_set(
            -EINVAL, "a card keeps states in DEVICE only with one rank, not with %u", input->world);
    }
    if (!(input->rates.card_update_elements > 0) || !(input->rates.card_sums_elements > 0)) {
        return core_err_set(-EINVAL,
                            "states in DEVICE need a card that updates them: the rates have no "
                            "card_update_elements_per_second and card_sums_elements_per_second");
    }
    return plan_policy_may_update_on_card(input)
               ? 0
               : core_err_set(-EINVAL, "with states in DEVICE, weights and gradients are in "
                                       "DEVICE, too; they cannot be placed elsewhere");
}

/* Refuses contradictory placements. */
static int check_places(const struct plan_input *input)
{
    const struct plan_wishes *wishes = &input->wishes;
    bool wants_store = wishes->weights == PLAN_WHERE_STORE || wishes->states == PLAN_WHERE_STORE ||
                       wishes->grads == PLAN_WHERE_STORE || wishes->acts == PLAN_ACTS_STORE;
    if (wants_store && input->budgets.store_bytes == 0) {
        return core_err_set(-EINVAL, "a placement in STORE needs a store");
    }
    if (wishes->grads == PLAN_WHERE_STORE && wishes->timing >= PLAN_TIMING_INSIDE) {
        return core_err_set(
            -EINVAL,
            "updates inside backward use gradients at once, so gradients cannot wait in STORE");
    }
    if (wishes->grads == PLAN_WHERE_STORE && wishes->order == PLAN_ORDER_MICRO &&
        wishes->micro_batches > 1) {
        return core_err_set(-EINVAL, "gradients in STORE need layer-major micro-batches");
    }
    return input->budgets.device_is_host ? 0 : check_card(input);
}

/* An application computes, and has weights and gradients in host memory. */
static int check_application(const struct plan_input *input)
{
    const struct plan_wishes *wishes = &input->wishes;
    const bool own_gradients = wishes->grads == PLAN_WHERE_HOST;
    if (!input->budgets.device_is_host || input->world > 1 || wishes->micro_batches != 1) {
        return core_err_set(-EINVAL,
                            "a plan for an application needs one rank on the CPU device and one "
                            "micro-batch per step");
    }
    if (wishes->timing != PLAN_TIMING_AUTO || wishes->acts != PLAN_ACTS_AUTO ||
        wishes->order != PLAN_ORDER_AUTO) {
        return core_err_set(-EINVAL,
                            "a plan for an application takes no request for activations or order, "
                            "because the application decides them, and none for timing, because "
                            "updates wait for the norm if the norm is used");
    }
    if (wishes->weights != PLAN_WHERE_AUTO ||
        (wishes->grads != PLAN_WHERE_AUTO && !own_gradients)) {
        return core_err_set(-EINVAL, "a plan for an application places no weights, and gradients "
                                     "only in HOST");
    }
    return 0;
}

static int check_wishes(const struct plan_input *input)
{
    const struct plan_wishes *wishes = &input->wishes;
    if (wishes->micro_batches == 0) {
        return core_err_set(-EINVAL, "a step needs at least one micro-batch");
    }
    if (wishes->weight_slots == 1 || wishes->weight_slots > PLAN_SLOT_MAX ||
        wishes->state_slots > PLAN_STATE_SLOT_MAX) {
        return core_err_set(
            -EINVAL, "%u weight slots and %u state slots are out of range: 2..%d and 1..%d",
            wishes->weight_slots, wishes->state_slots, PLAN_SLOT_MAX, PLAN_STATE_SLOT_MAX);
    }
    if (wishes->chunk_elements % PLAN_CUT_ELEMENTS != 0) {
        return core_err_set(-EINVAL, "a chunk of %" PRIu64 " elements is not a multiple of %d",
                            wishes->chunk_elements, PLAN_CUT_ELEMENTS);
    }
    if (!(wishes->thrift >= 0 && wishes->thrift <= 1)) {
        return core_err_set(-EINVAL, "thrift %g is out of range 0..1", wishes->thrift);
    }
    bool by_norm = wishes->timing == PLAN_TIMING_INSIDE || wishes->timing == PLAN_TIMING_SPLIT;
    if (by_norm && (wishes->may_clip || wishes->may_skip)) {
        return core_err_set(-EINVAL, "updates during backward cannot be clipped or skipped; "
                                     "deferred and speculative updates can");
    }
    return check_places(input);
}

int plan_check(const struct plan_input *input)
{
    int rc = check_shapes(input);
    if (rc == 0) {
        rc = check_ranks(input);
    }
    if (rc == 0 && input->application) {
        rc = check_application(input);
    }
    return rc == 0 ? check_wishes(input) : rc;
}
