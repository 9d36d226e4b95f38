/* train.h: trains ranks on machines, in orders that the edges allow. */
#ifndef TESTS_PLAN_TRAIN_H
#define TESTS_PLAN_TRAIN_H

#include "tests/plan/world.h"

/* A sequence of tapes. */
struct train_row {
    enum plan_kind kinds[6];
    uint32_t count;
    uint32_t wrong; /* bit s: the guess of step s is wrong */
};

extern const struct train_row train_drained, train_evaluated, train_inside;
/* Returns the i-th row that a plan with this timing can run. */
const struct train_row *train_row_for(enum plan_timing timing, uint64_t i);

/* Makes a world whose model, wishes and memory depend on `number`. */
void train_vary(struct world *world, uint64_t number);
/* Freezes layers and stores them in fewer bits. With `some`, every third layer is trained and
 * borrows a stored data block. */
void train_store_blocks(struct world *world, bool some);

/* Trains all ranks in as many orders as there are seeds; checks weights and states. */
void train_machines(const struct world *world, const struct train_row *row, int seeds);
/* Trains with train_inside if the world wishes updates inside the backward pass, else with
 * train_drained or train_evaluated. */
void train_as_timed(const struct world *world, bool drained, int seeds);

#endif
