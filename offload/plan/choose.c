/* choose.c: chooses among candidates by building and simulating them.
 * For each policy of activations, order of micro-batches and timing of updates: lay out with
 * everything as far out as it may lie; where that fits, let spare DEVICE and HOST memory make
 * weights and then states resident; build the steady tapes; simulate; keep the fastest. From there
 * numbers of slots, chunks and the split are changed one by one while that gains. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "core/base/err.h"
#include "offload/plan/candidate.h"

/* Chunks of whole MiB in every stream; the largest moves fastest, the smallest needs least. */
static const uint64_t chunk_sizes[] = {4 << 20, 2 << 20, 1 << 20, 512 << 10};
enum { CHUNK_SIZES = sizeof chunk_sizes / sizeof chunk_sizes[0] };

/* Of PLAN_SHARE_ALL: where a split begins, and how it moves. */
enum { SPLIT_SHARE = 12, SPLIT_STRIDE = 3 };

enum { TIMINGS = PLAN_TIMING_SPECULATIVE + 1 };

/* Who may still win by climbing: who is not slower than this many times the fastest. */
static const double climbs_within = 1.12;

/* What is slower or takes more must gain so much; two generations, which are good only as long as
 * guesses are, some more. */
static const double worth = 0.003;
static const double worth_twice = 0.02;
/* What is as fast, and what is less memory. */
static const double equal = 1e-4;
static const double less = 0.02;

static uint64_t memory_of(const struct plan *plan)
{
    return plan->layout->tier_bytes[PLAN_DEVICE] + plan->layout->tier_bytes[PLAN_HOST];
}

