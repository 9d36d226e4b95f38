/* layout_gradients.c: the buffers of gradients and their sums. */
#include <stddef.h>

#include "core/base/size.h"
#include "offload/plan/layout_internal.h"

/* Returns whether a buffer is in use during a whole step: a sum is, if micro-batches run one at a
 * time. */
static bool lives_all_along(const struct plan_input *input, const struct plan_choice *choice,
                            bool is_sum)
{
    return choice->order == PLAN_ORDER_MICRO && input->wishes.micro_batches > 1 && is_sum;
}

struct need {
    uint64_t bytes[PLAN_SIZE_COUNT];
    uint32_t counts[PLAN_SIZE_COUNT];
};

/* Blocks that share a ring of buffers. Gradients that wait on the GPU are never in a ring. */
enum turn {
    EACH_ITS_OWN,
    UPDATED_IN_TURN /* blocks whose update follows immediately */,
    ALL_IN_TURN
};

struct gradient_kind {
    struct plan_buffer_kind layout;
    bool sums;      /* in fp32 */
    uint32_t turns; /* most slots for each size of blocks */
    enum turn turn;
    bool shard;    /* only this rank's part */
    bool waits;    /* it waits for the update */
    size_t member; /* offset of its index in struct plan_block_layout */
    struct plan_ring *ring;
};

static uint64_t bytes_of(const struct plan_input *input, const struct gradient_kind *kind,
                         uint32_t block)
{
    return (kind->shard ? plan_state_most(input, block) : input->blocks[block].elements) *
           (kind->sums ? PLAN_SUM_BYTES : input->blocks[block].format.grad_bytes);
}

static bool is_wanted(const struct plan_input *input, const struct plan_layout *layout,
                      const struct gradient_kind *kind, uint32_t block)
{
    return input->blocks[block].trained && !(kind->waits && layout->blocks[block].on_card);
}

static bool takes_turns(const struct plan_input *input, const struct plan_layout *layout,
                        const struct gradient_kind *kind, uint32_t block)
{
    bool pending = layout->places[block].pending;
    bool stays = kind->member == offsetof(struct plan_block_layout, gradient_whole) &&
                 layout->blocks[block].on_card && pending;
    bool turns = kind->turn == ALL_IN_TURN || (kind->turn == UPDATED_IN_TURN && !pending);
    return turns && !stays && is_wanted(input, layout, kind, block);
}

static struct need need_of(const struct plan_input *input, const struct plan_layout *layout,
                           const struct gradient_kind *kind)
{
    struct need need = {{0}, {0}};
    for (uint32_t b = 0; b < input->block_count; b++) {
        if (takes_turns(input, layout, kind, b)) {
            int size = layout->blocks[b].size;
            need.bytes[size] = core_larger(
                need.bytes[size], core_round_up(bytes_of(input, kind, b), PLAN_ALIGN_BYTES));
            need.counts[size] += need.counts[size] < kind->turns;
        }
    }
    return need;
}

static int add_kind(struct plan_layout *layout, const struct plan_input *input,
                    const struct gradient_kind *kind)
{
    int rc = 0;
    struct need need = need_of(input, layout, kind);
    if (kind->turn != EACH_ITS_OWN) {
        rc = plan_layout_add_ring(layout, &kind->layout, need.bytes, need.counts, kind->ring);
    }
    for (uint32_t b = 0; rc == 0 && b < input->block_count; b++) {
        if (is_wanted(input, layout, kind, b) && !takes_turns(input, layout, kind, b)) {
            uint32_t *index = (uint32_t *)(void *)((char *)&layout->blocks[b] + kind->member);
            rc = plan_layout_add_of_block(layout, input, b, &kind->layout, bytes_of(input, kind, b),
                                          index);
        }
    }
    return rc;
}

static int add_shared_sum(struct plan_layout *layout, const struct plan_input *input)
{
    uint64_t elements = 0;
    for (uint32_t b = 0; b < input->block_count; b++) {
        elements += plan_layout_shared(input, b);
    }
    return plan_layout_add(layout, "shared-sum", PLAN_DEVICE, PLAN_FOR_GRADIENTS,
                           elements * PLAN_SUM_BYTES, &layout->shared_sum);
}

