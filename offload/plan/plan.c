/* plan.c: chooses among candidates by building and simulating them.
 * For each policy of activations, order of micro-batches and timing of updates: lay out with
 * everything as far out as it may lie; where that fits, let spare DEVICE and HOST memory make
 * weights and then states resident; build the steady tapes; simulate; keep the fastest. Then the
 * numbers of slots are tried on the winner. */
#include "offload/plan/plan.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "offload/plan/builder.h"
#include "offload/plan/layout.h"
#include "offload/plan/residence.h"
#include "offload/plan/sim.h"
#include "offload/plan/step.h"

enum { CHUNK_DEFAULT = 4 << 20, CHUNK_UNIT = 65536, SLOTS_DEFAULT = 3 };

struct plan {
    struct plan_choice choice;
    struct plan_layout *layout;                                   /* owned */
    struct plan_tape tapes[PLAN_KIND_COUNT + 1][PLAN_KIND_COUNT]; /* [before][kind] */
    struct plan_prediction predicted;
};

/* The smallest budgets met so far, for the sentence of a refusal. */
struct need {
    uint64_t device_bytes;
    uint64_t host_bytes;
    uint64_t store_bytes;
};

/* Which tapes may follow which; the first row is a run's start. */
static bool joins(enum plan_timing timing, int before, int kind)
{
    bool pending = timing == PLAN_TIMING_DEFERRED && (before == PLAN_FIRST || before == PLAN_NEXT);
    switch (kind) {
    case PLAN_FIRST:
    case PLAN_EVAL: return !pending;
    case PLAN_NEXT:
    case PLAN_DRAIN: return pending;
    default: return false;
    }
}

/* ---- building ---- */

static int add_tape(struct plan_builder *builder, const struct plan_input *input,
                    const struct plan *plan, int kind, struct plan_tape *out)
{
    plan_builder_begin(builder);
    int rc = plan_step_add(builder, input, &plan->choice, plan->layout, (enum plan_kind)kind);
    return rc == 0 ? plan_builder_end(builder, out) : rc;
}

/* Builds `kind` as it stands after `before`: the tape before is built first, for its accesses. */
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
    }
    plan_builder_destroy(builder);
    return rc;
}

static int build_all(const struct plan_input *input, struct plan *plan)
{
    for (int before = 0; before <= PLAN_KIND_COUNT; before++) {
        for (int kind = 0; kind < PLAN_KIND_COUNT; kind++) {
            struct plan_tape *tape = &plan->tapes[before][kind];
            if (tape->commands == NULL && joins(plan->choice.timing, before, kind)) {
                int rc = build_join(input, plan, before, kind, tape);
                if (rc != 0) {
                    return rc;
                }
            }
        }
    }
    return 0;
}

/* The step that repeats, and its predicted time. */
static int predict(const struct plan_input *input, struct plan *plan)
{
    int steady = plan->choice.timing == PLAN_TIMING_DEFERRED ? PLAN_NEXT : PLAN_FIRST;
    struct plan_tape *first = &plan->tapes[PLAN_KIND_COUNT][PLAN_FIRST];
    struct plan_tape *again = &plan->tapes[steady][steady];
    int rc = build_join(input, plan, PLAN_KIND_COUNT, PLAN_FIRST, first);
    if (rc == 0) {
        rc = build_join(input, plan, steady, steady, again);
    }
    if (rc == 0) {
        rc = plan_sim_predict(&input->rates, input->budgets.device_is_host, first, again,
                              &plan->predicted);
    }
    return rc;
}

void plan_destroy(struct plan *plan)
{
    if (plan == NULL) {
        return;
    }
    for (int before = 0; before <= PLAN_KIND_COUNT; before++) {
        for (int kind = 0; kind < PLAN_KIND_COUNT; kind++) {
            plan_tape_fini(&plan->tapes[before][kind]);
        }
    }
    plan_layout_destroy(plan->layout);
    free(plan);
}

/* ---- choosing ---- */

static void note_need(const struct plan_layout *layout, const struct plan_input *input,
                      struct need *need)
{
    uint64_t device = layout->tier_bytes[PLAN_DEVICE] + input->budgets.device_taken_bytes;
    uint64_t host = layout->tier_bytes[PLAN_HOST] + input->budgets.host_taken_bytes;
    if (need->device_bytes == 0 || device + host < need->device_bytes + need->host_bytes) {
        *need = (struct need){device, host, layout->tier_bytes[PLAN_STORE]};
    }
}

