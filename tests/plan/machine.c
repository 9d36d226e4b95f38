/* machine.c: buffers as lists of numbers at offsets, and the commands that use them. */
#include "tests/plan/machine.h"

#include <stdlib.h>

#include "offload/model/sections.h"
#include "tests/harness/test.h"
#include "tests/plan/machine_parts.h"
#include "tests/plan/truth.h"

/* ---- numbers in buffers ---- */

void machine_put(struct machine *machine, uint32_t buffer, uint64_t offset, uint64_t bytes,
                 uint64_t value)
{
    struct memory *memory = &machine->memories[buffer];
    check_true(offset + bytes <= plan_buffer(machine->plan, buffer)->bytes);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < memory->count; i++) {
        struct item *item = &memory->items[i];
        if (item->offset + item->bytes <= offset || offset + bytes <= item->offset) {
            memory->items[kept++] = *item;
        }
    }
    memory->count = kept;
    if (memory->count == memory->room) {
        memory->room = memory->room * 2 + 8;
        memory->items = realloc(memory->items, memory->room * sizeof *memory->items);
    }
    memory->items[memory->count++] = (struct item){offset, bytes, value};
}

uint64_t machine_take(const struct machine *machine, uint32_t buffer, uint64_t offset,
                      uint64_t bytes)
{
    const struct memory *memory = &machine->memories[buffer];
    for (uint32_t i = 0; i < memory->count; i++) {
        if (memory->items[i].offset == offset && memory->items[i].bytes == bytes) {
            return memory->items[i].value;
        }
    }
    const struct plan_command *now = machine->now;
    test_fail(
        __FILE__, __LINE__,
        "%s of block %u micro %u chunk %u: nothing of %" PRIu64 " bytes lies at %" PRIu64 " of %s",
        now != NULL ? plan_op_name((enum plan_op)now->op) : "check", now != NULL ? now->block : 0,
        now != NULL ? now->micro : 0, now != NULL ? now->chunk : 0, bytes, offset,
        plan_buffer(machine->plan, buffer)->name);
}

static void copy_range(struct machine *machine, uint32_t from, uint64_t from_offset, uint32_t to,
                       uint64_t to_offset, uint64_t bytes)
{
    uint32_t count = machine->memories[from].count;
    struct item *items = malloc((count + 1) * sizeof *items);
    memcpy(items, machine->memories[from].items, count * sizeof *items);
    uint32_t copied = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct item *item = &items[i];
        if (item->offset >= from_offset && item->offset + item->bytes <= from_offset + bytes) {
            machine_put(machine, to, to_offset + item->offset - from_offset, item->bytes,
                        item->value);
            copied++;
        }
    }
    free(items);
    check_int(copied, >, 0);
}

struct machine_cell machine_cell_at(const struct machine *machine, uint32_t block, uint64_t cell,
                                    uint64_t base, uint64_t first, uint64_t width)
{
    uint64_t from = cell * PLAN_CUT_ELEMENTS;
    uint64_t elements = plan_chunk_size(machine->input->blocks[block].elements, PLAN_CUT_ELEMENTS,
                                        cell);
    return (struct machine_cell){base + (from - first) * width, elements * width};
}

struct machine_cell machine_kept_cell_at(const struct machine *machine, uint32_t block,
                                         uint64_t cell, uint64_t base, uint64_t first)
{
    uint64_t width = machine->input->blocks[block].format.weight_bytes;
    uint64_t from = cell * PLAN_CUT_ELEMENTS;
    uint64_t elements = plan_chunk_size(plan_kept_elements(machine->input, block),
                                        PLAN_CUT_ELEMENTS, cell);
    return (struct machine_cell){base + (from - first) * width, elements * width};
}

struct machine_cell machine_packed_cell_at(const struct machine *machine, uint32_t block,
                                           uint64_t cell, uint64_t base)
{
    uint64_t elements = plan_chunk_size(machine->input->blocks[block].elements, PLAN_CUT_ELEMENTS,
                                        cell);
    return (struct machine_cell){base + plan_packed_bytes(cell * PLAN_CUT_ELEMENTS),
                                 plan_packed_bytes(elements)};
}

