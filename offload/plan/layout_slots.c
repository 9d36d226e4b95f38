/* layout_slots.c: the slots of a layout, for data that is in memory only during its use. */
#include <stdio.h>

#include "core/base/size.h"
#include "offload/model/sections.h"
#include "offload/plan/layout_internal.h"

/* Returns the most blocks of one size whose weights a command needs at the same time. */
static uint32_t needed_at_once(const struct plan_input *input, const struct plan_layout *layout,
                               int size)
{
    uint32_t most = 0;
    for (uint32_t b = 0; b < input->compute_count; b++) {
        uint32_t count = layout->blocks[b].size == size;
        for (uint32_t i = 0; i < input->blocks[b].borrow_count; i++) {
            count += layout->blocks[input->blocks[b].borrows[i]].size == size;
        }
        most = count > most ? count : most;
    }
    return most;
}

/* Returns the least bytes of the slot through which weights go to and from STORE when a run begins
 * and ends; 0: they use no such slot. */
static uint64_t passing_bytes(const struct plan_input *input, const struct plan_layout *layout,
                              uint32_t block)
{
    const struct plan_block_shape *shape = &input->blocks[block];
    const uint64_t kept = plan_kept_elements(input, block);
    const uint64_t cut = kept < PLAN_CUT_ELEMENTS ? kept : PLAN_CUT_ELEMENTS;
    const bool passes = input->budgets.device_is_host &&
                        layout->blocks[block].weights_store != PLAN_NONE;
    return passes ? cut * shape->format.weight_bytes : 0;
}

