/* candidate.c: builds a plan for one choice: residence, layout, tapes, prediction. */
#include "offload/plan/candidate.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "offload/plan/builder.h"
#include "offload/plan/sim.h"
#include "offload/plan/step.h"

static int add_tape(struct plan_builder *builder, const struct plan_input *input,
                    const struct plan *plan, int kind, struct plan_tape *out)
{
    plan_builder_begin(builder);
    int rc = plan_step_add(builder, input, &plan->choice, plan->layout, (enum plan_kind)kind);
    return rc == 0 ? plan_builder_end(builder, out) : rc;
}

/* Builds the tape of `kind` after one of kind `before` (PLAN_KIND_COUNT: none), to whose commands
 * edges may refer. */
static int build_join(const struct plan_input *input, const struct plan *plan, int before, int kind,
                      struct plan_tape *out)
{
    struct plan_builder *builder = NULL;
    int rc = plan_builder_create(plan->layout->buffers, plan->layout->count, &builder);
    if (rc == 0 && before != PLAN_KIND_COUNT) {
        struct plan_tape unused = {0};
        rc = add_tape(builder, input, plan, before, &unused);
        plan_tape_fini(&unused);
    }
    if (rc == 0) {
        rc = add_tape(builder, input, plan, kind, out);
        out->guesses = kind == PLAN_GUESS || kind == PLAN_GUESS_NEXT;
    }
    plan_builder_destroy(builder);
    return rc;
}

static bool is_save(int kind)
{
    return kind == PLAN_NEXT_SAVE || kind == PLAN_DRAIN_SAVE || plan_kind_saves_own(kind);
}

int plan_candidate_complete(const struct plan_input *input, struct plan *plan)
{
    const bool saves = input->wishes.saves;
    for (int before = 0; before <= PLAN_KIND_COUNT; before++) {
        for (int kind = 0; kind < PLAN_KIND_COUNT; kind++) {
            struct plan_tape *tape = &plan->tapes[before][kind];
            if (!saves && (is_save(before) || is_save(kind))) {
                continue;
            }
            if (tape->commands == NULL && plan_joins(plan, before, kind)) {
                int rc = build_join(input, plan, before, kind, tape);
                if (rc != 0) {
                    return rc;
                }
            }
        }
    }
    return 0;
}

static int predict(const struct plan_input *input, struct plan *plan)
{
    const int steady = (int)plan_steady(plan);
    struct plan_tape *again = &plan->tapes[steady][steady];
    int rc = build_join(input, plan, steady, steady, again);
    if (rc == 0) {
        rc = plan_sim_predict(&input->rates, input->budgets.device_is_host, again,
                              &plan->predicted);
    }
    plan->predicted_clipped = plan->predicted;
    return rc;
}

int plan_candidate_predict_clipped(const struct plan_input *input, struct plan *plan)
{
    struct plan_tape *next = &plan->tapes[PLAN_NEXT][PLAN_NEXT];
    if (plan_generations(plan) == 1) {
        return 0;
    }
    if (next->commands == NULL) {
        int rc = build_join(input, plan, PLAN_NEXT, PLAN_NEXT, next);
        if (rc != 0) {
            return rc;
        }
    }
    return plan_sim_predict(&input->rates, input->budgets.device_is_host, next,
                            &plan->predicted_clipped);
}

int plan_candidate_turn(const struct plan_input *input, struct plan *plan)
{
    for (int before = 0; before <= PLAN_KIND_COUNT; before++) {
        for (int kind = 0; kind < PLAN_KIND_COUNT; kind++) {
            plan_tape_fini(&plan->tapes[before][kind]);
        }
    }
    plan_layout_destroy(plan->layout);
    plan->layout = NULL;
    return plan_residence_lay_out(input, &plan->choice, &plan->residence, &plan->layout);
}

static void note_need(const struct plan_layout *layout, const struct plan_input *input,
                      struct plan_needs *needs)
{
    const struct plan_need need = {
        {[PLAN_DEVICE] = layout->tier_bytes[PLAN_DEVICE] +
                         plan_layout_taken(input, layout, PLAN_DEVICE),
         [PLAN_HOST] = layout->tier_bytes[PLAN_HOST] + plan_layout_taken(input, layout, PLAN_HOST),
         [PLAN_STORE] = layout->tier_bytes[PLAN_STORE]}};
    plan_needs_note(needs, &need);
}

