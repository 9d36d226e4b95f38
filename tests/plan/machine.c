/* machine.c: buffers as lists of numbers at their places, and commands over them. */
#include "tests/plan/machine.h"

#include <stdlib.h>

#include "offload/plan/candidate.h"
#include "tests/harness/test.h"
#include "tests/plan/truth.h"

enum { STATE_CELL_BYTES = 64 };

/* A number that lies at a place. */
struct item {
    uint64_t offset;
    uint64_t bytes;
    uint64_t value;
};

struct memory {
    struct item *items; /* owned */
    uint32_t count;
    uint32_t room;
};

struct machine {
    const struct plan_input *input;
    const struct plan *plan;
    const struct machine_truth *truth;
    struct memory *memories; /* owned, a buffer each */
    const struct plan_command *now;
};

/* ---- places ---- */

static void put(struct machine *machine, uint32_t buffer, uint64_t offset, uint64_t bytes,
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

static uint64_t take(const struct machine *machine, uint32_t buffer, uint64_t offset,
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

/* Everything that lies in a range goes to the same places of another. */
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
            put(machine, to, to_offset + item->offset - from_offset, item->bytes, item->value);
            copied++;
        }
    }
    free(items);
    check_int(copied, >, 0);
}

/* A cell of an array of `width` bytes an element whose element `first` lies at the operand's
 * offset. */
struct cell_place {
    uint64_t offset;
    uint64_t bytes;
};

static struct cell_place cell_at(const struct machine *machine, uint32_t block, uint64_t cell,
                                 uint64_t base, uint64_t first, uint64_t width)
{
    uint64_t from = cell * PLAN_CUT_ELEMENTS;
    uint64_t elements = plan_chunk_size(machine->input->blocks[block].elements, PLAN_CUT_ELEMENTS,
                                        cell);
    return (struct cell_place){base + (from - first) * width, elements * width};
}

static uint64_t take_cell(const struct machine *machine, const struct plan_operand *operand,
                          uint32_t block, uint64_t cell, uint64_t first, uint64_t width)
{
    struct cell_place at = cell_at(machine, block, cell, operand->offset, first, width);
    check_true(at.offset + at.bytes <= operand->offset + operand->bytes);
    return take(machine, operand->buffer, at.offset, at.bytes);
}

static void put_cell(struct machine *machine, const struct plan_operand *operand, uint32_t block,
                     uint64_t cell, uint64_t width, uint64_t value)
{
    struct cell_place at = cell_at(machine, block, cell, operand->offset, 0, width);
    check_true(at.offset + at.bytes <= operand->offset + operand->bytes);
    check_true((operand->access & PLAN_WRITES) != 0);
    put(machine, operand->buffer, at.offset, at.bytes, value);
}

static const struct plan_operand *need(const struct plan_command *command, enum plan_role role)
{
    const struct plan_operand *operand = plan_command_operand(command, role);
    if (operand == NULL) {
        test_fail(__FILE__, __LINE__, "%s of block %u micro %u names no %s",
                  plan_op_name((enum plan_op)command->op), command->block, command->micro,
                  plan_role_name(role));
    }
    return operand;
}

static uint64_t take_whole(const struct machine *machine, const struct plan_command *command,
                           enum plan_role role)
{
    const struct plan_operand *operand = need(command, role);
    check_true((operand->access & PLAN_READS) != 0);
    return take(machine, operand->buffer, operand->offset, operand->bytes);
}

static void put_whole(struct machine *machine, const struct plan_command *command,
                      enum plan_role role, uint64_t value)
{
    const struct plan_operand *operand = need(command, role);
    check_true((operand->access & PLAN_WRITES) != 0);
    put(machine, operand->buffer, operand->offset, operand->bytes, value);
}

/* ---- forward and backward ---- */

