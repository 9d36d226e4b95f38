/* layout.c: adds the buffers of each kind in turn and gives them consecutive offsets. */
#include "offload/plan/layout.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "offload/model/sections.h"

enum { NORM_BYTES = 64 };
/* Bytes of the checksum of each page in STORE that is read by itself: in its extent, and in the
 * tables of a kept base. */
enum { PAGE_CHECKSUM_BYTES = 16, PAGE_KEPT_CHECKSUM_BYTES = 8 };

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

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
    return core_round_up(larger(shape->forward_bytes, shape->backward_bytes), PLAN_ALIGN_BYTES);
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

/* ---- the list of buffers ---- */

struct buffer_kind {
    const char *name;
    enum plan_tier tier;
    enum plan_consumer consumer;
    bool twice; /* in two generations */
};

static int add_buffer(struct plan_layout *layout, const char *name, enum plan_tier tier,
                      enum plan_consumer consumer, uint64_t bytes, uint32_t *out)
{
    if (bytes == 0) {
        return 0;
    }
    if (layout->count == layout->room) {
        uint32_t wider = layout->room == 0 ? 256 : layout->room * 2;
        wider = wider < PLAN_NONE ? wider : PLAN_NONE; /* no buffer has this number */
        struct plan_buffer *moved = wider == layout->room
                                        ? NULL
                                        : realloc(layout->buffers, wider * sizeof *moved);
        if (moved == NULL) {
            return core_err_set(-ENOMEM, "out of memory for more than %u buffers of the plan",
                                layout->room);
        }
        layout->buffers = moved;
        layout->room = wider;
    }
    struct plan_buffer *buffer = &layout->buffers[layout->count];
    *buffer = (struct plan_buffer){
        .tier = (uint8_t)tier, .consumer = (uint8_t)consumer, .twin = PLAN_NONE, .bytes = bytes};
    snprintf(buffer->name, sizeof buffer->name, "%s", name);
    if (tier != PLAN_APPLICATION) {
        buffer->offset = layout->tier_bytes[tier];
        layout->tier_bytes[tier] += core_round_up(bytes, PLAN_ALIGN_BYTES);
    }
    *out = layout->count++;
    return 0;
}

static int add_ring(struct plan_layout *layout, const struct buffer_kind *kind,
                    const uint64_t bytes[PLAN_SIZE_COUNT], const uint32_t counts[PLAN_SIZE_COUNT],
                    struct plan_ring *out)
{
    static const char *const sizes[PLAN_SIZE_COUNT] = {".small", "", ".large", ".data"};
    for (int size = 0; size < PLAN_SIZE_COUNT; size++) {
        assert(counts[size] <= PLAN_SLOT_MAX);
        for (uint32_t i = 0; i < counts[size]; i++) {
            char name[32];
            snprintf(name, sizeof name, "%s%s[%u]", kind->name, sizes[size], i);
            int rc = add_buffer(layout, name, kind->tier, kind->consumer, bytes[size],
                                &out->buffers[size][i]);
            if (rc != 0) {
                return rc;
            }
        }
        out->counts[size] = counts[size];
    }
    return 0;
}

static int add_of_block(struct plan_layout *layout, const struct plan_input *input, uint32_t block,
                        const struct buffer_kind *kind, uint64_t bytes, uint32_t *out)
{
    char name[32];
    if (bytes == 0) {
        return 0;
    }
    snprintf(name, sizeof name, "%s(%.20s)", kind->name, input->blocks[block].name);
    int rc = add_buffer(layout, name, kind->tier, kind->consumer, bytes, out);
    if (rc == 0 && kind->twice) {
        uint32_t twin = PLAN_NONE;
        snprintf(name, sizeof name, "%s'(%.20s)", kind->name, input->blocks[block].name);
        rc = add_buffer(layout, name, kind->tier, kind->consumer, bytes, &twin);
        layout->buffers[*out].twin = twin;
    }
    return rc;
}

/* ---- weights and states ---- */

/* Adds the buffer for this rank's part of the copy that its group keeps of a block's weights, so
 * that backward need not gather them from all ranks. Sections are always gathered from all. */
