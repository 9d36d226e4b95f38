/* world.h: the model, budgets and rates that tests of the planner share. */
#ifndef TESTS_PLAN_WORLD_H
#define TESTS_PLAN_WORLD_H

#include "offload/plan/plan.h"

enum { UNIT = 65536, LAYERS = 6, BLOCKS = LAYERS + 2 };

struct world {
    struct plan_block_shape shapes[2 * BLOCKS]; /* data blocks follow the first BLOCKS */
    struct plan_input input;
};

/* The model has an embedding of eight units, six layers of five and a head, in bf16 with the split
 * master. A tied head borrows seven units of the embedding. Budgets are ample. */
void world_init(struct world *world, bool tied, uint32_t micros);

/* Adds a data block that `block` borrows. */
void world_add_data(struct world *world, uint32_t block, uint64_t elements);

void world_set_grad_bytes(struct world *world, uint8_t bytes);

/* Removes and returns the last digit of a variant's number. */
uint32_t world_digit(uint32_t *variant, uint32_t base);

/* Makes every second block plain fp32; with one micro-batch, also its gradients. */
void world_mix_formats(struct world *world);

/* Makes variant `number` of a world whose application computes by itself. */
void world_lend(struct world *world, uint64_t number);

uint64_t world_parameters(const struct world *world);

/* Returns the world's plan; fails the case if there is none. */
struct plan *world_plan(const struct world *world);

#endif
