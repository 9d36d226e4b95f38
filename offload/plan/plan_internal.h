/* plan_internal.h: the plan's struct. Private to offload/plan. */
#ifndef OFFLOAD_PLAN_PLAN_INTERNAL_H
#define OFFLOAD_PLAN_PLAN_INTERNAL_H

#include "offload/plan/layout.h"
#include "offload/plan/plan.h"
#include "offload/plan/residence.h"

/* The fastest plan tried for each choice of activations and timing; 0 seconds: none fits. */
struct plan_tried {
    struct plan_alternative of[PLAN_ACTS_STORE + 1][PLAN_TIMING_SPECULATIVE + 1];
};

struct plan {
    struct plan_choice choice;
    struct plan_tried tried;
    struct plan_residence residence;
    struct plan_layout *layout;                                   /* owned */
    struct plan_tape tapes[PLAN_KIND_COUNT + 1][PLAN_KIND_COUNT]; /* [before][kind] */
    struct plan_prediction predicted;
    struct plan_prediction predicted_clipped; /* prediction if no update runs ahead of its norm */
    bool alone;                               /* there is one rank */
    bool may_skip; /* a step may leave no update pending although updates are deferred */
};

/* Returns whether a tape of `kind` may follow one of `before` (PLAN_KIND_COUNT: the start of a
 * run). */
bool plan_joins(const struct plan *plan, int before, int kind);

/* Returns whether tapes of this kind update inside backward and save the results in a
 * checkpoint. */
bool plan_kind_saves_own(int kind);

#endif
