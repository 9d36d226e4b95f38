/* finetune_settings.c: defaults, then the configuration, then the flags. */
#include "tools/tide/finetune_settings.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cfg.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "tools/tide/finetune_config.h"
#include "tools/tide/finetune_place.h"

static void take_defaults(struct tune_settings *settings, const struct tune_flags *flags)
{
    (void)tide_engine_options_init(&settings->engine, sizeof settings->engine);
    settings->engine.batch = 8;
    settings->engine.accum = 1;
    settings->engine.precision = TIDE_BF16;
    settings->engine.seed = flags->seed != CORE_CFG_NONE ? (uint64_t)flags->seed : 42;
    settings->schedule = (struct schedule){.kind = SCHEDULE_CONSTANT, .lr = 5e-5};
    settings->total_unknown = true;
    settings->print_every = 1;
    settings->shuffle = flags->shuffle;
    settings->pack = flags->pack;
    settings->split = flags->split;
    settings->skip_bad = flags->on_bad_row == 1;
    settings->train_on_all = flags->train_on == 1;
    settings->chat_format = flags->chat_format;
    settings->csv = flags->csv;
    settings->board = flags->tensorboard;
    settings->steps = flags->steps != CORE_CFG_NONE ? flags->steps : 0;
    settings->epochs = settings->steps > 0 ? 0 : isnan(flags->epochs) ? 1 : flags->epochs;
}

/* Says that a flag and a key contradict each other, where they do. */
static void tell_winner(const struct tune_settings *settings, const char *flag, const char *key)
{
    struct core_cfg_note note;
    if (tune_config_given(settings, key, &note)) {
        core_log(CORE_LOG_WARN, "--%s wins over %s: %s in %s, line %zu", flag, key,
                 note.value != NULL ? note.value : "", core_cfg_source(settings->cfg), note.line);
    }
}

static void take_real(const struct tune_settings *settings, const char *flag, const char *key,
                      double value, double *out)
{
    if (!isnan(value)) {
        if (value != *out) {
            tell_winner(settings, flag, key);
        }
        *out = value;
    }
}

/* train = micro x accumulation x ranks. One of the flags alone keeps the file's train_batch_size,
 * where the file leaves the other one open. */
static int take_batch(struct tune_settings *settings, const struct tune_flags *flags)
{
    struct tide_engine_options *engine = &settings->engine;
    static const char *const keys[] = {"train_micro_batch_size_per_gpu",
                                       "gradient_accumulation_steps"};
    const int64_t asked[] = {flags->batch, flags->accum};
    uint32_t *const out[] = {&engine->batch, &engine->accum};
    struct core_cfg_note note;
    for (int i = 0; i < 2; i++) {
        if (asked[i] == CORE_CFG_NONE || asked[i] == *out[i]) {
            continue;
        }
        tell_winner(settings, i == 0 ? "batch" : "accum", keys[i]);
        *out[i] = (uint32_t)asked[i];
        if (asked[1 - i] != CORE_CFG_NONE || tune_config_given(settings, keys[1 - i], &note) ||
            !tune_config_given(settings, "train_batch_size", &note)) {
            continue;
        }
        const int64_t train = settings->cfg->train_batch_size;
        const int64_t unit = asked[i] * (engine->ranks > 0 ? engine->ranks : 1);
        if (train % unit != 0) {
            return core_err_set(-EINVAL,
                                "train_batch_size: %" PRId64
                                " of %s is no multiple of --%s %" PRId64 " x %" PRIu32
                                " ranks; give --batch and --accum",
                                train, core_cfg_source(settings->cfg), i == 0 ? "batch" : "accum",
                                asked[i], engine->ranks > 0 ? engine->ranks : 1);
        }
        *out[1 - i] = (uint32_t)(train / unit);
    }
    const int64_t rows = (int64_t)engine->batch * engine->accum *
                         (engine->ranks > 0 ? engine->ranks : 1);
    if (tune_config_given(settings, "train_batch_size", &note) &&
        rows != settings->cfg->train_batch_size) {
        core_log(CORE_LOG_WARN,
                 "a step has %" PRId64 " rows (--batch, --accum), not the train_batch_size: %s of "
                 "%s, line %zu",
                 rows, note.value, core_cfg_source(settings->cfg), note.line);
    }
    return 0;
}