/* Expanded weights have one slot, because compute works on one section at a time. */
static int add_section_slots(struct plan_layout *layout, const struct plan_input *input)
{
    uint64_t bytes = 0;
    uint64_t expanded = 0;
    bool stored = false;
    for (uint32_t b = 0; b < input->block_count; b++) {
        const uint32_t source = plan_layout_sectioned(input, layout, b);
        if (source == PLAN_NONE) {
            continue;
        }
        expanded = core_larger(expanded, input->blocks[b].sections->expanded_bytes);
        if (input->blocks[source].stored_elements == 0 ||
            !plan_layout_reaches_stored(input, layout, source)) {
            bytes = core_larger(bytes, input->blocks[b].sections->bytes);
            bytes = core_larger(
                bytes, core_round_up(passing_bytes(input, layout, source), PLAN_ALIGN_BYTES));
            stored = stored || layout->blocks[source].weights_store != PLAN_NONE;
        }
    }
    for (uint32_t i = 0; i < PLAN_SECTIONS_TURN; i++) {
        char name[32];
        snprintf(name, sizeof name, "section[%u]", i);
        int rc = plan_layout_add(layout, name, PLAN_DEVICE, PLAN_FOR_SLOTS, bytes,
                                 &layout->sections[i]);
        if (rc == 0 && stored && !input->budgets.device_is_host) {
            snprintf(name, sizeof name, "section-stage[%u]", i);
            rc = plan_layout_add(layout, name, PLAN_HOST, PLAN_FOR_SLOTS, bytes,
                                 &layout->section_stages[i]);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return plan_layout_add(layout, "expanded", PLAN_DEVICE, PLAN_FOR_SLOTS, expanded,
                           &layout->expanded);
}

static int add_row_slots(struct plan_layout *layout, const struct plan_input *input)
{
    const uint32_t count = input->wishes.micro_batches > 1 ? PLAN_ROWS_TURN : 1;
    const bool direct = input->budgets.device_is_host;
    int rc = 0;
    for (uint32_t b = 0; rc == 0 && b < input->block_count; b++) {
        const struct plan_block_shape *shape = &input->blocks[b];
        struct plan_block_layout *block = &layout->blocks[b];
        const bool stored = block->weights_store != PLAN_NONE;
        const struct plan_buffer_kind slot = {"rows", PLAN_DEVICE, PLAN_FOR_SLOTS, false};
        const struct plan_buffer_kind stage = {"rows-stage", PLAN_HOST, PLAN_FOR_SLOTS, false};
        const uint64_t bytes = core_round_up(
            core_larger(shape->rows_bytes, passing_bytes(input, layout, b)), PLAN_ALIGN_BYTES);
        if (shape->rows_bytes == 0 || !block->by_pages) {
            continue;
        }
        for (uint32_t i = 0; rc == 0 && i < count; i++) {
            rc = plan_layout_add_of_block(layout, input, b, &slot, bytes, &block->rows[i]);
            if (rc == 0 && stored && !direct) {
                rc = plan_layout_add_of_block(layout, input, b, &stage, bytes,
                                              &block->rows_stages[i]);
            }
        }
    }
    return rc;
}

static int add_stored_slots(struct plan_layout *layout, const struct plan_input *input,
                            const struct plan_choice *choice)
{
    uint64_t bytes[PLAN_SIZE_COUNT] = {0};
    uint32_t counts[PLAN_SIZE_COUNT] = {0};
    for (uint32_t b = 0; b < input->block_count; b++) {
        if (input->blocks[b].stored_elements > 0 && !layout->blocks[b].by_pages &&
            !plan_layout_reaches_stored(input, layout, b)) {
            const uint64_t kept = plan_kept_elements(input, b) *
                                  input->blocks[b].format.weight_bytes;
            const int size = layout->blocks[b].size;
            bytes[size] = core_larger(bytes[size], core_round_up(kept, PLAN_ALIGN_BYTES));
            counts[size] += counts[size] < choice->weight_slots;
        }
    }
    const struct plan_buffer_kind kind = {"stored", PLAN_DEVICE, PLAN_FOR_SLOTS, false};
    return plan_layout_add_ring(layout, &kind, bytes, counts, &layout->stored);
}

static int add_packed_slots(struct plan_layout *layout, const struct plan_input *input,
                            const struct plan_choice *choice)
{
    uint64_t bytes[PLAN_SIZE_COUNT] = {0};
    uint32_t counts[PLAN_SIZE_COUNT] = {0};
    for (uint32_t b = 0; b < input->block_count; b++) {
        if (plan_packs_weights(input, b)) {
            const uint64_t packed = plan_packed_bytes(input->blocks[b].elements);
            const int size = layout->blocks[b].size;
            bytes[size] = core_larger(bytes[size], core_round_up(packed, PLAN_ALIGN_BYTES));
            counts[size] += counts[size] < choice->weight_slots;
        }
    }
    const struct plan_buffer_kind kind = {"packed", PLAN_DEVICE, PLAN_FOR_SLOTS, false};
    return plan_layout_add_ring(layout, &kind, bytes, counts, &layout->packed);
}

/* Returns whether only EXPAND writes to the block's slot. A packed shard in STORE is read into the
 * slot first. */
static bool is_expanded(const struct plan_layout *layout, const struct plan_input *input,
                        uint32_t block)
{
    return input->blocks[block].stored_elements > 0 ||
           (plan_packs_weights(input, block) && layout->places[block].weights != PLAN_STORE);
}

/* Blocks whose slots only EXPAND writes need few of them: EXPAND runs on the queue that computes,
 * so more slots save no time. */
static int add_weight_slots(struct plan_layout *layout, const struct plan_input *input,
                            const struct plan_choice *choice)
{
    uint64_t bytes[PLAN_SIZE_COUNT] = {0};
    uint32_t counts[PLAN_SIZE_COUNT] = {0};
    uint32_t moved[PLAN_SIZE_COUNT] = {0};
    for (uint32_t b = 0; b < input->block_count; b++) {
        const bool stored = input->blocks[b].stored_elements > 0;
        const bool resident = layout->places[b].weights == PLAN_DEVICE ||
                              layout->places[b].weights == PLAN_APPLICATION;
        if (layout->blocks[b].by_pages) {
            continue;
        }
        if (!resident || stored || plan_shards_weights(input)) {
            int size = layout->blocks[b].size;
            bytes[size] = core_larger(bytes[size], input->blocks[b].elements *
                                                       input->blocks[b].format.weight_bytes);
            counts[size]++;
            moved[size] += !is_expanded(layout, input, b);
        }
    }
    for (int size = 0; size < PLAN_SIZE_COUNT; size++) {
        const uint32_t least = needed_at_once(input, layout, size);
        const bool ahead = size == PLAN_LAYER || size == PLAN_LAYER_DATA || least > 1;
        const bool several = ahead && moved[size] > 0 && choice->weight_slots > least;
        const uint32_t most = several ? choice->weight_slots : least;
        counts[size] = counts[size] < most ? counts[size] : most;
        bytes[size] = core_round_up(bytes[size], PLAN_ALIGN_BYTES);
    }
    const struct plan_buffer_kind kind = {"wslot", PLAN_DEVICE, PLAN_FOR_SLOTS, false};
    return plan_layout_add_ring(layout, &kind, bytes, counts, &layout->weights);
}

static int add_row(struct plan_layout *layout, const char *name, uint64_t bytes, uint32_t count,
                   uint32_t *out)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        char numbered[32];
        snprintf(numbered, sizeof numbered, "%s[%u]", name, i);
        rc = plan_layout_add(layout, numbered, PLAN_HOST, PLAN_FOR_SLOTS, bytes, &out[i]);
    }
    return rc;
}

