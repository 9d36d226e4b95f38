/* policy.h: the candidates to try: combinations of activations, order, timing and spare memory that
 * follow the requests. Private to offload/plan; pure. */
#ifndef OFFLOAD_PLAN_POLICY_H
#define OFFLOAD_PLAN_POLICY_H

#include "offload/plan/layout.h"

/* Share of updates that a split defers, of PLAN_SHARE_ALL: first one tried, and step to the
 * next. */
enum { PLAN_SPLIT_SHARE = 12, PLAN_SPLIT_STRIDE = 3 };

/* Sizes of chunks in elements: powers of two, largest first. Large chunks move faster; small ones
 * need less memory. */
enum { PLAN_CHUNK_SIZES = 12 };
uint64_t plan_policy_chunk(unsigned index);
/* Returns the index of the first size to try. Large models begin with larger chunks, so that tapes
 * stay short. */
unsigned plan_policy_first_size(const struct plan_input *input);

/* Returns whether gradients may wait for the update in `tier`, which may be PLAN_APPLICATION. */
bool plan_policy_grads(const struct plan_input *input, enum plan_tier tier);

/* Returns whether the device may keep and update states in its memory: a GPU with known rates, one
 * rank, and no placement against it. */
bool plan_policy_may_update_on_card(const struct plan_input *input);

typedef int plan_policy_visit(void *user, const struct plan_choice *choice);
/* Calls `visit` for each policy, with the gradients and chunks of `choice`; the visitor fills in
 * the slots. Stops at a result other than 0 and returns it. */
int plan_policy_each(const struct plan_input *input, const struct plan_choice *choice,
                     plan_policy_visit *visit, void *user);

/* Fills in the numbers of slots: requested ones, else many (`roomy`) or few. */
void plan_policy_slots(const struct plan_input *input, bool roomy, struct plan_choice *choice);

#endif
