/* residence.h: decides how much of a model stays in memory between uses, within the budgets.
 * Pure. */
#ifndef OFFLOAD_PLAN_RESIDENCE_H
#define OFFLOAD_PLAN_RESIDENCE_H

#include "offload/plan/layout.h"

/* Counts of data that is kept in memory; a larger count takes more memory. Weights and states of
 * the first blocks are kept, because the last blocks are still in slots when backward begins. The
 * weights of an embedding of which only rows are read are kept only after all others. */
struct plan_residence {
    uint32_t device_blocks; /* number of first blocks with weights in DEVICE */
    uint32_t host_blocks;   /* number of next blocks with weights in HOST */
    /* number of first chunks of states in memory, without those of `card_blocks` */
    uint64_t state_chunks;
    /* number of the first blocks that keep all their state in DEVICE memory, where the GPU updates
     * them. */
    uint32_t card_blocks;
    /* number of last blocks that keep their activations, if others recompute them */
    uint32_t kept_blocks;
    enum plan_tier states;  /* HOST, or DEVICE on the CPU device */
    bool weights_to_device; /* weights that must be in memory are in DEVICE, not in HOST */
};

/* Bits of `defaults`: data that must be in memory and has no requested tier goes to DEVICE instead
 * of HOST. Only for the CPU device, whose update can access DEVICE. PLAN_DEFAULTS is the number of
 * combinations. */
enum {
    PLAN_DEFAULT_HOST,
    PLAN_WEIGHTS_TO_DEVICE = 1,
    PLAN_STATES_TO_DEVICE = 2,
    PLAN_DEFAULTS = 4
};

/* Returns the least residence: the data that the requests, or the lack of a store, force to be in
 * memory. */
struct plan_residence plan_residence_least(const struct plan_input *input,
                                           const struct plan_choice *choice, unsigned defaults);

/* If STORE is too small, keeps the excess in memory: states first, then weights. Data with an
 * explicit placement stays in its tier. */
int plan_residence_relieve(const struct plan_input *input, const struct plan_choice *choice,
                           struct plan_residence *residence);

/* If HOST is too small, raises `card_blocks` up to that of the choice, so that the GPU keeps and
 * updates the states of more blocks. */
int plan_residence_lighten(const struct plan_input *input, const struct plan_choice *choice,
                           struct plan_residence *residence);

/* Uses spare memory to keep more data resident, except data with an explicit placement. Weights
 * come before states, because they save three bytes of traffic per byte of memory, and states two.
 * The states of the choice's `card_blocks` come before both; activations come first or last
 * (`keeps_first`). */
int plan_residence_spend(const struct plan_input *input, const struct plan_choice *choice,
                         struct plan_residence *residence);

int plan_residence_lay_out(const struct plan_input *input, const struct plan_choice *choice,
                           const struct plan_residence *residence, struct plan_layout **out);

bool plan_residence_fits(const struct plan_input *input, const struct plan_layout *layout);

#endif
