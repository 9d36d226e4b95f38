/* update.c: reads, updates and writes chunks. On the CPU device, weights are updated in place: in
 * memory or in the weight slot. With a card, weights in STORE pass through the state slot, and the
 * card updates the states that it keeps. */
#include "offload/plan/update.h"

#include <stddef.h>

#include "offload/plan/fetch.h"

struct chunk {
    uint32_t block;
    uint64_t index;
    uint64_t first; /* element of the block */
    uint64_t count;
    uint32_t slot; /* PLAN_NONE: none needed */
    bool states_away;
    bool gradient_away;
    bool weights_in_slot;
    /* working weights in memory, unless they pass through the slot */
    struct plan_piece weights;
};

static uint8_t state_streams(const struct plan_format *format)
{
    bool scales = format->q8_block != 0;
    return (uint8_t)((format->master_bytes != 0 ? PLAN_MASTER : 0) |
                     (format->m_bytes != 0 ? PLAN_M : 0) | (format->v_bytes != 0 ? PLAN_V : 0) |
                     (scales && format->m_bytes != 0 ? PLAN_M_SCALE : 0) |
                     (scales && format->v_bytes != 0 ? PLAN_V_SCALE : 0));
}

static struct plan_piece weights_in_slot(const struct plan_step *step, const struct chunk *chunk)
{
    return (struct plan_piece){.buffer = chunk->slot,
                               .bytes = chunk->count *
                                        step->input->blocks[chunk->block].format.weight_bytes};
}

static struct plan_piece gradient_in_slot(const struct plan_step *step, const struct chunk *chunk)
{
    return (struct plan_piece){.buffer = chunk->slot,
                               .offset = step->layout->slot_gradient_offset,
                               .bytes = chunk->count *
                                        step->input->blocks[chunk->block].format.grad_bytes};
}

static struct plan_piece chunk_kept(const struct plan_step *step, enum plan_stream stream,
                                    const struct chunk *chunk)
{
    return plan_chunk_at(step->input, step->layout, stream, chunk->block, chunk->index).kept;
}

static int slot_move(struct plan_step *step, enum plan_op op, const struct chunk *chunk)
{
    const struct plan_format *format = &step->input->blocks[chunk->block].format;
    const struct plan_layout *layout = step->layout;
    bool reads = op == PLAN_READ;
    enum plan_access outside = reads ? PLAN_READS : PLAN_WRITES;
    uint64_t states = plan_state_bytes(format, chunk->count);
    uint64_t w16 = chunk->count * format->weight_bytes;
    struct plan_command command = plan_move_command(
        op, reads ? PLAN_Q_READ_STATE : PLAN_Q_WRITE_STATE, chunk->block, PLAN_NONE);
    struct plan_piece inside = {.buffer = chunk->slot, .offset = layout->slot_states_offset};
    command.chunk = (uint32_t)chunk->index;
    command.elements = chunk->count;
    if (chunk->weights_in_slot) {
        struct plan_piece extent = chunk_kept(step, PLAN_W16, chunk);
        command.streams |= PLAN_W16;
        command.bytes += w16;
        plan_move_operand(&command, PLAN_AS_EXTENT_W16, outside, extent);
        inside = weights_in_slot(step, chunk);
    }
    if (chunk->states_away) {
        struct plan_piece extent = chunk_kept(step, PLAN_MASTER, chunk);
        command.streams |= state_streams(format);
        command.bytes += states;
        plan_move_operand(&command, PLAN_AS_EXTENT_STATES, outside, extent);
        inside.bytes = layout->slot_states_offset + states - inside.offset;
    }
    if (chunk->gradient_away && reads) {
        struct plan_piece gradient = gradient_in_slot(step, chunk);
        struct plan_piece extent = chunk_kept(step, PLAN_G, chunk);
        command.streams |= PLAN_G;
        command.bytes += gradient.bytes;
        plan_move_operand(&command, PLAN_AS_EXTENT_GRAD, PLAN_READS, extent);
        inside.offset = inside.bytes > 0 ? inside.offset : gradient.offset;
        inside.bytes = gradient.offset + gradient.bytes - inside.offset;
    }
    if (command.bytes == 0) {
        return 0;
    }
    plan_move_operand(&command, PLAN_AS_SLOT, reads ? PLAN_WRITES : PLAN_READS, inside);
    return plan_move_add(step, &command);
}

