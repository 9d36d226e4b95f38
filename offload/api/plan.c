/* plan.c: tide_plan_*: makes and describes a plan without running a step. The caller's thread. */
#include "offload/api/plan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "offload/api/abi.h"
#include "offload/api/context.h"
#include "offload/plan/explain.h"
#include "offload/plan/layout.h"
#include "offload/plan/print.h"
#include "offload/plan/trace.h"
#include "offload/run/base.h"
#include "offload/run/what_if.h"

enum { TRACED_STEPS = 3 };

static int find_base(struct tide_plan *plan)
{
    const struct setup *setup = plan->setup;
    struct model_files *files = NULL;
    if (setup->given.machine != NULL) {
        return 0;
    }
    const struct core_err before = core_err_keep(-ENOENT);
    int rc = model_files_open(setup->given.model, &files);
    if (rc == -ENOMEM) {
        return rc;
    }
    if (rc != 0) { /* no error: a plan needs no weights */
        (void)core_err_first(&before, 0);
        return 0;
    }
    const struct run_base base = {.options = &setup->options,
                                  .prepared = setup->prepared,
                                  .model = setup->model,
                                  .files = files,
                                  .folder = setup->given.model};
    rc = run_base_bytes(&base, &plan->base_exists, &plan->base_bytes);
    model_files_close(files);
    return rc;
}

static int create(const struct tide_engine_options *options, struct tide_plan **out)
{
    struct tide_plan *plan = calloc(1, sizeof *plan);
    struct setup *setup = calloc(1, sizeof *setup);
    int rc = plan != NULL && setup != NULL ? setup_init(setup, options, false)
                                           : core_err_set(-ENOMEM, "no memory for a plan");
    if (rc == 0) {
        rc = setup_plan(setup);
    }
    if (rc == 0) {
        plan->setup = plan->owned = setup;
        rc = find_base(plan);
    }
    if (rc != 0) {
        const struct core_err kept = core_err_keep(rc);
        if (setup != NULL) {
            setup_fini(setup);
        }
        free(setup);
        free(plan);
        return core_err_first(&kept, 0);
    }
    *out = plan;
    return 0;
}

int tide_plan_create(struct tide_context *context, const struct tide_engine_options *options,
                     struct tide_plan **out)
{
    const struct context_before before = context_enter(context);
    int rc = abi_pointer_check("`out`", out);
    if (rc == 0) {
        rc = create(options, out);
    }
    context_leave(&before);
    return rc;
}

void tide_plan_destroy(struct tide_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    setup_fini(plan->owned);
    free(plan->owned);
    free(plan);
}

/* Returns the tape of a step in the middle of a run. */
static const struct plan_tape *steady_tape(const struct plan *plan)
{
    const enum plan_kind kind = plan_steady(plan);
    return plan_tape(plan, kind, kind);
}

static uint64_t sectioned_blocks(const struct plan_input *input, const struct plan_layout *layout)
{
    uint64_t count = 0;
    for (uint32_t b = 0; b < input->block_count; b++) {
        count += plan_layout_sectioned(input, layout, b) != PLAN_NONE;
    }
    return count;
}

int tide_plan_describe(const struct tide_plan *from, struct tide_plan_info *out)
{
    if (from == NULL) {
        return core_err_set(-EINVAL, "the plan is NULL");
    }
    const struct setup *setup = from->setup;
    const struct run_prepared *prepared = setup->prepared;
    const struct plan *plan = prepared->plan;
    const struct plan_prediction *predicted = plan_predicted(plan);
    const struct plan_layout *layout = plan_layout_of(plan);
    const double full_tokens = (setup->options.pairs > 0 ? 2.0 : 1.0) * (double)setup->given.length;
    const double row_tokens = setup->given.tokens_per_row > 0 ? setup->given.tokens_per_row
                                                              : full_tokens;
    const double tokens = setup->given.batch * row_tokens * setup->options.micro_batches *
                          setup->options.world;
    struct tide_plan_info info = {
        .parameters = setup->model->parameters,
        .trained_parameters = setup->model->trained_parameters,
        .device_bytes = run_prepared_bytes(prepared, PLAN_DEVICE) * setup->options.local,
        .host_bytes = run_prepared_bytes(prepared, PLAN_HOST) * setup->options.local,
        .store_bytes = run_prepared_bytes(prepared, PLAN_STORE) * setup->options.local,
        .acts = plan_chosen_acts(plan),
        .order = plan_chosen_order(plan),
        .timing = plan_chosen_timing(plan),
        .weight_slots = layout->weights.counts[PLAN_LAYER],
        .state_slots = plan_layout_slots(layout->state_slots),
        .chunk_elements = plan_chunk_elements(plan),
        .step_seconds = predicted->step_seconds,
        .tokens_per_second = predicted->step_seconds > 0 ? tokens / predicted->step_seconds : 0,
        .store_read_bytes = predicted->store_read_bytes,
        .store_write_bytes = predicted->store_write_bytes,
        .up_bytes = predicted->up_bytes,
        .down_bytes = predicted->down_bytes,
        .commands = steady_tape(plan)->count,
        .plan_seconds = prepared->plan_seconds,
        .clipped_seconds = plan_predicted_clipped(plan)->step_seconds,
        .sectioned_blocks = sectioned_blocks(&prepared->input, layout),
        .gather_bytes = predicted->gather_bytes,
        .reduce_bytes = predicted->reduce_bytes,
        .gather_between_bytes = predicted->gather_between_bytes,
        .reduce_between_bytes = predicted->reduce_between_bytes,
        .kept_base_bytes = from->base_bytes,
        .kept_base_exists = from->base_exists,
        .reduce = setup->options.codes  ? TIDE_REDUCE_INT4
                  : setup->options.fast ? TIDE_REDUCE_FAST
                                        : TIDE_REDUCE_EXACT,
    };
    _Static_assert((int)TIDE_ACTS_STORE == (int)PLAN_ACTS_STORE &&
                       (int)TIDE_ORDER_MICRO == (int)PLAN_ORDER_MICRO &&
                       (int)TIDE_TIMING_SPECULATIVE == (int)PLAN_TIMING_SPECULATIVE,
                   "choices are the same inside and outside");
    plan_bottleneck_print(predicted, info.bottleneck, sizeof info.bottleneck);
    return abi_struct_write("tide_plan_info", &info, sizeof info, out);
}