/* Numbers that belong to a type of optimizer, where nobody gave others. */
static void take_type_defaults(struct tune_settings *settings, const struct tune_flags *flags)
{
    struct tide_engine_options *engine = &settings->engine;
    struct core_cfg_note note;
    if (flags->optimizer == TIDE_LION && flags->betas == NULL &&
        !tune_config_given(settings, "optimizer.params.betas", &note)) {
        engine->beta2 = 0.99;
    }
    if (flags->optimizer == TIDE_ADAGRAD && isnan(flags->eps) &&
        !tune_config_given(settings, "optimizer.params.eps", &note)) {
        engine->eps = 1e-10;
    }
}

static int take_learning(struct tune_settings *settings, const struct tune_flags *flags)
{
    struct tide_engine_options *engine = &settings->engine;
    take_real(settings, "eps", "optimizer.params.eps", flags->eps, &engine->eps);
    take_real(settings, "weight-decay", "optimizer.params.weight_decay", flags->decay,
              &engine->decay);
    take_real(settings, "clip", "gradient_clipping", flags->clip, &engine->clip);
    if (flags->betas != NULL) {
        double betas[2];
        if (tune_betas_parse(flags->betas, &betas[0], &betas[1]) != 0) {
            return -EINVAL;
        }
        if (betas[0] != engine->beta1 || betas[1] != engine->beta2) {
            tell_winner(settings, "betas", "optimizer.params.betas");
        }
        engine->beta1 = betas[0];
        engine->beta2 = betas[1];
    }
    if (flags->optimizer >= 0 && (uint32_t)flags->optimizer != engine->optimizer) {
        tell_winner(settings, "optimizer", "optimizer.type");
        engine->optimizer = (uint32_t)flags->optimizer;
    }
    take_type_defaults(settings, flags);
    if (flags->precision >= 0 && (uint32_t)flags->precision != engine->precision) {
        tell_winner(settings, "precision",
                    engine->precision == TIDE_FP16 ? "fp16.enabled" : "bf16.enabled");
        engine->precision = (uint32_t)flags->precision;
    }
    if (flags->moments >= 0 && (uint32_t)flags->moments != engine->moments) {
        tell_winner(settings, "moments", "bf16.bf16_optimizer_states");
        engine->moments = (uint32_t)flags->moments;
    }
    engine->gradients_fp32 |= flags->gradients_fp32;
    engine->frozen = flags->frozen.items;
    engine->frozen_count = flags->frozen.count;
    return 0;
}

/* Schedules of the configuration that set rates by themselves. */
static bool has_own_rates(const struct schedule *schedule)
{
    return schedule->kind == SCHEDULE_ONE_CYCLE || schedule->kind == SCHEDULE_LR_RANGE_TEST;
}

/* A schedule that moves betas needs an optimizer that has them, and nobody who gave them by flag. */
static void take_moving_betas(struct tune_settings *settings, const struct tune_flags *flags)
{
    struct schedule *schedule = &settings->schedule;
    const uint32_t optimizer = settings->engine.optimizer;
    if (!schedule->moves_beta) {
        return;
    }
    struct core_cfg_note note;
    if (optimizer == TIDE_SGD || optimizer == TIDE_ADAGRAD) {
        core_log(CORE_LOG_WARN,
                 "scheduler.params.cycle_momentum has no effect: the optimizer has no betas");
        schedule->moves_beta = false;
    } else if (flags->betas != NULL) {
        core_log(CORE_LOG_WARN,
                 "--betas wins over scheduler.params.cycle_momentum: they do not move");
        schedule->moves_beta = false;
    } else if (tune_config_given(settings, "optimizer.params.betas", &note)) {
        core_log(CORE_LOG_WARN,
                 "optimizer.params.betas in %s, line %zu, has no effect: OneCycle moves the first "
                 "beta and sets the second to %g",
                 core_cfg_source(settings->cfg), note.line, schedule_beta2);
    }
}

/* A first beta that grows after the cycle must stay below one to the last step. */
static int check_moving_betas(const struct tune_settings *settings, int64_t steps)
{
    const struct schedule *schedule = &settings->schedule;
    if (!schedule->moves_beta || steps <= 0 || schedule_beta1(schedule, steps - 1) < 1) {
        return 0;
    }
    return core_err_set(-EINVAL,
                        "%s: scheduler.params.decay_mom_rate %g lets the first beta grow to %g by "
                        "step %" PRId64 "; below 1 is possible",
                        core_cfg_source(settings->cfg), schedule->beta_decay_rate,
                        schedule_beta1(schedule, steps - 1), steps);
}