/* Adds a chunk's states and weights: in the state slot, or in place. */
static void use_chunk(struct plan_step *step, struct plan_command *command,
                      const struct chunk *chunk, enum plan_access access)
{
    const uint64_t offset = step->layout->slot_states_offset;
    struct plan_piece inside = chunk->weights_in_slot ? weights_in_slot(step, chunk)
                                                      : (struct plan_piece){.buffer = PLAN_NONE};
    command->chunk = (uint32_t)chunk->index;
    command->elements = chunk->count;
    if (chunk->states_away) {
        const uint64_t from = chunk->weights_in_slot ? 0 : offset;
        const uint64_t states = plan_state_bytes(&step->input->blocks[chunk->block].format,
                                                 chunk->count);
        inside = (struct plan_piece){
            .buffer = chunk->slot, .offset = from, .bytes = offset + states - from};
    } else {
        plan_move_operand(command, PLAN_AS_STATES, access, chunk_kept(step, PLAN_MASTER, chunk));
    }
    plan_move_operand(command, PLAN_AS_SLOT, access, inside);
    plan_move_operand(command, PLAN_AS_WEIGHTS_PLACE, access, chunk->weights);
}

static int update(struct plan_step *step, const struct chunk *chunk)
{
    const struct plan_format *format = &step->input->blocks[chunk->block].format;
    const struct plan_block_layout *where = plan_move_block(step, chunk->block);
    uint32_t own = where->on_card ? where->gradient_whole : where->gradient;
    uint32_t gradient = own != PLAN_NONE ? own : step->gradient;
    struct plan_command command = plan_move_command(
        PLAN_UPDATE, where->on_card ? PLAN_Q_COMPUTE : PLAN_Q_UPDATE, chunk->block, PLAN_NONE);
    use_chunk(step, &command, chunk, PLAN_CHANGES);
    uint64_t before = plan_layout_gradient_first(step->input, chunk->block);
    struct plan_piece stored = {.buffer = gradient,
                                .offset = (chunk->first - before) * format->grad_bytes,
                                .bytes = chunk->count * format->grad_bytes};
    plan_move_operand(&command, PLAN_AS_GRAD, PLAN_READS,
                      chunk->gradient_away ? gradient_in_slot(step, chunk) : stored);
    if (step->sums) {
        const struct plan_piece tiles = {
            .buffer = step->layout->tile_sums,
            .offset = (where->first_tile + chunk->first / PLAN_TILE_ELEMENTS) * PLAN_TILE_SUM_BYTES,
            .bytes = plan_chunk_count(chunk->count, PLAN_TILE_ELEMENTS) * PLAN_TILE_SUM_BYTES};
        plan_move_operand(&command, PLAN_AS_TILE_SUMS, PLAN_WRITES, tiles);
    }
    if (!step->ahead && step->choice->pending_share == PLAN_SHARE_ALL) {
        plan_move_operand(&command, PLAN_AS_NORM, PLAN_READS,
                          plan_move_whole(step, step->layout->norm));
    }
    return plan_move_add(step, &command);
}

/* Copies a chunk that stays on the card to a state slot. */
static int bring_down(struct plan_step *step, struct chunk *chunk)
{
    const struct plan_layout *layout = step->layout;
    struct plan_piece states = chunk_kept(step, PLAN_MASTER, chunk);
    chunk->slot = layout->state_slots[step->state_turn++ % step->choice->state_slots];
    struct plan_piece below = {
        .buffer = chunk->slot, .offset = layout->slot_states_offset, .bytes = states.bytes};
    int rc = plan_move_copy(step, PLAN_D2H, chunk->block, chunk->weights,
                            weights_in_slot(step, chunk));
    if (rc == 0 && states.bytes > 0) {
        rc = plan_move_copy(step, PLAN_D2H, chunk->block, states, below);
    }
    return rc;
}

