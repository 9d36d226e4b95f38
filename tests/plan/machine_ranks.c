/* machine_ranks.c: commands that the machines of several ranks run together. */
#include "tests/harness/test.h"
#include "tests/plan/machine_parts.h"
#include "tests/plan/truth.h"

static void gather(struct machine *const *machines, uint32_t world,
                   const struct plan_command *const *commands)
{
    uint32_t block = commands[0]->block;
    const bool packed = plan_packs_weights(machines[0]->input, block);
    for (uint32_t r = 0; r < world; r++) {
        struct machine_cells own = machine_part(machines[r], block);
        const struct plan_operand *from = plan_command_operand(commands[r], PLAN_AS_FROM);
        check_true((from != NULL) == (own.end > own.first));
        for (uint64_t i = own.first; i < own.end; i++) {
            const struct machine_cell at = machine_kept_cell_at(machines[r], block, i, from->offset,
                                                                own.first * PLAN_CUT_ELEMENTS);
            uint64_t value = machine_take(machines[r], from->buffer, at.offset, at.bytes);
            value = packed ? truth_rounded(machines[r]->input, block, value) : value;
            for (uint32_t other = 0; other < world; other++) {
                const struct plan_operand *to = machine_need(commands[other], PLAN_AS_TO);
                const struct machine_cell there = packed
                                                      ? machine_packed_cell_at(machines[other],
                                                                               block, i, to->offset)
                                                      : machine_kept_cell_at(machines[other], block,
                                                                             i, to->offset, 0);
                check_true(there.offset + there.bytes <= to->offset + to->bytes);
                machine_put(machines[other], to->buffer, there.offset, there.bytes, value);
            }
        }
    }
}

/* Copies within a group the weights that the step's first gather brought. */
static void gather_copies(struct machine *const *machines, uint32_t world,
                          const struct plan_command *const *commands)
{
    const uint32_t block = commands[0]->block;
    const uint32_t within = commands[0]->within;
    const bool packed = plan_packs_weights(machines[0]->input, block);
    check_uint(within, ==, machines[0]->input->within);
    for (uint32_t r = 0; r < world; r++) {
        const struct plan_span span = plan_copy_span(machines[r]->input, block);
        const struct plan_operand *from = plan_command_operand(commands[r], PLAN_AS_FROM);
        const uint64_t end = plan_chunk_count(span.first + span.count, PLAN_CUT_ELEMENTS);
        check_true((from != NULL) == (span.count > 0));
        for (uint64_t i = span.first / PLAN_CUT_ELEMENTS; i < end; i++) {
            struct machine_cell at = packed ? machine_packed_cell_at(machines[r], block, i, 0)
                                            : machine_kept_cell_at(machines[r], block, i, 0, 0);
            const uint64_t first = plan_gathered_bytes(machines[r]->input, block, span.first);
            const uint64_t value = machine_take(machines[r], from->buffer,
                                                from->offset + at.offset - first, at.bytes);
            for (uint32_t o = r / within * within; o < r / within * within + within; o++) {
                const struct plan_operand *to = machine_need(commands[o], PLAN_AS_TO);
                check_true(at.offset + at.bytes <= to->bytes);
                machine_put(machines[o], to->buffer, to->offset + at.offset, at.bytes, value);
            }
        }
    }
}

static void put_codes(struct machine *machine, const struct plan_operand *codes, uint32_t block,
                      uint64_t cell)
{
    const uint64_t elements = machine->input->blocks[block].elements;
    const uint64_t end = (cell + 1) * PLAN_CUT_ELEMENTS;
    const uint64_t at = plan_coded_bytes(cell * PLAN_CUT_ELEMENTS);
    const uint64_t bytes = plan_coded_bytes(end < elements ? end : elements) - at;
    check_true(at + bytes <= codes->bytes);
    machine_put(machine, codes->buffer, codes->offset + at, bytes, 0xc0de);
}

/* Computes the sums first, because in place they overwrite the terms. */
static void reduce_gradient(struct machine *const *machines, uint32_t world,
                            const struct plan_command *const *commands)
{
    enum { CELLS_MAX = 64 };
    uint32_t block = commands[0]->block;
    uint64_t width = machines[0]->input->blocks[block].format.grad_bytes;
    uint64_t cells = truth_cells(machines[0]->input, block);
    uint64_t totals[CELLS_MAX] = {0};
    check_int(cells, <=, CELLS_MAX);
    check_true(commands[0]->packed == plan_codes_gradients(machines[0]->input));
    for (uint32_t r = 0; r < world; r++) {
        for (uint64_t i = 0; i < cells; i++) {
            const uint64_t own = machine_cell_take(
                machines[r], machine_need(commands[r], PLAN_AS_FROM), block, i, 0, width);
            totals[i] += truth_coded(machines[r]->input, own);
            if (commands[r]->packed) {
                put_codes(machines[r], machine_need(commands[r], PLAN_AS_CODES), block, i);
            }
        }
    }
    for (uint32_t r = 0; r < world; r++) {
        bool all = machines[r]->input->stage == 0;
        struct machine_cells own = machine_part(machines[r], block);
        const struct plan_operand *to = plan_command_operand(commands[r], PLAN_AS_TO);
        check_true((to != NULL) == (own.end > own.first));
        for (uint64_t i = own.first; i < own.end; i++) {
            struct machine_cell at = machine_cell_at(
                machines[r], block, i, to->offset, all ? 0 : own.first * PLAN_CUT_ELEMENTS, width);
            check_true(at.offset + at.bytes <= to->offset + to->bytes);
            machine_put(machines[r], to->buffer, at.offset, at.bytes, totals[i]);
        }
    }
}

