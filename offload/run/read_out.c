/* read_out.c: reads parameters and states in order, chunk by chunk. Chunks that are not in host
 * memory pass through slots: some are read while the taker works on others. No tape runs
 * meanwhile. */
#include <assert.h>

#include "core/base/err.h"
#include "offload/plan/shard.h"
#include "offload/run/chunks.h"

/* A slot's mark is the taker's tail() after the taker got the slot's chunk; the slot is free when
 * the taker is past that point. */
struct reading {
    struct run_rank *rank; /* borrowed, like all pointers here */
    uint32_t block;
    uint32_t count; /* number of chunks */
    struct run_slots slots;
    /* of the whole block; NULL: a chunk's weights are in its slot */
    char *weights;
    struct core_fence weights_read;
    const struct run_take_states *states; /* NULL: only weights, for take_weights */
    run_take_weights *take_weights;
    void *context; /* context of take_weights */
};

/* ---- one chunk ---- */

/* Reads the parts of a chunk that are not in host memory into a slot. */
static int read_chunk(struct reading *reading, uint32_t index, struct run_slot *slot)
{
    struct run_rank *rank = reading->rank;
    const struct store_place weights = {STORE_WEIGHTS, reading->block, index};
    const struct store_place states = {STORE_STATES, reading->block, index};
    if (reading->weights == NULL) {
        int rc = run_chunk_get(rank, &weights, slot->memory, &slot->moved);
        if (rc != 0) {
            return rc;
        }
    }
    if (reading->states == NULL) {
        return 0;
    }
    const struct run_chunk chunk = run_chunk_at(rank, reading->block, index);
    return run_chunk_states_memory(rank, &chunk) != NULL
               ? 0
               : run_chunk_get(rank, &states, slot->memory + plan_slot_states_offset(rank->plan),
                               &slot->moved);
}

static int take_states(struct reading *reading, uint32_t index, struct run_slot *slot)
{
    struct run_rank *rank = reading->rank;
    const struct run_take_states *taker = reading->states;
    const struct run_chunk chunk = run_chunk_at(rank, reading->block, index);
    const uint64_t before = chunk.first - plan_weight_span(rank->input, reading->block).first;
    char *resident = run_chunk_states_memory(rank, &chunk);
    const struct adam_arrays arrays = run_update_arrays(
        &rank->input->blocks[chunk.block].format, chunk.first, chunk.count,
        reading->weights != NULL
            ? reading->weights + before * rank->input->blocks[reading->block].format.weight_bytes
            : slot->memory,
        resident != NULL ? resident : slot->memory + plan_slot_states_offset(rank->plan), NULL);
    int rc = run_rank_wait(rank, reading->weights_read);
    if (rc != 0) {
        return rc;
    }
    rc = taker->take(taker->context, &arrays);
    slot->mark = rc == 0 && taker->tail != NULL ? taker->tail(taker->context) : 0;
    return rc;
}

static int take_chunk(struct reading *reading, uint32_t index, struct run_slot *slot)
{
    if (reading->states != NULL) {
        return take_states(reading, index, slot);
    }
    const uint64_t elements = plan_chunk_elements(reading->rank->plan);
    const struct plan_span span = plan_weight_span(reading->rank->input, reading->block);
    return reading->take_weights(reading->context, span.first + index * elements,
                                 plan_chunk_size(span.count, elements, index), slot->memory);
}

/* ---- all chunks of a block ---- */

static int wait_taken(const struct reading *reading, const struct run_slot *slot)
{
    const struct run_take_states *taker = reading->states;
    return taker != NULL && taker->wait != NULL ? taker->wait(taker->context, slot->mark) : 0;
}

/* Half of the slots are read into while the taker works on the others. */
static int pass_chunks(struct reading *reading)
{
    struct run_slots *slots = &reading->slots;
    uint32_t begun = 0;
    int rc = 0;
    for (uint32_t i = 0; i < reading->count; i++) {
        for (; begun < reading->count && begun < i + (slots->count + 1) / 2; begun++) {
            struct run_slot *next = run_slots_next(slots);
            rc = begun >= slots->count ? wait_taken(reading, next) : 0;
            if (rc != 0) {
                return rc;
            }
            rc = read_chunk(reading, begun, next);
            if (rc != 0) {
                return rc;
            }
        }
        struct run_slot *slot = &slots->at[i % slots->count];
        rc = run_rank_wait(reading->rank, slot->moved);
        if (rc != 0) {
            return rc;
        }
        rc = take_chunk(reading, i, slot);
        if (rc != 0) {
            return rc;
        }
    }
    for (uint32_t i = 0; rc == 0 && i < slots->count && i < reading->count; i++) {
        rc = wait_taken(reading, &slots->at[i]);
    }
    return rc;
}