uint64_t machine_cell_take(const struct machine *machine, const struct plan_operand *operand,
                           uint32_t block, uint64_t cell, uint64_t first, uint64_t width)
{
    struct machine_cell at = machine_cell_at(machine, block, cell, operand->offset, first, width);
    check_true(at.offset + at.bytes <= operand->offset + operand->bytes);
    return machine_take(machine, operand->buffer, at.offset, at.bytes);
}

void machine_cell_put(struct machine *machine, const struct plan_operand *operand, uint32_t block,
                      uint64_t cell, uint64_t width, uint64_t value)
{
    struct machine_cell at = machine_cell_at(machine, block, cell, operand->offset, 0, width);
    check_true(at.offset + at.bytes <= operand->offset + operand->bytes);
    check_true((operand->access & PLAN_WRITES) != 0);
    machine_put(machine, operand->buffer, at.offset, at.bytes, value);
}

const struct plan_operand *machine_need(const struct plan_command *command, enum plan_role role)
{
    const struct plan_operand *operand = plan_command_operand(command, role);
    if (operand == NULL) {
        test_fail(__FILE__, __LINE__, "%s of block %u micro %u has no operand of role %d",
                  plan_op_name((enum plan_op)command->op), command->block, command->micro,
                  (int)role);
    }
    return operand;
}

static uint64_t take_whole(const struct machine *machine, const struct plan_command *command,
                           enum plan_role role)
{
    const struct plan_operand *operand = machine_need(command, role);
    check_true((operand->access & PLAN_READS) != 0);
    return machine_take(machine, operand->buffer, operand->offset, operand->bytes);
}

static void put_whole(struct machine *machine, const struct plan_command *command,
                      enum plan_role role, uint64_t value)
{
    const struct plan_operand *operand = machine_need(command, role);
    check_true((operand->access & PLAN_WRITES) != 0);
    machine_put(machine, operand->buffer, operand->offset, operand->bytes, value);
}

struct machine_cells machine_part(const struct machine *machine, uint32_t block)
{
    bool stored = machine->input->blocks[block].stored_elements > 0;
    struct plan_span span = stored ? plan_weight_span(machine->input, block)
                                   : plan_state_span(machine->input, block);
    return (struct machine_cells){span.first / PLAN_CUT_ELEMENTS,
                                  plan_chunk_count(span.first + span.count, PLAN_CUT_ELEMENTS)};
}

/* ---- rows ---- */

/* Returns the number of a block's updates before a step. */
static uint32_t updates_before(const struct machine *machine, uint32_t block, uint32_t step)
{
    return machine->input->blocks[block].trained ? step : 0;
}

/* Returns the value that a frozen block's rows have for a micro-batch. */
static uint64_t rows_value(const struct machine *machine, const struct plan_command *command)
{
    uint64_t digest = 0;
    check_true(!machine->input->blocks[command->block].trained && command->micro != PLAN_NONE);
    for (uint64_t i = 0; i < truth_cells(machine->input, command->block); i++) {
        digest = truth_mix(digest, truth_cell_at(machine->truth, 0, command->block, i).weight);
    }
    return truth_mix(digest, command->micro);
}

/* Makes a micro-batch's rows from the block's weights. */
static void bring_rows(struct machine *machine, const struct plan_command *command)
{
    const struct plan_block_layout *where = &machine->plan->layout->blocks[command->block];
    const bool reads = command->op == PLAN_READ;
    const struct plan_operand *from = machine_need(command,
                                                   reads ? PLAN_AS_EXTENT_W16 : PLAN_AS_FROM);
    check_uint(from->buffer, ==, reads ? where->weights_store : where->weights_host);
    check_uint(from->bytes, ==, plan_buffer(machine->plan, from->buffer)->bytes);
    check_uint(command->bytes, ==, machine->input->blocks[command->block].rows_bytes);
    check_true(plan_command_is_gated(command));
    put_whole(machine, command, reads ? PLAN_AS_MEMORY : PLAN_AS_TO, rows_value(machine, command));
}