static int add_copy(struct plan_layout *layout, const struct plan_input *input, uint32_t b)
{
    struct plan_block_layout *block = &layout->blocks[b];
    const struct buffer_kind copy = {"wcopy", PLAN_HOST, PLAN_FOR_WEIGHTS, false};
    if (!plan_copies_weights(input) || !block->again || block->by_pages) {
        return 0;
    }
    const uint64_t bytes = plan_gathered_bytes(input, b, plan_copy_most(input, b));
    return add_of_block(layout, input, b, &copy, core_round_up(bytes, PLAN_ALIGN_BYTES),
                        &block->weights_copy);
}

/* Bytes of the extents of `chunks` chunks, of which the last one may be short. */
static uint64_t extents_bytes(uint64_t chunks, uint64_t chunk_bytes, uint64_t last_bytes)
{
    return chunks == 0 ? 0
                       : (chunks - 1) * core_round_up(chunk_bytes, PLAN_EXTENT_BYTES) +
                             core_round_up(last_bytes, PLAN_EXTENT_BYTES);
}

static int add_weights(struct plan_layout *layout, const struct plan_input *input,
                       const struct plan_choice *choice, uint32_t b)
{
    const struct plan_block_place *place = &layout->places[b];
    struct plan_block_layout *block = &layout->blocks[b];
    uint64_t width = input->blocks[b].format.weight_bytes;
    uint64_t most = plan_weight_most(input, b);
    uint64_t bytes = core_round_up(most * width, PLAN_ALIGN_BYTES);
    bool twice = choice->speculates && input->blocks[b].trained;
    const struct buffer_kind in_device = {"w", PLAN_DEVICE, PLAN_FOR_WEIGHTS, twice};
    const struct buffer_kind in_host = {"w", PLAN_HOST, PLAN_FOR_WEIGHTS, twice};
    const struct buffer_kind in_store = {"w", PLAN_STORE, PLAN_FOR_WEIGHTS, twice};
    const struct buffer_kind outside = {"w", PLAN_APPLICATION, PLAN_FOR_WEIGHTS, false};
    bool host_copy = place->weights == PLAN_HOST ||
                     (place->weights == PLAN_DEVICE && !input->budgets.device_is_host &&
                      !block->on_card);
    int rc = 0;
    if (place->weights == PLAN_APPLICATION) {
        return add_of_block(layout, input, b, &outside, bytes, &block->weights_device);
    }
    if (place->weights == PLAN_DEVICE) {
        rc = add_of_block(layout, input, b, &in_device, bytes, &block->weights_device);
    }
    if (rc == 0 && host_copy) {
        rc = add_of_block(layout, input, b, &in_host, bytes, &block->weights_host);
    }
    if (rc == 0 && place->weights == PLAN_STORE) {
        uint64_t chunks = plan_chunk_count(most, choice->chunk_elements);
        rc = add_of_block(
            layout, input, b, &in_store,
            extents_bytes(chunks, choice->chunk_elements * width,
                          plan_chunk_size(most, choice->chunk_elements, chunks - 1) * width),
            &block->weights_store);
    }
    return rc;
}

static int add_states(struct plan_layout *layout, const struct plan_input *input,
                      const struct plan_choice *choice, uint32_t b)
{
    const struct plan_block_place *place = &layout->places[b];
    struct plan_block_layout *block = &layout->blocks[b];
    bool twice = choice->speculates;
    const struct buffer_kind in_memory = {"s", (enum plan_tier)place->states, PLAN_FOR_STATES,
                                          twice};
    const struct buffer_kind in_store = {"s", PLAN_STORE, PLAN_FOR_STATES, twice};
    uint64_t away = place->chunk_count - place->resident_chunks;
    const struct plan_format *format = &input->blocks[b].format;
    uint64_t chunk_bytes = plan_state_bytes(format, choice->chunk_elements);
    uint64_t stride = plan_layout_state_stride(input, choice->chunk_elements, b);
    uint64_t resident = place->resident_chunks * stride;
    const uint64_t last = plan_chunk_size(plan_state_most(input, b), choice->chunk_elements,
                                          place->chunk_count - 1);
    if (place->resident_chunks > 0 && away == 0) {
        resident -= stride;
        resident += core_round_up(plan_state_bytes(format, last), PLAN_ALIGN_BYTES);
    }
    int rc = add_of_block(layout, input, b, &in_memory, resident, &block->states_memory);
    if (rc == 0) {
        rc = add_of_block(layout, input, b, &in_store,
                          extents_bytes(away, chunk_bytes, plan_state_bytes(format, last)),
                          &block->states_store);
    }
    return rc;
}