/* Waits for reads into slots, even after an error. */
static int read_block(struct reading *reading)
{
    struct core_err first = core_err_keep(pass_chunks(reading));
    const int moved = run_slots_wait(reading->rank, &reading->slots);
    first = first.code != 0 ? first : core_err_keep(moved);
    return core_err_first(&first, run_rank_wait(reading->rank, reading->weights_read));
}

/* Slots without memory keep the taker's points if everything is in memory. */
static void init_slots(struct reading *reading)
{
    run_slots_init(&reading->slots, reading->rank);
    if (reading->slots.count == 0) {
        reading->slots.count = PLAN_STATE_SLOT_MAX;
    }
}

/* ---- weights ---- */

/* for a device that is the host */
static char *block_slot(const struct run_rank *rank, uint32_t block)
{
    const struct plan_layout *layout = plan_layout_of(rank->plan);
    return rank->memory.at[layout->weights.buffers[layout->blocks[block].size][0]];
}

static void split_block_slot(struct reading *reading)
{
    const struct run_rank *rank = reading->rank;
    const uint64_t stride = plan_chunk_elements(rank->plan) *
                            rank->input->blocks[reading->block].format.weight_bytes;
    struct run_slots *slots = &reading->slots;
    slots->count = reading->count < PLAN_STATE_SLOT_MAX ? reading->count : PLAN_STATE_SLOT_MAX;
    for (uint32_t i = 0; i < slots->count; i++) {
        slots->at[i].memory = block_slot(rank, reading->block) + i * stride;
    }
}

static int read_pages(struct run_rank *rank, uint32_t block, run_take_weights *take_weights,
                      void *context)
{
    struct run_pages pages = run_pages_of(rank, block);
    int rc = 0;
    while (rc == 0 && run_pages_next(&pages)) {
        struct core_fence read = {0};
        rc = run_pages_get(rank, &pages, &read);
        if (rc == 0) {
            rc = run_rank_wait(rank, read);
        }
        if (rc == 0) {
            rc = take_weights(context, pages.span.first, pages.span.count, pages.memory);
        }
    }
    return rc;
}

int run_rank_weights(struct run_rank *rank, uint32_t block, run_take_weights *take_weights,
                     void *context)
{
    const struct plan_span span = plan_weight_span(rank->input, block);
    const uint64_t elements = plan_chunk_elements(rank->plan);
    const char *resident = run_chunk_weights_memory(rank, block);
    struct reading reading = {.rank = rank,
                              .block = block,
                              .count = (uint32_t)plan_chunk_count(span.count, elements),
                              .take_weights = take_weights,
                              .context = context};
    if (resident != NULL) {
        return take_weights(context, span.first, span.count, resident);
    }
    if (rank->input->budgets.device_is_host) {
        if (plan_layout_of(rank->plan)->blocks[block].by_pages) {
            return read_pages(rank, block, take_weights, context);
        }
        split_block_slot(&reading);
    } else {
        init_slots(&reading);
    }
    return read_block(&reading);
}

/* ---- states ---- */

static int read_weights(struct reading *reading)
{
    struct run_rank *rank = reading->rank;
    const uint64_t elements = plan_chunk_elements(rank->plan);
    const uint64_t count = plan_chunk_count(plan_weight_span(rank->input, reading->block).count,
                                            elements);
    int rc = 0;
    reading->weights = block_slot(rank, reading->block);
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        const struct store_place place = {STORE_WEIGHTS, reading->block, i};
        rc = run_chunk_get(rank, &place,
                           reading->weights +
                               i * elements *
                                   rank->input->blocks[reading->block].format.weight_bytes,
                           &reading->weights_read);
    }
    return rc;
}

int run_rank_states(struct run_rank *rank, uint32_t block, const struct run_take_states *taker)
{
    struct reading reading = {.rank = rank,
                              .block = block,
                              .count = run_chunk_count(rank, block),
                              .weights = run_chunk_weights_memory(rank, block),
                              .states = taker};
    assert(rank->blocks->list[block].trained);
    if (reading.count == 0) { /* a small block's shard may be empty */
        return 0;
    }
    init_slots(&reading);
    if (reading.weights == NULL && rank->input->budgets.device_is_host) {
        int rc = read_weights(&reading);
        if (rc != 0) {
            const struct core_err kept = core_err_keep(rc);
            (void)run_rank_wait(rank, reading.weights_read);
            return core_err_first(&kept, 0);
        }
    }
    return read_block(&reading);
}