/* A rank has written only its tiles; the others are zero. */
static void reduce_tiles(struct machine *const *machines, uint32_t world,
                         const struct plan_command *const *commands)
{
    for (uint64_t at = 0; at < machine_need(commands[0], PLAN_AS_TO)->bytes;
         at += PLAN_TILE_SUM_BYTES) {
        uint64_t total = 0;
        for (uint32_t r = 0; r < world; r++) {
            total += machine_take(machines[r], machine_need(commands[r], PLAN_AS_FROM)->buffer, at,
                                  PLAN_TILE_SUM_BYTES);
        }
        for (uint32_t r = 0; r < world; r++) {
            machine_put(machines[r], machine_need(commands[r], PLAN_AS_TO)->buffer, at,
                        PLAN_TILE_SUM_BYTES, total);
        }
    }
}

/* Receives pages of a block from the ranks whose shards have them. */
static void gather_pages(struct machine *const *machines, uint32_t world,
                         const struct plan_command *const *commands)
{
    const uint32_t block = commands[0]->block;
    const uint64_t width = machines[0]->input->blocks[block].format.weight_bytes;
    const uint64_t first = commands[0]->first / (PLAN_CUT_ELEMENTS * width);
    const uint64_t end = first + plan_chunk_count(commands[0]->elements, PLAN_CUT_ELEMENTS);
    uint64_t gathered = 0;
    for (uint32_t r = 0; r < world; r++) {
        const struct machine_cells own = machine_part(machines[r], block);
        const uint64_t begin = own.first > first ? own.first : first;
        check_uint(commands[r]->first, ==, commands[0]->first);
        for (uint64_t i = begin; i < own.end && i < end; i++, gathered++) {
            const struct plan_operand *from = machine_need(commands[r], PLAN_AS_FROM);
            const struct machine_cell there = machine_kept_cell_at(
                machines[r], block, i, from->offset, begin * PLAN_CUT_ELEMENTS);
            const uint64_t value = machine_take(machines[r], from->buffer, there.offset,
                                                there.bytes);
            check_uint(there.offset + there.bytes, <=, from->offset + from->bytes);
            for (uint32_t other = 0; other < world; other++) {
                const struct plan_operand *to = machine_need(commands[other], PLAN_AS_TO);
                const struct machine_cell at = machine_kept_cell_at(
                    machines[other], block, i, to->offset, first * PLAN_CUT_ELEMENTS);
                check_uint(at.offset + at.bytes, <=, to->offset + to->bytes);
                machine_put(machines[other], to->buffer, at.offset, at.bytes, value);
            }
        }
    }
    check_uint(gathered, ==, end - first);
}

void machine_do_together(struct machine *const *machines, uint32_t world,
                         const struct plan_command *const *as_told, uint32_t step)
{
    struct plan_command resolved[MACHINE_RANKS_MAX];
    const struct plan_command *commands[MACHINE_RANKS_MAX] = {NULL};
    for (uint32_t r = 0; r < world; r++) {
        resolved[r] = machine_resolve(machines[r], as_told[r], step);
        commands[r] = &resolved[r];
    }
    for (uint32_t r = 0; r < world; r++) {
        check_int(commands[r]->op, ==, commands[0]->op);
        check_int(commands[r]->block, ==, commands[0]->block);
        check_int(commands[r]->elements, ==, commands[0]->elements);
        check_int(commands[r]->packed, ==, commands[0]->packed);
        check_int(commands[r]->within, ==, commands[0]->within);
        machines[r]->now = commands[r];
    }
    if (commands[0]->within > 0) {
        gather_copies(machines, world, commands);
    } else if (commands[0]->op == PLAN_GATHER) {
        (commands[0]->pages ? gather_pages : gather)(machines, world, commands);
    } else if (commands[0]->op == PLAN_REDUCE && commands[0]->block == PLAN_NONE) {
        reduce_tiles(machines, world, commands);
    } else if (commands[0]->op == PLAN_REDUCE) {
        reduce_gradient(machines, world, commands);
    } else {
        check_int(commands[0]->op, ==, PLAN_JOIN);
    }
    for (uint32_t r = 0; r < world; r++) {
        machines[r]->now = NULL;
    }
}
