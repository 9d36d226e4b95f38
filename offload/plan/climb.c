/* climb.c: one table of changes, searched for faster and for smaller plans. */
#include "offload/plan/climb.h"

#include <math.h>
#include <stddef.h>

#include "offload/plan/policy.h"

/* A change must make the step faster by this part. A speculative plan must gain more, because its
 * guesses may be wrong. */
static const double gain_least = 0.003;
static const double gain_least_speculative = 0.02;
/* Times that differ less count as equal. Memory must be smaller by the part `less` to count as
 * less. */
static const double equal = 1e-4;
static const double less = 0.02;
/* A change must free at least this part of the memory. */
static const double least_saving = 0.002;

uint64_t plan_climb_memory(const struct plan_input *input, const struct plan *plan)
{
    const uint64_t *bytes = plan->layout->tier_bytes;
    return bytes[PLAN_HOST] + (input->budgets.device_is_host ? bytes[PLAN_DEVICE] : 0);
}

static uint64_t all_memory(const struct plan *plan)
{
    return plan->layout->tier_bytes[PLAN_DEVICE] + plan->layout->tier_bytes[PLAN_HOST];
}

bool plan_climb_wins(const struct plan *plan, const struct plan *best)
{
    if (best == NULL) {
        return true;
    }
    double ratio = plan->predicted.step_seconds / best->predicted.step_seconds;
    bool smaller = (double)all_memory(plan) < (double)all_memory(best) * (1 - less);
    bool speculates = plan_generations(plan) > plan_generations(best);
    return ratio < 1 - (speculates ? gain_least_speculative : gain_least) ||
           (!speculates && ratio < 1 + equal && smaller);
}

enum move {
    MORE_WEIGHT_SLOTS,
    MORE_STATE_SLOTS,
    MANY_STATE_SLOTS,
    MORE_GRADIENT_SLOTS,
    MORE_SUM_SLOTS,
    LESS_PENDING,
    MORE_PENDING,
    SMALLER_CHUNKS,
    /* The following changes free memory. */
    FEWER_STATE_SLOTS,
    FEWER_WEIGHT_SLOTS,
    ONE_STATE_SLOT_LESS,
    ONE_GRADIENT_SLOT_LESS,
    ONE_SUM_SLOT_LESS,
    HALF_CHUNKS,
    RECOMPUTE_ONE_MORE,
    RECOMPUTE_SOME_MORE,
    RECOMPUTE_ALL,
    FEWER_ON_CARD,
    FAR_FEWER_ON_CARD,
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
    bool splits = choice->pending_share > 0 && choice->pending_share < PLAN_SHARE_ALL;
    bool may = splits && share > 0 && share < PLAN_SHARE_ALL;
    choice->pending_share = may ? (uint32_t)share : choice->pending_share;
    return may;
}

static bool halve_chunks(const struct plan_wishes *wishes, uint32_t times,
                         struct plan_choice *choice)
{
    choice->chunk_elements /= 2;
    choice->state_slots *= times;
    return wishes->chunk_elements == 0 && (times == 1 || wishes->state_slots == 0) &&
           choice->chunk_elements >= plan_policy_chunk(PLAN_CHUNK_SIZES - 2) &&
           choice->state_slots <= PLAN_STATE_SLOT_MAX;
}

static bool recompute(const struct plan_input *input, uint32_t more, struct plan_choice *choice)
{
    uint32_t all = input->compute_count;
    bool keeps = choice->acts == PLAN_ACTS_KEEP ||
                 (choice->acts == PLAN_ACTS_RECOMPUTE && choice->recomputed < all);
    if (!keeps || input->wishes.acts != PLAN_ACTS_AUTO) {
        return false;
    }
    uint32_t now = choice->acts == PLAN_ACTS_KEEP ? 0 : choice->recomputed;
    choice->keeps_first = choice->keeps_first || choice->acts == PLAN_ACTS_KEEP;
    choice->acts = PLAN_ACTS_RECOMPUTE;
    choice->recomputed = more < all - now ? now + more : all;
    return true;
}

static bool leave_card(const struct plan_input *input, uint32_t blocks, struct plan_choice *choice)
{
    bool may = choice->card_blocks > 0 && input->wishes.states == PLAN_WHERE_AUTO;
    choice->card_blocks -= may && blocks < choice->card_blocks ? blocks : choice->card_blocks;
    return may;
}

