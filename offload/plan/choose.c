/* choose.c: creates a plan: lays out and simulates a candidate per policy, and improves the fastest
 * ones. If the wishes have thrift, it then saves memory where that costs little time, and does all
 * of this again for a slower drive. */
#include <errno.h>
#include <math.h>
#include <stddef.h>

#include "offload/plan/candidate.h"
#include "offload/plan/check.h"
#include "offload/plan/climb.h"
#include "offload/plan/policy.h"

enum { TIMINGS = PLAN_TIMING_SPECULATIVE + 1, STARTS = TIMINGS * PLAN_CHUNK_SIZES };

/* A candidate is improved only if it takes at most this many times as long as the fastest. */
static const double climbs_within = 1.12;

struct search {
    const struct plan_input *input; /* borrowed */
    struct plan_needs needs;
    unsigned size;             /* index of the chunk size that is tried */
    struct plan *best[STARTS]; /* owned, [timing * PLAN_CHUNK_SIZES + size] */
    struct plan_tried tried;
};

static bool none_fits(const struct search *search)
{
    for (int t = 0; t < STARTS; t++) {
        if (search->best[t] != NULL) {
            return false;
        }
    }
    return true;
}

/* ---- candidates ---- */

static void note_tried(struct search *search, const struct plan *plan)
{
    const struct plan_layout *layout = plan->layout;
    const struct plan_choice *choice = &plan->choice;
    struct plan_alternative *of = &search->tried.of[choice->acts][plan_choice_timing(choice)];
    if (of->step_seconds == 0 || plan->predicted.step_seconds < of->step_seconds) {
        *of = (struct plan_alternative){
            .acts = choice->acts,
            .order = choice->order,
            .timing = plan_choice_timing(choice),
            .step_seconds = plan->predicted.step_seconds,
            .device_bytes = layout->tier_bytes[PLAN_DEVICE] +
                            plan_layout_taken(search->input, layout, PLAN_DEVICE),
            .host_bytes = layout->tier_bytes[PLAN_HOST] +
                          plan_layout_taken(search->input, layout, PLAN_HOST),
            .store_write_bytes = plan->predicted.store_write_bytes};
    }
}

/* Tries a policy with many slots, and with few if many do not fit. */
static int try_policy(void *user, const struct plan_choice *policy)
{
    struct search *search = user;
    struct plan_choice choice = *policy;
    struct plan **best =
        &search->best[plan_choice_timing(policy) * PLAN_CHUNK_SIZES + search->size];
    struct plan *plan = NULL;
    int rc = 0;
    for (int roomy = 1; rc == 0 && plan == NULL && roomy >= 0; roomy--) {
        plan_policy_slots(search->input, roomy, &choice);
        rc = plan_candidate_create(search->input, &choice, &search->needs, &plan);
    }
    if (plan != NULL) {
        note_tried(search, plan);
        bool wins = plan_climb_wins(plan, *best);
        plan_destroy(wins ? *best : plan);
        *best = wins ? plan : *best;
    }
    return rc;
}

static bool fits_with_other(const struct search *search, enum plan_tier grads)
{
    for (int t = 0; t < STARTS; t++) {
        if (search->best[t] != NULL && search->best[t]->choice.grads != grads) {
            return true;
        }
    }
    return false;
}

/* After a candidate fits, smaller chunks are tried only while tapes are short, because long tapes
 * make the search slow. */
static bool tries_smaller(const struct search *search)
{
    enum { COMMANDS_MAX = 1500 };
    for (int t = 0; t < STARTS; t++) {
        const struct plan *plan = search->best[t];
        int steady = plan != NULL ? (int)plan_steady(plan) : 0;
        if (plan != NULL && plan->tapes[steady][steady].count > COMMANDS_MAX) {
            return false;
        }
    }
    return true;
}

/* Returns whether to visit the policies with this tier of gradients and chunk size. */
typedef bool visit_begin(void *user, enum plan_tier grads, unsigned size);

