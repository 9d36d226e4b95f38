/* setup.c: turns public options into internal ones, and makes the plan. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "offload/api/abi.h"
#include "offload/api/build.h"
#include "offload/api/setup_parts.h"
#include "offload/run/checkpoint.h"
#include "offload/run/machine.h"

/* A plan without given budgets or machine may be slower than the fastest by this share, to save
 * memory. */
static const double thrift = 0.05;

static const enum plan_where places[] = {[TIDE_AUTO] = PLAN_WHERE_AUTO,
                                         [TIDE_DEVICE] = PLAN_WHERE_DEVICE,
                                         [TIDE_HOST] = PLAN_WHERE_HOST,
                                         [TIDE_STORE] = PLAN_WHERE_STORE};

/* ---- options ---- */

enum core_update_rule setup_rule(uint32_t optimizer)
{
    static const enum core_update_rule rules[] = {[TIDE_ADAMW] = CORE_UPDATE_ADAMW,
                                                  [TIDE_ADAM] = CORE_UPDATE_ADAM,
                                                  [TIDE_LION] = CORE_UPDATE_LION,
                                                  [TIDE_ADAGRAD] = CORE_UPDATE_ADAGRAD,
                                                  [TIDE_SGD] = CORE_UPDATE_SGD};
    return rules[optimizer];
}

enum core_update_type setup_moments(uint32_t moments)
{
    static const enum core_update_type types[] = {[TIDE_MOMENTS_FP32] = CORE_UPDATE_F32,
                                                  [TIDE_MOMENTS_BF16] = CORE_UPDATE_BF16,
                                                  [TIDE_MOMENTS_8BIT] = CORE_UPDATE_Q8};
    return types[moments];
}

/* Tokens that a pair has room for. A resumed run keeps the checkpoint's number if possible, because
 * results depend on that number. */
static int64_t pair_length_of(const struct tide_engine_options *given)
{
    const uint64_t longest = 2 * (uint64_t)given->length;
    const uint64_t both = given->pair_length > 0 ? given->pair_length : longest;
    const uint64_t needed = both > given->length ? both : given->length;
    const uint64_t before = given->resume != NULL ? run_checkpoint_shape(given->resume).pair_length
                                                  : 0;
    return (int64_t)(before > needed && before <= longest ? before : needed);
}

static void fill_training(const struct tide_engine_options *given, struct run_options *out)
{
    static const enum model_storage bases[] = {[TIDE_BASE_PLAIN] = MODEL_STORAGE_PLAIN,
                                               [TIDE_BASE_BF16] = MODEL_STORAGE_BF16,
                                               [TIDE_BASE_INT8] = MODEL_STORAGE_INT8,
                                               [TIDE_BASE_NF4] = MODEL_STORAGE_NF4};
    static const enum kern_type types[] = {
        [TIDE_BF16] = KERN_BF16, [TIDE_FP16] = KERN_FP16, [TIDE_FP32] = KERN_F32};
    out->seed = given->seed;
    out->pairs = given->loss == TIDE_LOSS_DPO ? given->batch : 0;
    out->rows = out->pairs > 0 ? 2 * out->pairs : given->batch;
    out->beta = given->dpo_beta > 0 ? given->dpo_beta : 0.1;
    out->length = given->length;
    if (out->pairs > 0) {
        out->row_length = out->length;
        out->length = pair_length_of(given);
    }
    out->micro_batches = given->accum > 0 ? given->accum : 1;
    out->tile_bytes = given->tile_bytes;
    out->type = types[given->precision];
    out->rule = setup_rule(given->optimizer);
    out->moments = setup_moments(given->moments);
    out->base = bases[given->base];
    out->keep_base = given->no_keep_base == 0;
    out->gradients_fp32 = given->gradients_fp32 != 0;
    out->group = (struct adam_group){.beta1 = given->beta1,
                                     .beta2 = given->beta2,
                                     .eps = given->eps,
                                     .decay = given->decay,
                                     .bias_correction = given->no_bias_correction == 0};
    out->decay_all = given->decay_all != 0;
    out->clip = given->clip;
    out->straggler = given->straggler;
    out->numa_off = given->numa_off != 0;
    out->may_skip = out->type == KERN_FP16 || given->check_overflow != 0;
    out->scale = (struct run_scale_options){
        .fixed = given->loss_scale,
        .first = given->initial_loss_scale > 0 ? given->initial_loss_scale : SETUP_FIRST_SCALE,
        .least = given->min_loss_scale > 0 ? given->min_loss_scale : SETUP_LEAST_SCALE,
        .window = given->scale_window > 0 ? given->scale_window : 1000,
        .hysteresis = given->hysteresis > 0 ? given->hysteresis : 2,
        .consecutive_hysteresis = given->consecutive_hysteresis != 0,
    };
}

