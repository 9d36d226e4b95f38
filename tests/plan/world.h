/* world.h: the small model, budgets and rates that the tests of the planner share. */
#ifndef TESTS_PLAN_WORLD_H
#define TESTS_PLAN_WORLD_H

#include "offload/plan/plan.h"

enum { UNIT = 65536, LAYERS = 6, BLOCKS = LAYERS + 2 };

struct world {
    struct plan_block_shape shapes[BLOCKS];
    struct plan_input input;
};

/* An embedding of eight units, six layers of five and a head (tied: next to nothing
 * of its own, and seven units of the embedding's), bf16 with the split master, budgets
 * beyond need and a drive that is slower than the rest. */
void world_init(struct world *world, bool tied, uint32_t micros);

uint64_t world_parameters(const struct world *world);

/* The plan of a world that has one; a failed check where it has none. */
struct plan *world_plan(const struct world *world);

#endif
