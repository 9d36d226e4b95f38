/* policy.c: lists combinations, without impossible ones and duplicates. */
#include "offload/plan/policy.h"

#include <stddef.h>

/* in elements; each further size is half of the previous one */
static const uint64_t largest_chunk = UINT64_C(1) << 30;
/* BEGIN_SIZE is tried first, unless a model has more than CHUNKS_MAX chunks of that size. */
enum { BEGIN_SIZE = 8, CHUNKS_MAX = 4096 };

uint64_t plan_policy_chunk(unsigned index)
{
    return largest_chunk >> index;
}

unsigned plan_policy_first_size(const struct plan_input *input)
{
    uint64_t elements = 0;
    for (uint32_t b = 0; b < input->block_count; b++) {
        elements += input->blocks[b].trained ? plan_state_most(input, b) : 0;
    }
    unsigned size = BEGIN_SIZE;
    while (size > 0 && elements / plan_policy_chunk(size) > CHUNKS_MAX) {
        size--;
    }
    return size;
}

bool plan_policy_grads(const struct plan_input *input, enum plan_tier tier)
{
    if (input->application) {
        return tier == (input->wishes.grads == PLAN_WHERE_HOST ? PLAN_HOST : PLAN_APPLICATION);
    }
    if (tier == PLAN_APPLICATION) {
        return false;
    }
    static const enum plan_where where[] = {[PLAN_DEVICE] = PLAN_WHERE_DEVICE,
                                            [PLAN_HOST] = PLAN_WHERE_HOST,
                                            [PLAN_STORE] = PLAN_WHERE_STORE};
    bool possible = (tier != PLAN_DEVICE || input->budgets.device_is_host) &&
                    (tier != PLAN_STORE || input->budgets.store_bytes > 0);
    /* Gradients of blocks that a GPU updates stay there, whatever the tier of the others. */
    bool on_card = input->wishes.grads == PLAN_WHERE_DEVICE && !input->budgets.device_is_host;
    return possible && (input->wishes.grads == PLAN_WHERE_AUTO ||
                        input->wishes.grads == where[tier] || (on_card && tier == PLAN_HOST));
}

bool plan_policy_may_update_on_card(const struct plan_input *input)
{
    const struct plan_wishes *wishes = &input->wishes;
    return plan_layout_sums_on_card(input) && input->rates.card_update_elements > 0 &&
           (wishes->weights == PLAN_WHERE_AUTO || wishes->weights == PLAN_WHERE_DEVICE) &&
           (wishes->grads == PLAN_WHERE_AUTO || wishes->grads == PLAN_WHERE_DEVICE) &&
           (wishes->states == PLAN_WHERE_AUTO || wishes->states == PLAN_WHERE_DEVICE);
}

/* Speculation keeps two generations, which would take too much of a card's memory. */
static bool is_card_use_possible(const struct plan_input *input, const struct plan_choice *choice)
{
    bool asked = !input->budgets.device_is_host && input->wishes.states == PLAN_WHERE_DEVICE;
    return choice->card_blocks > 0 ? !choice->speculates : !asked;
}

/* An update that needs the norm cannot run inside backward; one that does not need the norm gains
 * nothing from speculation. */
static bool is_timing_possible(const struct plan_wishes *wishes, enum plan_timing timing)
{
    bool by_norm = wishes->may_clip || wishes->may_skip;
    switch (timing) {
    case PLAN_TIMING_INSIDE: return !by_norm;
    case PLAN_TIMING_SPLIT: return !by_norm && (wishes->may_split || wishes->timing == timing);
    case PLAN_TIMING_SPECULATIVE: return by_norm || wishes->timing == timing;
    case PLAN_TIMING_DEFERRED:
    case PLAN_TIMING_AUTO: break;
    }
    return true;
}

static bool may_try(const struct plan_input *input, const struct plan_choice *choice)
{
    const struct plan_wishes *wishes = &input->wishes;
    const enum plan_timing timing = plan_choice_timing(choice);
    bool wished = (wishes->acts == PLAN_ACTS_AUTO || wishes->acts == choice->acts) &&
                  (wishes->order == PLAN_ORDER_AUTO || wishes->order == choice->order) &&
                  (wishes->timing == PLAN_TIMING_AUTO || wishes->timing == timing);
    if (input->application) {
        const bool by_norm = wishes->may_clip || wishes->may_skip;
        return choice->acts == PLAN_ACTS_KEEP && choice->order == PLAN_ORDER_LAYER &&
               !choice->keeps_first &&
               timing == (by_norm ? PLAN_TIMING_DEFERRED : PLAN_TIMING_INSIDE);
    }
    bool early = timing != PLAN_TIMING_DEFERRED;
    bool possible = (choice->acts != PLAN_ACTS_STORE || input->budgets.store_bytes > 0) &&
                    is_timing_possible(wishes, timing);
    bool sends = choice->grads != PLAN_STORE ||
                 (!early && (choice->order == PLAN_ORDER_LAYER || wishes->micro_batches == 1));
    bool pointless = choice->order == PLAN_ORDER_MICRO && wishes->micro_batches == 1 &&
                     wishes->order == PLAN_ORDER_AUTO;
    bool no_keeping = choice->keeps_first &&
                      (choice->acts != PLAN_ACTS_RECOMPUTE || wishes->acts != PLAN_ACTS_AUTO);
    return wished && possible && sends && !pointless && !no_keeping &&
           is_card_use_possible(input, choice);
}

/* PLAN_SPLIT_SHARE is the first share of a split; climb.c tries others. */
static int each_timing(const struct plan_input *input, struct plan_choice choice,
                       plan_policy_visit *visit, void *user)
{
    static const struct {
        uint32_t pending_share;
        bool speculates;
    } timings[] = {
        {PLAN_SHARE_ALL, false}, {0, false}, {PLAN_SPLIT_SHARE, false}, {PLAN_SHARE_ALL, true}};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof timings / sizeof timings[0]; i++) {
        choice.pending_share = timings[i].pending_share;
        choice.speculates = timings[i].speculates;
        rc = may_try(input, &choice) ? visit(user, &choice) : 0;
    }
    return rc;
}

int plan_policy_each(const struct plan_input *input, const struct plan_choice *choice,
                     plan_policy_visit *visit, void *user)
{
    struct plan_choice tried = *choice;
    const int cards = plan_policy_may_update_on_card(input) ? 2 : 1;
    int rc = 0;
    for (int acts = PLAN_ACTS_KEEP; acts <= PLAN_ACTS_STORE; acts++) {
        for (int order = PLAN_ORDER_LAYER; order <= PLAN_ORDER_MICRO; order++) {
            for (int i = 0; rc == 0 && i < 2 * cards; i++) {
                tried.acts = (enum plan_acts)acts;
                tried.order = (enum plan_order)order;
                tried.keeps_first = i % 2;
                tried.card_blocks = i / 2 > 0 ? input->block_count : 0;
                rc = each_timing(input, tried, visit, user);
            }
        }
    }
    return rc;
}

void plan_policy_slots(const struct plan_input *input, bool roomy, struct plan_choice *choice)
{
    const struct plan_wishes *wishes = &input->wishes;
    choice->weight_slots = wishes->weight_slots != 0 ? wishes->weight_slots : roomy ? 3 : 2;
    choice->state_slots = wishes->state_slots != 0 ? wishes->state_slots : roomy ? 4 : 2;
    choice->gradient_slots = roomy ? 2 : 1;
    choice->sum_slots = 1;
}
