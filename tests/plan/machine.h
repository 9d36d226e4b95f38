/* machine.h: runs tapes with numbers in place of tensors: one per cell (up to 64 Ki elements) of
 * weights, states or gradients, and one per activation. A command that reads a number needs an
 * earlier write of the same place and size. Updates are compared with those of simple loops
 * (truth.h). */
#ifndef TESTS_PLAN_MACHINE_H
#define TESTS_PLAN_MACHINE_H

#include "offload/plan/plan.h"

struct machine;
struct machine_truth;

enum { MACHINE_STEPS_MAX = 4, MACHINE_RANKS_MAX = 4 };

/* Returns the results of training with the input's shapes, formats and ranks. Bit s of `by_norm`:
 * the update of step s needs its norm, so a guess is wrong. Borrows `input`. */
struct machine_truth *machine_truth_create(const struct plan_input *input, uint32_t by_norm);
void machine_truth_destroy(struct machine_truth *truth);

/* Creates a machine with weights and states where the plan keeps them before the first step.
 * Borrows its arguments. */
struct machine *machine_create(const struct plan_input *input, const struct plan *plan,
                               const struct machine_truth *truth);
void machine_destroy(struct machine *machine);

/* Runs a command. `step` is the training step of its tape; for a drain, the last step; for an
 * evaluation, the next step. */
void machine_do(struct machine *machine, const struct plan_command *command, enum plan_kind kind,
                uint32_t step);

/* Runs a command of PLAN_Q_COLL on all ranks at once. */
void machine_do_together(struct machine *const *machines, uint32_t world,
                         const struct plan_command *const *commands, uint32_t step);

/* Checks weights and states after `steps` updates, where the plan keeps them. */
void machine_check(struct machine *machine, uint32_t steps);

#endif
