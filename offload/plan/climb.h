/* climb.h: changes a candidate step by step: up, while a change makes the step faster, and down, while
 * a change takes less memory and costs little. Private to offload/plan; pure. */
#ifndef OFFLOAD_PLAN_CLIMB_H
#define OFFLOAD_PLAN_CLIMB_H

#include "offload/plan/candidate.h"

/* Whether `plan` is better than `best` (NULL: it is) where memory is there to be used: faster by
 * what its memory is worth, or as fast in less of it. */
bool plan_climb_wins(const struct plan *plan, const struct plan *best);

/* Memory that a plan takes of what others could use: on the CPU device both tiers, else HOST. */
uint64_t plan_climb_memory(const struct plan_input *input, const struct plan *plan);

/* Takes each change of slots, chunks and split as long as it gains. *best is replaced. */
int plan_climb_up(const struct plan_input *input, struct plan_needs *needs, struct plan **best);

/* More state slots, until they hold what was in flight at the drives while their rates were measured,
 * or budgets end. *best is replaced. */
int plan_climb_widen(const struct plan_input *input, struct plan_needs *needs, struct plan **best);

/* What a candidate that takes less memory may cost. */
struct plan_bounds {
    double step_seconds;
    double clipped_seconds;     /* where the norm clips and updates go ahead of others */
    uint64_t store_write_bytes; /* less memory is not paid for with wear of the drives */
};

/* Takes, one after another, the change that saves the most memory for what it costs, within `bounds`.
 * *best is replaced. */
int plan_climb_down(const struct plan_input *input, const struct plan_bounds *bounds,
                    struct plan_needs *needs, struct plan **best);

#endif