/* `begin` may be NULL. */
static int visit_all(const struct plan_input *input, visit_begin *begin, plan_policy_visit *visit,
                     void *user)
{
    static const enum plan_tier grads[] = {PLAN_HOST, PLAN_DEVICE, PLAN_STORE, PLAN_APPLICATION};
    const uint64_t wished = input->wishes.chunk_elements;
    const unsigned first = plan_policy_first_size(input);
    const unsigned end = wished != 0 ? first + 1 : PLAN_CHUNK_SIZES;
    int rc = 0;
    for (size_t g = 0; g < sizeof grads / sizeof grads[0]; g++) {
        for (unsigned i = first; rc == 0 && i < end; i++) {
            const struct plan_choice choice = {
                .grads = grads[g], .chunk_elements = wished != 0 ? wished : plan_policy_chunk(i)};
            if (plan_policy_grads(input, grads[g]) && (begin == NULL || begin(user, grads[g], i))) {
                rc = plan_policy_each(input, &choice, visit, user);
            }
        }
    }
    return rc;
}

/* Gradients go to another tier only if nothing fits with them in earlier tiers. */
static bool begin_trying(void *user, enum plan_tier grads, unsigned size)
{
    struct search *search = user;
    search->size = size;
    return !fits_with_other(search, grads) && tries_smaller(search);
}

static int try_all(struct search *search)
{
    return visit_all(search->input, begin_trying, try_policy, search);
}

/* ---- refusing ---- */

static int note_policy(void *user, const struct plan_choice *policy)
{
    struct search *search = user;
    struct plan_choice choice = *policy;
    plan_policy_slots(search->input, false, &choice);
    return plan_candidate_need(search->input, &choice, &search->needs);
}

/* Records what candidates would need with a store of unlimited size. */
static int note_larger_store(struct search *search)
{
    struct plan_input open = *search->input;
    struct search larger = {.input = &open, .needs = search->needs};
    open.budgets.store_bytes = UINT64_MAX;
    int rc = visit_all(&open, NULL, note_policy, &larger);
    search->needs = larger.needs;
    return rc;
}

struct fitting {
    const struct plan_input *input; /* borrowed */
    bool fitted;
};

static int fit_policy(void *user, const struct plan_choice *policy)
{
    struct fitting *fitting = user;
    struct plan_choice choice = *policy;
    plan_policy_slots(fitting->input, false, &choice);
    return fitting->fitted ? 0 : plan_candidate_fits(fitting->input, &choice, &fitting->fitted);
}

static uint64_t of_rank(const struct plan_input *input, uint64_t mib)
{
    return (mib << 20) / plan_sharing(input);
}

/* Sets *out to whether a candidate fits into budgets in MiB (0: the input's own). If both DEVICE
 * and HOST are given, they replace the joint limit. */
static int fits(const struct plan_input *input, const uint64_t mib[PLAN_TIER_COUNT], bool *out)
{
    struct plan_input tried = *input;
    struct plan_budgets *budgets = &tried.budgets;
    struct fitting fitting = {.input = &tried};
    uint64_t *const bytes[PLAN_TIER_COUNT] = {[PLAN_DEVICE] = &budgets->device_bytes,
                                              [PLAN_HOST] = &budgets->host_bytes,
                                              [PLAN_STORE] = &budgets->store_bytes};
    for (int tier = 0; tier < PLAN_TIER_COUNT; tier++) {
        *bytes[tier] = mib[tier] > 0 ? of_rank(input, mib[tier]) : *bytes[tier];
    }
    if (mib[PLAN_DEVICE] > 0 && mib[PLAN_HOST] > 0) {
        budgets->joint_bytes = 0;
    }
    budgets->host_bytes -= budgets->advice_spare_bytes < budgets->host_bytes
                               ? budgets->advice_spare_bytes
                               : budgets->host_bytes;
    int rc = visit_all(&tried, NULL, fit_policy, &fitting);
    *out = fitting.fitted;
    return rc;
}

