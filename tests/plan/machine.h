/* machine.h: does what tapes say, with numbers in place of tensors, and knows what must come out.
 * A cell (64 Ki elements) of weights, states and gradients is one number; an activation is one
 * number. Commands are understood by the roles of their operands alone, as the engine does. What is
 * read must lie where it was written, as it was written; every update is compared with a reference
 * that has no buffers, no chunks and no order. Several ranks are several machines. */
#ifndef TESTS_PLAN_MACHINE_H
#define TESTS_PLAN_MACHINE_H

#include "offload/plan/plan.h"

struct machine;
struct machine_truth;

enum { MACHINE_STEPS_MAX = 4, MACHINE_RANKS_MAX = 4 };

/* What training by the input's shapes and formats gives, for `world` ranks. Bit s of `by_norm`: the
 * update of step s needs its norm, so that a guess is wrong. */
struct machine_truth *machine_truth_create(const struct plan_input *input, uint32_t by_norm);
void machine_truth_destroy(struct machine_truth *truth);

/* Weights and states where the plan puts them before the first step. All borrowed. */
struct machine *machine_create(const struct plan_input *input, const struct plan *plan,
                               const struct machine_truth *truth);
void machine_destroy(struct machine *machine);

/* Does a command. `step` is the number of the training step that its tape belongs to, of a drain
 * the last one's, of an evaluation any beyond. */
void machine_do(struct machine *machine, const struct plan_command *command, enum plan_kind kind,
                uint32_t step);

/* Does a command of PLAN_Q_COLL on all ranks at once. Returns the bytes that rank 0 sends. */
uint64_t machine_do_together(struct machine *const *machines, uint32_t world,
                             const struct plan_command *const *commands, uint32_t step);

/* Weights and states after `steps` updates, where the plan keeps them. */
void machine_check(struct machine *machine, uint32_t steps);

#endif
