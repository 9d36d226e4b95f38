/* shard.c: borders of shards and chunks, offsets of streams. */
#include "offload/plan/shard.h"

#include "core/base/size.h"

enum { SCALE_BYTES = 4 };

struct plan_span plan_span_overlap(struct plan_span one, struct plan_span other)
{
    const uint64_t first = one.first > other.first ? one.first : other.first;
    const uint64_t one_end = one.first + one.count;
    const uint64_t other_end = other.first + other.count;
    const uint64_t end = one_end < other_end ? one_end : other_end;
    return (struct plan_span){.first = first, .count = first < end ? end - first : 0};
}

uint64_t plan_shard_border(uint64_t elements, uint32_t world, uint32_t rank)
{
    uint64_t units = (elements + PLAN_CUT_ELEMENTS - 1) / PLAN_CUT_ELEMENTS;
    uint64_t border = units * rank / world * PLAN_CUT_ELEMENTS;
    return border < elements ? border : elements;
}

uint32_t plan_sharing(const struct plan_input *input)
{
    return input->local > 0 ? input->local : input->world > 0 ? input->world : 1;
}

bool plan_shards_weights(const struct plan_input *input)
{
    return input->world > 1 && input->stage >= 3;
}

bool plan_shards_states(const struct plan_input *input)
{
    return input->world > 1 && input->stage >= 1;
}

bool plan_packs_weights(const struct plan_input *input, uint32_t block)
{
    const struct plan_block_shape *shape = &input->blocks[block];
    return input->packs && plan_shards_weights(input) && shape->stored_elements == 0 &&
           shape->format.weight_bytes == 2;
}

static uint64_t packed_groups_bytes(uint64_t groups, uint64_t elements)
{
    return core_round_up(groups * elements, PLAN_PACK_ALIGN_BYTES) +
           core_round_up(groups * SCALE_BYTES, PLAN_PACK_ALIGN_BYTES);
}

uint64_t plan_packed_bytes(uint64_t elements)
{
    const uint64_t rest = elements % PLAN_PACK_ELEMENTS;
    return packed_groups_bytes(elements / PLAN_PACK_ELEMENTS, PLAN_PACK_ELEMENTS) +
           (rest > 0 ? packed_groups_bytes(1, rest) : 0);
}

uint64_t plan_gathered_bytes(const struct plan_input *input, uint32_t block, uint64_t elements)
{
    return plan_packs_weights(input, block) ? plan_packed_bytes(elements)
                                            : elements * input->blocks[block].format.weight_bytes;
}

bool plan_copies_weights(const struct plan_input *input)
{
    return input->within > 0 && plan_shards_weights(input);
}

bool plan_codes_gradients(const struct plan_input *input)
{
    return input->codes && plan_shards_states(input);
}

uint64_t plan_coded_bytes(uint64_t elements)
{
    return (elements + PLAN_CODE_ELEMENTS - 1) / PLAN_CODE_ELEMENTS * PLAN_CODE_BYTES;
}

uint64_t plan_kept_elements(const struct plan_input *input, uint32_t block)
{
    const struct plan_block_shape *shape = &input->blocks[block];
    return shape->stored_elements > 0 ? shape->stored_elements : shape->elements;
}

static struct plan_span span_of(const struct plan_input *input, uint64_t elements, bool sharded)
{
    if (!sharded) {
        return (struct plan_span){.count = elements};
    }
    uint64_t first = plan_shard_border(elements, input->world, input->rank);
    uint64_t end = plan_shard_border(elements, input->world, input->rank + 1);
    return (struct plan_span){.first = first, .count = end - first};
}

struct plan_span plan_weight_span(const struct plan_input *input, uint32_t block)
{
    return span_of(input, plan_kept_elements(input, block), plan_shards_weights(input));
}

struct plan_span plan_state_span(const struct plan_input *input, uint32_t block)
{
    return span_of(input, input->blocks[block].elements, plan_shards_states(input));
}

struct plan_span plan_node_span(const struct plan_input *input, uint64_t elements)
{
    const uint32_t local = plan_sharing(input);
    const uint32_t rank = input->rank / local * local;
    const uint32_t end = rank + local < input->world ? rank + local : input->world;
    const uint64_t first = plan_shard_border(elements, input->world, rank);
    return (struct plan_span){.first = first,
                              .count = plan_shard_border(elements, input->world, end) - first};
}

struct plan_span plan_copy_span(const struct plan_input *input, uint32_t block)
{
    const uint64_t elements = plan_kept_elements(input, block);
    const uint32_t member = input->rank % input->within;
    const uint64_t first = plan_shard_border(elements, input->within, member);
    return (struct plan_span){
        .first = first, .count = plan_shard_border(elements, input->within, member + 1) - first};
}

struct plan_span plan_weight_pages(const struct plan_input *input, uint32_t block,
                                   struct plan_span pages)
{
    const uint64_t width = input->blocks[block].format.weight_bytes;
    const struct plan_span own = plan_weight_span(input, block);
    return plan_span_overlap(
        pages, (struct plan_span){.first = own.first * width,
                                  .count = core_round_up(own.count * width, PLAN_ALIGN_BYTES)});
}

static uint64_t most_of(uint64_t elements, uint32_t ranks)
{
    uint64_t units = (elements + PLAN_CUT_ELEMENTS - 1) / PLAN_CUT_ELEMENTS;
    uint64_t most = (units + ranks - 1) / ranks * PLAN_CUT_ELEMENTS;
    return most < elements ? most : elements;
}

uint64_t plan_weight_most(const struct plan_input *input, uint32_t block)
{
    return most_of(plan_kept_elements(input, block), plan_shards_weights(input) ? input->world : 1);
}

uint64_t plan_state_most(const struct plan_input *input, uint32_t block)
{
    return most_of(input->blocks[block].elements, plan_shards_states(input) ? input->world : 1);
}

uint64_t plan_copy_most(const struct plan_input *input, uint32_t block)
{
    return most_of(plan_kept_elements(input, block), input->within);
}

uint64_t plan_chunk_count(uint64_t elements, uint64_t chunk_elements)
{
    return (elements + chunk_elements - 1) / chunk_elements;
}

uint64_t plan_chunk_size(uint64_t elements, uint64_t chunk_elements, uint64_t chunk)
{
    uint64_t left = elements - chunk * chunk_elements;
    return left < chunk_elements ? left : chunk_elements;
}

static uint64_t scale_bytes(const struct plan_format *format, uint64_t n, uint8_t moment_bytes)
{
    if (format->q8_block == 0 || moment_bytes == 0) {
        return 0;
    }
    return (n + format->q8_block - 1) / format->q8_block * SCALE_BYTES;
}

uint64_t plan_state_offset(const struct plan_format *format, enum plan_stream stream, uint64_t n)
{
    uint64_t at = 0;
    if (stream == PLAN_MASTER) {
        return at;
    }
    at += n * format->master_bytes;
    if (stream == PLAN_M) {
        return at;
    }
    at += n * format->m_bytes;
    if (stream == PLAN_V) {
        return at;
    }
    at += n * format->v_bytes;
    return stream == PLAN_V_SCALE ? at + scale_bytes(format, n, format->m_bytes) : at;
}

uint64_t plan_state_bytes(const struct plan_format *format, uint64_t n)
{
    return plan_state_offset(format, PLAN_V_SCALE, n) + scale_bytes(format, n, format->v_bytes);
}
