/* residence.h: decides how much of a model stays in memory between uses, within the budgets.
 * Pure. */
#ifndef OFFLOAD_PLAN_RESIDENCE_H
#define OFFLOAD_PLAN_RESIDENCE_H

#include "offload/plan/layout.h"

/* Counts of data kept in memory. Weights of the first blocks are kept, because those of the last
 * ones are still in slots when backward begins. An embedding of which only rows are read is kept
 * last. */
struct plan_residence {
    uint32_t device_blocks; /* first blocks with weights in DEVICE */
    uint32_t host_blocks;   /* next blocks with weights in HOST */
    /* first chunks of states in memory, without those of `card_blocks` */
    uint64_t state_chunks;
    /* first blocks whose state is in DEVICE memory, where the GPU updates them */
    uint32_t card_blocks;
    /* last blocks that keep their activations, if others recompute them */
    uint32_t kept_blocks;
    enum plan_tier states;  /* HOST; on the CPU device also DEVICE */
    bool weights_to_device; /* weights that must be in memory go to DEVICE, not HOST */
};

/* Bits of `defaults`: data that must be in memory and has no requested tier goes to DEVICE, not
 * HOST. Only for the CPU device. PLAN_DEFAULTS is the number of combinations. */
enum {
    PLAN_DEFAULT_HOST,
    PLAN_WEIGHTS_TO_DEVICE = 1,
    PLAN_STATES_TO_DEVICE = 2,
    PLAN_DEFAULTS = 4
};

/* Returns the residence with only the data that must be in memory. */
struct plan_residence plan_residence_least(const struct plan_input *input,
                                           const struct plan_choice *choice, unsigned defaults);

/* If STORE is too small, keeps the excess in memory: states, then weights. Explicit placements
 * stay. */
int plan_residence_relieve(const struct plan_input *input, const struct plan_choice *choice,
                           struct plan_residence *residence);

/* If HOST is too small, raises `card_blocks` up to the choice's, so that the GPU keeps and updates
 * more blocks. */
int plan_residence_lighten(const struct plan_input *input, const struct plan_choice *choice,
                           struct plan_residence *residence);

/* Uses spare memory to keep more data, except data with an explicit placement, in this order:
 * activations if `keeps_first`; states of `card_blocks`; weights; other states, which save less
 * traffic per byte; activations otherwise. */
int plan_residence_spend(const struct plan_input *input, const struct plan_choice *choice,
                         struct plan_residence *residence);

int plan_residence_lay_out(const struct plan_input *input, const struct plan_choice *choice,
                           const struct plan_residence *residence, struct plan_layout **out);

bool plan_residence_fits(const struct plan_input *input, const struct plan_layout *layout);

#endif