/* ---- slots ---- */

/* The most blocks of one size whose weights a command needs at once: a block and those it borrows. */
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

/* The block whose weights a block can use by sections. */
static uint32_t source_of(const struct plan_input *input, uint32_t block)
{
    const struct plan_block_shape *shape = &input->blocks[block];
    return shape->sections != NULL ? shape->source : PLAN_NONE;
}

uint32_t plan_layout_sectioned(const struct plan_input *input, const struct plan_layout *layout,
                               uint32_t block)
{
    const uint32_t source = source_of(input, block);
    return source != PLAN_NONE && layout->blocks[source].by_pages ? source : PLAN_NONE;
}

uint32_t plan_layout_page_slot(const struct plan_layout *layout, uint32_t block)
{
    const uint32_t rows = layout->blocks[block].rows[0];
    return rows != PLAN_NONE ? rows : layout->sections[0];
}

/* Whether only rows or sections of a block are brought to the place of use. Shards are gathered by sections
 * wherever they are, but whole if rows are enough, because ranks use different rows. On the CPU device, weights
 * that are trained and in STORE are updated in a slot that has room for all of them. */
static bool comes_by_pages(const struct plan_layout *layout, const struct plan_input *input,
                           uint32_t block)
{
    const struct plan_block_shape *shape = &input->blocks[block];
    const uint8_t weights = layout->places[block].weights;
    if (shape->trained && input->budgets.device_is_host && weights == PLAN_STORE) {
        return false;
    }
    if (shape->stored_elements > 0) { /* wherever it is, its weights are expanded */
        return true;
    }
    return plan_shards_weights(input) ? shape->rows_bytes == 0
                                      : weights == PLAN_HOST || weights == PLAN_STORE;
}

static void mark_pages(struct plan_layout *layout, const struct plan_input *input)
{
    for (uint32_t b = 0; b < input->block_count; b++) {
        layout->blocks[b].by_pages = false;
    }
    for (uint32_t b = 0; b < input->block_count; b++) {
        const uint32_t block = input->blocks[b].rows_bytes > 0 ? b : source_of(input, b);
        if (block != PLAN_NONE && comes_by_pages(layout, input, block)) {
            layout->blocks[block].by_pages = true;
        }
    }
}

/* The least bytes of a slot through which weights in STORE pass when a run begins and ends, if the device is
 * the host: a cut of them. */
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

/* Compute works on one section at a time, so what is expanded has one slot. */
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
        expanded = larger(expanded, input->blocks[b].sections->expanded_bytes);
        if (input->blocks[source].stored_elements == 0 ||
            !plan_layout_reaches_stored(input, layout, source)) {
            bytes = larger(bytes, input->blocks[b].sections->bytes);
            bytes = larger(bytes,
                           core_round_up(passing_bytes(input, layout, source), PLAN_ALIGN_BYTES));
            stored = stored || layout->blocks[source].weights_store != PLAN_NONE;
        }
    }
    for (uint32_t i = 0; i < PLAN_SECTIONS_TURN; i++) {
        char name[32];
        snprintf(name, sizeof name, "section[%u]", i);
        int rc = add_buffer(layout, name, PLAN_DEVICE, PLAN_FOR_SLOTS, bytes, &layout->sections[i]);
        if (rc == 0 && stored && !input->budgets.device_is_host) {
            snprintf(name, sizeof name, "section-stage[%u]", i);
            rc = add_buffer(layout, name, PLAN_HOST, PLAN_FOR_SLOTS, bytes,
                            &layout->section_stages[i]);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return add_buffer(layout, "expanded", PLAN_DEVICE, PLAN_FOR_SLOTS, expanded, &layout->expanded);
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
        const struct buffer_kind slot = {"rows", PLAN_DEVICE, PLAN_FOR_SLOTS, false};
        const struct buffer_kind stage = {"rows-stage", PLAN_HOST, PLAN_FOR_SLOTS, false};
        const uint64_t bytes = core_round_up(
            larger(shape->rows_bytes, passing_bytes(input, layout, b)), PLAN_ALIGN_BYTES);
        if (shape->rows_bytes == 0 || !block->by_pages) {
            continue;
        }
        for (uint32_t i = 0; rc == 0 && i < count; i++) {
            rc = add_of_block(layout, input, b, &slot, bytes, &block->rows[i]);
            if (rc == 0 && stored && !direct) {
                rc = add_of_block(layout, input, b, &stage, bytes, &block->rows_stages[i]);
            }
        }
    }
    return rc;
}