/* Raises a budget until a candidate fits, because needs leave out what rounding loses. Sets the
 * budget to 0 if none fits. */
static int raise_until_fits(const struct plan_input *input, uint64_t mib[PLAN_TIER_COUNT],
                            enum plan_tier tier)
{
    enum { RAISES_MAX = 12 };
    bool fitted = false;
    int rc = 0;
    for (int i = 0; rc == 0 && mib[tier] > 0; i++) {
        rc = fits(input, mib, &fitted);
        if (fitted || rc != 0) {
            return rc;
        }
        mib[tier] = i < RAISES_MAX ? mib[tier] + (UINT64_C(1) << i) : 0;
    }
    return rc;
}

static int advise(const struct search *search, struct plan_advice *out)
{
    struct plan_advice advice = plan_needs_advise(search->input, &search->needs);
    int rc = 0;
    for (int tier = 0; rc == 0 && tier < PLAN_TIER_COUNT; tier++) {
        uint64_t mib[PLAN_TIER_COUNT] = {0};
        mib[tier] = advice.alone_mib[tier];
        rc = raise_until_fits(search->input, mib, (enum plan_tier)tier);
        advice.alone_mib[tier] = mib[tier];
    }
    if (rc != 0) {
        return rc;
    }
    rc = raise_until_fits(search->input, advice.together_mib, PLAN_HOST);
    if (rc == 0 && advice.stored_mib[PLAN_STORE] > 0) {
        rc = raise_until_fits(search->input, advice.stored_mib, PLAN_HOST);
        advice.stored_mib[PLAN_STORE] *= advice.stored_mib[PLAN_HOST] > 0;
    }
    if (rc == 0) {
        *out = advice;
    }
    return rc;
}

static int refuse(struct search *search)
{
    struct plan_advice advice;
    int rc = note_larger_store(search);
    if (rc != 0) {
        return rc;
    }
    rc = advise(search, &advice);
    return rc == 0 ? plan_needs_refuse(search->input, &advice) : rc;
}

/* ---- choosing a plan ---- */

/* Improves candidates near the fastest one. Speculative candidates do not count as the fastest,
 * because their guesses may be wrong. */
static int climb(struct search *search)
{
    double fastest = HUGE_VAL;
    int rc = 0;
    for (int t = 0; t < PLAN_TIMING_SPECULATIVE * PLAN_CHUNK_SIZES; t++) {
        const struct plan *best = search->best[t];
        fastest = best != NULL ? fmin(fastest, best->predicted.step_seconds) : fastest;
    }
    for (int t = 0; rc == 0 && t < STARTS; t++) {
        struct plan **best = &search->best[t];
        if (*best != NULL && (*best)->predicted.step_seconds <= fastest * climbs_within) {
            rc = plan_climb_up(search->input, &search->needs, best);
        }
    }
    return rc;
}

static struct plan *winner(const struct search *search)
{
    struct plan *wins = NULL;
    for (int t = 0; t < STARTS; t++) {
        if (search->best[t] != NULL && plan_climb_wins(search->best[t], wins)) {
            wins = search->best[t];
        }
    }
    return wins;
}

/* Reduces the memory of candidates that are about as fast as `fastest` and write no more. *out: the
 * smallest. */
