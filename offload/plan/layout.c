/* layout.c: adds the buffers of each kind in turn and places them one behind another. */
#include "offload/plan/layout.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"

enum { NORM_BYTES = 64 };

struct sizes {
    uint64_t weights;  /* the largest block's working weights */
    uint64_t elements; /* the largest trained block */
    uint64_t forward;
    uint64_t backward;
};

uint64_t plan_chunk_count(const struct plan_input *input, uint32_t block, uint64_t chunk_elements)
{
    return (input->blocks[block].elements + chunk_elements - 1) / chunk_elements;
}

uint64_t plan_chunk_size(const struct plan_input *input, uint32_t block, uint64_t chunk_elements,
                         uint64_t chunk)
{
    uint64_t left = input->blocks[block].elements - chunk * chunk_elements;
    return left < chunk_elements ? left : chunk_elements;
}

uint32_t plan_state_bytes(const struct plan_format *format)
{
    return (uint32_t)format->master_bytes + format->m_bytes + format->v_bytes;
}

static bool owns(const struct plan_input *input, uint32_t block)
{
    return input->blocks[block].owner == block;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static int add(struct plan_layout *layout, const char *name, enum plan_tier tier, uint64_t bytes,
               uint16_t *out)
{
    if (bytes == 0) {
        return 0;
    }
    if (layout->count == layout->room) {
        uint32_t wider = layout->room == 0 ? 64 : layout->room * 2;
        struct plan_buffer *moved = realloc(layout->buffers, wider * sizeof *moved);
        if (moved == NULL || wider > PLAN_NONE) {
            layout->buffers = moved != NULL ? moved : layout->buffers;
            return core_err_set(-ENOMEM, "no memory for %u buffers of the plan", wider);
        }
        layout->buffers = moved;
        layout->room = wider;
    }
    struct plan_buffer *buffer = &layout->buffers[layout->count];
    *buffer = (struct plan_buffer){
        .tier = (uint8_t)tier, .offset = layout->tier_bytes[tier], .bytes = bytes};
    snprintf(buffer->name, sizeof buffer->name, "%s", name);
    uint64_t padded = (bytes + PLAN_ALIGN_BYTES - 1) / PLAN_ALIGN_BYTES * PLAN_ALIGN_BYTES;
    layout->tier_bytes[tier] += padded;
    *out = (uint16_t)layout->count++;
    return 0;
}

static int add_ring(struct plan_layout *layout, const char *name, enum plan_tier tier,
                    uint64_t bytes, uint32_t count, uint16_t *out)
{
    assert(count <= PLAN_SLOT_MAX);
    for (uint32_t i = 0; i < count; i++) {
        char numbered[32];
        snprintf(numbered, sizeof numbered, "%s[%u]", name, i);
        int rc = add(layout, numbered, tier, bytes, &out[i]);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int add_of_block(struct plan_layout *layout, const struct plan_input *input, uint32_t block,
                        const char *what, enum plan_tier tier, uint64_t bytes, uint16_t *out)
{
    char name[32];
    snprintf(name, sizeof name, "%s(%.20s)", what, input->blocks[block].name);
    return add(layout, name, tier, bytes, out);
}

/* Working weights where they live, and the states behind them. */
static int add_parameters(struct plan_layout *layout, const struct plan_input *input,
                          const struct plan_choice *choice, uint32_t b)
{
    const struct plan_block_shape *shape = &input->blocks[b];
    const struct plan_block_place *place = &layout->places[b];
    struct plan_block_layout *block = &layout->blocks[b];
    uint64_t weights = shape->elements * input->format.weight_bytes;
    uint64_t states = plan_state_bytes(&input->format);
    bool host_copy = place->weights == PLAN_HOST ||
                     (place->weights == PLAN_DEVICE && !input->budgets.device_is_host);
    int rc = 0;
    if (place->weights == PLAN_DEVICE) {
        rc = add_of_block(layout, input, b, "w", PLAN_DEVICE, weights, &block->weights_device);
    }
    if (rc == 0 && host_copy) {
        rc = add_of_block(layout, input, b, "w", PLAN_HOST, weights, &block->weights_host);
    }
    if (rc == 0 && place->weights == PLAN_STORE) {
        rc = add_of_block(layout, input, b, "w", PLAN_STORE, weights, &block->weights_store);
    }
    if (rc != 0 || !shape->trained) {
        return rc;
    }
    uint64_t resident = place->resident_chunks * choice->chunk_elements;
    resident = resident < shape->elements ? resident : shape->elements;
    rc = add_of_block(layout, input, b, "s", PLAN_HOST, resident * states, &block->states_host);
    if (rc == 0) {
        rc = add_of_block(layout, input, b, "s", PLAN_STORE, (shape->elements - resident) * states,
                          &block->states_store);
    }
    if (rc == 0) {
        rc = add_of_block(layout, input, b, "g", PLAN_HOST,
                          shape->elements * input->format.grad_bytes, &block->grads_host);
    }
    return rc;
}

static struct sizes sizes_of(const struct plan_input *input, const struct plan_choice *choice,
                             const struct plan_layout *layout)
{
    struct sizes sizes = {0};
    for (uint32_t b = 0; b < input->block_count; b++) {
        const struct plan_block_shape *shape = &input->blocks[b];
        if (layout->places[b].weights != PLAN_DEVICE) {
            sizes.weights = larger(sizes.weights, shape->elements * input->format.weight_bytes);
        }
        if (input->blocks[shape->owner].trained) {
            sizes.elements = larger(sizes.elements, input->blocks[shape->owner].elements);
        }
        uint64_t again = choice->acts == PLAN_ACTS_KEEP ? 0 : shape->kept_bytes;
        sizes.forward = larger(sizes.forward, shape->forward_bytes + again);
        sizes.backward = larger(sizes.backward, shape->backward_bytes + again);
    }
    return sizes;
}

/* Sums that outlive their block's backward: both uses of a shared parameter, and all of them where
 * a micro-batch goes through the whole model before the next. */
static int add_sums(struct plan_layout *layout, const struct plan_input *input,
                    const struct plan_choice *choice, uint64_t turn_elements)
{
    bool whole_model = choice->order == PLAN_ORDER_MICRO && input->wishes.micro_batches > 1;
    bool turns = false;
    for (uint32_t b = 0; b < input->block_count; b++) {
        uint32_t owner = input->blocks[b].owner;
        bool shared = false;
        for (uint32_t other = 0; other < input->block_count; other++) {
            shared = shared || (other != b && input->blocks[other].owner == owner);
        }
        if (!input->blocks[owner].trained) {
            continue;
        }
        if (!shared && !whole_model) {
            turns = true;
            continue;
        }
        int rc = add_of_block(layout, input, b, "sum", PLAN_DEVICE,
                              input->blocks[owner].elements * PLAN_SUM_BYTES,
                              &layout->blocks[b].sum);
        if (rc != 0) {
            return rc;
        }
    }
    return add_ring(layout, "sum", PLAN_DEVICE, turn_elements * PLAN_SUM_BYTES,
                    turns ? choice->gradient_slots : 0, layout->sums);
}

/* Boundary activations: all on the DEVICE, or PLAN_ACT_TURN boundaries' worth that take turns. */
static int add_acts(struct plan_layout *layout, const struct plan_input *input,
                    const struct plan_choice *choice)
{
    uint32_t micros = input->wishes.micro_batches;
    bool offloaded = choice->acts == PLAN_ACTS_HOST || choice->acts == PLAN_ACTS_STORE;
    uint64_t widest = 0;
    for (uint32_t b = 0; b < input->block_count; b++) {
        widest = larger(widest, input->blocks[b].out_bytes);
    }
    for (uint32_t i = 0; i + micros < input->block_count * micros; i++) {
        uint32_t b = i / micros;
        char name[32];
        snprintf(name, sizeof name, "act(%u.%u)", b, i % micros);
        int rc = 0;
        if (offloaded && b >= PLAN_ACT_TURN) {
            layout->acts[i] = layout->acts[i - PLAN_ACT_TURN * micros];
        } else {
            rc = add(layout, name, PLAN_DEVICE, offloaded ? widest : input->blocks[b].out_bytes,
                     &layout->acts[i]);
        }
        bool through_host = choice->acts == PLAN_ACTS_HOST ||
                            (choice->acts == PLAN_ACTS_STORE && !input->budgets.device_is_host);
        if (rc == 0 && through_host) {
            bool turns = choice->acts == PLAN_ACTS_STORE && b >= PLAN_ACT_TURN;
            if (turns) {
                layout->acts_host[i] = layout->acts_host[i - PLAN_ACT_TURN * micros];
            } else {
                rc = add(layout, name, PLAN_HOST, widest, &layout->acts_host[i]);
            }
        }
        if (rc == 0 && choice->acts == PLAN_ACTS_STORE) {
            rc = add(layout, name, PLAN_STORE, input->blocks[b].out_bytes, &layout->acts_store[i]);
        }
        if (rc != 0) {
            return rc;
        }
    }
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < 2 * micros; i++) {
        char name[32];
        snprintf(name, sizeof name, "dact(%u.%u)", i / micros, i % micros);
        rc = add(layout, name, PLAN_DEVICE, widest, &layout->out_grads[i]);
    }
    for (uint32_t i = 0; rc == 0 && i < input->block_count * micros; i++) {
        char name[32];
        snprintf(name, sizeof name, "kept(%u.%u)", i / micros, i % micros);
        uint64_t bytes = choice->acts == PLAN_ACTS_KEEP ? input->blocks[i / micros].kept_bytes : 0;
        rc = add(layout, name, PLAN_DEVICE, bytes, &layout->kept[i]);
    }
    return rc;
}

static int add_slots(struct plan_layout *layout, const struct plan_input *input,
                     const struct plan_choice *choice, const struct sizes *sizes)
{
    const struct plan_format *format = &input->format;
    bool from_store = false;
    bool states_move = false;
    for (uint32_t b = 0; b < input->block_count; b++) {
        from_store = from_store || (owns(input, b) && layout->places[b].weights == PLAN_STORE);
        states_move = states_move || layout->blocks[b].states_store != PLAN_NONE ||
                      (input->blocks[b].trained && layout->blocks[b].weights_store != PLAN_NONE);
    }
    uint64_t slot_bytes = choice->chunk_elements *
                          (plan_state_bytes(format) + (uint64_t)format->weight_bytes);
    int rc = add_ring(layout, "wslot", PLAN_DEVICE, sizes->weights,
                      sizes->weights > 0 ? choice->weight_slots : 0, layout->weight_slots);
    if (rc == 0 && from_store && !input->budgets.device_is_host) {
        rc = add_ring(layout, "wstage", PLAN_HOST, choice->chunk_elements * format->weight_bytes,
                      choice->state_slots, layout->weight_stages);
    }
    if (rc == 0) {
        rc = add_ring(layout, "sslot", PLAN_HOST, slot_bytes, states_move ? choice->state_slots : 0,
                      layout->state_slots);
    }
    if (rc == 0 && !input->budgets.device_is_host) {
        rc = add(layout, "rounded", PLAN_DEVICE, sizes->elements * format->grad_bytes,
                 &layout->rounded);
    }
    return rc;
}

static int add_common(struct plan_layout *layout, const struct plan_input *input,
                      const struct sizes *sizes)
{
    uint64_t tiles = 0;
    for (uint32_t b = 0; b < input->block_count; b++) {
        tiles += (input->blocks[b].elements + PLAN_TILE_ELEMENTS - 1) / PLAN_TILE_ELEMENTS;
    }
    int rc = add(layout, "scratch", PLAN_DEVICE, larger(sizes->forward, sizes->backward),
                 &layout->scratch);
    if (rc == 0) {
        rc = add(layout, "tile-sums", PLAN_HOST, tiles * PLAN_TILE_SUM_BYTES, &layout->tile_sums);
    }
    if (rc == 0) {
        rc = add(layout, "norm", PLAN_HOST, NORM_BYTES, &layout->norm);
    }
    return rc;
}

static uint16_t *no_buffers(size_t count)
{
    uint16_t *indices = malloc(count * sizeof *indices);
    if (indices != NULL) {
        memset(indices, 0xff, count * sizeof *indices);
    }
    return indices;
}

static int make_tables(struct plan_layout *layout, const struct plan_input *input,
                       const struct plan_block_place *places)
{
    size_t blocks = input->block_count;
    size_t each = blocks * input->wishes.micro_batches;
    memset(layout->weight_slots, 0xff, sizeof layout->weight_slots);
    memset(layout->weight_stages, 0xff, sizeof layout->weight_stages);
    memset(layout->state_slots, 0xff, sizeof layout->state_slots);
    memset(layout->sums, 0xff, sizeof layout->sums);
    layout->rounded = layout->scratch = layout->tile_sums = layout->norm = PLAN_NONE;
    layout->blocks = malloc(blocks * sizeof *layout->blocks);
    layout->places = malloc(blocks * sizeof *layout->places);
    layout->acts = no_buffers(each);
    layout->acts_host = no_buffers(each);
    layout->acts_store = no_buffers(each);
    layout->kept = no_buffers(each);
    layout->out_grads = no_buffers((size_t)2 * input->wishes.micro_batches);
    if (layout->blocks == NULL || layout->places == NULL || layout->acts == NULL ||
        layout->acts_host == NULL || layout->acts_store == NULL || layout->kept == NULL ||
        layout->out_grads == NULL) {
        return core_err_set(-ENOMEM, "no memory for the layout of %zu blocks", blocks);
    }
    memset(layout->blocks, 0xff, blocks * sizeof *layout->blocks);
    memcpy(layout->places, places, blocks * sizeof *layout->places);
    return 0;
}

int plan_layout_create(const struct plan_input *input, const struct plan_choice *choice,
                       const struct plan_block_place *places, struct plan_layout **out)
{
    struct plan_layout *layout = calloc(1, sizeof *layout);
    if (layout == NULL) {
        return core_err_set(-ENOMEM, "no memory for the layout of a plan");
    }
    int rc = make_tables(layout, input, places);
    struct sizes sizes = {0};
    for (uint32_t b = 0; rc == 0 && b < input->block_count; b++) {
        rc = owns(input, b) ? add_parameters(layout, input, choice, b) : 0;
    }
    if (rc == 0) {
        sizes = sizes_of(input, choice, layout);
        rc = add_slots(layout, input, choice, &sizes);
    }
    if (rc == 0) {
        rc = add_sums(layout, input, choice, sizes.elements);
    }
    if (rc == 0) {
        rc = add_acts(layout, input, choice);
    }
    if (rc == 0) {
        rc = add_common(layout, input, &sizes);
    }
    if (rc != 0) {
        plan_layout_destroy(layout);
        return rc;
    }
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
