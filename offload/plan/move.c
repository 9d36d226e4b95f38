/* move.c: how weights come, how a chunk is updated, how activations go and come back. */
#include "offload/plan/move.h"

#include <assert.h>

struct plan_command plan_move_command(enum plan_op op, enum plan_queue queue, uint32_t block,
                                      uint32_t micro)
{
    return (struct plan_command){.op = (uint8_t)op,
                                 .queue = (uint8_t)queue,
                                 .block = (uint16_t)block,
                                 .micro = (uint16_t)micro};
}

/* Names a range of a buffer; a buffer that the layout does not have is left out. */
void plan_move_operand(struct plan_command *command, uint16_t buffer, enum plan_access access,
                       uint64_t offset, uint64_t bytes)
{
    if (buffer == PLAN_NONE || bytes == 0) {
        return;
    }
    assert(command->operand_count < PLAN_OPERAND_MAX);
    command->operands[command->operand_count++] = (struct plan_operand){
        .buffer = buffer, .access = (uint8_t)access, .offset = offset, .bytes = bytes};
}

void plan_move_whole(const struct plan_step *step, struct plan_command *command, uint16_t buffer,
                     enum plan_access access)
{
    if (buffer != PLAN_NONE) {
        plan_move_operand(command, buffer, access, 0, step->layout->buffers[buffer].bytes);
    }
}

const struct plan_block_layout *plan_move_block(const struct plan_step *step, uint32_t block)
{
    return &step->layout->blocks[block];
}

static uint64_t chunk_size(const struct plan_step *step, uint32_t block, uint64_t chunk)
{
    return plan_chunk_size(step->input, block, step->choice->chunk_elements, chunk);
}

uint64_t plan_move_weight_bytes(const struct plan_step *step, uint32_t block)
{
    return step->input->blocks[block].elements * step->input->format.weight_bytes;
}

/* ---- weights ---- */

int plan_move_copy(struct plan_step *step, enum plan_op op, uint32_t block, uint32_t micro,
                   const struct plan_operand *from, const struct plan_operand *to)
{
    struct plan_command command = plan_move_command(op, op == PLAN_H2D ? PLAN_Q_UP : PLAN_Q_DOWN,
                                                    block, micro);
    command.bytes = from->bytes;
    plan_move_operand(&command, from->buffer, PLAN_READS, from->offset, from->bytes);
    plan_move_operand(&command, to->buffer, PLAN_WRITES, to->offset, to->bytes);
    return plan_builder_add(step->builder, &command);
}

/* A slot for a block's weights: the one used longest ago. */
static uint32_t slot_claim(struct plan_step *step, uint32_t block)
{
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < step->choice->weight_slots; i++) {
        oldest = step->slot_used[i] < step->slot_used[oldest] ? i : oldest;
    }
    step->slot_block[oldest] = (uint16_t)block;
    step->slot_used[oldest] = ++step->clock;
    return oldest;
}

/* Reads one chunk of working weights from STORE into the slot, through HOST where I/O does not
 * reach DEVICE memory. */
static int weight_chunk_read(struct plan_step *step, uint32_t block, uint64_t chunk, uint16_t slot)
{
    uint64_t width = step->input->format.weight_bytes;
    uint64_t offset = chunk * step->choice->chunk_elements * width;
    uint64_t bytes = chunk_size(step, block, chunk) * width;
    bool direct = step->input->budgets.device_is_host;
    uint16_t into = slot;
    if (!direct) {
        into = step->layout->weight_stages[step->stage_turn++ % step->choice->state_slots];
    }
    struct plan_command read = plan_move_command(PLAN_READ, PLAN_Q_READ_WEIGHT, block, PLAN_NONE);
    read.streams = PLAN_W16;
    read.chunk = (uint32_t)chunk;
    read.elements = chunk_size(step, block, chunk);
    read.bytes = bytes;
    plan_move_operand(&read, plan_move_block(step, block)->weights_store, PLAN_READS, offset,
                      bytes);
    plan_move_operand(&read, into, PLAN_WRITES, direct ? offset : 0, bytes);
    int rc = plan_builder_add(step->builder, &read);
    if (rc != 0 || direct) {
        return rc;
    }
    struct plan_operand from = {.buffer = into, .bytes = bytes};
    struct plan_operand to = {.buffer = slot, .offset = offset, .bytes = bytes};
    return plan_move_copy(step, PLAN_H2D, block, PLAN_NONE, &from, &to);
}