/* ---- stored weights ---- */

/* Computes the weights of a section: one cell per range. */
static void expand_section(struct machine *machine, const struct plan_command *command)
{
    const uint32_t block = command->block;
    const struct model_section *section = command->section;
    const uint64_t cell_bytes = PLAN_CUT_ELEMENTS *
                                machine->input->blocks[block].format.weight_bytes;
    const struct plan_operand *from = machine_need(command, PLAN_AS_FROM);
    const struct plan_operand *to = machine_need(command, PLAN_AS_TO);
    uint64_t in_slot = 0;
    check_uint(command->queue, ==, PLAN_Q_COMPUTE);
    check_uint(to->bytes, ==, section->expanded_bytes);
    for (unsigned i = 0; i < section->range_count; i++) {
        const uint64_t cell = section->ranges[i].first / cell_bytes;
        const struct machine_cell kept = machine_kept_cell_at(machine, block, cell, from->offset,
                                                              0);
        const uint64_t at = command->pages ? from->offset + in_slot : kept.offset;
        const uint64_t value = machine_take(machine, from->buffer, at, kept.bytes);
        check_uint(at + kept.bytes, <=, from->offset + from->bytes);
        check_uint(value, ==, truth_cell_at(machine->truth, 0, block, cell).weight);
        machine_put(machine, to->buffer, to->offset + i * cell_bytes, cell_bytes, value);
        in_slot += section->ranges[i].bytes;
    }
}

/* Stored weights have the values of the first cells. */
static void expand(struct machine *machine, const struct plan_command *command)
{
    const uint32_t block = command->block;
    const struct plan_operand *from = machine_need(command, PLAN_AS_FROM);
    const struct plan_operand *to = machine_need(command, PLAN_AS_TO);
    const uint64_t kept = plan_kept_elements(machine->input, block);
    check_uint(command->queue, ==, PLAN_Q_COMPUTE);
    check_true(machine->input->blocks[block].stored_elements > 0);
    for (uint64_t i = 0; i < plan_chunk_count(kept, PLAN_CUT_ELEMENTS); i++) {
        const struct machine_cell at = machine_kept_cell_at(machine, block, i, from->offset, 0);
        check_true(at.offset + at.bytes <= from->offset + from->bytes);
        check_uint(machine_take(machine, from->buffer, at.offset, at.bytes), ==,
                   truth_cell_at(machine->truth, 0, block, i).weight);
    }
    for (uint64_t i = 0; i < truth_cells(machine->input, block); i++) {
        machine_cell_put(machine, to, block, i, machine->input->blocks[block].format.weight_bytes,
                         truth_cell_at(machine->truth, 0, block, i).weight);
    }
}

static void expand_packed(struct machine *machine, const struct plan_command *command)
{
    const uint32_t block = command->block;
    const struct plan_operand *from = machine_need(command, PLAN_AS_FROM);
    const struct plan_operand *to = machine_need(command, PLAN_AS_TO);
    check_uint(command->queue, ==, PLAN_Q_COMPUTE);
    check_true(plan_packs_weights(machine->input, block));
    for (uint64_t i = 0; i < truth_cells(machine->input, block); i++) {
        const struct machine_cell at = machine_packed_cell_at(machine, block, i, from->offset);
        check_true(at.offset + at.bytes <= from->offset + from->bytes);
        machine_cell_put(machine, to, block, i, machine->input->blocks[block].format.weight_bytes,
                         machine_take(machine, from->buffer, at.offset, at.bytes));
    }
}

/* ---- forward and backward ---- */

