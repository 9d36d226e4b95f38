/* move.c: operands, rotation of buffers, copies, collectives, offloaded activations. */
#include "offload/plan/move.h"

#include <assert.h>
#include <string.h>

struct plan_step plan_move_begin(struct plan_builder *builder, const struct plan_input *input,
                                 const struct plan_choice *choice, const struct plan_layout *layout)
{
    struct plan_step step = {.builder = builder,
                             .input = input,
                             .choice = choice,
                             .layout = layout,
                             .sum = PLAN_NONE,
                             .gradient = PLAN_NONE,
                             .gradient_whole = PLAN_NONE};
    memset(step.slot_block, 0xff, sizeof step.slot_block);
    for (int i = 0; i < PLAN_STATE_SLOT_MAX; i++) {
        step.fetched[i].block = PLAN_NONE;
    }
    return step;
}

struct plan_command plan_move_command(enum plan_op op, enum plan_queue queue, uint32_t block,
                                      uint32_t micro)
{
    return (struct plan_command){
        .op = (uint8_t)op, .queue = (uint8_t)queue, .block = block, .micro = micro};
}

int plan_move_add(struct plan_step *step, struct plan_command *command)
{
    command->ahead = step->ahead;
    return plan_builder_add(step->builder, command);
}

void plan_move_operand(struct plan_command *command, enum plan_role role, enum plan_access access,
                       struct plan_piece piece)
{
    if (piece.buffer == PLAN_NONE || piece.bytes == 0) {
        return;
    }
    assert(command->operand_count < PLAN_OPERAND_MAX);
    command->operands[command->operand_count++] = (struct plan_operand){.buffer = piece.buffer,
                                                                        .access = (uint8_t)access,
                                                                        .role = (uint8_t)role,
                                                                        .offset = piece.offset,
                                                                        .bytes = piece.bytes};
}

struct plan_piece plan_move_part(uint32_t buffer, uint64_t bytes)
{
    return (struct plan_piece){.buffer = buffer, .bytes = bytes};
}

struct plan_piece plan_move_whole(const struct plan_step *step, uint32_t buffer)
{
    return plan_move_part(buffer, buffer != PLAN_NONE ? step->layout->buffers[buffer].bytes : 0);
}

const struct plan_block_layout *plan_move_block(const struct plan_step *step, uint32_t block)
{
    return &step->layout->blocks[block];
}

uint64_t plan_move_weight_bytes(const struct plan_step *step, uint32_t block)
{
    return step->input->blocks[block].elements * step->input->blocks[block].format.weight_bytes;
}

uint32_t plan_move_turn(const struct plan_step *step, const struct plan_ring *ring,
                        struct plan_turns *turns, uint32_t block, uint32_t own)
{
    int size = plan_move_block(step, block)->size;
    if (own != PLAN_NONE || ring->counts[size] == 0) {
        return own;
    }
    return ring->buffers[size][turns->next[size]++ % ring->counts[size]];
}

int plan_move_copy(struct plan_step *step, enum plan_op op, uint32_t block, struct plan_piece from,
                   struct plan_piece to)
{
    struct plan_command command = plan_move_command(op, op == PLAN_H2D ? PLAN_Q_UP : PLAN_Q_DOWN,
                                                    block, PLAN_NONE);
    command.bytes = from.bytes;
    plan_move_operand(&command, PLAN_AS_FROM, PLAN_READS, from);
    plan_move_operand(&command, PLAN_AS_TO, PLAN_WRITES, to);
    return plan_move_add(step, &command);
}

uint64_t plan_move_gathered_between(const struct plan_step *step, uint32_t block)
{
    const uint64_t elements = plan_kept_elements(step->input, block);
    const struct plan_span node = plan_node_span(step->input, elements);
    return plan_gathered_bytes(step->input, block, elements) -
           plan_gathered_bytes(step->input, block, node.first + node.count) +
           plan_gathered_bytes(step->input, block, node.first);
}

/* Returns the size of groups of ranks that add their gradients first; 0: no groups. */
static uint32_t sums_within(const struct plan_step *step, uint32_t block)
{
    return step->input->sums_within_nodes && block != PLAN_NONE ? plan_sharing(step->input) : 0;
}

