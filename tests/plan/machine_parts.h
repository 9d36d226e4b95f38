/* machine_parts.h: declarations that machine*.c share. */
#ifndef TESTS_PLAN_MACHINE_PARTS_H
#define TESTS_PLAN_MACHINE_PARTS_H

#include "offload/plan/candidate.h"
#include "tests/plan/machine.h"

enum { STATE_CELL_BYTES = 64 };

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

/* Whether the norm has confirmed the update made ahead of it. */
enum machine_word { MACHINE_UNSAID, MACHINE_STANDS, MACHINE_FALLS };

struct machine {
    const struct plan_input *input;
    const struct plan *plan;
    const struct machine_truth *truth;
    struct memory *memories; /* owned, one per buffer */
    enum machine_word words[MACHINE_STEPS_MAX + 1];
    const struct plan_command *now;
};

/* Returns the command with its real buffers: a command ahead of its norm, unless it is a READ, uses
 * the other generation until that generation is current. */
struct plan_command machine_resolve(const struct machine *machine,
                                    const struct plan_command *command, uint32_t step);

struct machine_cell {
    uint64_t offset;
    uint64_t bytes;
};

struct machine_cells {
    uint64_t first;
    uint64_t end;
};

void machine_put(struct machine *machine, uint32_t buffer, uint64_t offset, uint64_t bytes,
                 uint64_t value);

uint64_t machine_take(const struct machine *machine, uint32_t buffer, uint64_t offset,
                      uint64_t bytes);

/* Returns a cell's place in an array of `width` bytes per element; element `first` is at `base`. */
struct machine_cell machine_cell_at(const struct machine *machine, uint32_t block, uint64_t cell,
                                    uint64_t base, uint64_t first, uint64_t width);

/* Like machine_cell_at(), for the weights that a block keeps, which may be stored in fewer bits. */
struct machine_cell machine_kept_cell_at(const struct machine *machine, uint32_t block,
                                         uint64_t cell, uint64_t base, uint64_t first);

struct machine_cell machine_packed_cell_at(const struct machine *machine, uint32_t block,
                                           uint64_t cell, uint64_t base);

uint64_t machine_cell_take(const struct machine *machine, const struct plan_operand *operand,
                           uint32_t block, uint64_t cell, uint64_t first, uint64_t width);

void machine_cell_put(struct machine *machine, const struct plan_operand *operand, uint32_t block,
                      uint64_t cell, uint64_t width, uint64_t value);

const struct plan_operand *machine_need(const struct plan_command *command, enum plan_role role);

struct machine_cells machine_part(const struct machine *machine, uint32_t block);

#endif