static uint64_t weights_digest(const struct machine *machine, const struct plan_command *command,
                               uint32_t step)
{
    const struct plan_block_shape *shape = &machine->input->blocks[command->block];
    uint64_t digest = 0;
    if (machine->plan->layout->blocks[command->block].rows[0] != PLAN_NONE) {
        check_true(take_whole(machine, command, PLAN_AS_WEIGHTS) == rows_value(machine, command));
    }
    const struct plan_operand *borrowed = plan_command_operand(command, PLAN_AS_BORROWED);
    for (uint32_t j = 0; j <= shape->borrow_count; j++) {
        const uint32_t block = j == 0 ? command->block : shape->borrows[j - 1];
        if (machine->plan->layout->blocks[block].by_pages) { /* the pages were checked */
            for (uint64_t i = 0; i < truth_cells(machine->input, block); i++) {
                const uint32_t updates = updates_before(machine, block, step);
                digest = truth_mix(digest, truth_cell_at(machine->truth, updates, block, i).weight);
            }
            continue;
        }
        const struct plan_operand *weights = j == 0 ? machine_need(command, PLAN_AS_WEIGHTS)
                                                    : borrowed++;
        check_int(weights->role, ==, j == 0 ? PLAN_AS_WEIGHTS : PLAN_AS_BORROWED);
        for (uint64_t i = 0; i < truth_cells(machine->input, block); i++) {
            digest = truth_mix(
                digest, machine_cell_take(machine, weights, block, i, 0,
                                          machine->input->blocks[block].format.weight_bytes));
        }
    }
    return digest;
}

static uint64_t input_of(const struct machine *machine, const struct plan_command *command,
                         uint32_t step)
{
    return command->block == 0 ? truth_data(step, machine->input->rank, command->micro)
                               : take_whole(machine, command, PLAN_AS_IN);
}

static void clobber_scratch(struct machine *machine, const struct plan_command *command)
{
    put_whole(machine, command, PLAN_AS_SCRATCH, 0xdead);
}

/* Checks a section's weights, and the scratch that the previous section left. Returns whether the
 * section is the last one. */
static bool do_section(struct machine *machine, const struct plan_command *command, uint32_t step)
{
    const struct plan_block_shape *shape = &machine->input->blocks[command->block];
    const struct model_section *section = command->section;
    const uint32_t source = shape->source;
    const uint64_t width = machine->input->blocks[source].format.weight_bytes;
    const bool again = command->op == PLAN_BWD && shape->kept_bytes > 0 &&
                       plan_command_operand(command, PLAN_AS_KEPT) == NULL;
    const enum model_pass begin = command->op == PLAN_FWD ? MODEL_PASS_FORWARD
                                  : again                 ? MODEL_PASS_RECOMPUTE
                                                          : MODEL_PASS_BACKWARD;
    const enum model_pass end = command->op == PLAN_FWD ? MODEL_PASS_FORWARD : MODEL_PASS_BACKWARD;
    const size_t index = (size_t)(section - shape->sections->list);
    const struct plan_operand *scratch = machine_need(command, PLAN_AS_SCRATCH);
    const uint32_t updates = updates_before(machine, source, step);
    const bool expanded = section->expanded_bytes > 0;
    uint64_t at = 0;
    for (unsigned i = 0; i < section->range_count; i++) {
        const struct model_range *range = &section->ranges[i];
        const uint64_t bytes = expanded ? PLAN_CUT_ELEMENTS * width : range->bytes;
        const struct plan_operand *slot = machine_need(command, PLAN_AS_SECTION);
        for (uint64_t done = 0; done < bytes; done += PLAN_CUT_ELEMENTS * width) {
            const uint64_t cell = (range->first + done) / (PLAN_CUT_ELEMENTS * width);
            const struct machine_cell there = machine_cell_at(machine, source, cell, 0, 0, width);
            check_true(machine_take(machine, slot->buffer, slot->offset + at + done, there.bytes) ==
                       truth_cell_at(machine->truth, updates, source, cell).weight);
        }
        at += bytes;
    }
    if (index > shape->sections->first[begin]) {
        check_true(machine_take(machine, scratch->buffer, scratch->offset, scratch->bytes) ==
                   truth_mix(command->block, index - 1));
    }
    put_whole(machine, command, PLAN_AS_SCRATCH, truth_mix(command->block, index));
    return index + 1 == shape->sections->first[end + 1];
}