/* Keeps the faster one; of two as fast, the one that takes less memory. */
static void keep_faster(struct plan **best, struct plan *plan)
{
    bool wins = *best == NULL;
    if (!wins) {
        double ratio = plan->predicted.step_seconds / (*best)->predicted.step_seconds;
        bool smaller = (double)memory_of(plan) < (double)memory_of(*best) * (1 - less);
        bool twice = plan_generations(plan) > plan_generations(*best);
        wins = ratio < 1 - (twice ? worth_twice : worth) ||
               (!twice && ratio < 1 + equal && smaller);
    }
    plan_destroy(wins ? *best : plan);
    *best = wins ? plan : *best;
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

/* What waits for the norm cannot go inside; what need not gains nothing by guessing. */
static bool may_be(const struct plan_wishes *wishes, enum plan_timing timing)
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

/* Does the policy follow the wishes and make a difference? */
static bool may_try(const struct plan_input *input, const struct plan_choice *choice)
{
    const struct plan_wishes *wishes = &input->wishes;
    bool wished = (wishes->acts == PLAN_ACTS_AUTO || wishes->acts == choice->acts) &&
                  (wishes->order == PLAN_ORDER_AUTO || wishes->order == choice->order) &&
                  (wishes->timing == PLAN_TIMING_AUTO || wishes->timing == choice->timing);
    bool early = choice->timing != PLAN_TIMING_DEFERRED;
    bool possible = (choice->acts != PLAN_ACTS_STORE || input->budgets.store_bytes > 0) &&
                    may_be(wishes, choice->timing);
    bool sends = choice->grads != PLAN_STORE ||
                 (!early && (choice->order == PLAN_ORDER_LAYER || wishes->micro_batches == 1));
    bool pointless = choice->order == PLAN_ORDER_MICRO && wishes->micro_batches == 1 &&
                     wishes->order == PLAN_ORDER_AUTO;
    bool no_keeping = choice->keeps_first &&
                      (choice->acts != PLAN_ACTS_RECOMPUTE || wishes->acts != PLAN_ACTS_AUTO);
    return wished && possible && sends && !pointless && !no_keeping;
}

/* ---- candidates ---- */

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

/* Timings of one policy of activations and order. A split leaves to the next forward what that can
 * hide: about its part of the step. */
static int try_timings(const struct plan_input *input, struct plan_choice choice,
                       struct plan_need *need, struct plan **best)
{
    int rc = 0;
    for (int timing = PLAN_TIMING_DEFERRED; rc == 0 && timing < TIMINGS; timing++) {
        choice.timing = (enum plan_timing)timing;
        choice.pending_share = timing == PLAN_TIMING_INSIDE  ? 0
                               : timing == PLAN_TIMING_SPLIT ? SPLIT_SHARE
                                                             : PLAN_SHARE_ALL;
        rc = may_try(input, &choice) ? try_policy(input, choice, need, &best[timing]) : 0;
    }
    return rc;
}

static int try_policies(const struct plan_input *input, enum plan_tier grads,
                        uint64_t chunk_elements, struct plan_need *need, struct plan **best)
{
    struct plan_choice choice = {.chunk_elements = chunk_elements, .grads = grads};
    int rc = 0;
    for (int acts = PLAN_ACTS_KEEP; acts <= PLAN_ACTS_STORE; acts++) {
        for (int order = PLAN_ORDER_LAYER; order <= PLAN_ORDER_MICRO; order++) {
            for (int first = 0; rc == 0 && first < 2; first++) {
                choice.acts = (enum plan_acts)acts;
                choice.order = (enum plan_order)order;
                choice.keeps_first = first;
                rc = try_timings(input, choice, need, best);
            }
        }
    }
    return rc;
}

/* ---- climbing ---- */

/* One change of a choice; false where it changes nothing or may not be. */
enum move {
    MORE_WEIGHT_SLOTS,
    MORE_STATE_SLOTS,
    MANY_STATE_SLOTS,
    MORE_GRADIENT_SLOTS,
    MORE_SUM_SLOTS,
    LESS_PENDING,
    MORE_PENDING,
    SMALLER_CHUNKS,
    FEWER_STATE_SLOTS,
    FEWER_WEIGHT_SLOTS,
    MOVE_COUNT,
};

static bool set_slots(uint32_t *slots, uint32_t wished, uint32_t least, uint64_t most,
                      uint64_t value)
{
    value = value > most ? most : value;
    if (wished != 0 || value < least || value == *slots) {
        return false;
    }
    *slots = (uint32_t)value;
    return true;
}

static bool shift_pending(struct plan_choice *choice, int by)
{
    int share = (int)choice->pending_share + by;
    bool may = choice->timing == PLAN_TIMING_SPLIT && share > 0 && share < PLAN_SHARE_ALL;
    choice->pending_share = may ? (uint32_t)share : choice->pending_share;
    return may;
}

static bool make_move(const struct plan_input *input, enum move move, struct plan_choice *choice)
{
    const struct plan_wishes *wishes = &input->wishes;
    switch (move) {
    case MORE_WEIGHT_SLOTS:
        return set_slots(&choice->weight_slots, wishes->weight_slots, 2, PLAN_SLOT_MAX,
                         choice->weight_slots + 1);
    case FEWER_WEIGHT_SLOTS:
        return set_slots(&choice->weight_slots, wishes->weight_slots, 2, PLAN_SLOT_MAX,
                         choice->weight_slots - 1);
    case MORE_STATE_SLOTS:
        return set_slots(&choice->state_slots, wishes->state_slots, 2, PLAN_STATE_SLOT_MAX,
                         choice->state_slots + 2);
    case MANY_STATE_SLOTS:
        return set_slots(&choice->state_slots, wishes->state_slots, 2, PLAN_STATE_SLOT_MAX,
                         choice->state_slots * 2);
    case FEWER_STATE_SLOTS:
        return set_slots(&choice->state_slots, wishes->state_slots, 2, PLAN_STATE_SLOT_MAX,
                         choice->state_slots / 2);
    case MORE_GRADIENT_SLOTS:
        return choice->pending_share < PLAN_SHARE_ALL &&
               set_slots(&choice->gradient_slots, 0, 1, PLAN_SLOT_MAX, choice->gradient_slots + 1);
    case MORE_SUM_SLOTS:
        return (wishes->micro_batches > 1 || !input->budgets.device_is_host) &&
               set_slots(&choice->sum_slots, 0, 1, PLAN_SLOT_MAX, choice->sum_slots + 1);
    case LESS_PENDING: return shift_pending(choice, -SPLIT_STRIDE);
    case MORE_PENDING: return shift_pending(choice, SPLIT_STRIDE);
    case SMALLER_CHUNKS:
        choice->chunk_elements /= 2;
        choice->state_slots *= 2;
        return wishes->chunk_elements == 0 && wishes->state_slots == 0 &&
               choice->chunk_elements >= chunk_sizes[CHUNK_SIZES - 2] &&
               choice->state_slots <= PLAN_STATE_SLOT_MAX;
    case MOVE_COUNT: break;
    }
    return false;
}

/* Long tapes are tried less often, so that planning stays short. */
static int tries_for(const struct plan *plan)
{
    enum { COMMANDS_MAX = 100000, TRIES_MIN = 8, TRIES_MAX = 40 };
    int steady = plan->choice.timing == PLAN_TIMING_INSIDE ? PLAN_FIRST : PLAN_NEXT;
    uint32_t tries = COMMANDS_MAX / (plan->tapes[steady][steady].count + 1);
    return tries < TRIES_MIN ? TRIES_MIN : tries > TRIES_MAX ? TRIES_MAX : (int)tries;
}

/* Takes each move as long as it gains something worth its memory, until none does. */
static int climb(const struct plan_input *input, struct plan_need *need, struct plan **best)
{
    int tries_max = tries_for(*best);
    bool gained = true;
    int tries = 0;
    while (gained && tries < tries_max) {
        gained = false;
        for (int move = 0; move < MOVE_COUNT && tries < tries_max; move++) {
            struct plan_choice choice = (*best)->choice;
            const struct plan *before = *best;
            if (!make_move(input, (enum move)move, &choice)) {
                continue;
            }
            int rc = compete(input, &choice, need, best);
            if (rc != 0) {
                return rc;
            }
            tries++;
            bool moved = *best != before;
            gained = gained || moved;
            move -= moved;
        }
    }
    return 0;
}

/* The fastest of each timing climbs where it is near the fastest of all; which wins may change. */
static int climb_all(const struct plan_input *input, struct plan_need *need, struct plan **best,
                     struct plan **out)
{
    double fastest = HUGE_VAL;
    int rc = 0;
    for (int t = 0; t < PLAN_TIMING_SPECULATIVE; t++) {
        fastest = best[t] != NULL ? fmin(fastest, best[t]->predicted.step_seconds) : fastest;
    }
    for (int t = 0; rc == 0 && t < TIMINGS; t++) {
        if (best[t] == NULL) {
            continue;
        }
        if (best[t]->predicted.step_seconds <= fastest * climbs_within) {
            rc = climb(input, need, &best[t]);
        }
        keep_faster(out, best[t]);
        best[t] = NULL;
    }
    return rc;
}

static bool none_fits(struct plan *const *best)
{
    for (int t = 0; t < TIMINGS; t++) {
        if (best[t] != NULL) {
            return false;
        }
    }
    return true;
}

/* Rounded up, as a flag takes it. */
static uint64_t mib(uint64_t bytes)
{
    return (bytes + (1 << 20) - 1) >> 20;
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
                        "; the budgets are %" PRIu64 ", %" PRIu64 " and %" PRIu64
                        "%s; device %" PRIu64 "M, host %" PRIu64 "M and store %" PRIu64
                        "M would do",
                        need->device_bytes, host, need->store_bytes, need->device_bytes + host,
                        budgets->device_bytes, budgets->host_bytes, budgets->store_bytes, joint,
                        mib(need->device_bytes), mib(host), mib(need->store_bytes));
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
    struct plan *best[TIMINGS] = {NULL};
    struct plan *plan = NULL;
    uint64_t wished = input->wishes.chunk_elements;
    int rc = 0;
    for (size_t g = 0; rc == 0 && none_fits(best) && g < sizeof grads / sizeof grads[0]; g++) {
        for (int i = 0; rc == 0 && none_fits(best) && i < (wished != 0 ? 1 : CHUNK_SIZES); i++) {
            rc = grads_may_lie(input, grads[g])
                     ? try_policies(input, grads[g], wished != 0 ? wished : chunk_sizes[i], &need,
                                    best)
                     : 0;
        }
    }
    if (rc == 0 && none_fits(best)) {
        rc = refuse(input, &need);
    }
    if (rc == 0) {
        rc = climb_all(input, &need, best, &plan);
    }
    if (rc != 0) {
        for (int t = 0; t < TIMINGS; t++) {
            plan_destroy(best[t]);
        }
        plan_destroy(plan);
        return rc;
    }
    *out = plan;
    return 0;
}