/* Slots for stored weights that compute does not reach where they are kept. */
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
            bytes[size] = larger(bytes[size], core_round_up(kept, PLAN_ALIGN_BYTES));
            counts[size] += counts[size] < choice->weight_slots;
        }
    }
    const struct buffer_kind kind = {"stored", PLAN_DEVICE, PLAN_FOR_SLOTS, false};
    return add_ring(layout, &kind, bytes, counts, &layout->stored);
}

/* Slots for the packed weights of blocks that ranks gather so. */
static int add_packed_slots(struct plan_layout *layout, const struct plan_input *input,
                            const struct plan_choice *choice)
{
    uint64_t bytes[PLAN_SIZE_COUNT] = {0};
    uint32_t counts[PLAN_SIZE_COUNT] = {0};
    for (uint32_t b = 0; b < input->block_count; b++) {
        if (plan_packs_weights(input, b)) {
            const uint64_t packed = plan_packed_bytes(input->blocks[b].elements);
            const int size = layout->blocks[b].size;
            bytes[size] = larger(bytes[size], core_round_up(packed, PLAN_ALIGN_BYTES));
            counts[size] += counts[size] < choice->weight_slots;
        }
    }
    const struct buffer_kind kind = {"packed", PLAN_DEVICE, PLAN_FOR_SLOTS, false};
    return add_ring(layout, &kind, bytes, counts, &layout->packed);
}

/* Whether a block's weights are in its slot only after EXPAND. A shard in STORE is read into the slot. */
static bool is_expanded(const struct plan_layout *layout, const struct plan_input *input,
                        uint32_t block)
{
    return input->blocks[block].stored_elements > 0 ||
           (plan_packs_weights(input, block) && layout->places[block].weights != PLAN_STORE);
}

/* Blocks whose weights all come from EXPAND share one slot: it runs on the queue that computes, so more
 * slots would save no time. */
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
            bytes[size] = larger(bytes[size],
                                 input->blocks[b].elements * input->blocks[b].format.weight_bytes);
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
    const struct buffer_kind kind = {"wslot", PLAN_DEVICE, PLAN_FOR_SLOTS, false};
    return add_ring(layout, &kind, bytes, counts, &layout->weights);
}

static int add_row(struct plan_layout *layout, const char *name, uint64_t bytes, uint32_t count,
                   uint32_t *out)
{
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < count; i++) {
        char numbered[32];
        snprintf(numbered, sizeof numbered, "%s[%u]", name, i);
        rc = add_buffer(layout, numbered, PLAN_HOST, PLAN_FOR_SLOTS, bytes, &out[i]);
    }
    return rc;
}

/* Staging buffers in HOST, one chunk each. On the CPU device working weights are read and updated
 * where compute uses them, and slots hold only states. */
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
        const uint64_t most = larger(plan_state_most(input, b), plan_weight_most(input, b));
        const uint64_t elements = choice->chunk_elements < most ? choice->chunk_elements : most;
        w16 = larger(w16, core_round_up(elements * format->weight_bytes, PLAN_ALIGN_BYTES));
        states = larger(states,
                        core_round_up(plan_state_bytes(format, elements), PLAN_ALIGN_BYTES));
        gradient = larger(gradient, core_round_up(elements * format->grad_bytes, PLAN_ALIGN_BYTES));
        from_store = from_store || layout->blocks[b].weights_store != PLAN_NONE;
        /* Data that stays on a card passes through slots when a run begins and ends, and in
         * checkpoints. */
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

/* ---- gradients ---- */

/* Sums of a micro-batch-major step, and stored gradients that are sums themselves, live from the
 * first micro-batch to the last. */
static bool lives_all_along(const struct plan_input *input, const struct plan_choice *choice,
                            bool is_sum)
{
    return choice->order == PLAN_ORDER_MICRO && input->wishes.micro_batches > 1 && is_sum;
}

struct need {
    uint64_t bytes[PLAN_SIZE_COUNT];
    uint32_t counts[PLAN_SIZE_COUNT];
};

/* Which blocks share a ring of buffers; each of the others has a buffer of its own. With
 * ALL_IN_TURN all share it, except those whose gradient waits on the card where compute wrote
 * it. */