static bool make_move(const struct plan_input *input, enum move move, struct plan_choice *choice)
{
    const struct plan_wishes *wishes = &input->wishes;
    const uint32_t weights = choice->weight_slots;
    const uint32_t states = choice->state_slots;
    const bool early = choice->pending_share < PLAN_SHARE_ALL;
    const bool sums = wishes->micro_batches > 1 || !input->budgets.device_is_host;
    switch (move) {
    case MORE_WEIGHT_SLOTS:
        return set_slots(&choice->weight_slots, wishes->weight_slots, 2, PLAN_SLOT_MAX,
                         weights + 1);
    case FEWER_WEIGHT_SLOTS:
        return set_slots(&choice->weight_slots, wishes->weight_slots, 2, PLAN_SLOT_MAX,
                         weights - 1);
    case MORE_STATE_SLOTS:
        return set_slots(&choice->state_slots, wishes->state_slots, 2, PLAN_STATE_SLOT_MAX,
                         states + 2);
    case MANY_STATE_SLOTS:
        return set_slots(&choice->state_slots, wishes->state_slots, 2, PLAN_STATE_SLOT_MAX,
                         states * 2);
    case FEWER_STATE_SLOTS:
        return set_slots(&choice->state_slots, wishes->state_slots, 2, PLAN_STATE_SLOT_MAX,
                         states / 2);
    case ONE_STATE_SLOT_LESS:
        return set_slots(&choice->state_slots, wishes->state_slots, 2, PLAN_STATE_SLOT_MAX,
                         states - 1);
    case MORE_GRADIENT_SLOTS:
        return early &&
               set_slots(&choice->gradient_slots, 0, 1, PLAN_SLOT_MAX, choice->gradient_slots + 1);
    case ONE_GRADIENT_SLOT_LESS:
        return set_slots(&choice->gradient_slots, 0, 1, PLAN_SLOT_MAX, choice->gradient_slots - 1);
    case MORE_SUM_SLOTS:
        return sums && set_slots(&choice->sum_slots, 0, 1, PLAN_SLOT_MAX, choice->sum_slots + 1);
    case ONE_SUM_SLOT_LESS:
        return set_slots(&choice->sum_slots, 0, 1, PLAN_SLOT_MAX, choice->sum_slots - 1);
    case LESS_PENDING: return shift_pending(choice, -PLAN_SPLIT_STRIDE);
    case MORE_PENDING: return shift_pending(choice, PLAN_SPLIT_STRIDE);
    case SMALLER_CHUNKS: return halve_chunks(wishes, 2, choice);
    case HALF_CHUNKS: return halve_chunks(wishes, 1, choice);
    case RECOMPUTE_ONE_MORE: return recompute(input, 1, choice);
    case RECOMPUTE_SOME_MORE: return recompute(input, (input->compute_count + 3) / 4, choice);
    case RECOMPUTE_ALL: return recompute(input, input->compute_count, choice);
    case FEWER_ON_CARD: return leave_card(input, 1, choice);
    case FAR_FEWER_ON_CARD: return leave_card(input, (choice->card_blocks + 3) / 4, choice);
    case MOVE_COUNT: break;
    }
    return false;
}

/* Limits tries for long tapes, so that planning stays short. */
static int tries_for(const struct plan *plan)
{
    enum { COMMANDS_MAX = 100000, TRIES_MIN = 6, TRIES_MAX = 60, TRIES_LEAST = 3 };
    int steady = (int)plan_steady(plan);
    uint32_t tries = COMMANDS_MAX / (plan->tapes[steady][steady].count + 1);
    if (tries == 0) {
        return TRIES_LEAST;
    }
    return tries < TRIES_MIN ? TRIES_MIN : tries > TRIES_MAX ? TRIES_MAX : (int)tries;
}