/* One block's codes suffice, because ranks reduce one gradient at a time. */
static int add_codes(struct plan_layout *layout, const struct plan_input *input)
{
    uint64_t bytes = 0;
    for (uint32_t b = 0; plan_codes_gradients(input) && b < input->block_count; b++) {
        const uint64_t coded = plan_coded_bytes(input->blocks[b].elements);
        bytes = input->blocks[b].trained ? core_larger(bytes, coded) : bytes;
    }
    return plan_layout_add(layout, "codes", PLAN_DEVICE, PLAN_FOR_GRADIENTS,
                           core_round_up(bytes, PLAN_ALIGN_BYTES), &layout->codes);
}

/* Gradients that wait in memory have one buffer per block; others share a ring. */
static int add_stored(struct plan_layout *layout, const struct plan_input *input,
                      const struct plan_choice *choice, bool all_along)
{
    bool away = choice->grads == PLAN_STORE;
    enum turn turn = away                              ? ALL_IN_TURN
                     : all_along || input->application ? EACH_ITS_OWN
                                                       : UPDATED_IN_TURN;
    const struct gradient_kind kind = {
        .layout = {"g", away ? PLAN_HOST : choice->grads, PLAN_FOR_GRADIENTS, false},
        .turns = choice->gradient_slots,
        .turn = turn,
        .shard = plan_layout_moves_gradients(input),
        .waits = true,
        .member = offsetof(struct plan_block_layout, gradient),
        .ring = &layout->gradients};
    const struct plan_buffer_kind in_store = {"g", PLAN_STORE, PLAN_FOR_GRADIENTS, false};
    int rc = add_kind(layout, input, &kind);
    for (uint32_t b = 0; rc == 0 && away && b < input->block_count; b++) {
        const uint64_t most = plan_state_most(input, b);
        const uint64_t chunks = plan_chunk_count(most, choice->chunk_elements);
        const uint64_t width = input->blocks[b].format.grad_bytes;
        const uint64_t last = plan_chunk_size(most, choice->chunk_elements, chunks - 1);
        if (is_wanted(input, layout, &kind, b)) {
            rc = plan_layout_add_of_block(
                layout, input, b, &in_store,
                plan_extents_bytes(chunks, choice->chunk_elements * width, last * width),
                &layout->blocks[b].gradient_store);
        }
    }
    return rc;
}

int plan_layout_add_gradients(struct plan_layout *layout, const struct plan_input *input,
                              const struct plan_choice *choice)
{
    bool sums = plan_layout_has_sums(input);
    bool moves = plan_layout_moves_gradients(input);
    bool all_along = lives_all_along(input, choice, !sums);
    const struct gradient_kind whole = {
        .layout = {"gwhole", PLAN_DEVICE, PLAN_FOR_GRADIENTS, false},
        .turns = choice->sum_slots,
        .turn = all_along ? EACH_ITS_OWN : ALL_IN_TURN,
        .member = offsetof(struct plan_block_layout, gradient_whole),
        .ring = &layout->gradients_whole};
    const struct gradient_kind sum = {.layout = {"sum", PLAN_DEVICE, PLAN_FOR_GRADIENTS, false},
                                      .sums = true,
                                      .turns = choice->sum_slots,
                                      .turn = lives_all_along(input, choice, true) ? EACH_ITS_OWN
                                                                                   : ALL_IN_TURN,
                                      .member = offsetof(struct plan_block_layout, sum),
                                      .ring = &layout->sums};
    int rc = add_stored(layout, input, choice, !moves && all_along);
    if (rc == 0 && moves) {
        rc = add_kind(layout, input, &whole);
    }
    if (rc == 0 && sums) {
        rc = add_kind(layout, input, &sum);
    }
    if (rc == 0) {
        rc = add_codes(layout, input);
    }
    return rc == 0 ? add_shared_sum(layout, input) : rc;
}