static int save(struct plan_step *step, const struct chunk *made)
{
    struct chunk copy = *made;
    struct chunk *chunk = &copy;
    if (plan_move_block(step, chunk->block)->on_card) {
        int rc = bring_down(step, chunk);
        if (rc != 0) {
            return rc;
        }
        chunk->states_away = chunk->weights_in_slot = true;
        chunk->weights.buffer = PLAN_NONE;
    }
    const struct plan_format *format = &step->input->blocks[chunk->block].format;
    struct plan_command command = plan_move_command(PLAN_WRITE, PLAN_Q_WRITE_CHECKPOINT,
                                                    chunk->block, PLAN_NONE);
    command.streams = (uint8_t)(PLAN_W16 | state_streams(format));
    command.bytes = chunk->count * format->weight_bytes + plan_state_bytes(format, chunk->count);
    use_chunk(step, &command, chunk, PLAN_READS);
    return plan_builder_add(step->builder, &command);
}

struct update_weights {
    uint32_t buffer; /* updated there; PLAN_NONE: in state slots */
    uint32_t copy;   /* gets a copy of updated chunks; PLAN_NONE: none */
    uint64_t first;  /* first element of `buffer`, and of `copy` unless it is a slot */
    bool fetched;    /* `buffer` is a weight slot, and chunks return to STORE */
    bool held;       /* the slot has the weights already */
    bool gathered;   /* ranks' new weights are gathered at `whole` */
    bool written;    /* gathered weights are written to STORE */
    uint32_t whole;
};

/* Returns whether only states are sharded (stages 1 and 2). */
static bool is_half_sharded(const struct plan_step *step)
{
    return plan_shards_states(step->input) && !plan_shards_weights(step->input);
}

static int prepare_weights_cpu(struct plan_step *step, uint32_t block, bool to_device,
                               struct update_weights *weights)
{
    const struct plan_block_layout *where = plan_move_block(step, block);
    bool half = is_half_sharded(step);
    weights->gathered = half;
    if (where->weights_store == PLAN_NONE) {
        bool resident = where->weights_device != PLAN_NONE;
        weights->buffer = resident ? where->weights_device : where->weights_host;
        weights->whole = weights->buffer;
        bool copies = !resident && to_device && !plan_shards_states(step->input);
        weights->copy = copies ? plan_fetch_claim(step, block) : PLAN_NONE;
        return 0;
    }
    weights->first = 0;
    if (half) {
        weights->written = true;
        int rc = plan_fetch_weights(step, block, &weights->buffer);
        weights->whole = weights->buffer;
        return rc;
    }
    weights->fetched = true;
    /* Weight slots have weights that were expanded from codes; the update needs the original
     * ones. */
    if (plan_packs_weights(step->input, block)) {
        plan_fetch_forget(step, block);
    }
    weights->buffer = plan_fetch_held(step, block);
    weights->held = weights->buffer != PLAN_NONE;
    weights->buffer = weights->held ? weights->buffer : plan_fetch_claim(step, block);
    weights->whole = weights->buffer;
    weights->gathered = plan_shards_weights(step->input) && to_device;
    return 0;
}

static void prepare_weights_gpu(struct plan_step *step, uint32_t block, bool to_device,
                                struct update_weights *weights)
{
    const struct plan_block_layout *where = plan_move_block(step, block);
    bool shards = plan_shards_weights(step->input);
    if (where->on_card) {
        weights->buffer = weights->whole = where->weights_device;
        return;
    }
    weights->buffer = where->weights_host;
    weights->copy = where->weights_device;
    weights->whole = weights->copy != PLAN_NONE ? weights->copy : weights->buffer;
    weights->gathered = is_half_sharded(step);
    bool in_store = where->weights_store != PLAN_NONE;
    bool copies = in_store || !plan_shards_states(step->input);
    if (to_device && weights->copy == PLAN_NONE && copies) {
        weights->copy = plan_fetch_claim(step, block);
        weights->whole = weights->copy;
        weights->gathered = shards;
    }
}

