/* plan.c: reads and destroys a plan. */
#include "offload/plan/plan_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "core/base/hash.h"
#include "core/base/size.h"
#include "offload/plan/shard.h"

void plan_destroy(struct plan *plan)
{
    if (plan == NULL) {
        return;
    }
    for (int before = 0; before <= PLAN_KIND_COUNT; before++) {
        for (int kind = 0; kind < PLAN_KIND_COUNT; kind++) {
            plan_tape_fini(&plan->tapes[before][kind]);
        }
    }
    plan_layout_destroy(plan->layout);
    free(plan);
}

/* ---- reading ---- */

enum plan_acts plan_chosen_acts(const struct plan *plan)
{
    return plan->choice.acts;
}

enum plan_order plan_chosen_order(const struct plan *plan)
{
    return plan->choice.order;
}

enum plan_timing plan_chosen_timing(const struct plan *plan)
{
    return plan_choice_timing(&plan->choice);
}

enum plan_kind plan_steady(const struct plan *plan)
{
    const struct plan_choice *choice = &plan->choice;
    return choice->speculates ? PLAN_GUESS : choice->pending_share > 0 ? PLAN_NEXT : PLAN_FIRST;
}

unsigned plan_generations(const struct plan *plan)
{
    return plan->choice.speculates ? 2 : 1;
}

const struct plan_block_place *plan_block_place(const struct plan *plan, uint32_t block)
{
    return &plan->layout->places[block];
}

uint64_t plan_tier_bytes(const struct plan *plan, enum plan_tier tier)
{
    return plan->layout->tier_bytes[tier];
}

uint64_t plan_chunk_elements(const struct plan *plan)
{
    return plan->choice.chunk_elements;
}

uint32_t plan_buffer_count(const struct plan *plan)
{
    return plan->layout->count;
}

const struct plan_layout *plan_layout_of(const struct plan *plan)
{
    return plan->layout;
}

const struct plan_buffer *plan_buffer(const struct plan *plan, uint32_t index)
{
    assert(index < plan->layout->count);
    return &plan->layout->buffers[index];
}

bool plan_kind_saves_own(int kind)
{
    return kind == PLAN_FIRST_SAVE_OWN || kind == PLAN_NEXT_SAVE_OWN;
}

bool plan_joins(const struct plan *plan, int before, int kind)
{
    const uint32_t share = plan->choice.pending_share;
    const bool speculates = plan->choice.speculates;
    bool leaves = share > 0 && (before == PLAN_FIRST || before == PLAN_NEXT ||
                                before == PLAN_NEXT_SAVE || plan_kind_saves_own(before));
    bool guesses = before == PLAN_GUESS || before == PLAN_GUESS_NEXT;
    bool pending = leaves || (guesses && speculates);
    bool nothing = (!leaves || plan->may_skip) && (!guesses || speculates);
    bool updates_inside = share < PLAN_SHARE_ALL;
    switch ((enum plan_kind)kind) {
    case PLAN_FIRST:
    case PLAN_EVAL: return nothing;
    case PLAN_NEXT:
    case PLAN_DRAIN: return pending;
    case PLAN_NEXT_SAVE:
    case PLAN_DRAIN_SAVE: return pending;
    case PLAN_FIRST_SAVE_OWN: return nothing && updates_inside;
    case PLAN_NEXT_SAVE_OWN: return pending && updates_inside;
    case PLAN_GUESS: return nothing && speculates;
    case PLAN_GUESS_NEXT: return pending && speculates;
    case PLAN_KIND_COUNT: break;
    }
    return false;
}

const struct plan_tape *plan_tape(const struct plan *plan, enum plan_kind before,
                                  enum plan_kind kind)
{
    bool joins = plan_joins(plan, (int)before, (int)kind);
    return joins ? &plan->tapes[before][kind] : NULL;
}

const struct plan_prediction *plan_predicted(const struct plan *plan)
{
    return &plan->predicted;
}

const struct plan_prediction *plan_predicted_clipped(const struct plan *plan)
{
    return &plan->predicted_clipped;
}

/* Orders alternatives by time, then by policy. */
static bool is_before(const struct plan_alternative *one, const struct plan_alternative *other)
{
    if (one->step_seconds != other->step_seconds) {
        return one->step_seconds < other->step_seconds;
    }
    return one->acts != other->acts ? one->acts < other->acts : one->timing < other->timing;
}