/* Where the block's weights stand for compute; brings them there where they are not. */
int plan_move_weights(struct plan_step *step, uint32_t block, uint16_t *out)
{
    uint32_t owner = step->input->blocks[block].owner;
    const struct plan_block_layout *where = plan_move_block(step, owner);
    if (where->weights_device != PLAN_NONE) {
        *out = where->weights_device;
        return 0;
    }
    for (uint32_t i = 0; i < step->choice->weight_slots; i++) {
        if (step->slot_block[i] == owner) {
            step->slot_used[i] = ++step->clock;
            *out = step->layout->weight_slots[i];
            return 0;
        }
    }
    uint16_t slot = step->layout->weight_slots[slot_claim(step, owner)];
    int rc = 0;
    if (where->weights_host != PLAN_NONE) {
        struct plan_operand from = {.buffer = where->weights_host,
                                    .bytes = plan_move_weight_bytes(step, owner)};
        struct plan_operand to = {.buffer = slot, .bytes = plan_move_weight_bytes(step, owner)};
        rc = plan_move_copy(step, PLAN_H2D, owner, PLAN_NONE, &from, &to);
    }
    uint64_t chunks = plan_chunk_count(step->input, owner, step->choice->chunk_elements);
    for (uint64_t c = 0; rc == 0 && where->weights_store != PLAN_NONE && c < chunks; c++) {
        rc = weight_chunk_read(step, owner, c, slot);
    }
    *out = slot;
    return rc;
}

/* ---- update ---- */

/* READ and WRITE of what a chunk keeps in STORE. */
static int state_chunk_move(struct plan_step *step, enum plan_op op, uint32_t block, uint64_t chunk,
                            uint16_t slot)
{
    const struct plan_format *format = &step->input->format;
    const struct plan_block_layout *where = plan_move_block(step, block);
    bool in_store = chunk >= step->layout->places[block].resident_chunks;
    bool weights_too = where->weights_store != PLAN_NONE;
    uint64_t elements = chunk_size(step, block, chunk);
    uint64_t states = plan_state_bytes(format);
    uint64_t first = chunk * step->choice->chunk_elements;
    uint64_t skipped = step->layout->places[block].resident_chunks * step->choice->chunk_elements;
    bool reads = op == PLAN_READ;
    struct plan_command command = plan_move_command(
        op, reads ? PLAN_Q_READ_STATE : PLAN_Q_WRITE_STATE, block, PLAN_NONE);
    command.chunk = (uint32_t)chunk;
    command.elements = elements;
    if (in_store) {
        command.streams |= (uint8_t)((format->master_bytes != 0 ? PLAN_MASTER : 0) |
                                     (format->m_bytes != 0 ? PLAN_M : 0) |
                                     (format->v_bytes != 0 ? PLAN_V : 0));
        command.bytes += elements * states;
        plan_move_operand(&command, where->states_store, reads ? PLAN_READS : PLAN_WRITES,
                          (first - skipped) * states, elements * states);
    }
    if (weights_too) {
        command.streams |= PLAN_W16;
        command.bytes += elements * format->weight_bytes;
        plan_move_operand(&command, where->weights_store, reads ? PLAN_READS : PLAN_WRITES,
                          first * format->weight_bytes, elements * format->weight_bytes);
    }
    plan_move_whole(step, &command, slot, reads ? PLAN_WRITES : PLAN_READS);
    return plan_builder_add(step->builder, &command);
}

