/* policy.h: which candidates a plan may be: policies of activations, order and timing that follow the
 * wishes and make a difference. Private to offload/plan; pure. */
#ifndef OFFLOAD_PLAN_POLICY_H
#define OFFLOAD_PLAN_POLICY_H

#include "offload/plan/layout.h"

/* Of PLAN_SHARE_ALL: where a split begins, and how it moves. */
enum { PLAN_SPLIT_SHARE = 12, PLAN_SPLIT_STRIDE = 3 };

/* Chunks of whole MiB in every stream; the largest moves fastest, the smallest needs least. */
enum { PLAN_CHUNK_SIZES = 4 };
uint64_t plan_policy_chunk(unsigned index);

/* Gradients wait where the wish says; without one in HOST where it holds them. */
bool plan_policy_grads(const struct plan_input *input, enum plan_tier tier);

/* Whether the device may keep states in its memory and update them there: it is no CPU device, its rate
 * is known, there is one rank, and no wish says otherwise. */
bool plan_policy_may_update_on_card(const struct plan_input *input);

/* Asks about each policy, with gradients and chunks as `choice` has them; slots are the visitor's to
 * fill in. Ends with the first answer that is not 0. */
typedef int plan_policy_visit(void *user, const struct plan_choice *choice);
int plan_policy_each(const struct plan_input *input, const struct plan_choice *choice,
                     plan_policy_visit *visit, void *user);

/* Slots with room to work in, or as few as a step can do with. */
void plan_policy_slots(const struct plan_input *input, bool roomy, struct plan_choice *choice);

#endif