static int save_memory(struct search *search, const struct plan *fastest, struct plan **out)
{
    const struct plan_input *input = search->input;
    struct plan_bounds bounds = {.step_seconds = fastest->predicted.step_seconds *
                                                 (1 + input->wishes.thrift),
                                 .store_write_bytes = fastest->predicted.store_write_bytes};
    int rc = 0;
    *out = NULL;
    for (int t = 0; rc == 0 && t < STARTS; t++) {
        struct plan **best = &search->best[t];
        if (*best == NULL || (*best)->predicted.step_seconds > bounds.step_seconds ||
            (*best)->predicted.store_write_bytes > bounds.store_write_bytes) {
            continue;
        }
        rc = plan_climb_widen(input, &search->needs, best);
        if (rc != 0) {
            return rc;
        }
        rc = plan_candidate_predict_clipped(input, *best);
        if (rc != 0) {
            return rc;
        }
        bounds.clipped_seconds = (*best)->predicted_clipped.step_seconds *
                                 (1 + input->wishes.thrift);
        rc = plan_climb_down(input, &bounds, &search->needs, best);
        if (*out == NULL || plan_climb_memory(input, *best) < plan_climb_memory(input, *out)) {
            *out = *best;
        }
    }
    return rc;
}

static int choose(const struct plan_input *input, struct plan **out)
{
    struct search search = {.input = input};
    struct plan *chosen = NULL;
    int rc = try_all(&search);
    if (rc != 0) {
        goto done;
    }
    if (none_fits(&search)) {
        rc = refuse(&search);
        goto done;
    }
    rc = climb(&search);
    if (rc != 0) {
        goto done;
    }
    chosen = winner(&search);
    if (input->wishes.thrift > 0) {
        rc = save_memory(&search, chosen, &chosen);
    }

done:
    for (int t = 0; t < STARTS; t++) {
        if (rc != 0 || search.best[t] != chosen) {
            plan_destroy(search.best[t]);
        }
    }
    if (rc == 0) {
        chosen->tried = search.tried;
        *out = chosen;
    }
    return rc;
}

/* Share of its measured rate that a drive is assumed to reach. Without spare slots, a step waits
 * for every late block. */
static const double drive_gives = 0.9;

/* Chooses for a slower drive, and predicts with measured rates. */
static int choose_careful(const struct plan_input *input, struct plan **out)
{
    struct plan_input careful = *input;
    struct plan_needs needs = {.count = 0};
    struct plan *found = NULL;
    careful.rates.read_bytes *= drive_gives;
    careful.rates.write_bytes *= drive_gives;
    careful.rates.mixed_bytes *= drive_gives;
    int rc = choose(&careful, &found);
    if (rc == 0) {
        const struct plan_choice choice = found->choice;
        plan_destroy(found);
        rc = plan_candidate_create(input, &choice, &needs, out);
    }
    return rc;
}

static int choose_plan(const struct plan_input *input, struct plan **out)
{
    struct plan *plan = NULL;
    struct plan *careful = NULL;
    int rc = choose(input, &plan);
    if (rc == 0 && input->wishes.thrift > 0) {
        rc = choose_careful(input, &careful);
    }
    if (rc != 0) {
        plan_destroy(plan);
        return rc;
    }
    const bool wins = careful != NULL &&
                      careful->predicted.step_seconds <= plan->predicted.step_seconds &&
                      careful->predicted.store_write_bytes <= plan->predicted.store_write_bytes;
    if (wins) {
        careful->tried = plan->tried;
    }
    plan_destroy(wins ? plan : careful);
    *out = wins ? careful : plan;
    return 0;
}

int plan_create(const struct plan_input *input, struct plan **out)
{
    struct plan *plan = NULL;
    /* All ranks choose as the last rank, so that their choices agree. */
    struct plan_input last = *input;
    last.rank = input->world > 1 ? input->world - 1 : 0;
    int rc = plan_check(input);
    if (rc == 0) {
        rc = choose_plan(&last, &plan);
    }
    if (rc == 0 && last.rank != input->rank) {
        rc = plan_candidate_turn(input, plan);
    }
    if (rc == 0) {
        rc = plan_candidate_complete(input, plan);
    }
    if (rc == 0) {
        rc = plan_candidate_predict_clipped(input, plan);
    }
    if (rc != 0) {
        plan_destroy(plan);
        return rc;
    }
    plan->alone = input->world <= 1;
    *out = plan;
    return 0;
}