/* ---- memory by tier and consumer ---- */

/* The index-th pair of tier and consumer with bytes. */
static int find_part(const struct run_prepared *prepared, unsigned index,
                     struct tide_plan_part *out)
{
    static const enum tide_place places[] = {
        [PLAN_DEVICE] = TIDE_DEVICE, [PLAN_HOST] = TIDE_HOST, [PLAN_STORE] = TIDE_STORE};
    unsigned seen = 0;
    for (int tier = 0; tier < PLAN_TIER_COUNT; tier++) {
        for (int consumer = 0; consumer < PLAN_CONSUMER_COUNT; consumer++) {
            const uint64_t bytes = plan_consumer_bytes(&prepared->input, prepared->plan,
                                                       (enum plan_tier)tier,
                                                       (enum plan_consumer)consumer);
            if (bytes > 0 && seen++ == index) {
                *out = (struct tide_plan_part){.tier = places[tier], .bytes = bytes};
                snprintf(out->what, sizeof out->what, "%s",
                         plan_consumer_name((enum plan_consumer)consumer));
                return 0;
            }
        }
    }
    return core_err_set(-ENOENT, "part %u does not exist; the plan has %u", index, seen);
}

int tide_plan_part_at(const struct tide_plan *plan, unsigned index, struct tide_plan_part *out)
{
    struct tide_plan_part part;
    if (plan == NULL) {
        return core_err_set(-EINVAL, "the plan is NULL");
    }
    int rc = find_part(plan->setup->prepared, index, &part);
    if (rc != 0) {
        return rc;
    }
    return abi_struct_write("tide_plan_part", &part, sizeof part, out);
}

int tide_plan_alternative_at(const struct tide_plan *plan, unsigned index,
                             struct tide_plan_alternative *out)
{
    if (plan == NULL) {
        return core_err_set(-EINVAL, "the plan is NULL");
    }
    const struct run_prepared *prepared = plan->setup->prepared;
    const uint64_t ranks = plan->setup->options.local;
    struct plan_alternative found;
    if (!plan_alternative(prepared->plan, index, &found)) {
        return core_err_set(-ENOENT, "alternative %u does not exist", index);
    }
    struct tide_plan_alternative made = {.acts = found.acts,
                                         .order = found.order,
                                         .timing = found.timing,
                                         .step_seconds = found.step_seconds,
                                         .device_bytes = found.device_bytes * ranks,
                                         .host_bytes = found.host_bytes * ranks,
                                         .store_write_bytes = found.store_write_bytes};
    (void)plan_alternative_print(&prepared->input, prepared->plan, &found, made.why,
                                 sizeof made.why);
    return abi_struct_write("tide_plan_alternative", &made, sizeof made, out);
}

int tide_plan_what_if_at(const struct tide_plan *plan, unsigned index,
                         struct tide_plan_what_if *out)
{
    struct tide_plan_what_if made = {.step_seconds = 0};
    if (plan == NULL) {
        return core_err_set(-EINVAL, "the plan is NULL");
    }
    int rc = abi_struct_check("tide_plan_what_if", out);
    if (rc != 0) {
        return rc;
    }
    const struct run_prepared *prepared = plan->setup->prepared;
    rc = run_what_if(prepared, index, &made.step_seconds);
    if (rc != 0) {
        return rc;
    }
    snprintf(made.part, sizeof made.part, "%s", run_what_if_part(prepared, index));
    return abi_struct_write("tide_plan_what_if", &made, sizeof made, out);
}

int tide_plan_tape_line(const struct tide_plan *plan, unsigned index, char *text, size_t bytes)
{
    if (plan == NULL || text == NULL || bytes == 0) {
        return core_err_set(-EINVAL, "a line of a tape needs a plan and a buffer");
    }
    const struct run_prepared *prepared = plan->setup->prepared;
    const struct plan_tape *tape = steady_tape(prepared->plan);
    if (index >= tape->count) {
        return core_err_set(-ENOENT, "command %u does not exist; the tape has %u", index,
                            tape->count);
    }
    (void)plan_print_command(&prepared->input, prepared->plan, &tape->commands[index], text, bytes);
    return 0;
}

int tide_plan_rates(const struct tide_plan *plan, const char *path)
{
    if (plan == NULL || path == NULL) {
        return core_err_set(-EINVAL, "rates need a plan and a path");
    }
    return run_rates_write(path, &plan->setup->prepared->rates);
}

int tide_plan_forget(const struct tide_plan *plan)
{
    if (plan == NULL) {
        return core_err_set(-EINVAL, "the plan is NULL");
    }
    run_rates_forget(plan->setup->prepared->shapes, &plan->setup->options);
    return 0;
}

int tide_plan_trace(const struct tide_plan *plan, const char *path)
{
    if (plan == NULL || path == NULL) {
        return core_err_set(-EINVAL, "a timeline needs a plan and a path");
    }
    const struct run_prepared *prepared = plan->setup->prepared;
    return plan_trace_predict(&prepared->input, prepared->plan, TRACED_STEPS, path);
}