/* Returns the number of slots if the chunk was not fetched. */
static uint32_t find_fetched(const struct plan_step *step, const struct chunk *chunk)
{
    const uint32_t count = step->choice->state_slots;
    uint32_t slot = 0;
    while (slot < count && (step->fetched[slot].block != chunk->block ||
                            step->fetched[slot].index != chunk->index)) {
        slot++;
    }
    return slot;
}

/* Returns the number of slots if all hold fetched chunks. */
static uint32_t find_empty(const struct plan_step *step)
{
    const uint32_t count = step->choice->state_slots;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t slot = (step->state_turn + i) % count;
        if (step->fetched[slot].block == PLAN_NONE) {
            return slot;
        }
    }
    return count;
}

/* Reads a chunk into a slot, which becomes the last in turn. */
static int read_into(struct plan_step *step, uint32_t slot, struct chunk *chunk)
{
    step->state_turn = slot + 1;
    chunk->slot = step->layout->state_slots[slot];
    return slot_move(step, PLAN_READ, chunk);
}

/* May take a slot that holds another fetched chunk, so that fetched chunks do not reduce the slots
 * of a block. */
static int stage(struct plan_step *step, struct chunk *chunk)
{
    const uint32_t count = step->choice->state_slots;
    uint32_t slot = find_fetched(step, chunk);
    if (slot < count) {
        step->fetched[slot].block = PLAN_NONE;
        chunk->slot = step->layout->state_slots[slot];
        return 0;
    }
    slot = step->state_turn % count;
    step->fetches_lost += step->fetched[slot].block != PLAN_NONE;
    step->fetched[slot].block = PLAN_NONE;
    return read_into(step, slot, chunk);
}

int plan_update_fetch(struct plan_step *step, uint32_t block, bool *full)
{
    const struct plan_span span = plan_state_span(step->input, block);
    const uint64_t each = step->choice->chunk_elements;
    int rc = 0;
    for (uint64_t c = step->layout->places[block].resident_chunks;
         rc == 0 && c < plan_chunk_count(span.count, each); c++) {
        struct chunk chunk = {.block = block,
                              .index = c,
                              .first = span.first + c * each,
                              .count = plan_chunk_size(span.count, each, c),
                              .states_away = true};
        if (find_fetched(step, &chunk) < step->choice->state_slots) {
            continue;
        }
        const uint32_t slot = find_empty(step);
        if (slot == step->choice->state_slots) {
            *full = true;
            return 0;
        }
        step->fetched[slot] = (struct plan_fetched){.index = (uint32_t)c, .block = block};
        rc = read_into(step, slot, &chunk);
    }
    return rc;
}

static int chunk_pass(struct plan_step *step, struct chunk *chunk,
                      const struct update_weights *weights)
{
    bool staged = chunk->states_away || chunk->weights_in_slot || chunk->gradient_away;
    int rc = 0;
    if (weights->fetched && !weights->held) {
        rc = plan_fetch_chunk_move(step, PLAN_READ, chunk->block, chunk->index, chunk->weights);
    }
    if (rc == 0 && staged) {
        rc = stage(step, chunk);
    }
    if (rc == 0) {
        rc = update(step, chunk);
    }
    if (rc == 0 && step->saves) {
        rc = save(step, chunk);
    }
    if (rc == 0 && staged) {
        rc = slot_move(step, PLAN_WRITE, chunk);
    }
    if (rc == 0 && weights->fetched) {
        rc = plan_fetch_chunk_move(step, PLAN_WRITE, chunk->block, chunk->index, chunk->weights);
    }
    if (rc == 0 && weights->copy != PLAN_NONE) {
        uint64_t width = step->input->blocks[chunk->block].format.weight_bytes;
        bool resident = weights->copy == plan_move_block(step, chunk->block)->weights_device;
        struct plan_piece to = {.buffer = weights->copy,
                                .offset = (chunk->first - (resident ? weights->first : 0)) * width,
                                .bytes = chunk->count * width};
        rc = plan_move_copy(step, PLAN_H2D, chunk->block,
                            chunk->weights_in_slot ? weights_in_slot(step, chunk) : chunk->weights,
                            to);
    }
    return rc;
}