static uint64_t weights_digest(const struct machine *machine, const struct plan_command *command)
{
    const struct plan_block_shape *shape = &machine->input->blocks[command->block];
    uint64_t digest = 0;
    for (int borrowed = 0; borrowed < (shape->borrows != PLAN_NONE ? 2 : 1); borrowed++) {
        uint32_t block = borrowed ? shape->borrows : command->block;
        const struct plan_operand *weights = need(command,
                                                  borrowed ? PLAN_AS_BORROWED : PLAN_AS_WEIGHTS);
        for (uint64_t i = 0; i < truth_cells(machine->input, block); i++) {
            digest = truth_mix(digest, take_cell(machine, weights, block, i, 0,
                                                 machine->input->format.weight_bytes));
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

static void forward(struct machine *machine, const struct plan_command *command, uint32_t step)
{
    uint64_t out = truth_mix(input_of(machine, command, step), weights_digest(machine, command));
    clobber_scratch(machine, command);
    if (machine->input->blocks[command->block].out_bytes > 0) {
        put_whole(machine, command, PLAN_AS_OUT, out);
    }
    if (plan_command_operand(command, PLAN_AS_KEPT) != NULL) {
        put_whole(machine, command, PLAN_AS_KEPT, truth_mix(out, 1));
    }
}

/* Adds to, or stores into, a cell as the operand's access says; returns what then stands there. */
static uint64_t add_cell(struct machine *machine, const struct plan_operand *operand,
                         uint32_t block, uint64_t cell, uint64_t width, uint64_t value)
{
    if ((operand->access & PLAN_READS) != 0) {
        value += take_cell(machine, operand, block, cell, 0, width);
    }
    put_cell(machine, operand, block, cell, width, value);
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
    bool uses = input->blocks[block].borrows != PLAN_NONE;
    if (uses && shared != NULL) {
        uint32_t owner = input->blocks[block].borrows;
        for (uint64_t i = 0; i < truth_shared_cells(input, block); i++) {
            add_cell(machine, shared, owner, i, PLAN_SUM_BYTES, truth_gradient(digest, i, true));
        }
    }
    for (uint64_t i = 0; input->blocks[block].trained && i < truth_cells(input, block); i++) {
        uint64_t value = truth_gradient(digest, i, false);
        if (shared != NULL && !uses && i < truth_shared_cells(input, input->block_count - 1)) {
            value = add_cell(machine, shared, block, i, PLAN_SUM_BYTES, value);
        }
        if (sum != NULL) {
            value = add_cell(machine, sum, block, i, PLAN_SUM_BYTES, value);
        }
        if (grad != NULL) {
            add_cell(machine, grad, block, i, input->format.grad_bytes, value);
        }
    }
}

static void backward(struct machine *machine, const struct plan_command *command, uint32_t step)
{
    const struct plan_block_shape *shape = &machine->input->blocks[command->block];
    bool head = shape->out_bytes == 0;
    uint64_t in = input_of(machine, command, step);
    uint64_t kept = 0;
    if (plan_command_operand(command, PLAN_AS_KEPT) != NULL) {
        kept = take_whole(machine, command, PLAN_AS_KEPT);
    } else if (shape->kept_bytes > 0) {
        kept = truth_mix(truth_mix(in, weights_digest(machine, command)), 1);
    }
    uint64_t weights = shape->backward_reads_weights ? weights_digest(machine, command) : 0;
    uint64_t after = head ? 0 : take_whole(machine, command, PLAN_AS_OUT_GRAD);
    uint64_t digest = truth_backward(in, kept, weights, after);
    clobber_scratch(machine, command);
    put_whole(machine, command, PLAN_AS_OUT_GRAD, digest);
    leave_gradients(machine, command, digest);
}

/* The two uses of a shared parameter. */
static void round_shared(struct machine *machine, const struct plan_command *command)
{
    const struct plan_operand *shared = need(command, PLAN_AS_SHARED_SUM);
    const struct plan_operand *sum = plan_command_operand(command, PLAN_AS_SUM);
    const struct plan_operand *grad = need(command, PLAN_AS_GRAD);
    uint64_t width = machine->input->format.grad_bytes;
    uint32_t block = command->block;
    uint32_t last = machine->input->block_count - 1;
    for (uint64_t i = 0; i < truth_shared_cells(machine->input, last); i++) {
        uint64_t value = take_cell(machine, shared, block, i, 0, PLAN_SUM_BYTES);
        value += sum != NULL ? take_cell(machine, sum, block, i, 0, PLAN_SUM_BYTES)
                             : take_cell(machine, grad, block, i, 0, width);
        put_cell(machine, grad, block, i, width, value);
    }
}

/* ---- copies and drive ---- */

static void copy(struct machine *machine, const struct plan_command *command)
{
    const struct plan_operand *from = need(command, PLAN_AS_FROM);
    const struct plan_operand *to = need(command, PLAN_AS_TO);
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
        uint32_t buffer = memory != NULL ? memory->buffer : need(command, PLAN_AS_SLOT)->buffer;
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
    const struct plan_operand *grad = need(command, PLAN_AS_GRAD);
    const struct plan_operand *tiles = need(command, PLAN_AS_TILE_SUMS);
    uint64_t first = span.first / PLAN_CUT_ELEMENTS;
    uint64_t end = (span.first + span.count + PLAN_CUT_ELEMENTS - 1) / PLAN_CUT_ELEMENTS;
    for (uint64_t i = first; i < end; i++) {
        uint64_t value = take_cell(machine, grad, command->block, i, span.first,
                                   machine->input->format.grad_bytes);
        uint64_t offset = tiles->offset + (i - first) * PLAN_TILE_SUM_BYTES;
        check_true(offset + PLAN_TILE_SUM_BYTES <= tiles->offset + tiles->bytes);
        put(machine, tiles->buffer, offset, PLAN_TILE_SUM_BYTES, value);
    }
}

static void norm(struct machine *machine, const struct plan_command *command)
{
    const struct plan_operand *tiles = need(command, PLAN_AS_TILE_SUMS);
    uint64_t digest = 0;
    uint64_t tile = 0;
    for (uint32_t b = 0; b < machine->input->block_count; b++) {
        for (uint64_t i = 0; i < truth_cells(machine->input, b); i++, tile++) {
            if (machine->input->blocks[b].trained) {
                digest = truth_mix(digest, take(machine, tiles->buffer,
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
    const struct plan_format *format = &input->format;
    const struct plan_operand *slot = plan_command_operand(command, PLAN_AS_SLOT);
    const struct plan_operand *resident = plan_command_operand(command, PLAN_AS_STATES);
    const struct plan_operand *place = plan_command_operand(command, PLAN_AS_WEIGHTS_PLACE);
    const struct plan_operand *grad = need(command, PLAN_AS_GRAD);
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
        struct cell_place w = cell_at(machine, command->block, cell,
                                      place != NULL ? place->offset : 0, first,
                                      format->weight_bytes);
        uint32_t w_buffer = place != NULL ? place->buffer : slot->buffer;
        uint32_t s_buffer = resident != NULL ? resident->buffer : slot->buffer;
        uint64_t s_offset = (resident != NULL ? resident->offset
                                              : plan_slot_states_offset(machine->plan)) +
                            i * STATE_CELL_BYTES;
        uint64_t g = take_cell(machine, grad, command->block, cell, first, format->grad_bytes);
        struct truth_cell was = {.weight = take(machine, w_buffer, w.offset, w.bytes),
                                 .state = take(machine, s_buffer, s_offset, STATE_CELL_BYTES)};
        struct truth_cell is = truth_update(was, g, factor);
        struct truth_cell wanted = truth_cell_at(machine->truth, step + 1, command->block, cell);
        if (is.weight != wanted.weight || is.state != wanted.state) {
            test_fail(__FILE__, __LINE__,
                      "update %u of block %u cell %" PRIu64 " is wrong (gradient %" PRIu64
                      ", wanted %" PRIu64 ")",
                      step, command->block, cell, g,
                      truth_gradient_at(machine->truth, step, command->block, cell));
        }
        put(machine, w_buffer, w.offset, w.bytes, is.weight);
        put(machine, s_buffer, s_offset, STATE_CELL_BYTES, is.state);
    }
}

/* ---- ranks ---- */

uint64_t machine_do_together(struct machine *const *machines, uint32_t world,
                             const struct plan_command *const *commands)
{
    (void)machines;
    (void)world;
    (void)commands;
    return 0;
}

/* ---- doing ---- */

void machine_do(struct machine *machine, const struct plan_command *command, enum plan_kind kind,
                uint32_t step)
{
    machine->now = command;
    switch ((enum plan_op)command->op) {
    case PLAN_FWD: forward(machine, command, step); break;
    case PLAN_BWD: backward(machine, command, step); break;
    case PLAN_ROUND: round_shared(machine, command); break;
    case PLAN_H2D:
    case PLAN_D2H: copy(machine, command); break;
    case PLAN_READ:
    case PLAN_WRITE: transfer(machine, command); break;
    case PLAN_SUMS: sums(machine, command); break;
    case PLAN_NORM: norm(machine, command); break;
    case PLAN_UPDATE: update(machine, command, kind == PLAN_NEXT ? step - 1 : step); break;
    case PLAN_JOIN: break;
    case PLAN_GATHER:
    case PLAN_REDUCE:
    case PLAN_OP_COUNT: test_fail(__FILE__, __LINE__, "op %u alone", command->op);
    }
    machine->now = NULL;
}

/* ---- where things lie for good ---- */

/* Calls `visit` for each cell of weights and states that this rank keeps: where it lies. */
struct home {
    uint32_t buffer;
    uint64_t offset;
    uint64_t bytes;
    uint32_t block;
    uint64_t cell;
    bool is_state;
};

static void visit_chunks(struct machine *machine, uint32_t block, bool is_state,
                         void (*visit)(struct machine *, const struct home *, uint32_t),
                         uint32_t steps)
{
    const struct plan_layout *layout = machine->plan->layout;
    const struct plan_block_layout *where = &layout->blocks[block];
    const struct plan_format *format = &machine->input->format;
    struct plan_span span = is_state ? plan_state_span(machine->input, block)
                                     : plan_weight_span(machine->input, block);
    uint64_t each = plan_chunk_elements(machine->plan);
    uint64_t resident = layout->places[block].resident_chunks;
    uint64_t cells = plan_chunk_count(span.count, PLAN_CUT_ELEMENTS);
    for (uint64_t i = 0; i < cells; i++) {
        uint64_t chunk = i * PLAN_CUT_ELEMENTS / each;
        uint64_t rest = i - chunk * each / PLAN_CUT_ELEMENTS;
        struct home home = {
            .block = block, .cell = span.first / PLAN_CUT_ELEMENTS + i, .is_state = is_state};
        if (is_state) {
            uint64_t extent = plan_round_up(plan_state_bytes(format, each), PLAN_EXTENT_BYTES);
            uint64_t stride = plan_round_up(plan_state_bytes(format, each), PLAN_ALIGN_BYTES);
            home.buffer = chunk < resident ? where->states_memory : where->states_store;
            home.offset = (chunk < resident ? chunk * stride : (chunk - resident) * extent) +
                          rest * STATE_CELL_BYTES;
            home.bytes = STATE_CELL_BYTES;
            visit(machine, &home, steps);
            continue;
        }
        struct cell_place at = cell_at(machine, block, home.cell, 0, span.first,
                                       format->weight_bytes);
        const uint16_t places[] = {where->weights_device, where->weights_host};
        for (int p = 0; p < 2; p++) {
            home.buffer = places[p];
            home.offset = at.offset;
            home.bytes = at.bytes;
            if (places[p] != PLAN_NONE) {
                visit(machine, &home, steps);
            }
        }
        if (where->weights_store != PLAN_NONE) {
            home.buffer = where->weights_store;
            home.offset = chunk * plan_round_up(each * format->weight_bytes, PLAN_EXTENT_BYTES) +
                          rest * PLAN_CUT_ELEMENTS * format->weight_bytes;
            visit(machine, &home, steps);
        }
    }
}

static void visit_all(struct machine *machine,
                      void (*visit)(struct machine *, const struct home *, uint32_t),
                      uint32_t steps)
{
    for (uint32_t b = 0; b < machine->input->block_count; b++) {
        visit_chunks(machine, b, false, visit, steps);
        if (machine->input->blocks[b].trained) {
            visit_chunks(machine, b, true, visit, steps);
        }
    }
}

static void fill_home(struct machine *machine, const struct home *home, uint32_t steps)
{
    struct truth_cell cell = truth_cell_at(machine->truth, steps, home->block, home->cell);
    put(machine, home->buffer, home->offset, home->bytes,
        home->is_state ? cell.state : cell.weight);
}

static void check_home(struct machine *machine, const struct home *home, uint32_t steps)
{
    struct truth_cell cell = truth_cell_at(machine->truth, steps, home->block, home->cell);
    uint64_t value = take(machine, home->buffer, home->offset, home->bytes);
    if (value != (home->is_state ? cell.state : cell.weight)) {
        test_fail(__FILE__, __LINE__, "%s of block %u cell %" PRIu64 " is not that of step %u",
                  home->is_state ? "state" : "weight", home->block, home->cell, steps);
    }
}

struct machine *machine_create(const struct plan_input *input, const struct plan *plan,
                               const struct machine_truth *truth)
{
    struct machine *machine = calloc(1, sizeof *machine);
    machine->input = input;
    machine->plan = plan;
    machine->truth = truth;
    machine->memories = calloc(plan_buffer_count(plan), sizeof *machine->memories);
    visit_all(machine, fill_home, 0);
    return machine;
}

void machine_destroy(struct machine *machine)
{
    for (uint32_t i = 0; i < plan_buffer_count(machine->plan); i++) {
        free(machine->memories[i].items);
    }
    free(machine->memories);
    free(machine);
}

void machine_check(struct machine *machine, uint32_t steps)
{
    visit_all(machine, check_home, steps);
}