static void forward(struct machine *machine, const struct plan_command *command, uint32_t step)
{
    if (command->section != NULL && !do_section(machine, command, step)) {
        return;
    }
    uint64_t out = truth_mix(input_of(machine, command, step),
                             weights_digest(machine, command, step));
    clobber_scratch(machine, command);
    if (machine->input->blocks[command->block].out_bytes > 0) {
        put_whole(machine, command, PLAN_AS_OUT, out);
    }
    if (plan_command_operand(command, PLAN_AS_KEPT) != NULL) {
        put_whole(machine, command, PLAN_AS_KEPT, truth_mix(out, 1));
    }
}

/* Adds to a cell or stores into it, as the operand's access says; returns the new value. */
static uint64_t add_cell(struct machine *machine, const struct plan_operand *operand,
                         uint32_t block, uint64_t cell, uint64_t width, uint64_t value)
{
    if ((operand->access & PLAN_READS) != 0) {
        value += machine_cell_take(machine, operand, block, cell, 0, width);
    }
    machine_cell_put(machine, operand, block, cell, width, value);
    return value;
}

static void leave_gradients(struct machine *machine, const struct plan_command *command,
                            uint64_t digest)
{
    const struct plan_input *input = machine->input;
    uint32_t block = command->block;
    const struct plan_operand *shared = plan_command_operand(command, PLAN_AS_SHARED_SUM);
    const struct plan_operand *sum = plan_command_operand(command, PLAN_AS_SUM);
    const struct plan_operand *grad = plan_command_operand(command, PLAN_AS_GRAD);
    bool uses = truth_shared_cells(input, block) > 0;
    if (uses && shared != NULL) {
        uint32_t owner = input->blocks[block].borrows[0];
        for (uint64_t i = 0; i < truth_shared_cells(input, block); i++) {
            add_cell(machine, shared, owner, i, PLAN_SUM_BYTES, truth_gradient(digest, i, true));
        }
    }
    for (uint64_t i = 0; input->blocks[block].trained && i < truth_cells(input, block); i++) {
        uint64_t value = truth_gradient(digest, i, false);
        if (shared != NULL && !uses && i < truth_shared_cells(input, input->compute_count - 1)) {
            value = add_cell(machine, shared, block, i, PLAN_SUM_BYTES, value);
        }
        if (sum != NULL) {
            value = add_cell(machine, sum, block, i, PLAN_SUM_BYTES, value);
        }
        if (grad != NULL) {
            add_cell(machine, grad, block, i, input->blocks[block].format.grad_bytes, value);
        }
    }
}

/* Stores the gradient of the application. */
static void submit(struct machine *machine, const struct plan_command *command, uint32_t step)
{
    const uint32_t block = command->block;
    const struct plan_operand *grad = machine_need(command, PLAN_AS_GRAD);
    check_int(command->operand_count, ==, 1);
    for (uint64_t i = 0; i < truth_cells(machine->input, block); i++) {
        machine_cell_put(machine, grad, block, i, machine->input->blocks[block].format.grad_bytes,
                         truth_gradient_at(machine->truth, step, block, i));
    }
}

static void backward(struct machine *machine, const struct plan_command *command, uint32_t step)
{
    if (machine->input->application) {
        submit(machine, command, step);
        return;
    }
    if (command->section != NULL && !do_section(machine, command, step)) {
        return;
    }
    const struct plan_block_shape *shape = &machine->input->blocks[command->block];
    bool head = shape->out_bytes == 0;
    uint64_t in = input_of(machine, command, step);
    uint64_t kept = 0;
    if (plan_command_operand(command, PLAN_AS_KEPT) != NULL) {
        kept = take_whole(machine, command, PLAN_AS_KEPT);
    } else if (shape->kept_bytes > 0) {
        kept = truth_mix(truth_mix(in, weights_digest(machine, command, step)), 1);
    }
    uint64_t weights = shape->backward_reads_weights ? weights_digest(machine, command, step) : 0;
    uint64_t after = head ? 0 : take_whole(machine, command, PLAN_AS_OUT_GRAD);
    uint64_t digest = truth_backward(in, kept, weights, after);
    clobber_scratch(machine, command);
    put_whole(machine, command, PLAN_AS_OUT_GRAD, digest);
    leave_gradients(machine, command, digest);
}