enum turn {
    EACH_ITS_OWN,
    UPDATED_IN_TURN /* only blocks whose update follows at once */,
    ALL_IN_TURN
};

/* The properties of one kind of gradient buffer. */
struct gradient_kind {
    struct buffer_kind layout;
    bool sums;      /* in fp32, and not of the stored type */
    uint32_t turns; /* slots of the ring that blocks share */
    enum turn turn;
    bool shard;             /* only this rank's part */
    bool waits;             /* waits for the update: blocks on the card have no such buffer in
                             * HOST */
    size_t member;          /* offset of the index in struct plan_block_layout */
    struct plan_ring *ring; /* the layout's ring */
};

/* Bytes of a whole gradient, or of this rank's shard that waits for the update. */
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
            need.bytes[size] = larger(need.bytes[size],
                                      core_round_up(bytes_of(input, kind, b), PLAN_ALIGN_BYTES));
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
        rc = add_ring(layout, &kind->layout, need.bytes, need.counts, kind->ring);
    }
    for (uint32_t b = 0; rc == 0 && b < input->block_count; b++) {
        if (is_wanted(input, layout, kind, b) && !takes_turns(input, layout, kind, b)) {
            uint32_t *index = (uint32_t *)(void *)((char *)&layout->blocks[b] + kind->member);
            rc = add_of_block(layout, input, b, &kind->layout, bytes_of(input, kind, b), index);
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
    return add_buffer(layout, "shared-sum", PLAN_DEVICE, PLAN_FOR_GRADIENTS,
                      elements * PLAN_SUM_BYTES, &layout->shared_sum);
}

/* Adds the buffer for codes of gradients. It has room for one block's, because ranks reduce one
 * gradient at a time. */
static int add_codes(struct plan_layout *layout, const struct plan_input *input)
{
    uint64_t bytes = 0;
    for (uint32_t b = 0; plan_codes_gradients(input) && b < input->block_count; b++) {
        const uint64_t coded = plan_coded_bytes(input->blocks[b].elements);
        bytes = input->blocks[b].trained ? larger(bytes, coded) : bytes;
    }
    return add_buffer(layout, "codes", PLAN_DEVICE, PLAN_FOR_GRADIENTS,
                      core_round_up(bytes, PLAN_ALIGN_BYTES), &layout->codes);
}

/* Gradients as stored: one buffer per block if they wait for the update in memory; a ring if the
 * update follows at once, or if they wait in STORE. */
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
    const struct buffer_kind in_store = {"g", PLAN_STORE, PLAN_FOR_GRADIENTS, false};
    int rc = add_kind(layout, input, &kind);
    for (uint32_t b = 0; rc == 0 && away && b < input->block_count; b++) {
        const uint64_t most = plan_state_most(input, b);
        const uint64_t chunks = plan_chunk_count(most, choice->chunk_elements);
        const uint64_t width = input->blocks[b].format.grad_bytes;
        const uint64_t last = plan_chunk_size(most, choice->chunk_elements, chunks - 1);
        if (is_wanted(input, layout, &kind, b)) {
            rc = add_of_block(layout, input, b, &in_store,
                              extents_bytes(chunks, choice->chunk_elements * width, last * width),
                              &layout->blocks[b].gradient_store);
        }
    }
    return rc;
}

