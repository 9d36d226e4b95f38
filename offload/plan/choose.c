/* choose.c: chooses among candidates by building and simulating them.
 * For each policy of activations, order of micro-batches and timing of updates: lay out with
 * everything as far out as it may lie; where that fits, let spare DEVICE and HOST memory make
 * weights and then states resident; build the steady tapes; simulate; keep the fastest. Then the
 * numbers of slots are tried on the winner. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "core/base/err.h"
#include "offload/plan/candidate.h"

/* Chunks of whole MiB in every stream; the largest moves fastest, the smallest needs least. */
static const uint64_t chunk_sizes[] = {4 << 20, 2 << 20, 1 << 20, 512 << 10};
enum { CHUNK_SIZES = sizeof chunk_sizes / sizeof chunk_sizes[0] };

static void keep_faster(struct plan **best, struct plan *plan)
{
    bool faster = *best == NULL ||
                  plan->predicted.step_seconds < (*best)->predicted.step_seconds * (1 - 1e-6);
    plan_destroy(faster ? *best : plan);
    *best = faster ? plan : *best;
}

/* Tries one choice and keeps it where it is faster than the best so far. */
static int compete(const struct plan_input *input, const struct plan_choice *choice,
                   struct plan_need *need, struct plan **best)
{
    struct plan *plan = NULL;
    int rc = plan_candidate_create(input, choice, need, &plan);
    if (rc == 0 && plan != NULL) {
        keep_faster(best, plan);
    }
    return rc;
}

/* Does the policy follow the wishes and make a difference? */
static bool may_try(const struct plan_input *input, const struct plan_choice *choice)
{
    const struct plan_wishes *wishes = &input->wishes;
    bool wished = (wishes->acts == PLAN_ACTS_AUTO || wishes->acts == choice->acts) &&
                  (wishes->order == PLAN_ORDER_AUTO || wishes->order == choice->order) &&
                  (wishes->timing == PLAN_TIMING_AUTO || wishes->timing == choice->timing);
    bool possible = (choice->acts != PLAN_ACTS_STORE || input->budgets.store_bytes > 0) &&
                    (choice->timing != PLAN_TIMING_INSIDE ||
                     (!wishes->may_clip && !wishes->may_skip));
    bool sends = choice->grads != PLAN_STORE ||
                 (choice->timing == PLAN_TIMING_DEFERRED &&
                  (choice->order == PLAN_ORDER_LAYER || wishes->micro_batches == 1));
    bool pointless = choice->order == PLAN_ORDER_MICRO && wishes->micro_batches == 1 &&
                     wishes->order == PLAN_ORDER_AUTO;
    return wished && possible && sends && !pointless;
}

/* A policy with room to work in, or with as little as it can do with. */
static int try_policy(const struct plan_input *input, struct plan_choice choice,
                      struct plan_need *need, struct plan **best)
{
    const struct plan_wishes *wishes = &input->wishes;
    for (int roomy = 1; roomy >= 0; roomy--) {
        choice.weight_slots = wishes->weight_slots != 0 ? wishes->weight_slots : roomy ? 3 : 2;
        choice.state_slots = wishes->state_slots != 0 ? wishes->state_slots : roomy ? 4 : 2;
        choice.gradient_slots = roomy ? 2 : 1;
        choice.sum_slots = 1;
        struct plan *plan = NULL;
        int rc = plan_candidate_create(input, &choice, need, &plan);
        if (rc == 0 && plan != NULL) {
            keep_faster(best, plan);
        }
        if (rc != 0 || plan != NULL) {
            return rc;
        }
    }
    return 0;
}

static int try_policies(const struct plan_input *input, enum plan_tier grads,
                        uint64_t chunk_elements, struct plan_need *need, struct plan **best)
{
    struct plan_choice choice = {.chunk_elements = chunk_elements, .grads = grads};
    for (int acts = PLAN_ACTS_KEEP; acts <= PLAN_ACTS_STORE; acts++) {
        for (int order = PLAN_ORDER_LAYER; order <= PLAN_ORDER_MICRO; order++) {
            for (int timing = PLAN_TIMING_DEFERRED; timing <= PLAN_TIMING_INSIDE; timing++) {
                choice.acts = (enum plan_acts)acts;
                choice.order = (enum plan_order)order;
                choice.timing = (enum plan_timing)timing;
                int rc = may_try(input, &choice) ? try_policy(input, choice, need, best) : 0;
                if (rc != 0) {
                    return rc;
                }
            }
        }
    }
    return 0;
}

