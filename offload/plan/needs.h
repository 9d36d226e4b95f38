/* needs.h: what candidates need at least of each tier: a set of which no member is beaten by another in
 * every tier. From it a refusal says what would do. Private to offload/plan; pure. */
#ifndef OFFLOAD_PLAN_NEEDS_H
#define OFFLOAD_PLAN_NEEDS_H

#include "offload/plan/types.h"

/* Beyond it members are dropped; there are a few dozen. */
enum { PLAN_NEEDS_MAX = 256 };

struct plan_need {
    uint64_t bytes[PLAN_TIER_COUNT];
};

struct plan_needs {
    struct plan_need members[PLAN_NEEDS_MAX];
    uint32_t count;
};

void plan_needs_note(struct plan_needs *needs, const struct plan_need *need);

/* The one that takes the least of `tier` among those that take no more than `most` of the others, and
 * together no more of DEVICE and HOST than `joint_bytes` (0: any). False where there is none. */
bool plan_needs_least(const struct plan_needs *needs, enum plan_tier tier,
                      const struct plan_need *most, uint64_t joint_bytes, struct plan_need *out);

/* The one that takes the least of DEVICE and HOST together, and of STORE no more than `most`. */
bool plan_needs_together(const struct plan_needs *needs, uint64_t store_most,
                         struct plan_need *out);

/* Budgets of all ranks in MiB, as flags take them, host with `advice_spare_bytes`. */
struct plan_advice {
    uint64_t alone_mib[PLAN_TIER_COUNT]; /* of one tier, the others as they are; 0: none would do */
    uint64_t together_mib[PLAN_TIER_COUNT]; /* with the least memory; 0 of HOST: none would do */
};

/* What would do by what candidates need, which `needs` has. */
struct plan_advice plan_needs_advise(const struct plan_input *input,
                                     const struct plan_needs *needs);

/* -EFBIG: the sentence says what would do instead of the input's budgets. */
int plan_needs_refuse(const struct plan_input *input, const struct plan_advice *advice);

#endif