static int add_gradients(struct plan_layout *layout, const struct plan_input *input,
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

/* ---- activations ---- */

static int add_numbered(struct plan_layout *layout, const char *what, uint32_t block,
                        uint32_t micro, enum plan_tier tier, uint64_t bytes, uint32_t *out)
{
    char name[32];
    if (bytes == 0) {
        return 0;
    }
    snprintf(name, sizeof name, "%s(%u.%u)", what, block, micro);
    return add_buffer(layout, name, tier, PLAN_FOR_ACTIVATIONS, bytes, out);
}

static uint64_t widest_boundary(const struct plan_input *input)
{
    uint64_t widest = 0;
    for (uint32_t b = 0; b < input->block_count; b++) {
        uint64_t bytes = input->blocks[b].out_bytes;
        widest = bytes > widest ? bytes : widest;
    }
    return core_round_up(widest, PLAN_ALIGN_BYTES);
}

/* One boundary of one micro-batch: permanently in DEVICE, or PLAN_ACT_TURN boundaries take turns in
 * DEVICE while the others wait in HOST or STORE. */
static int add_boundary(struct plan_layout *layout, const struct plan_input *input,
                        const struct plan_choice *choice, uint64_t widest, uint32_t i)
{
    uint32_t b = i / layout->in_flight;
    uint32_t micro = i % layout->in_flight;
    uint32_t before = i - PLAN_ACT_TURN * layout->in_flight;
    bool stored = choice->acts == PLAN_ACTS_STORE;
    bool offloaded = choice->acts == PLAN_ACTS_HOST || stored;
    bool turns = b >= PLAN_ACT_TURN;
    int rc = 0;
    if (offloaded && turns) {
        layout->acts[i] = layout->acts[before];
    } else {
        rc = add_numbered(layout, "act", b, micro, PLAN_DEVICE,
                          offloaded ? widest : input->blocks[b].out_bytes, &layout->acts[i]);
    }
    if (rc == 0 && offloaded && !(stored && input->budgets.device_is_host)) {
        if (stored && turns) {
            layout->acts_host[i] = layout->acts_host[before];
        } else {
            rc = add_numbered(layout, "act", b, micro, PLAN_HOST, widest, &layout->acts_host[i]);
        }
    }
    if (rc == 0 && stored) {
        rc = add_numbered(layout, "act", b, micro, PLAN_STORE,
                          core_round_up(input->blocks[b].out_bytes, PLAN_EXTENT_BYTES),
                          &layout->acts_store[i]);
    }
    return rc;
}

static int add_acts(struct plan_layout *layout, const struct plan_input *input,
                    const struct plan_choice *choice)
{
    const uint64_t widest = widest_boundary(input);
    uint32_t in_flight = layout->in_flight;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < (input->compute_count - 1) * in_flight; i++) {
        rc = add_boundary(layout, input, choice, widest, i);
    }
    for (uint32_t i = 0; rc == 0 && i < in_flight; i++) {
        rc = add_numbered(layout, "dact", 0, i, PLAN_DEVICE, widest, &layout->out_grads[i]);
    }
    for (uint32_t i = 0; rc == 0 && i < input->compute_count * in_flight; i++) {
        bool kept = layout->places[i / in_flight].kept;
        rc = add_numbered(layout, "kept", i / in_flight, i % in_flight, PLAN_DEVICE,
                          kept ? plan_layout_kept_bytes(input, i / in_flight) : 0,
                          &layout->kept[i]);
    }
    return rc;
}

/* ---- the whole layout ---- */

/* Temporaries of a block and activations that are recomputed: of one micro-batch, or of all of a group if a
 * command does one section of each, because the next section needs them. */
static uint64_t scratch_bytes(const struct plan_layout *layout, const struct plan_input *input,
                              uint32_t block)
{
    const struct plan_block_shape *shape = &input->blocks[block];
    const bool again = layout->kept[block * layout->in_flight] == PLAN_NONE;
    const bool all = input->group > 1 && plan_layout_sectioned(input, layout, block) != PLAN_NONE;
    return (plan_layout_temporary_bytes(shape) + (again ? shape->kept_bytes : 0)) *
           (all ? input->group : 1);
}

static int add_common(struct plan_layout *layout, const struct plan_input *input)
{
    uint64_t scratch = 0;
    uint64_t tiles = 0;
    for (uint32_t b = 0; b < input->block_count; b++) {
        layout->blocks[b].first_tile = tiles;
        tiles += plan_chunk_count(input->blocks[b].elements, PLAN_TILE_ELEMENTS);
        if (b < input->compute_count) {
            scratch = larger(scratch, scratch_bytes(layout, input, b));
        }
    }
    int rc = add_buffer(layout, "scratch", PLAN_DEVICE, PLAN_FOR_SCRATCH, scratch,
                        &layout->scratch);
    if (rc == 0) {
        rc = add_buffer(layout, "tile-sums", PLAN_HOST, PLAN_FOR_SCRATCH,
                        tiles * PLAN_TILE_SUM_BYTES, &layout->tile_sums);
    }
    if (rc == 0 && plan_layout_sums_on_card(input)) {
        rc = add_buffer(layout, "tile-sums-card", PLAN_DEVICE, PLAN_FOR_SCRATCH,
                        tiles * PLAN_TILE_SUM_BYTES, &layout->tile_sums_card);
    }
    if (rc == 0 && plan_shards_states(input)) {
        rc = add_buffer(layout, "tile-sums-all", PLAN_HOST, PLAN_FOR_SCRATCH,
                        tiles * PLAN_TILE_SUM_BYTES, &layout->tile_sums_all);
    }
    if (rc == 0) {
        rc = add_buffer(layout, "norm", PLAN_HOST, PLAN_FOR_SCRATCH, NORM_BYTES, &layout->norm);
    }
    return rc;
}