/* Updates one chunk where its streams lie; *slot_out is the staging slot it went through. */
static int chunk_update(struct plan_step *step, uint32_t block, uint64_t chunk, uint16_t *slot_out)
{
    const struct plan_format *format = &step->input->format;
    const struct plan_block_layout *where = plan_move_block(step, block);
    uint64_t elements = chunk_size(step, block, chunk);
    uint64_t first = chunk * step->choice->chunk_elements;
    uint64_t states = plan_state_bytes(format);
    bool staged = chunk >= step->layout->places[block].resident_chunks ||
                  where->weights_store != PLAN_NONE;
    uint16_t slot = PLAN_NONE;
    int rc = 0;
    if (staged) {
        slot = step->layout->state_slots[step->state_turn++ % step->choice->state_slots];
        rc = state_chunk_move(step, PLAN_READ, block, chunk, slot);
    }
    if (rc != 0) {
        return rc;
    }
    uint16_t in_place = where->weights_host != PLAN_NONE ? where->weights_host
                                                         : where->weights_device;
    struct plan_command update = plan_move_command(PLAN_UPDATE, PLAN_Q_UPDATE, block, PLAN_NONE);
    update.chunk = (uint32_t)chunk;
    update.elements = elements;
    plan_move_whole(step, &update, slot, PLAN_CHANGES);
    if (chunk < step->layout->places[block].resident_chunks) {
        plan_move_operand(&update, where->states_host, PLAN_CHANGES, first * states,
                          elements * states);
    }
    plan_move_operand(&update, in_place, PLAN_CHANGES, first * format->weight_bytes,
                      elements * format->weight_bytes);
    plan_move_operand(&update, where->grads_host, PLAN_READS, first * format->grad_bytes,
                      elements * format->grad_bytes);
    if (step->choice->timing == PLAN_TIMING_DEFERRED) {
        plan_move_whole(step, &update, step->layout->norm, PLAN_READS);
    }
    rc = plan_builder_add(step->builder, &update);
    if (rc == 0 && staged) {
        rc = state_chunk_move(step, PLAN_WRITE, block, chunk, slot);
    }
    *slot_out = slot;
    return rc;
}

/* Updates a block. With `to_device` its new weights go up chunk by chunk as they appear, which
 * saves the forward its fetch. */
int plan_move_update(struct plan_step *step, uint32_t block, bool to_device)
{
    const struct plan_block_layout *where = plan_move_block(step, block);
    uint64_t width = step->input->format.weight_bytes;
    uint64_t chunks = plan_chunk_count(step->input, block, step->choice->chunk_elements);
    bool direct = step->input->budgets.device_is_host && where->weights_device != PLAN_NONE;
    uint16_t target = where->weights_device;
    if (to_device && target == PLAN_NONE) {
        target = step->layout->weight_slots[slot_claim(step, block)];
    }
    bool goes_up = !direct && target != PLAN_NONE;
    for (uint64_t c = 0; c < chunks; c++) {
        uint16_t slot = PLAN_NONE;
        int rc = chunk_update(step, block, c, &slot);
        if (rc == 0 && goes_up) {
            uint64_t offset = c * step->choice->chunk_elements * width;
            uint64_t bytes = chunk_size(step, block, c) * width;
            bool in_host = where->weights_host != PLAN_NONE;
            struct plan_operand from = {.buffer = in_host ? where->weights_host : slot,
                                        .offset = in_host ? offset : 0,
                                        .bytes = bytes};
            struct plan_operand to = {.buffer = target, .offset = offset, .bytes = bytes};
            rc = plan_move_copy(step, PLAN_H2D, block, PLAN_NONE, &from, &to);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* ---- activations ---- */

uint32_t plan_move_act_index(const struct plan_step *step, uint32_t boundary, uint32_t micro)
{
    return boundary * step->input->wishes.micro_batches + micro;
}

/* Moves a boundary activation between DEVICE and where it waits for backward. */
int plan_move_act(struct plan_step *step, uint32_t boundary, uint32_t micro, bool away)
{
    const struct plan_layout *layout = step->layout;
    uint32_t i = plan_move_act_index(step, boundary, micro);
    uint64_t bytes = step->input->blocks[boundary].out_bytes;
    struct plan_operand device = {.buffer = layout->acts[i], .bytes = bytes};
    struct plan_operand host = {.buffer = layout->acts_host[i], .bytes = bytes};
    bool copied = host.buffer != PLAN_NONE;
    int rc = 0;
    if (copied && away) {
        rc = plan_move_copy(step, PLAN_D2H, boundary, micro, &device, &host);
    }
    if (rc == 0 && layout->acts_store[i] != PLAN_NONE) {
        struct plan_command io = plan_move_command(away ? PLAN_WRITE : PLAN_READ,
                                                   away ? PLAN_Q_WRITE_ACT : PLAN_Q_READ_ACT,
                                                   boundary, micro);
        io.streams = PLAN_ACT;
        io.bytes = bytes;
        plan_move_operand(&io, layout->acts_store[i], away ? PLAN_WRITES : PLAN_READS, 0, bytes);
        plan_move_operand(&io, copied ? host.buffer : device.buffer,
                          away ? PLAN_READS : PLAN_WRITES, 0, bytes);
        rc = plan_builder_add(step->builder, &io);
    }
    if (rc == 0 && copied && !away) {
        rc = plan_move_copy(step, PLAN_H2D, boundary, micro, &host, &device);
    }
    return rc;
}