int plan_climb_up(const struct plan_input *input, struct plan_needs *needs, struct plan **best)
{
    int tries_max = tries_for(*best);
    bool gained = true;
    int tries = 0;
    while (gained && tries < tries_max) {
        gained = false;
        for (int move = 0; move < MOVE_COUNT && tries < tries_max; move++) {
            struct plan_choice choice = (*best)->choice;
            struct plan *plan = NULL;
            if (!make_move(input, (enum move)move, &choice)) {
                continue;
            }
            int rc = plan_candidate_create(input, &choice, needs, &plan);
            if (rc != 0) {
                return rc;
            }
            tries++;
            bool wins = plan != NULL && plan_climb_wins(plan, *best);
            plan_destroy(wins ? *best : plan);
            *best = wins ? plan : *best;
            gained = gained || wins;
            move -= wins;
        }
    }
    return 0;
}

/* ---- smaller candidates ---- */

static double staged_bytes(const struct plan *plan)
{
    const struct plan_layout *layout = plan->layout;
    const uint32_t slot = layout->state_slots[0];
    return slot != PLAN_NONE
               ? (double)layout->buffers[slot].bytes * plan_layout_slots(layout->state_slots)
               : 0;
}

/* Returns whether the state slots hold too little for the drives to reach their measured rate,
 * which the simulation does not model. A quarter of what is in STORE suffices, so small models need
 * not keep their states in memory. */
static bool starves(const struct plan_input *input, const struct plan *plan)
{
    static const double held_most = 0.25;
    const double stored = (double)plan->layout->tier_bytes[PLAN_STORE] * held_most;
    const double staged = staged_bytes(plan);
    return staged > 0 && staged < fmin(input->rates.window_bytes, stored);
}

int plan_climb_widen(const struct plan_input *input, struct plan_needs *needs, struct plan **best)
{
    while (starves(input, *best)) {
        struct plan_choice choice = (*best)->choice;
        struct plan *wider = NULL;
        int rc = make_move(input, MORE_STATE_SLOTS, &choice)
                     ? plan_candidate_create(input, &choice, needs, &wider)
                     : 0;
        if (rc != 0 || wider == NULL || staged_bytes(wider) <= staged_bytes(*best)) {
            plan_destroy(wider);
            return rc;
        }
        plan_destroy(*best);
        *best = wider;
    }
    return 0;
}

/* Returns the bytes saved per second lost; 0: not worth it. */
static double saving(const struct plan_input *input, const struct plan_bounds *bounds,
                     const struct plan *from, const struct plan *plan)
{
    const double before = (double)plan_climb_memory(input, from);
    const double saved = before - (double)plan_climb_memory(input, plan);
    const double lost = plan->predicted.step_seconds - from->predicted.step_seconds;
    const bool may = (!starves(input, plan) || starves(input, from)) &&
                     plan->predicted.step_seconds <= bounds->step_seconds &&
                     plan->predicted_clipped.step_seconds <= bounds->clipped_seconds &&
                     plan->predicted.store_write_bytes <= bounds->store_write_bytes;
    return may && saved > before * least_saving ? saved / fmax(lost, bounds->step_seconds * equal)
                                                : 0;
}

/* Finds the best change; *next stays NULL if none is worth it. */
static int step_down(const struct plan_input *input, const struct plan_bounds *bounds,
                     struct plan_needs *needs, const struct plan *from, struct plan **next)
{
    double most = 0;
    for (int move = 0; move < MOVE_COUNT; move++) {
        struct plan_choice choice = from->choice;
        struct plan *plan = NULL;
        const bool up = move <= MORE_SUM_SLOTS;
        if (up || !make_move(input, (enum move)move, &choice)) {
            continue;
        }
        int rc = plan_candidate_create(input, &choice, needs, &plan);
        if (rc != 0) {
            return rc;
        }
        if (plan == NULL) {
            continue;
        }
        rc = plan_candidate_predict_clipped(input, plan);
        if (rc != 0) {
            plan_destroy(plan);
            return rc;
        }
        double saves = saving(input, bounds, from, plan);
        bool wins = saves > most;
        plan_destroy(wins ? *next : plan);
        *next = wins ? plan : *next;
        most = wins ? saves : most;
    }
    return 0;
}

int plan_climb_down(const struct plan_input *input, const struct plan_bounds *bounds,
                    struct plan_needs *needs, struct plan **best)
{
    for (int tries = tries_for(*best); tries > 0; tries--) {
        struct plan *next = NULL;
        int rc = step_down(input, bounds, needs, *best, &next);
        if (rc != 0 || next == NULL) {
            plan_destroy(next);
            return rc;
        }
        plan_destroy(*best);
        *best = next;
    }
    return 0;
}