static void take_schedule(struct tune_settings *settings, const struct tune_flags *flags)
{
    struct schedule *schedule = &settings->schedule;
    if (flags->schedule >= 0) {
        tell_winner(settings, "schedule", "scheduler.type");
        *schedule = (struct schedule){.kind = (enum schedule_kind)flags->schedule,
                                      .lr = has_own_rates(schedule) ? settings->cfg->optimizer.lr
                                                                    : schedule->lr};
        settings->total_unknown = true;
    }
    take_moving_betas(settings, flags);
    if (has_own_rates(schedule)) {
        if (!isnan(flags->lr) || flags->warmup != CORE_CFG_NONE) {
            core_log(CORE_LOG_WARN, "--lr and --warmup have no effect: %s of %s sets all rates",
                     schedule_name(schedule->kind), core_cfg_source(settings->cfg));
        }
        return;
    }
    const bool max_counts = schedule->kind == SCHEDULE_WARMUP ||
                            schedule->kind == SCHEDULE_WARMUP_DECAY;
    struct core_cfg_note note;
    take_real(settings, "lr",
              max_counts && tune_config_given(settings, "scheduler.params.warmup_max_lr", &note)
                  ? "scheduler.params.warmup_max_lr"
                  : "optimizer.params.lr",
              flags->lr, &schedule->lr);
    if (flags->warmup != CORE_CFG_NONE && flags->warmup != schedule->warmup) {
        tell_winner(settings, "warmup", "scheduler.params.warmup_num_steps");
        schedule->warmup = flags->warmup;
    }
}

static int take_memory(struct tune_settings *settings, const struct tune_flags *flags)
{
    struct tide_engine_options *engine = &settings->engine;
    const struct {
        const char *flag;
        uint64_t value;
        uint64_t *out;
    } sizes[] = {{"device-memory", flags->device_bytes, &engine->device_bytes},
                 {"host-memory", flags->host_bytes, &engine->host_bytes},
                 {"tile-bytes", flags->tile_bytes, &engine->tile_bytes}};
    for (size_t i = 0; i < 3; i++) {
        if (sizes[i].value == 0) {
            return core_err_set(-EINVAL,
                                "--%s 0: nothing fits into 0 bytes; leave it out to take "
                                "the default",
                                sizes[i].flag);
        }
        *sizes[i].out = sizes[i].value == TUNE_SIZE_NONE ? *sizes[i].out : sizes[i].value;
    }
    for (size_t i = 0; i < flags->stores.count; i++) {
        size_t at = engine->store_count < TIDE_STORES_MAX ? engine->store_count : 0;
        if (tune_store_parse(flags->stores.items[i], engine, settings->store_paths,
                             settings->stores[at], TUNE_PATH_BYTES) != 0) {
            return -EINVAL;
        }
    }
    if (flags->place != NULL && tune_place_parse(flags->place, engine) != 0) {
        return -EINVAL;
    }
    const bool wants_store = engine->weights == TIDE_STORE || engine->states == TIDE_STORE ||
                             engine->grads == TIDE_STORE || engine->acts == TIDE_ACTS_STORE;
    if (wants_store && engine->store_count == 0) {
        return core_err_set(-EINVAL, "something is to lie in the store, and there is none: give "
                                     "--store DIR, a directory on a drive");
    }
    return 0;
}

/* Where programs keep what they can find out again: XDG's base directories. */
static void find_cache(struct tune_settings *settings)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    const bool given = cache != NULL && cache[0] == '/'; /* others are to be ignored */
    int length = given ? snprintf(settings->cache, sizeof settings->cache, "%s/tide", cache)
                 : home != NULL && home[0] == '/'
                     ? snprintf(settings->cache, sizeof settings->cache, "%s/.cache/tide", home)
                     : 0;
    const bool fits = length > 0 && length < (int)sizeof settings->cache;
    settings->engine.cache = fits ? settings->cache : NULL;
}

static int take_machine(struct tune_settings *settings, const struct tune_flags *flags)
{
    struct tide_engine_options *engine = &settings->engine;
    static const char *const backends[] = {"uring", "libaio", "threads", "mem"};
    bool known = flags->io == NULL;
    for (size_t i = 0; i < 4 && !known; i++) {
        known = strcmp(flags->io, backends[i]) == 0;
    }
    if (!known) {
        return core_err_set(-EINVAL, "--io takes one of uring|libaio|threads|mem, not \"%s\"",
                            flags->io);
    }
    if (flags->device != NULL && strcmp(flags->device, "cpu") != 0 &&
        strcmp(flags->device, "cuda") != 0 && strncmp(flags->device, "cuda:", 5) != 0) {
        return core_err_set(-EINVAL, "--dev takes one of cpu|cuda|cuda:N, not \"%s\"",
                            flags->device);
    }
    engine->io = flags->io;
    engine->stores_must_exist = !flags->make_store;
    engine->device = flags->device;
    engine->model = flags->model;
    engine->rates = flags->rates;
    engine->measure = flags->measure;
    find_cache(settings);
    engine->trace = flags->trace;
    engine->threads = flags->threads != CORE_CFG_NONE ? (uint32_t)flags->threads : 0;
    engine->ranks = flags->ranks != CORE_CFG_NONE ? (uint32_t)flags->ranks : 1;
    if (flags->zero != CORE_CFG_NONE) {
        if (flags->zero != (int64_t)engine->zero_stage) {
            tell_winner(settings, "zero", "zero_optimization.stage");
        }
        engine->zero_stage = (uint32_t)flags->zero;
    }
    return 0;
}