/* On the CPU device weights do not pass through state slots. */
static int add_stages(struct plan_layout *layout, const struct plan_input *input,
                      const struct plan_choice *choice)
{
    bool direct = input->budgets.device_is_host;
    bool from_store = false;
    bool states_move = false;
    uint64_t w16 = 0;
    uint64_t states = 0;
    uint64_t gradient = 0;
    for (uint32_t b = 0; b < input->block_count; b++) {
        const struct plan_format *format = &input->blocks[b].format;
        const uint64_t most = core_larger(plan_state_most(input, b), plan_weight_most(input, b));
        const uint64_t elements = choice->chunk_elements < most ? choice->chunk_elements : most;
        w16 = core_larger(w16, core_round_up(elements * format->weight_bytes, PLAN_ALIGN_BYTES));
        states = core_larger(states,
                             core_round_up(plan_state_bytes(format, elements), PLAN_ALIGN_BYTES));
        gradient = core_larger(gradient,
                               core_round_up(elements * format->grad_bytes, PLAN_ALIGN_BYTES));
        from_store = from_store || layout->blocks[b].weights_store != PLAN_NONE;
        /* States on a GPU pass through slots when a run begins and ends, and in checkpoints. */
        states_move = states_move || layout->blocks[b].states_store != PLAN_NONE ||
                      layout->blocks[b].on_card ||
                      (input->blocks[b].trained && choice->grads == PLAN_STORE) ||
                      (!direct && input->blocks[b].trained &&
                       layout->blocks[b].weights_store != PLAN_NONE);
    }
    layout->slot_states_offset = direct ? 0 : w16;
    layout->slot_gradient_offset = layout->slot_states_offset + states;
    gradient = choice->grads == PLAN_STORE ? gradient : 0;
    int rc = add_row(layout, "sslot", layout->slot_gradient_offset + gradient,
                     states_move ? choice->state_slots : 0, layout->state_slots);
    if (rc == 0 && !direct) {
        rc = add_row(layout, "wstage", w16, from_store ? choice->state_slots : 0,
                     layout->weight_stages);
    }
    return rc;
}

int plan_layout_add_slots(struct plan_layout *layout, const struct plan_input *input,
                          const struct plan_choice *choice)
{
    int rc = add_weight_slots(layout, input, choice);
    if (rc == 0) {
        rc = add_stored_slots(layout, input, choice);
    }
    if (rc == 0) {
        rc = add_packed_slots(layout, input, choice);
    }
    if (rc == 0) {
        rc = add_row_slots(layout, input);
    }
    if (rc == 0) {
        rc = add_section_slots(layout, input);
    }
    return rc == 0 ? add_stages(layout, input, choice) : rc;
}