bool plan_alternative(const struct plan *plan, unsigned index, struct plan_alternative *out)
{
    const struct plan_alternative *last = NULL;
    for (unsigned i = 0; i <= index; i++) {
        const struct plan_alternative *next = NULL;
        for (int acts = 0; acts <= PLAN_ACTS_STORE; acts++) {
            for (int timing = 0; timing <= PLAN_TIMING_SPECULATIVE; timing++) {
                const struct plan_alternative *of = &plan->tried.of[acts][timing];
                const bool chosen = of->acts == plan->choice.acts &&
                                    of->timing == plan_chosen_timing(plan);
                if (of->step_seconds > 0 && !chosen && (last == NULL || is_before(last, of)) &&
                    (next == NULL || is_before(of, next))) {
                    next = of;
                }
            }
        }
        if (next == NULL) {
            return false;
        }
        last = next;
    }
    *out = *last;
    return true;
}

uint64_t plan_slot_states_offset(const struct plan *plan)
{
    return plan->layout->slot_states_offset;
}

uint64_t plan_slot_gradient_offset(const struct plan *plan)
{
    return plan->layout->slot_gradient_offset;
}

uint64_t plan_consumer_bytes(const struct plan_input *input, const struct plan *plan,
                             enum plan_tier tier, enum plan_consumer consumer)
{
    uint64_t sum = 0;
    if (consumer == PLAN_FOR_RUNTIME) {
        return plan_layout_taken(input, plan->layout, tier) -
               (tier == PLAN_HOST ? input->budgets.host_data_bytes : 0);
    }
    if (consumer == PLAN_FOR_DATA) {
        return tier == PLAN_HOST ? input->budgets.host_data_bytes : 0;
    }
    for (uint32_t i = 0; i < plan->layout->count; i++) {
        const struct plan_buffer *buffer = &plan->layout->buffers[i];
        if (buffer->tier == tier && buffer->consumer == consumer) {
            sum += core_round_up(buffer->bytes, PLAN_ALIGN_BYTES);
        }
    }
    return sum;
}

/* ---- hash ---- */

static uint64_t hash_work(uint64_t hash, const struct plan_command *command)
{
    hash = core_hash_number(
        (uint64_t)command->ahead << 16 | (uint64_t)command->op << 8 | command->queue, hash);
    hash = core_hash_number((uint64_t)command->block << 32 | command->micro, hash);
    return core_hash_number(command->elements, hash);
}

static uint64_t hash_all(uint64_t hash, const struct plan_command *command)
{
    hash = core_hash_number((uint64_t)command->streams << 32 | command->chunk, hash);
    hash = core_hash_number(command->bytes, hash);
    for (uint32_t i = 0; i < command->operand_count; i++) {
        const struct plan_operand *operand = &command->operands[i];
        hash = core_hash_number(
            (uint64_t)operand->buffer << 16 | (uint64_t)operand->access << 8 | operand->role, hash);
        hash = core_hash_number(operand->offset, hash);
        hash = core_hash_number(operand->bytes, hash);
    }
    for (int e = 0; e < PLAN_EDGE_MAX; e++) {
        hash = core_hash_number(
            (uint64_t)command->edges[e].queue << 32 | (uint32_t)command->edges[e].count, hash);
    }
    return hash;
}

/* Ranks have different shards, so only what they must have in common is hashed. */
static uint64_t hash_tape(uint64_t hash, const struct plan *plan, const struct plan_tape *tape)
{
    for (uint32_t i = 0; i < tape->count; i++) {
        const struct plan_command *command = &tape->commands[i];
        bool together = (command->queue == PLAN_Q_COMPUTE || command->queue == PLAN_Q_COLL) &&
                        command->op != PLAN_JOIN;
        hash = plan->alone || together ? hash_work(hash, command) : hash;
        hash = plan->alone ? hash_all(hash, command) : hash;
    }
    return hash;
}

uint64_t plan_hash(const struct plan *plan)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < plan->layout->count; i++) {
        const struct plan_buffer *buffer = &plan->layout->buffers[i];
        hash = core_hash_number(buffer->tier, hash);
        hash = core_hash_number(buffer->offset, hash);
        hash = core_hash_number(buffer->bytes, hash);
    }
    for (int before = 0; before <= PLAN_KIND_COUNT; before++) {
        for (int kind = 0; kind < PLAN_KIND_COUNT; kind++) {
            hash = hash_tape(hash, plan, &plan->tapes[before][kind]);
        }
    }
    return hash;
}