static void fill_wishes(const struct tide_engine_options *given, struct plan_wishes *out)
{
    static const enum plan_acts acts[] = {[TIDE_ACTS_AUTO] = PLAN_ACTS_AUTO,
                                          [TIDE_ACTS_KEEP] = PLAN_ACTS_KEEP,
                                          [TIDE_ACTS_RECOMPUTE] = PLAN_ACTS_RECOMPUTE,
                                          [TIDE_ACTS_HOST] = PLAN_ACTS_HOST,
                                          [TIDE_ACTS_STORE] = PLAN_ACTS_STORE};
    static const enum plan_order orders[] = {[TIDE_ORDER_AUTO] = PLAN_ORDER_AUTO,
                                             [TIDE_ORDER_LAYER] = PLAN_ORDER_LAYER,
                                             [TIDE_ORDER_MICRO] = PLAN_ORDER_MICRO};
    static const enum plan_timing timings[] = {[TIDE_TIMING_AUTO] = PLAN_TIMING_AUTO,
                                               [TIDE_TIMING_DEFERRED] = PLAN_TIMING_DEFERRED,
                                               [TIDE_TIMING_INSIDE] = PLAN_TIMING_INSIDE,
                                               [TIDE_TIMING_SPLIT] = PLAN_TIMING_SPLIT,
                                               [TIDE_TIMING_SPECULATIVE] = PLAN_TIMING_SPECULATIVE};
    *out = (struct plan_wishes){
        .acts = acts[given->acts],
        .order = orders[given->order],
        .timing = timings[given->timing],
        .weights = places[given->weights],
        .states = places[given->states],
        .grads = places[given->grads],
        .weight_slots = given->weight_slots,
        .state_slots = given->state_slots,
        .chunk_elements = given->chunk_elements,
        .thrift = given->device_bytes == 0 && given->host_bytes == 0 && given->machine == NULL
                      ? thrift
                      : 0,
        .saves = given->saves != 0,
        .may_split = true,
    };
}

/* ---- setup ---- */

static int copy_text(const char *from, char **out)
{
    if (from == NULL) {
        return 0;
    }
    *out = strdup(from);
    return *out != NULL ? 0 : core_err_set(-ENOMEM, "no memory for a name");
}

static int copy_texts(struct setup *setup)
{
    const struct tide_engine_options *given = &setup->given;
    int rc = copy_text(given->device != NULL ? given->device : "cpu", &setup->texts[0]);
    if (rc != 0) {
        return rc;
    }
    rc = copy_text(given->io, &setup->texts[1]);
    if (rc != 0) {
        return rc;
    }
    rc = copy_text(given->model, &setup->folder);
    if (rc != 0) {
        return rc;
    }
    rc = copy_text(given->trace, &setup->trace);
    if (rc != 0) {
        return rc;
    }
    rc = copy_text(given->cache, &setup->cache);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; i < given->store_count; i++) {
        rc = copy_text(given->stores[i].directory, &setup->texts[2 + i]);
        if (rc != 0) {
            return rc;
        }
    }
    setup->options.device = setup->texts[0];
    setup->options.io = setup->texts[1];
    snprintf(setup->build, sizeof setup->build, "tide %s %s", api_build_version, api_build_commit);
    setup->options.cache = (struct run_cache){
        .folder = setup->cache, .build = setup->build, .renew = given->measure != 0};
    return rc;
}

int setup_init(struct setup *setup, const struct tide_engine_options *options, bool weights)
{
    *setup = (struct setup){.model = NULL};
    int rc = abi_struct_read("tide_engine_options", options, &setup->given, sizeof setup->given);
    if (rc != 0) {
        return rc;
    }
    rc = setup_read_stores(setup);
    if (rc != 0) {
        return rc;
    }
    rc = setup_check(&setup->given, weights);
    if (rc != 0) {
        return rc;
    }
    rc = copy_texts(setup);
    if (rc != 0) {
        return rc;
    }
    fill_training(&setup->given, &setup->options);
    fill_wishes(&setup->given, &setup->options.wishes);
    rc = setup_init_ranks(setup, weights);
    if (rc != 0) {
        return rc;
    }
    rc = setup_open_model(setup, weights);
    return rc == 0 ? setup_fill_stores(setup, weights) : rc;
}

int setup_init_stores(struct setup *setup)
{
    int rc = setup_read_stores(setup);
    if (rc != 0) {
        return rc;
    }
    rc = copy_texts(setup);
    if (rc != 0) {
        return rc;
    }
    rc = setup_fill_stores(setup, true);
    setup->options.budgets.store_bytes = store_capacity(setup->options.stores,
                                                        setup->options.store_count);
    return rc;
}

int setup_plan(struct setup *setup)
{
    struct run_rates rates;
    const char *path = setup->given.rates;
    const bool known = path != NULL || setup->given.machine != NULL;
    int rc = setup_fill_budgets(setup);
    if (rc == 0 && path != NULL) {
        rc = run_rates_read(path, &rates);
    }
    if (rc != 0) {
        return rc;
    }
    if (setup->given.machine != NULL) {
        rates = run_machine_rates(&setup->machine, &setup->options);
    }
    if (!known && setup->peers != NULL && dev_is_cpu(setup->options.device)) {
        rc = setup_measure_peers(setup);
        if (rc != 0) {
            return rc;
        }
    }
    return run_prepared_create(setup->model, &setup->options, known ? &rates : NULL,
                               &setup->prepared);
}

void setup_fini(struct setup *setup)
{
    run_prepared_destroy(setup->prepared);
    model_files_close(setup->files);
    model_peft_close(setup->peft);
    model_destroy(setup->model);
    for (size_t i = 0; i < sizeof setup->texts / sizeof setup->texts[0]; i++) {
        free(setup->texts[i]);
    }
    free(setup->folder);
    free(setup->trace);
    free(setup->cache);
    *setup = (struct setup){.model = NULL};
}