static bool is_middle(const struct plan_input *input, uint32_t block)
{
    return block > 0 && block + 1 < input->compute_count;
}

static void sort_by_size(struct plan_layout *layout, const struct plan_input *input)
{
    uint64_t layer = 0;
    for (uint32_t b = 1; is_middle(input, b); b++) {
        layer = larger(layer, input->blocks[b].elements);
    }
    layout->first_trained = input->block_count;
    for (uint32_t b = input->block_count; b-- > 0;) {
        uint64_t elements = input->blocks[b].elements;
        layout->blocks[b].on_card = !input->budgets.device_is_host && input->blocks[b].trained &&
                                    layout->places[b].states == PLAN_DEVICE;
        layout->blocks[b].size = is_middle(input, b)    ? PLAN_LAYER
                                 : elements > layer     ? PLAN_LARGE
                                 : elements < layer / 4 ? PLAN_SMALL
                                                        : PLAN_LAYER;
        layout->first_trained = input->blocks[b].trained ? b : layout->first_trained;
    }
    for (uint32_t b = 1; is_middle(input, b); b++) {
        for (uint32_t i = 0; i < input->blocks[b].borrow_count; i++) {
            layout->blocks[input->blocks[b].borrows[i]].size = PLAN_LAYER_DATA;
        }
    }
}

static void find_lenders(struct plan_layout *layout, const struct plan_input *input)
{
    for (uint32_t b = 0; b < input->block_count; b++) {
        layout->blocks[b].lends = false;
    }
    for (uint32_t b = 0; b < input->block_count; b++) {
        if (plan_layout_shared(input, b) > 0) {
            layout->blocks[input->blocks[b].borrows[0]].lends = true;
        }
    }
}

/* Marks the blocks whose weights a step needs more than once: all of them if micro-batches run one
 * at a time; otherwise the blocks whose backward reads weights, and the blocks that these borrow.
 * The forward of the last block is part of its backward, so it and its data block are needed once;
 * a computing block that it borrows also has a forward of its own. */
static void mark_again(struct plan_layout *layout, const struct plan_input *input,
                       const struct plan_choice *choice)
{
    const bool by_micro = choice->order == PLAN_ORDER_MICRO && input->wishes.micro_batches > 1;
    for (uint32_t b = 0; b < input->block_count; b++) {
        layout->blocks[b].again = by_micro;
    }
    for (uint32_t b = layout->first_trained; b < input->compute_count; b++) {
        const struct plan_block_shape *shape = &input->blocks[b];
        const bool last = b + 1 == input->compute_count;
        const bool reads = shape->backward_reads_weights ||
                           (!layout->places[b].kept && shape->kept_bytes > 0);
        for (uint32_t i = 0; i < shape->borrow_count; i++) {
            const bool computes = shape->borrows[i] < input->compute_count;
            layout->blocks[shape->borrows[i]].again |= reads && (computes || !last);
        }
        layout->blocks[b].again |= reads && !last;
    }
}

static uint32_t *no_buffers(size_t count)
{
    uint32_t *indices = malloc(count * sizeof *indices);
    if (indices != NULL) {
        memset(indices, 0xff, count * sizeof *indices);
    }
    return indices;
}