/* Returns the bytes that other nodes send to a rank. `all`: every rank gets the sum. */
static uint64_t reduced_between(const struct plan_step *step, uint32_t block, uint64_t bytes,
                                bool all)
{
    const struct plan_input *input = step->input;
    const uint32_t within = sums_within(step, block);
    uint64_t between = 2 * (bytes - bytes * plan_sharing(input) / input->world);
    if (!all) {
        const struct plan_span node = plan_node_span(input, input->blocks[block].elements);
        between = bytes - node.count * input->blocks[block].format.grad_bytes;
    }
    return within > 0 ? between / within : between; /* each node sends its sum once */
}

int plan_move_together(struct plan_step *step, enum plan_op op, uint32_t block,
                       struct plan_piece from, struct plan_piece to)
{
    struct plan_command command = plan_move_command(op, PLAN_Q_COLL, block, PLAN_NONE);
    uint64_t whole = op == PLAN_GATHER ? to.bytes : from.bytes;
    uint64_t own = op == PLAN_GATHER ? from.bytes : to.bytes;
    bool all = op == PLAN_REDUCE && (step->input->stage == 0 || block == PLAN_NONE);
    command.elements = block != PLAN_NONE ? plan_kept_elements(step->input, block)
                                          : whole / PLAN_TILE_SUM_BYTES;
    command.bytes = all ? 2 * (whole - whole / step->input->world) : whole - own;
    command.between_bytes = op == PLAN_GATHER ? plan_move_gathered_between(step, block)
                                              : reduced_between(step, block, whole, all);
    command.within = op == PLAN_REDUCE ? sums_within(step, block) : 0;
    bool in_place = from.buffer == to.buffer;
    plan_move_operand(&command, PLAN_AS_FROM, PLAN_READS, from);
    plan_move_operand(&command, PLAN_AS_TO, in_place ? PLAN_CHANGES : PLAN_WRITES, to);
    return plan_move_add(step, &command);
}

/* ---- activations ---- */

uint32_t plan_move_act_index(const struct plan_step *step, uint32_t block, uint32_t micro)
{
    return block * step->layout->in_flight + micro % step->layout->in_flight;
}

static int act_copy(struct plan_step *step, uint32_t boundary, uint32_t micro,
                    struct plan_piece device, struct plan_piece host, bool away)
{
    struct plan_command command = plan_move_command(
        away ? PLAN_D2H : PLAN_H2D, away ? PLAN_Q_DOWN : PLAN_Q_UP, boundary, micro);
    command.streams = PLAN_ACT;
    command.bytes = device.bytes;
    plan_move_operand(&command, PLAN_AS_FROM, PLAN_READS, away ? device : host);
    plan_move_operand(&command, PLAN_AS_TO, PLAN_WRITES, away ? host : device);
    return plan_move_add(step, &command);
}

int plan_move_act(struct plan_step *step, uint32_t boundary, uint32_t micro, bool away)
{
    const struct plan_layout *layout = step->layout;
    uint32_t i = plan_move_act_index(step, boundary, micro);
    uint64_t bytes = step->input->blocks[boundary].out_bytes;
    struct plan_piece device = {.buffer = layout->acts[i], .bytes = bytes};
    struct plan_piece host = {.buffer = layout->acts_host[i], .bytes = bytes};
    struct plan_piece extent = {.buffer = layout->acts_store[i], .bytes = bytes};
    bool copied = host.buffer != PLAN_NONE;
    int rc = 0;
    if (copied && away) {
        rc = act_copy(step, boundary, micro, device, host, true);
    }
    if (rc == 0 && extent.buffer != PLAN_NONE) {
        struct plan_command io = plan_move_command(away ? PLAN_WRITE : PLAN_READ,
                                                   away ? PLAN_Q_WRITE_ACT : PLAN_Q_READ_ACT,
                                                   boundary, micro);
        io.streams = PLAN_ACT;
        io.bytes = bytes;
        plan_move_operand(&io, PLAN_AS_EXTENT_ACT, away ? PLAN_WRITES : PLAN_READS, extent);
        plan_move_operand(&io, PLAN_AS_MEMORY, away ? PLAN_READS : PLAN_WRITES,
                          copied ? host : device);
        rc = plan_move_add(step, &io);
    }
    if (rc == 0 && copied && !away) {
        rc = act_copy(step, boundary, micro, device, host, false);
    }
    return rc;
}