/* Lays out a residence. *fitted: it fits the budgets; *full: STORE is too small. */
static int look(const struct plan_input *input, const struct plan_choice *choice,
                const struct plan_residence *residence, struct plan_needs *needs, bool *fitted,
                bool *full)
{
    struct plan_layout *layout = NULL;
    int rc = plan_residence_lay_out(input, choice, residence, &layout);
    if (rc == 0) {
        *fitted = plan_residence_fits(input, layout);
        *full = layout->tier_bytes[PLAN_STORE] > input->budgets.store_bytes;
        note_need(layout, input, needs);
        plan_layout_destroy(layout);
    }
    return rc;
}

/* Fills the budgets of DEVICE and HOST, if STORE then has room for the rest. */
static int fill_memory(const struct plan_input *input, const struct plan_choice *choice,
                       struct plan_needs *needs, struct plan_residence *residence, bool *fitted)
{
    struct plan_input open = *input;
    struct plan_residence tried = *residence;
    bool full = false;
    open.budgets.store_bytes = UINT64_MAX;
    int rc = plan_residence_spend(&open, choice, &tried);
    if (rc != 0) {
        return rc;
    }
    rc = look(input, choice, &tried, needs, fitted, &full);
    if (rc == 0 && *fitted) {
        *residence = tried;
    }
    return rc;
}

/* Tries to make the residence fit: moves states to the GPU, then keeps data in memory for which
 * STORE has no room. */
static int raise_residence(const struct plan_input *input, const struct plan_choice *choice,
                           struct plan_needs *needs, struct plan_residence *residence, bool *fitted)
{
    bool full = false;
    int rc = look(input, choice, residence, needs, fitted, &full);
    if (rc == 0 && !*fitted && choice->card_blocks > 0) {
        rc = plan_residence_lighten(input, choice, residence);
        if (rc != 0) {
            return rc;
        }
        rc = look(input, choice, residence, needs, fitted, &full);
    }
    if (rc != 0 || !full) {
        return rc;
    }
    rc = fill_memory(input, choice, needs, residence, fitted);
    if (rc != 0 || *fitted) {
        return rc;
    }
    rc = plan_residence_relieve(input, choice, residence);
    return rc == 0 ? look(input, choice, residence, needs, fitted, &full) : rc;
}

/* Finds a residence that fits; *fitted is false if there is none. On the CPU device, data that must
 * be in memory may be in DEVICE or HOST. */
static int begin(const struct plan_input *input, const struct plan_choice *choice,
                 struct plan_needs *needs, struct plan_residence *residence, bool *fitted)
{
    const unsigned count = input->budgets.device_is_host ? PLAN_DEFAULTS : 1;
    *fitted = false;
    for (unsigned defaults = 0; !*fitted && defaults < count; defaults++) {
        *residence = plan_residence_least(input, choice, defaults);
        int rc = raise_residence(input, choice, needs, residence, fitted);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

int plan_candidate_fits(const struct plan_input *input, const struct plan_choice *choice,
                        bool *fitted)
{
    struct plan_needs unused = {.count = 0};
    struct plan_residence residence;
    return begin(input, choice, &unused, &residence, fitted);
}

int plan_candidate_need(const struct plan_input *input, const struct plan_choice *choice,
                        struct plan_needs *needs)
{
    struct plan_residence residence;
    bool fitted = false;
    int rc = begin(input, choice, needs, &residence, &fitted);
    return rc == 0 && fitted ? fill_memory(input, choice, needs, &residence, &fitted) : rc;
}

int plan_candidate_create(const struct plan_input *input, const struct plan_choice *choice,
                          struct plan_needs *needs, struct plan **out)
{
    struct plan_residence residence;
    bool fitted = false;
    int rc = begin(input, choice, needs, &residence, &fitted);
    if (rc != 0) {
        return rc;
    }
    if (!fitted) {
        *out = NULL;
        return 0;
    }
    rc = plan_residence_spend(input, choice, &residence);
    struct plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) {
        return core_err_set(-ENOMEM, "no memory for a plan");
    }
    plan->choice = *choice;
    plan->may_skip = input->wishes.may_skip;
    if (rc == 0) {
        plan->residence = residence;
        plan->choice.card_blocks = residence.card_blocks;
        rc = plan_residence_lay_out(input, choice, &residence, &plan->layout);
    }
    if (rc == 0) {
        rc = predict(input, plan);
    }
    if (rc != 0) {
        plan_destroy(plan);
        return rc;
    }
    *out = plan;
    return 0;
}