static int make_tables(struct plan_layout *layout, const struct plan_input *input,
                       const struct plan_choice *choice, const struct plan_block_place *places)
{
    size_t blocks = input->block_count;
    size_t each = blocks * layout->in_flight;
    memset(layout->weight_stages, 0xff, sizeof layout->weight_stages);
    memset(layout->sections, 0xff, sizeof layout->sections);
    memset(layout->section_stages, 0xff, sizeof layout->section_stages);
    memset(layout->state_slots, 0xff, sizeof layout->state_slots);
    layout->scratch = layout->tile_sums = layout->norm = layout->expanded = PLAN_NONE;
    layout->shared_sum = layout->codes = layout->tile_sums_all = layout->tile_sums_card = PLAN_NONE;
    layout->blocks = malloc(blocks * sizeof *layout->blocks);
    layout->places = malloc(blocks * sizeof *layout->places);
    layout->acts = no_buffers(each);
    layout->acts_host = no_buffers(each);
    layout->acts_store = no_buffers(each);
    layout->kept = no_buffers(each);
    layout->out_grads = no_buffers(layout->in_flight);
    if (layout->blocks == NULL || layout->places == NULL || layout->acts == NULL ||
        layout->acts_host == NULL || layout->acts_store == NULL || layout->kept == NULL ||
        layout->out_grads == NULL) {
        return core_err_set(-ENOMEM, "no memory for the layout of %zu blocks", blocks);
    }
    memset(layout->blocks, 0xff, blocks * sizeof *layout->blocks);
    memcpy(layout->places, places, blocks * sizeof *layout->places);
    sort_by_size(layout, input);
    find_lenders(layout, input);
    mark_pages(layout, input);
    mark_again(layout, input, choice);
    return 0;
}

static int add_all(struct plan_layout *layout, const struct plan_input *input,
                   const struct plan_choice *choice)
{
    int rc = 0;
    for (uint32_t b = 0; rc == 0 && b < input->block_count; b++) {
        rc = add_weights(layout, input, choice, b);
        if (rc == 0) {
            rc = add_copy(layout, input, b);
        }
        if (rc == 0 && input->blocks[b].trained) {
            rc = add_states(layout, input, choice, b);
        }
    }
    if (rc == 0) {
        rc = add_weight_slots(layout, input, choice);
    }
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
    if (rc == 0) {
        rc = add_stages(layout, input, choice);
    }
    if (rc == 0) {
        rc = add_gradients(layout, input, choice);
    }
    if (rc == 0) {
        rc = add_acts(layout, input, choice);
    }
    return rc == 0 ? add_common(layout, input) : rc;
}

static void count_checksums(struct plan_layout *layout, const struct plan_input *input)
{
    for (uint32_t b = 0; b < input->block_count; b++) {
        const uint32_t kept = layout->blocks[b].weights_store;
        const uint64_t each = input->blocks[b].stored_elements > 0
                                  ? PAGE_CHECKSUM_BYTES + PAGE_KEPT_CHECKSUM_BYTES
                                  : PAGE_CHECKSUM_BYTES;
        if (layout->blocks[b].by_pages && kept != PLAN_NONE) {
            layout->checksums_bytes += layout->buffers[kept].bytes / PLAN_EXTENT_BYTES * each;
        }
    }
}

/* Memory is sized for the largest shard; all other figures are this rank's. */
static void keep_own_chunks(struct plan_layout *layout, const struct plan_input *input,
                            const struct plan_choice *choice)
{
    for (uint32_t b = 0; b < input->block_count; b++) {
        struct plan_block_place *place = &layout->places[b];
        uint64_t own = plan_chunk_count(plan_state_span(input, b).count, choice->chunk_elements);
        place->chunk_count = place->chunk_count < own ? place->chunk_count : (uint32_t)own;
        place->resident_chunks = place->resident_chunks < place->chunk_count
                                     ? place->resident_chunks
                                     : place->chunk_count;
    }
}

int plan_layout_create(const struct plan_input *input, const struct plan_choice *choice,
                       const struct plan_block_place *places, struct plan_layout **out)
{
    struct plan_layout *layout = calloc(1, sizeof *layout);
    if (layout == NULL) {
        return core_err_set(-ENOMEM, "no memory for the layout of a plan");
    }
    layout->in_flight = choice->order == PLAN_ORDER_MICRO ? 1 : input->wishes.micro_batches;
    layout->chunk_elements = choice->chunk_elements;
    int rc = make_tables(layout, input, choice, places);
    if (rc == 0) {
        rc = add_all(layout, input, choice);
    }
    if (rc != 0) {
        plan_layout_destroy(layout);
        return rc;
    }
    count_checksums(layout, input);
    keep_own_chunks(layout, input, choice);
    *out = layout;
    return 0;
}

void plan_layout_destroy(struct plan_layout *layout)
{
    if (layout == NULL) {
        return;
    }
    free(layout->buffers);
    free(layout->blocks);
    free(layout->places);
    free(layout->acts);
    free(layout->acts_host);
    free(layout->acts_store);
    free(layout->kept);
    free(layout->out_grads);
    free(layout);
}

/* ---- finding extents and chunks ---- */

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
