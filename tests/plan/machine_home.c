/* machine_home.c: fills and checks the permanent places of weights and states. */
#include <stdlib.h>

#include "core/base/size.h"
#include "tests/harness/test.h"
#include "tests/plan/machine_parts.h"
#include "tests/plan/truth.h"

/* A place of a cell of weights or states that this rank keeps. */
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
    const struct plan_format *format = &machine->input->blocks[block].format;
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
            uint64_t extent = core_round_up(plan_state_bytes(format, each), PLAN_EXTENT_BYTES);
            uint64_t stride = core_round_up(plan_state_bytes(format, each), PLAN_ALIGN_BYTES);
            home.buffer = chunk < resident ? where->states_memory : where->states_store;
            home.offset = (chunk < resident ? chunk * stride : (chunk - resident) * extent) +
                          rest * STATE_CELL_BYTES;
            home.bytes = STATE_CELL_BYTES;
            visit(machine, &home, steps);
            continue;
        }
        struct machine_cell at = machine_kept_cell_at(machine, block, home.cell, 0, span.first);
        const uint32_t places[] = {where->weights_device, where->weights_host};
        for (int p = 0; p < 2; p++) {
            home.buffer = places[p];
            home.offset = at.offset;
            home.bytes = at.bytes;
            /* If weights are also in DEVICE, the copy in HOST is current only for cells that this
             * rank updates. */
            struct machine_cells own = machine_part(machine, block);
            bool kept = p == 0 || places[0] == PLAN_NONE ||
                        (home.cell >= own.first && home.cell < own.end);
            if (places[p] != PLAN_NONE && kept) {
                visit(machine, &home, steps);
            }
        }
        if (where->weights_store != PLAN_NONE) {
            home.buffer = where->weights_store;
            home.offset = chunk * core_round_up(each * format->weight_bytes, PLAN_EXTENT_BYTES) +
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
    machine_put(machine, home->buffer, home->offset, home->bytes,
                home->is_state ? cell.state : cell.weight);
}

static void check_home(struct machine *machine, const struct home *home, uint32_t steps)
{
    struct truth_cell cell = truth_cell_at(machine->truth, steps, home->block, home->cell);
    uint64_t value = machine_take(machine, home->buffer, home->offset, home->bytes);
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
    uint32_t tiles = plan->layout->tile_sums;
    for (uint64_t at = 0; at < plan_buffer(plan, tiles)->bytes; at += PLAN_TILE_SUM_BYTES) {
        machine_put(machine, tiles, at, PLAN_TILE_SUM_BYTES, 0);
    }
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