static int take_length(struct tune_settings *settings, const struct tune_flags *flags,
                       const struct tide_inspection *model)
{
    settings->vocab = model->vocab;
    settings->length = flags->length != CORE_CFG_NONE ? flags->length : 0;
    if (settings->length > model->positions) {
        return core_err_set(-EINVAL,
                            "--seq-len %" PRId64 ": the model has positions for rows of up "
                            "to %" PRId64 " tokens (max_position_embeddings and RoPE scaling in "
                            "config.json)",
                            settings->length, model->positions);
    }
    settings->length_max = settings->length > 0 ? settings->length : model->positions;
    return 0;
}

int tune_settings_init(struct tune_settings *out, const struct tune_flags *flags,
                       const struct tide_inspection *model)
{
    *out = (struct tune_settings){0};
    take_defaults(out, flags);
    int rc = take_length(out, flags, model);
    if (rc == 0 && flags->config != NULL) {
        rc = tune_config_take(out, flags, model);
    }
    rc = rc != 0 ? rc : take_machine(out, flags);
    rc = rc != 0 ? rc : take_learning(out, flags);
    rc = rc != 0 ? rc : take_batch(out, flags);
    rc = rc != 0 ? rc : take_memory(out, flags);
    if (rc != 0) {
        tune_settings_fini(out);
        return rc;
    }
    take_schedule(out, flags);
    return 0;
}

void tune_settings_fini(struct tune_settings *settings)
{
    core_cfg_destroy(settings->cfg);
    *settings = (struct tune_settings){0};
}

struct tune_data_options tune_settings_data(const struct tune_settings *settings, const char *path,
                                            bool trains)
{
    const struct tide_engine_options *engine = &settings->engine;
    const bool fitted = engine->length > 0; /* no row may be longer than what was planned for */
    return (struct tune_data_options){
        .path = path,
        .model = engine->model,
        .vocab = settings->vocab,
        .length_max = fitted ? engine->length : settings->length_max,
        .cut = settings->length > 0 || fitted,
        .batch = engine->batch,
        .step_max = trains ? engine->accum * engine->ranks : 1,
        .pack = trains && settings->pack,
        .split = settings->split,
        .skip_bad = settings->skip_bad,
        .train_on_all = settings->train_on_all,
        .chat_format = settings->chat_format,
        .drop_last = trains && settings->drop_last,
        .shuffle = trains && settings->shuffle,
        .seed = engine->seed,
        .cache = settings->cache[0] != '\0' ? settings->cache : NULL,
        .steps = trains ? settings->steps : 0,
    };
}

int tune_settings_fit(struct tune_settings *settings, int64_t longest, int64_t steps)
{
    struct schedule *schedule = &settings->schedule;
    int64_t length = settings->length > 0 ? settings->length : longest;
    if (length == 0) {
        length = settings->length_max < TUNE_LENGTH_UNKNOWN ? settings->length_max
                                                            : TUNE_LENGTH_UNKNOWN;
    }
    settings->engine.length = (uint32_t)length;
    if (steps == 0) {
        return 0;
    }
    if (steps > TUNE_STEPS_MAX) {
        return core_err_set(-EINVAL, "--epochs %g are %" PRId64 " steps; at most %d are possible",
                            settings->epochs, steps, TUNE_STEPS_MAX);
    }
    settings->steps = steps;
    if (settings->total_unknown) {
        schedule->total = steps;
    }
    if (schedule->kind == SCHEDULE_WSD) {
        schedule->decay = (steps + 9) / 10;
    }
    int rc = check_moving_betas(settings, steps);
    if (rc != 0) {
        return rc;
    }
    const bool ours = schedule->kind <= SCHEDULE_WSD;
    if (ours && schedule->warmup >= steps) {
        core_log(CORE_LOG_WARN,
                 "--warmup %" PRId64 " is no shorter than the run, %" PRId64
                 " steps: the learning rate does not reach --lr",
                 schedule->warmup, steps);
    }
    return 0;
}
