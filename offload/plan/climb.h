/* climb.h: improves a candidate one change at a time. Upwards, as long as a change makes the step
 * faster; downwards, as long as a change saves memory at little cost. Private to offload/plan;
 * pure. */
#ifndef OFFLOAD_PLAN_CLIMB_H
#define OFFLOAD_PLAN_CLIMB_H

#include "offload/plan/candidate.h"

/* Returns whether `plan` is better than `best` (any plan is better than NULL): it is faster by a
 * margin or, unless only `plan` speculates, as fast with less memory. */
bool plan_climb_wins(const struct plan *plan, const struct plan *best);

/* Returns the bytes of host memory that a plan takes: on the CPU device, of both tiers; else of
 * HOST. */
uint64_t plan_climb_memory(const struct plan_input *input, const struct plan *plan);

/* Makes each change of the choice that improves the plan (plan_climb_wins), until none does or the
 * limit of tries is reached. Replaces *best. */
int plan_climb_up(const struct plan_input *input, struct plan_needs *needs, struct plan **best);

/* Adds state slots until they hold as many bytes as were in flight while the drives were measured,
 * or until the budgets are used up. Replaces *best. */
int plan_climb_widen(const struct plan_input *input, struct plan_needs *needs, struct plan **best);

/* The limits of a candidate that saves memory. */
struct plan_bounds {
    double step_seconds;
    double clipped_seconds; /* time of a step whose norm clips, in speculative plans */
    /* bytes written to STORE: saving memory must not wear the drives more */
    uint64_t store_write_bytes;
};

/* Makes, one at a time, the change that saves the most memory per second lost, within `bounds`.
 * Replaces *best. */
int plan_climb_down(const struct plan_input *input, const struct plan_bounds *bounds,
                    struct plan_needs *needs, struct plan **best);

#endif
