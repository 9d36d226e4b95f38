/* layout_grads.c: buffers of gradients: sums over micro-batches, what is on its way down, what
 * waits for its update. */
#include <stddef.h>

#include "offload/plan/layout.h"

/* Sums of a micro-batch-major step, and stored gradients that are sums themselves, live from the
 * first micro-batch to the last. */
static bool lives_all_along(const struct plan_input *input, const struct plan_choice *choice,
                            bool is_sum)
{
    return choice->order == PLAN_ORDER_MICRO && input->wishes.micro_batches > 1 && is_sum;
}

struct need {
    uint64_t elements[PLAN_SIZE_COUNT];
    uint32_t counts[PLAN_SIZE_COUNT];
};

/* Whole gradients, or the shard that waits for the update. */
static uint64_t elements_of(const struct plan_input *input, uint32_t block, bool shard)
{
    return shard ? plan_state_most(input, block) : input->blocks[block].elements;
}

/* Which blocks take turns in a ring; the others have a buffer each. ALL_IN_TURN but for those whose
 * gradient waits on the card where compute left it. */
enum turn { EACH_ITS_OWN, UPDATED_IN_TURN /* those whose update follows at once */, ALL_IN_TURN };

/* What a kind of gradient buffer is. */
struct gradient_kind {
    struct plan_layout_kind layout;
    uint64_t width;
    uint32_t turns; /* of the ring that blocks take turns in */
    enum turn turn;
    bool shard;             /* of this rank's part alone */
    bool waits;             /* for the update: blocks on the card have none in HOST */
    size_t member;          /* of struct plan_block_layout */
    struct plan_ring *ring; /* of the layout */
};

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
            uint64_t elements = elements_of(input, b, kind->shard);
            need.elements[size] = elements > need.elements[size] ? elements : need.elements[size];
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
        for (int size = 0; size < PLAN_SIZE_COUNT; size++) {
            need.elements[size] = plan_round_up(need.elements[size] * kind->width,
                                                PLAN_ALIGN_BYTES);
        }
        rc = plan_layout_add_ring(layout, &kind->layout, need.elements, need.counts, kind->ring);
    }
    for (uint32_t b = 0; rc == 0 && b < input->block_count; b++) {
        if (is_wanted(input, layout, kind, b) && !takes_turns(input, layout, kind, b)) {
            uint16_t *index = (uint16_t *)(void *)((char *)&layout->blocks[b] + kind->member);
            rc = plan_layout_add_of_block(layout, input, b, &kind->layout,
                                          elements_of(input, b, kind->shard) * kind->width, index);
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

/* Gradients as stored: a buffer a block where each waits for its update in memory; a ring where the
 * update follows at once, or where they wait in STORE. */
static int add_stored(struct plan_layout *layout, const struct plan_input *input,
                      const struct plan_choice *choice, bool all_along)
{
    bool away = choice->grads == PLAN_STORE;
    enum turn turn = away ? ALL_IN_TURN : all_along ? EACH_ITS_OWN : UPDATED_IN_TURN;
    uint64_t width = input->format.grad_bytes;
    const struct gradient_kind kind = {
        .layout = {"g", away ? PLAN_HOST : choice->grads, PLAN_FOR_GRADIENTS, false},
        .width = width,
        .turns = choice->gradient_slots,
        .turn = turn,
        .shard = plan_layout_moves_gradients(input),
        .waits = true,
        .member = offsetof(struct plan_block_layout, gradient),
        .ring = &layout->gradients};
    const struct plan_layout_kind in_store = {"g", PLAN_STORE, PLAN_FOR_GRADIENTS, false};
    int rc = add_kind(layout, input, &kind);
    for (uint32_t b = 0; rc == 0 && away && b < input->block_count; b++) {
        uint64_t chunks = plan_chunk_count(plan_state_most(input, b), choice->chunk_elements);
        uint64_t extent = plan_round_up(choice->chunk_elements * width, PLAN_EXTENT_BYTES);
        if (is_wanted(input, layout, &kind, b)) {
            rc = plan_layout_add_of_block(layout, input, b, &in_store, chunks * extent,
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
        .width = input->format.grad_bytes,
        .turns = choice->sum_slots,
        .turn = all_along ? EACH_ITS_OWN : ALL_IN_TURN,
        .member = offsetof(struct plan_block_layout, gradient_whole),
        .ring = &layout->gradients_whole};
    const struct gradient_kind sum = {.layout = {"sum", PLAN_DEVICE, PLAN_FOR_GRADIENTS, false},
                                      .width = PLAN_SUM_BYTES,
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
    return rc == 0 ? add_shared_sum(layout, input) : rc;
}