/* Called after a block's last chunk. */
static int finish_weights(struct plan_step *step, uint32_t block,
                          const struct update_weights *weights)
{
    struct plan_span span = plan_weight_span(step->input, block);
    uint64_t width = step->input->blocks[block].format.weight_bytes;
    uint64_t each = step->choice->chunk_elements;
    int rc = 0;
    if (weights->gathered) {
        rc = plan_fetch_gather(step, block, weights->whole);
    } else if (plan_shards_weights(step->input)) {
        plan_fetch_forget(step, block);
    }
    for (uint64_t c = 0; rc == 0 && weights->written && c < plan_chunk_count(span.count, each);
         c++) {
        struct plan_piece memory = {.buffer = weights->whole,
                                    .offset = c * each * width,
                                    .bytes = plan_chunk_size(span.count, each, c) * width};
        rc = plan_fetch_chunk_move(step, PLAN_WRITE, block, c, memory);
    }
    return rc;
}

int plan_update_block(struct plan_step *step, uint32_t block, bool to_device)
{
    const struct plan_block_layout *where = plan_move_block(step, block);
    uint64_t width = step->input->blocks[block].format.weight_bytes;
    uint64_t each = step->choice->chunk_elements;
    struct plan_span span = plan_state_span(step->input, block);
    struct update_weights weights = {.buffer = PLAN_NONE,
                                     .copy = PLAN_NONE,
                                     .whole = PLAN_NONE,
                                     .first = plan_weight_span(step->input, block).first};
    if (step->copied != NULL) {
        step->copied[block] = false;
    }
    const bool to_slot = to_device && !where->by_pages; /* sections are brought after the update */
    int rc = 0;
    if (step->input->budgets.device_is_host) {
        rc = prepare_weights_cpu(step, block, to_slot, &weights);
    } else {
        prepare_weights_gpu(step, block, to_slot, &weights);
    }
    for (uint64_t c = 0; rc == 0 && c < plan_chunk_count(span.count, each); c++) {
        struct chunk chunk = {.block = block,
                              .index = c,
                              .first = span.first + c * each,
                              .count = plan_chunk_size(span.count, each, c),
                              .slot = PLAN_NONE,
                              .states_away = c >= step->layout->places[block].resident_chunks,
                              .gradient_away = where->gradient_store != PLAN_NONE,
                              .weights_in_slot = weights.buffer == PLAN_NONE};
        chunk.weights = (struct plan_piece){.buffer = weights.buffer,
                                            .offset = (chunk.first - weights.first) * width,
                                            .bytes = chunk.count * width};
        rc = chunk_pass(step, &chunk, &weights);
    }
    return rc == 0 ? finish_weights(step, block, &weights) : rc;
}

int plan_update_put_gradient(struct plan_step *step, uint32_t block)
{
    uint64_t before = plan_layout_gradient_first(step->input, block);
    uint64_t width = step->input->blocks[block].format.grad_bytes;
    uint64_t count = plan_chunk_count(plan_state_span(step->input, block).count,
                                      step->choice->chunk_elements);
    int rc = 0;
    for (uint64_t c = 0; rc == 0 && c < count; c++) {
        struct plan_command write = plan_move_command(PLAN_WRITE, PLAN_Q_WRITE_STATE, block,
                                                      PLAN_NONE);
        struct plan_chunk chunk = plan_chunk_at(step->input, step->layout, PLAN_G, block, c);
        struct plan_piece memory = {.buffer = step->gradient,
                                    .offset = (chunk.first - before) * width,
                                    .bytes = chunk.count * width};
        write.streams = PLAN_G;
        write.chunk = (uint32_t)c;
        write.elements = chunk.count;
        write.bytes = memory.bytes;
        plan_move_operand(&write, PLAN_AS_EXTENT_GRAD, PLAN_WRITES, chunk.kept);
        plan_move_operand(&write, PLAN_AS_MEMORY, PLAN_READS, memory);
        rc = plan_move_add(step, &write);
    }
    return rc;
}
