/* layout_look.c: answers questions about a choice and a layout. Pure. */
#include "core/base/size.h"
#include "offload/plan/layout_internal.h"

enum plan_timing plan_choice_timing(const struct plan_choice *choice)
{
    return choice->speculates                        ? PLAN_TIMING_SPECULATIVE
           : choice->pending_share == 0              ? PLAN_TIMING_INSIDE
           : choice->pending_share == PLAN_SHARE_ALL ? PLAN_TIMING_DEFERRED
                                                     : PLAN_TIMING_SPLIT;
}

bool plan_choice_leaves(const struct plan_choice *choice, uint32_t block)
{
    uint32_t share = choice->pending_share;
    if (share >= PLAN_SHARE_ALL || block < 2) {
        return share >= PLAN_SHARE_ALL;
    }
    uint32_t before = (block - 2) * share + PLAN_SHARE_ALL * 3 / 4;
    return (before + share) / PLAN_SHARE_ALL > before / PLAN_SHARE_ALL;
}

uint64_t plan_layout_state_stride(const struct plan_input *input, uint64_t chunk_elements,
                                  uint32_t block)
{
    return core_round_up(plan_state_bytes(&input->blocks[block].format, chunk_elements),
                         PLAN_ALIGN_BYTES);
}

uint32_t plan_layout_slots(const uint32_t slots[PLAN_STATE_SLOT_MAX])
{
    uint32_t count = 0;
    while (count < PLAN_STATE_SLOT_MAX && slots[count] != PLAN_NONE) {
        count++;
    }
    return count;
}

uint64_t plan_layout_temporary_bytes(const struct plan_block_shape *shape)
{
    return core_round_up(core_larger(shape->forward_bytes, shape->backward_bytes),
                         PLAN_ALIGN_BYTES);
}

uint64_t plan_layout_kept_bytes(const struct plan_input *input, uint32_t block)
{
    return input->blocks[block].kept_bytes * (input->group > 1 ? input->group : 1);
}

bool plan_layout_has_sums(const struct plan_input *input)
{
    return input->wishes.micro_batches > 1 && input->blocks[0].format.grad_bytes < PLAN_SUM_BYTES;
}

bool plan_layout_moves_gradients(const struct plan_input *input)
{
    return !input->budgets.device_is_host || (plan_shards_states(input) && input->stage >= 2);
}

bool plan_layout_sums_on_card(const struct plan_input *input)
{
    return !input->budgets.device_is_host && input->world <= 1 &&
           input->rates.card_sums_elements > 0;
}

uint64_t plan_layout_gradient_first(const struct plan_input *input, uint32_t block)
{
    return plan_layout_moves_gradients(input) ? plan_state_span(input, block).first : 0;
}

uint64_t plan_layout_shared(const struct plan_input *input, uint32_t block)
{
    const struct plan_block_shape *shape = &input->blocks[block];
    bool trained = shape->borrow_count > 0 && input->blocks[shape->borrows[0]].trained;
    return trained ? shape->shared_elements : 0;
}

bool plan_layout_reaches_stored(const struct plan_input *input, const struct plan_layout *layout,
                                uint32_t block)
{
    const uint8_t weights = layout->places[block].weights;
    return !plan_shards_weights(input) &&
           (weights == PLAN_DEVICE || (weights == PLAN_HOST && input->budgets.device_is_host));
}

uint64_t plan_layout_taken(const struct plan_input *input, const struct plan_layout *layout,
                           enum plan_tier tier)
{
    return tier == PLAN_DEVICE ? input->budgets.device_taken_bytes
           : tier == PLAN_HOST ? input->budgets.host_taken_bytes + layout->checksums_bytes
                               : 0;
}

uint32_t plan_layout_source(const struct plan_input *input, uint32_t block)
{
    const struct plan_block_shape *shape = &input->blocks[block];
    return shape->sections != NULL ? shape->source : PLAN_NONE;
}

uint32_t plan_layout_sectioned(const struct plan_input *input, const struct plan_layout *layout,
                               uint32_t block)
{
    const uint32_t source = plan_layout_source(input, block);
    return source != PLAN_NONE && layout->blocks[source].by_pages ? source : PLAN_NONE;
}

uint32_t plan_layout_page_slot(const struct plan_layout *layout, uint32_t block)
{
    const uint32_t rows = layout->blocks[block].rows[0];
    return rows != PLAN_NONE ? rows : layout->sections[0];
}

static struct plan_piece extent_at(uint32_t buffer, uint64_t index, uint64_t full_bytes,
                                   uint64_t bytes)
{
    return (struct plan_piece){.buffer = buffer,
                               .offset = index * core_round_up(full_bytes, PLAN_EXTENT_BYTES),
                               .bytes = bytes};
}

static struct plan_piece weights_at(const struct plan_layout *layout, uint32_t block,
                                    uint64_t index, uint64_t full_bytes, uint64_t bytes)
{
    const struct plan_block_layout *where = &layout->blocks[block];
    if (where->weights_store != PLAN_NONE) {
        return extent_at(where->weights_store, index, full_bytes, bytes);
    }
    return (struct plan_piece){.buffer = where->weights_host != PLAN_NONE ? where->weights_host
                                                                          : where->weights_device,
                               .offset = index * full_bytes,
                               .bytes = bytes};
}

static struct plan_piece states_at(const struct plan_input *input, const struct plan_layout *layout,
                                   uint32_t block, uint64_t index, uint64_t bytes)
{
    const uint64_t elements = layout->chunk_elements;
    const struct plan_block_layout *where = &layout->blocks[block];
    const uint32_t resident = layout->places[block].resident_chunks;
    if (index >= resident) {
        return extent_at(where->states_store, index - resident,
                         plan_state_bytes(&input->blocks[block].format, elements), bytes);
    }
    return (struct plan_piece){.buffer = where->states_memory,
                               .offset = index * plan_layout_state_stride(input, elements, block),
                               .bytes = bytes};
}

struct plan_chunk plan_chunk_at(const struct plan_input *input, const struct plan_layout *layout,
                                enum plan_stream stream, uint32_t block, uint64_t index)
{
    const struct plan_format *format = &input->blocks[block].format;
    const uint64_t elements = layout->chunk_elements;
    const struct plan_span span = stream == PLAN_W16 ? plan_weight_span(input, block)
                                                     : plan_state_span(input, block);
    struct plan_chunk chunk = {.first = span.first + index * elements,
                               .count = plan_chunk_size(span.count, elements, index)};
    if (stream == PLAN_W16) {
        chunk.kept = weights_at(layout, block, index, elements * format->weight_bytes,
                                chunk.count * format->weight_bytes);
    } else if (stream == PLAN_G) {
        chunk.kept = extent_at(layout->blocks[block].gradient_store, index,
                               elements * format->grad_bytes, chunk.count * format->grad_bytes);
    } else {
        chunk.kept = states_at(input, layout, block, index, plan_state_bytes(format, chunk.count));
    }
    return chunk;
}
