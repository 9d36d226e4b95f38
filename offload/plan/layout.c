/* layout.c: adds the buffers of each kind and gives them consecutive offsets. */
#include "offload/plan/layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "offload/plan/layout_internal.h"

enum { NORM_BYTES = 64 };
/* Bytes of HOST per page in STORE that is read separately: its checksum, and the one in a kept
 * base. */
enum { PAGE_CHECKSUM_BYTES = 16, PAGE_KEPT_CHECKSUM_BYTES = 8 };

/* ---- weights and states ---- */

/* Adds the buffer for this rank's part of its group's copy. Sections have no copy. */
static int add_copy(struct plan_layout *layout, const struct plan_input *input, uint32_t b)
{
    struct plan_block_layout *block = &layout->blocks[b];
    const struct plan_buffer_kind copy = {"wcopy", PLAN_HOST, PLAN_FOR_WEIGHTS, false};
    if (!plan_copies_weights(input) || !block->again || block->by_pages) {
        return 0;
    }
    const uint64_t bytes = plan_gathered_bytes(input, b, plan_copy_most(input, b));
    return plan_layout_add_of_block(layout, input, b, &copy, core_round_up(bytes, PLAN_ALIGN_BYTES),
                                    &block->weights_copy);
}

/* Weights in a GPU's memory are also in HOST, unless the GPU updates them. */
static int add_weights(struct plan_layout *layout, const struct plan_input *input,
                       const struct plan_choice *choice, uint32_t b)
{
    const struct plan_block_place *place = &layout->places[b];
    struct plan_block_layout *block = &layout->blocks[b];
    uint64_t width = input->blocks[b].format.weight_bytes;
    uint64_t most = plan_weight_most(input, b);
    uint64_t bytes = core_round_up(most * width, PLAN_ALIGN_BYTES);
    bool twice = choice->speculates && input->blocks[b].trained;
    const struct plan_buffer_kind in_device = {"w", PLAN_DEVICE, PLAN_FOR_WEIGHTS, twice};
    const struct plan_buffer_kind in_host = {"w", PLAN_HOST, PLAN_FOR_WEIGHTS, twice};
    const struct plan_buffer_kind in_store = {"w", PLAN_STORE, PLAN_FOR_WEIGHTS, twice};
    const struct plan_buffer_kind outside = {"w", PLAN_APPLICATION, PLAN_FOR_WEIGHTS, false};
    bool host_copy = place->weights == PLAN_HOST ||
                     (place->weights == PLAN_DEVICE && !input->budgets.device_is_host &&
                      !block->on_card);
    int rc = 0;
    if (place->weights == PLAN_APPLICATION) {
        return plan_layout_add_of_block(layout, input, b, &outside, bytes, &block->weights_device);
    }
    if (place->weights == PLAN_DEVICE) {
        rc = plan_layout_add_of_block(layout, input, b, &in_device, bytes, &block->weights_device);
    }
    if (rc == 0 && host_copy) {
        rc = plan_layout_add_of_block(layout, input, b, &in_host, bytes, &block->weights_host);
    }
    if (rc == 0 && place->weights == PLAN_STORE) {
        uint64_t chunks = plan_chunk_count(most, choice->chunk_elements);
        rc = plan_layout_add_of_block(
            layout, input, b, &in_store,
            plan_extents_bytes(chunks, choice->chunk_elements * width,
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
    const struct plan_buffer_kind in_memory = {"s", (enum plan_tier)place->states, PLAN_FOR_STATES,
                                               twice};
    const struct plan_buffer_kind in_store = {"s", PLAN_STORE, PLAN_FOR_STATES, twice};
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
    int rc = plan_layout_add_of_block(layout, input, b, &in_memory, resident,
                                      &block->states_memory);
    if (rc == 0) {
        rc = plan_layout_add_of_block(
            layout, input, b, &in_store,
            plan_extents_bytes(away, chunk_bytes, plan_state_bytes(format, last)),
            &block->states_store);
    }
    return rc;
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
    return plan_layout_add(layout, name, tier, PLAN_FOR_ACTIVATIONS, bytes, out);
}

static uint64_t widest_boundary(const struct plan_input *input)
{
    uint64_t widest = 0;
    for (uint32_t b = 0; b < input->block_count; b++) {
        widest = core_larger(widest, input->blocks[b].out_bytes);
    }
    return core_round_up(widest, PLAN_ALIGN_BYTES);
}

/* Boundaries that wait in HOST or STORE take turns in PLAN_ACT_TURN buffers in DEVICE. */
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

/* ---- properties of blocks ---- */

static bool is_middle(const struct plan_input *input, uint32_t block)
{
    return block > 0 && block + 1 < input->compute_count;
}

static void sort_by_size(struct plan_layout *layout, const struct plan_input *input)
{
    uint64_t layer = 0;
    for (uint32_t b = 1; is_middle(input, b); b++) {
        layer = core_larger(layer, input->blocks[b].elements);
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

/* Returns whether a block is brought by pages. Ranks use different rows, so a sharded block of rows
 * is gathered whole. On the CPU device, trained weights in STORE are updated in a slot for the
 * whole block. */
static bool comes_by_pages(const struct plan_layout *layout, const struct plan_input *input,
                           uint32_t block)
{
    const struct plan_block_shape *shape = &input->blocks[block];
    const uint8_t weights = layout->places[block].weights;
    if (shape->trained && input->budgets.device_is_host && weights == PLAN_STORE) {
        return false;
    }
    if (shape->stored_elements > 0) { /* they are expanded in every tier */
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
        const uint32_t block = input->blocks[b].rows_bytes > 0 ? b : plan_layout_source(input, b);
        if (block != PLAN_NONE && comes_by_pages(layout, input, block)) {
            layout->blocks[block].by_pages = true;
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

/* Marks the blocks whose weights a step needs more than once. The last block's forward is part of
 * its backward. */
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

/* ---- scratch ---- */

/* A block in sections needs the temporaries of a whole group, because a section computes all
 * micro-batches before the next section starts. */
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
            scratch = core_larger(scratch, scratch_bytes(layout, input, b));
        }
    }
    int rc = plan_layout_add(layout, "scratch", PLAN_DEVICE, PLAN_FOR_SCRATCH, scratch,
                             &layout->scratch);
    if (rc == 0) {
        rc = plan_layout_add(layout, "tile-sums", PLAN_HOST, PLAN_FOR_SCRATCH,
                             tiles * PLAN_TILE_SUM_BYTES, &layout->tile_sums);
    }
    if (rc == 0 && plan_layout_sums_on_card(input)) {
        rc = plan_layout_add(layout, "tile-sums-card", PLAN_DEVICE, PLAN_FOR_SCRATCH,
                             tiles * PLAN_TILE_SUM_BYTES, &layout->tile_sums_card);
    }
    if (rc == 0 && plan_shards_states(input)) {
        rc = plan_layout_add(layout, "tile-sums-all", PLAN_HOST, PLAN_FOR_SCRATCH,
                             tiles * PLAN_TILE_SUM_BYTES, &layout->tile_sums_all);
    }
    if (rc == 0) {
        rc = plan_layout_add(layout, "norm", PLAN_HOST, PLAN_FOR_SCRATCH, NORM_BYTES,
                             &layout->norm);
    }
    return rc;
}

/* ---- the whole layout ---- */

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
        rc = plan_layout_add_slots(layout, input, choice);
    }
    if (rc == 0) {
        rc = plan_layout_add_gradients(layout, input, choice);
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

/* Buffers fit the largest shard of any rank; counts of chunks become this rank's. */
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