/* Adds the gradients of a shared parameter's two uses. */
static void round_shared(struct machine *machine, const struct plan_command *command)
{
    const struct plan_operand *shared = machine_need(command, PLAN_AS_SHARED_SUM);
    const struct plan_operand *sum = plan_command_operand(command, PLAN_AS_SUM);
    const struct plan_operand *grad = machine_need(command, PLAN_AS_GRAD);
    uint32_t block = command->block;
    uint64_t width = machine->input->blocks[block].format.grad_bytes;
    uint32_t last = machine->input->compute_count - 1;
    for (uint64_t i = 0; i < truth_shared_cells(machine->input, last); i++) {
        uint64_t value = machine_cell_take(machine, shared, block, i, 0, PLAN_SUM_BYTES);
        value += sum != NULL ? machine_cell_take(machine, sum, block, i, 0, PLAN_SUM_BYTES)
                             : machine_cell_take(machine, grad, block, i, 0, width);
        machine_cell_put(machine, grad, block, i, width, value);
    }
}

/* ---- copies and I/O ---- */

static void copy(struct machine *machine, const struct plan_command *command)
{
    const struct plan_operand *from = machine_need(command, PLAN_AS_FROM);
    const struct plan_operand *to = machine_need(command, PLAN_AS_TO);
    check_true(from->bytes == to->bytes && from->bytes == command->bytes);
    copy_range(machine, from->buffer, from->offset, to->buffer, to->offset, from->bytes);
}

static void transfer(struct machine *machine, const struct plan_command *command)
{
    static const enum plan_role extents[] = {PLAN_AS_EXTENT_W16, PLAN_AS_EXTENT_STATES,
                                             PLAN_AS_EXTENT_GRAD, PLAN_AS_EXTENT_ACT};
    const struct plan_operand *memory = plan_command_operand(command, PLAN_AS_MEMORY);
    const struct plan_operand *slot = plan_command_operand(command, PLAN_AS_SLOT);
    uint64_t bytes = 0;
    for (int i = 0; i < 4; i++) {
        const struct plan_operand *extent = plan_command_operand(command, extents[i]);
        if (extent == NULL) {
            continue;
        }
        uint32_t buffer = memory != NULL ? memory->buffer
                                         : machine_need(command, PLAN_AS_SLOT)->buffer;
        uint64_t at = memory != NULL                     ? memory->offset
                      : extents[i] == PLAN_AS_EXTENT_W16 ? 0
                      : extents[i] == PLAN_AS_EXTENT_STATES
                          ? plan_slot_states_offset(machine->plan)
                          : plan_slot_gradient_offset(machine->plan);
        check_true((memory != NULL) != (slot != NULL));
        check_int(plan_buffer(machine->plan, extent->buffer)->tier, ==, PLAN_STORE);
        check_int(plan_buffer(machine->plan, buffer)->tier, !=, PLAN_STORE);
        check_int(extent->offset % PLAN_EXTENT_BYTES, ==, 0);
        check_int(plan_buffer(machine->plan, buffer)->offset % PLAN_ALIGN_BYTES, ==, 0);
        check_int(at % PLAN_ALIGN_BYTES, ==, 0);
        bytes += extent->bytes;
        if (command->op == PLAN_READ) {
            copy_range(machine, extent->buffer, extent->offset, buffer, at, extent->bytes);
        } else {
            copy_range(machine, buffer, at, extent->buffer, extent->offset, extent->bytes);
        }
    }
    check_int(bytes, ==, command->bytes);
}

/* ---- update ---- */

