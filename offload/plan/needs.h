/* needs.h: the least memory that candidates need, as a set: a need is left out if another one needs
 * no more in any tier. Private to offload/plan; pure. */
#ifndef OFFLOAD_PLAN_NEEDS_H
#define OFFLOAD_PLAN_NEEDS_H

#include "offload/plan/types.h"

/* Members beyond this are dropped; usually there are a few dozen. */
enum { PLAN_NEEDS_MAX = 256 };

struct plan_need {
    uint64_t bytes[PLAN_TIER_COUNT];
};

struct plan_needs {
    struct plan_need members[PLAN_NEEDS_MAX];
    uint32_t count;
};

void plan_needs_note(struct plan_needs *needs, const struct plan_need *need);

/* Of the members that need at most `most` of the other tiers, and at most `joint_bytes` of DEVICE
 * and HOST together (0: no limit), finds the one with the least bytes of `tier`. Returns false if
 * there is none. */
bool plan_needs_least(const struct plan_needs *needs, enum plan_tier tier,
                      const struct plan_need *most, uint64_t joint_bytes, struct plan_need *out);

/* Of the members with at most `store_most` bytes of STORE, finds the one with the least bytes of
 * DEVICE and HOST together. Returns false if there is none. */
bool plan_needs_together(const struct plan_needs *needs, uint64_t store_most,
                         struct plan_need *out);

/* Suggested budgets in MiB; HOST includes `advice_spare_bytes`. */
struct plan_advice {
    uint64_t alone_mib[PLAN_TIER_COUNT]; /* if only this tier changes; 0: none known */
    /* the combination with the least memory; HOST 0: none known */
    uint64_t together_mib[PLAN_TIER_COUNT];
    /* the combination with the least memory after a store is added; STORE 0: a store saves no
     * memory, or none is known */
    uint64_t stored_mib[PLAN_TIER_COUNT];
};

/* Suggests budgets, which may be slightly too small, because needs leave out what rounding
 * loses. */
struct plan_advice plan_needs_advise(const struct plan_input *input,
                                     const struct plan_needs *needs);

/* Returns -EFBIG with a message that names the budgets of `advice`. */
int plan_needs_refuse(const struct plan_input *input, const struct plan_advice *advice);

#endif