/* More slots on the policy that won. */
static int try_slots(const struct plan_input *input, struct plan_need *need, struct plan **best)
{
    static const struct {
        uint32_t weights, states, gradients, sums;
    } rooms[] = {{2, 2, 1, 1}, {2, 3, 1, 1}, {2, 3, 2, 1}, {2, 4, 2, 1}, {3, 3, 2, 1},
                 {3, 4, 2, 2}, {4, 4, 2, 2}, {4, 6, 3, 2}, {4, 8, 4, 2}, {6, 8, 4, 2}};
    const struct plan_wishes *wishes = &input->wishes;
    struct plan_choice choice = (*best)->choice;
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        choice.weight_slots = wishes->weight_slots != 0 ? wishes->weight_slots : rooms[i].weights;
        choice.state_slots = wishes->state_slots != 0 ? wishes->state_slots : rooms[i].states;
        choice.gradient_slots = rooms[i].gradients;
        choice.sum_slots = rooms[i].sums;
        int rc = compete(input, &choice, need, best);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int refuse(const struct plan_input *input, const struct plan_need *need)
{
    const struct plan_budgets *budgets = &input->budgets;
    const uint64_t host = need->host_bytes + budgets->advice_spare_bytes;
    char joint[64] = "";
    if (budgets->joint_bytes > 0) {
        snprintf(joint, sizeof joint, ", device and host together %" PRIu64, budgets->joint_bytes);
    }
    return core_err_set(-EFBIG,
                        "it cannot fit: the least it needs is device %" PRIu64 ", host %" PRIu64
                        ", store %" PRIu64 " bytes, device and host together %" PRIu64
                        "; the budgets are %" PRIu64 ", %" PRIu64 " and %" PRIu64 "%s",
                        need->device_bytes, host, need->store_bytes, need->device_bytes + host,
                        budgets->device_bytes, budgets->host_bytes, budgets->store_bytes, joint);
}

/* Gradients wait where the wish says; without one in HOST where it holds them. */
static bool grads_may_lie(const struct plan_input *input, enum plan_tier tier)
{
    static const enum plan_where where[] = {[PLAN_DEVICE] = PLAN_WHERE_DEVICE,
                                            [PLAN_HOST] = PLAN_WHERE_HOST,
                                            [PLAN_STORE] = PLAN_WHERE_STORE};
    bool possible = (tier != PLAN_DEVICE || input->budgets.device_is_host) &&
                    (tier != PLAN_STORE || input->budgets.store_bytes > 0);
    return possible &&
           (input->wishes.grads == PLAN_WHERE_AUTO || input->wishes.grads == where[tier]);
}

int plan_choose(const struct plan_input *input, struct plan **out)
{
    static const enum plan_tier grads[] = {PLAN_HOST, PLAN_DEVICE, PLAN_STORE};
    struct plan_need need = {0};
    struct plan *best = NULL;
    uint64_t wished = input->wishes.chunk_elements;
    int rc = 0;
    for (size_t g = 0; rc == 0 && best == NULL && g < sizeof grads / sizeof grads[0]; g++) {
        for (int i = 0; rc == 0 && best == NULL && i < (wished != 0 ? 1 : CHUNK_SIZES); i++) {
            rc = grads_may_lie(input, grads[g])
                     ? try_policies(input, grads[g], wished != 0 ? wished : chunk_sizes[i], &need,
                                    &best)
                     : 0;
        }
    }
    if (rc == 0 && best == NULL) {
        rc = refuse(input, &need);
    }
    if (rc == 0) {
        rc = try_slots(input, &need, &best);
    }
    if (rc != 0) {
        plan_destroy(best);
        return rc;
    }
    *out = best;
    return 0;
}