static void sums(struct machine *machine, const struct plan_command *command)
{
    struct plan_span span = plan_state_span(machine->input, command->block);
    const struct plan_operand *grad = machine_need(command, PLAN_AS_GRAD);
    const struct plan_operand *tiles = machine_need(command, PLAN_AS_TILE_SUMS);
    uint64_t first = span.first / PLAN_CUT_ELEMENTS;
    uint64_t end = (span.first + span.count + PLAN_CUT_ELEMENTS - 1) / PLAN_CUT_ELEMENTS;
    for (uint64_t i = first; i < end; i++) {
        uint64_t value = machine_cell_take(
            machine, grad, command->block, i, span.first,
            machine->input->blocks[command->block].format.grad_bytes);
        uint64_t offset = tiles->offset + (i - first) * PLAN_TILE_SUM_BYTES;
        check_true(offset + PLAN_TILE_SUM_BYTES <= tiles->offset + tiles->bytes);
        machine_put(machine, tiles->buffer, offset, PLAN_TILE_SUM_BYTES, value);
    }
}

static void norm(struct machine *machine, const struct plan_command *command)
{
    const struct plan_operand *tiles = machine_need(command, PLAN_AS_TILE_SUMS);
    uint64_t digest = 0;
    uint64_t tile = 0;
    for (uint32_t b = 0; b < machine->input->block_count; b++) {
        for (uint64_t i = 0; i < truth_cells(machine->input, b); i++, tile++) {
            if (machine->input->blocks[b].trained) {
                digest = truth_mix(digest, machine_take(machine, tiles->buffer,
                                                        tiles->offset + tile * PLAN_TILE_SUM_BYTES,
                                                        PLAN_TILE_SUM_BYTES));
            }
        }
    }
    put_whole(machine, command, PLAN_AS_NORM, digest);
}

static void update(struct machine *machine, const struct plan_command *command, uint32_t step)
{
    const struct plan_input *input = machine->input;
    const struct plan_format *format = &input->blocks[command->block].format;
    const struct plan_operand *slot = plan_command_operand(command, PLAN_AS_SLOT);
    const struct plan_operand *resident = plan_command_operand(command, PLAN_AS_STATES);
    const struct plan_operand *place = plan_command_operand(command, PLAN_AS_WEIGHTS_PLACE);
    const struct plan_operand *grad = machine_need(command, PLAN_AS_GRAD);
    uint64_t first = plan_state_span(input, command->block).first +
                     command->chunk * plan_chunk_elements(machine->plan);
    uint64_t factor = plan_command_operand(command, PLAN_AS_NORM) != NULL
                          ? take_whole(machine, command, PLAN_AS_NORM)
                          : 0;
    check_true(place != NULL || slot != NULL);
    check_true((resident != NULL || slot != NULL) &&
               !(resident != NULL && place == NULL && slot == NULL));
    check_int(grad->bytes, ==, command->elements * format->grad_bytes);
    uint64_t cells = plan_chunk_count(command->elements, PLAN_CUT_ELEMENTS);
    for (uint64_t i = 0; i < cells; i++) {
        uint64_t cell = first / PLAN_CUT_ELEMENTS + i;
        struct machine_cell w = machine_cell_at(machine, command->block, cell,
                                                place != NULL ? place->offset : 0, first,
                                                format->weight_bytes);
        uint32_t w_buffer = place != NULL ? place->buffer : slot->buffer;
        uint32_t s_buffer = resident != NULL ? resident->buffer : slot->buffer;
        uint64_t s_offset = (resident != NULL ? resident->offset
                                              : plan_slot_states_offset(machine->plan)) +
                            i * STATE_CELL_BYTES;
        uint64_t g = machine_cell_take(machine, grad, command->block, cell, first,
                                       format->grad_bytes);
        struct truth_cell was = {
            .weight = machine_take(machine, w_buffer, w.offset, w.bytes),
            .state = machine_take(machine, s_buffer, s_offset, STATE_CELL_BYTES)};
        struct truth_cell is = truth_update(was, g, factor);
        struct truth_cell wanted = truth_cell_at(machine->truth, step + 1, command->block, cell);
        bool falls = command->ahead && truth_by_norm(machine->truth, step);
        if (!falls && (is.weight != wanted.weight || is.state != wanted.state)) {
            test_fail(__FILE__, __LINE__,
                      "update %u of block %u cell %" PRIu64 " is wrong (gradient %" PRIu64
                      ", wanted %" PRIu64 ")",
                      step, command->block, cell, g,
                      truth_gradient_at(machine->truth, step, command->block, cell));
        }
        machine_put(machine, w_buffer, w.offset, w.bytes, is.weight);
        machine_put(machine, s_buffer, s_offset, STATE_CELL_BYTES, is.state);
    }
}

