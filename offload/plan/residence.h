/* residence.h: how much of a model stays in memory between uses, under the budgets. Pure. */
#ifndef OFFLOAD_PLAN_RESIDENCE_H
#define OFFLOAD_PLAN_RESIDENCE_H

#include "offload/plan/layout.h"

/* Numbers that only grow memory: blocks whose weights lie on the DEVICE, blocks behind those
 * whose weights lie in HOST, and chunks of state in memory. Blocks and chunks count from the first;
 * the last blocks are those that slots still hold when forward turns into backward. */
struct plan_residence {
    uint32_t device_blocks;
    uint32_t host_blocks;
    uint64_t state_chunks;
    uint32_t
        card_blocks; /* the first ones keep all their state on the DEVICE, which updates them */
    uint32_t kept_blocks;  /* the last ones keep their activations where others recompute them */
    enum plan_tier states; /* HOST, or DEVICE on the CPU device */
    bool leans_to_device;  /* weights that STORE does not hold */
};

/* Where that lies which has to be in memory and of which no wish says in which; DEVICE holds it only
 * where the processor's update reaches it. */
enum { PLAN_LEANS_HOST, PLAN_WEIGHTS_LEAN = 1, PLAN_STATES_LEAN = 2, PLAN_LEANINGS = 4 };

/* What the wishes and the lack of a store force, with nothing more resident. `leaning`: which of it
 * lies in DEVICE rather than in HOST. */
struct plan_residence plan_residence_least(const struct plan_input *input,
                                           const struct plan_choice *choice, unsigned leaning);

/* Where STORE is too small for all that may lie there, keeps as much in memory as it lacks: states,
 * then weights, where no wish says otherwise. */
int plan_residence_relieve(const struct plan_input *input, const struct plan_choice *choice,
                           struct plan_residence *residence);

/* Where HOST is too small for the states that lie there, leaves as many to the card as it lacks. */
int plan_residence_lighten(const struct plan_input *input, const struct plan_choice *choice,
                           struct plan_residence *residence);

/* Lets spare memory make more resident, where no wish says otherwise. Weights first: they save
 * three bytes of traffic for each byte of memory, states two. */
int plan_residence_spend(const struct plan_input *input, const struct plan_choice *choice,
                         struct plan_residence *residence);

int plan_residence_lay_out(const struct plan_input *input, const struct plan_choice *choice,
                           const struct plan_residence *residence, struct plan_layout **out);

bool plan_residence_fits(const struct plan_input *input, const struct plan_layout *layout);

#endif