/* A whole plan for one choice, or NULL in *out where it does not fit. */
static int try_choice(const struct plan_input *input, const struct plan_choice *choice,
                      struct need *need, struct plan **out)
{
    struct plan_residence residence = plan_residence_least(input, choice);
    struct plan_layout *layout = NULL;
    int rc = plan_residence_lay_out(input, choice, &residence, &layout);
    if (rc != 0) {
        return rc;
    }
    bool fitted = plan_residence_fits(input, layout);
    note_need(layout, input, need);
    plan_layout_destroy(layout);
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
    if (rc == 0) {
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

/* Tries one choice and keeps it where it is faster than the best so far. */
static int compete(const struct plan_input *input, const struct plan_choice *choice,
                   struct need *need, struct plan **best)
{
    struct plan *plan = NULL;
    int rc = try_choice(input, choice, need, &plan);
    if (rc != 0 || plan == NULL) {
        return rc;
    }
    bool faster = *best == NULL ||
                  plan->predicted.step_seconds < (*best)->predicted.step_seconds * (1 - 1e-6);
    if (!faster) {
        plan_destroy(plan);
        return 0;
    }
    plan_destroy(*best);
    *best = plan;
    return 0;
}

static int try_policies(const struct plan_input *input, struct need *need, struct plan **best)
{
    const struct plan_wishes *wishes = &input->wishes;
    bool free_timing = !wishes->may_clip && !wishes->may_skip;
    bool store = input->budgets.store_bytes > 0;
    struct plan_choice choice = {
        .weight_slots = wishes->weight_slots != 0 ? wishes->weight_slots : 2,
        .state_slots = wishes->state_slots != 0 ? wishes->state_slots : 2,
        .gradient_slots = 1,
        .chunk_elements = wishes->chunk_elements != 0 ? wishes->chunk_elements : CHUNK_DEFAULT};
    for (int acts = PLAN_ACTS_KEEP; acts <= PLAN_ACTS_STORE; acts++) {
        if ((wishes->acts != PLAN_ACTS_AUTO && (int)wishes->acts != acts) ||
            (acts == PLAN_ACTS_STORE && !store)) {
            continue;
        }
        for (int order = PLAN_ORDER_LAYER; order <= PLAN_ORDER_MICRO; order++) {
            bool pointless = order == PLAN_ORDER_MICRO && wishes->micro_batches == 1 &&
                             wishes->order == PLAN_ORDER_AUTO;
            if ((wishes->order != PLAN_ORDER_AUTO && (int)wishes->order != order) || pointless) {
                continue;
            }
            for (int timing = PLAN_TIMING_DEFERRED; timing <= PLAN_TIMING_INSIDE; timing++) {
                if ((wishes->timing != PLAN_TIMING_AUTO && (int)wishes->timing != timing) ||
                    (timing == PLAN_TIMING_INSIDE && !free_timing)) {
                    continue;
                }
                choice.acts = (enum plan_acts)acts;
                choice.order = (enum plan_order)order;
                choice.timing = (enum plan_timing)timing;
                int rc = compete(input, &choice, need, best);
                if (rc != 0) {
                    return rc;
                }
            }
        }
    }
    return 0;
}

/* More slots on the policy that won. */
static int try_slots(const struct plan_input *input, struct need *need, struct plan **best)
{
    const struct plan_wishes *wishes = &input->wishes;
    const uint32_t weight_counts[] = {2, 3, 4};
    const uint32_t state_counts[] = {3, 4, 8};
    struct plan_choice choice = (*best)->choice;
    for (size_t w = 0; w < sizeof weight_counts / sizeof weight_counts[0]; w++) {
        for (size_t s = 0; s < sizeof state_counts / sizeof state_counts[0]; s++) {
            for (uint32_t sums = 1; sums <= 2; sums++) {
                choice.weight_slots = wishes->weight_slots != 0 ? wishes->weight_slots
                                                                : weight_counts[w];
                choice.state_slots = wishes->state_slots != 0 ? wishes->state_slots
                                                              : state_counts[s];
                choice.gradient_slots = sums;
                int rc = compete(input, &choice, need, best);
                if (rc != 0) {
                    return rc;
                }
            }
        }
    }
    return 0;
}

static int check_shapes(const struct plan_input *input)
{
    if (input->block_count < 2 || input->block_count >= PLAN_NONE) {
        return core_err_set(-EINVAL, "a plan needs at least an embedding and a head, not %u blocks",
                            input->block_count);
    }
    for (uint32_t b = 0; b < input->block_count; b++) {
        const struct plan_block_shape *shape = &input->blocks[b];
        uint32_t owner = shape->owner;
        if (shape->elements == 0 || owner > b || input->blocks[owner].owner != owner ||
            input->blocks[owner].elements != shape->elements) {
            return core_err_set(-EINVAL,
                                "block %u (%s) has %" PRIu64 " elements and owner %u, which is "
                                "not a block before it that owns as many",
                                b, shape->name, shape->elements, owner);
        }
    }
    return 0;
}

static int check_wishes(const struct plan_input *input)
{
    const struct plan_wishes *wishes = &input->wishes;
    if (wishes->micro_batches == 0) {
        return core_err_set(-EINVAL, "a step needs at least one micro-batch");
    }
    if (wishes->weight_slots == 1 || wishes->weight_slots > PLAN_SLOT_MAX ||
        wishes->state_slots > PLAN_SLOT_MAX) {
        return core_err_set(-EINVAL,
                            "%u weight slots and %u state slots are not possible; 2 to %d "
                            "and 1 to %d are",
                            wishes->weight_slots, wishes->state_slots, PLAN_SLOT_MAX,
                            PLAN_SLOT_MAX);
    }
    if (wishes->chunk_elements % CHUNK_UNIT != 0) {
        return core_err_set(-EINVAL, "a chunk of %" PRIu64 " elements is not a multiple of %d",
                            wishes->chunk_elements, CHUNK_UNIT);
    }
    if (wishes->timing == PLAN_TIMING_INSIDE && (wishes->may_clip || wishes->may_skip)) {
        return core_err_set(-EINVAL, "updates inside backward need a step that is neither clipped "
                                     "nor skipped; deferred updates allow both");
    }
    bool wants_store = wishes->weights == PLAN_WHERE_STORE || wishes->states == PLAN_WHERE_STORE ||
                       wishes->acts == PLAN_ACTS_STORE;
    if (wants_store && input->budgets.store_bytes == 0) {
        return core_err_set(-EINVAL, "a placement in STORE needs a store");
    }
    if (wishes->states == PLAN_WHERE_DEVICE || wishes->grads == PLAN_WHERE_DEVICE ||
        wishes->grads == PLAN_WHERE_STORE) {
        return core_err_set(-EINVAL, "states lie in HOST or STORE and gradients in HOST");
    }
    return 0;
}

static int refuse(const struct plan_input *input, const struct need *need)
{
    const struct plan_budgets *budgets = &input->budgets;
    return core_err_set(-EFBIG,
                        "it cannot fit: the least it needs is device %" PRIu64 ", host %" PRIu64
                        ", store %" PRIu64 " bytes; the budgets are %" PRIu64 ", %" PRIu64
                        " and %" PRIu64,
                        need->device_bytes, need->host_bytes, need->store_bytes,
                        budgets->device_bytes, budgets->host_bytes, budgets->store_bytes);
}

int plan_create(const struct plan_input *input, struct plan **out)
{
    struct need need = {0};
    struct plan *best = NULL;
    int rc = check_shapes(input);
    if (rc == 0) {
        rc = check_wishes(input);
    }
    if (rc == 0) {
        rc = try_policies(input, &need, &best);
    }
    if (rc == 0 && best == NULL) {
        rc = refuse(input, &need);
    }
    if (rc == 0) {
        rc = try_slots(input, &need, &best);
    }
    if (rc == 0) {
        rc = build_all(input, best);
    }
    if (rc != 0) {
        plan_destroy(best);
        return rc;
    }
    *out = best;
    return 0;
}

/* ---- reading ---- */

enum plan_acts plan_chosen_acts(const struct plan *plan)
{
    return plan->choice.acts;
}

enum plan_order plan_chosen_order(const struct plan *plan)
{
    return plan->choice.order;
}

enum plan_timing plan_chosen_timing(const struct plan *plan)
{
    return plan->choice.timing;
}

const struct plan_block_place *plan_block_place(const struct plan *plan, uint32_t block)
{
    return &plan->layout->places[block];
}

uint64_t plan_tier_bytes(const struct plan *plan, enum plan_tier tier)
{
    return plan->layout->tier_bytes[tier];
}

uint64_t plan_chunk_elements(const struct plan *plan)
{
    return plan->choice.chunk_elements;
}

uint32_t plan_buffer_count(const struct plan *plan)
{
    return plan->layout->count;
}

const struct plan_buffer *plan_buffer(const struct plan *plan, uint32_t index)
{
    assert(index < plan->layout->count);
    return &plan->layout->buffers[index];
}

const struct plan_tape *plan_tape(const struct plan *plan, enum plan_kind before,
                                  enum plan_kind kind)
{
    const struct plan_tape *tape = &plan->tapes[before][kind];
    return tape->commands != NULL ? tape : NULL;
}

const struct plan_prediction *plan_predicted(const struct plan *plan)
{
    return &plan->predicted;
}