/* ---- generations ---- */

struct plan_command machine_resolve(const struct machine *machine,
                                    const struct plan_command *command, uint32_t step)
{
    struct plan_command resolved = *command;
    bool other = command->ahead && command->op != PLAN_READ &&
                 machine->words[step] != MACHINE_STANDS;
    for (uint32_t i = 0; other && i < command->operand_count; i++) {
        uint32_t twin = plan_buffer(machine->plan, command->operands[i].buffer)->twin;
        resolved.operands[i].buffer = twin != PLAN_NONE ? twin : command->operands[i].buffer;
    }
    return resolved;
}

/* Copies the current generation before an update writes the other one. */
static void bring(struct machine *machine, const struct plan_command *from,
                  const struct plan_command *to)
{
    for (uint32_t i = 0; i < from->operand_count; i++) {
        const struct plan_operand *old = &from->operands[i];
        if (old->buffer != to->operands[i].buffer) {
            copy_range(machine, old->buffer, old->offset, to->operands[i].buffer, old->offset,
                       old->bytes);
        }
    }
}

/* The generation written ahead becomes current or is discarded. */
static void decide(struct machine *machine, uint32_t step)
{
    bool stands = !truth_by_norm(machine->truth, step);
    machine->words[step] = stands ? MACHINE_STANDS : MACHINE_FALLS;
    for (uint32_t i = 0; stands && i < plan_buffer_count(machine->plan); i++) {
        uint32_t twin = plan_buffer(machine->plan, i)->twin;
        if (twin != PLAN_NONE) {
            struct memory current = machine->memories[i];
            machine->memories[i] = machine->memories[twin];
            machine->memories[twin] = current;
        }
    }
}

/* ---- running commands ---- */

void machine_do(struct machine *machine, const struct plan_command *as_told, enum plan_kind kind,
                uint32_t step)
{
    const struct plan_command resolved = machine_resolve(machine, as_told, step);
    const struct plan_command *command = &resolved;
    bool late = !command->ahead && (kind == PLAN_NEXT || kind == PLAN_GUESS_NEXT);
    machine->now = command;
    switch ((enum plan_op)command->op) {
    case PLAN_FWD: forward(machine, command, step); break;
    case PLAN_BWD: backward(machine, command, step); break;
    case PLAN_EXPAND:
        (command->packed            ? expand_packed
         : command->section != NULL ? expand_section
                                    : expand)(machine, command);
        break;
    case PLAN_ROUND: round_shared(machine, command); break;
    case PLAN_H2D:
    case PLAN_D2H: (command->rows ? bring_rows : copy)(machine, command); break;
    case PLAN_READ:
    case PLAN_WRITE: (command->rows ? bring_rows : transfer)(machine, command); break;
    case PLAN_SUMS: sums(machine, command); break;
    case PLAN_NORM:
        norm(machine, command);
        if (kind == PLAN_GUESS || kind == PLAN_GUESS_NEXT) {
            decide(machine, step);
        }
        break;
    case PLAN_UPDATE:
        bring(machine, as_told, command);
        update(machine, command, late ? step - 1 : step);
        break;
    case PLAN_JOIN: break;
    case PLAN_GATHER:
    case PLAN_REDUCE:
    case PLAN_OP_COUNT: test_fail(__FILE__, __LINE__, "op %u alone", command->op);
    }
    machine->now = NULL;
}
