/* finetune_settings.c: defaults, then the configuration, then the flags. */
#include "tools/tide/finetune_settings.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/config/config.h"
#include "tools/tide/finetune_place.h"

/* `all`: flags that were not given are taken, too, with their defaults. */
static int take_learning(struct finetune_settings *settings, const struct finetune_flags *flags,
                         bool all)
{
    struct tide_engine_options *engine = &settings->engine;
    if ((all || FINETUNE_GIVEN(flags, betas)) &&
        finetune_betas_parse(flags->betas, &engine->beta1, &engine->beta2) != 0) {
        return -EINVAL;
    }
    engine->eps = all || FINETUNE_GIVEN(flags, eps) ? flags->eps : engine->eps;
    engine->decay = all || FINETUNE_GIVEN(flags, decay) ? flags->decay : engine->decay;
    engine->clip = all || FINETUNE_GIVEN(flags, clip) ? flags->clip : engine->clip;
    if (all || FINETUNE_GIVEN(flags, optimizer)) {
        engine->optimizer = (uint32_t)flags->optimizer;
    }
    if (all || FINETUNE_GIVEN(flags, precision)) {
        engine->precision = (uint32_t)flags->precision;
    }
    if (all || FINETUNE_GIVEN(flags, moments)) {
        engine->moments = (uint32_t)flags->moments;
    }
    engine->gradients_fp32 |= flags->gradients_fp32;
    if (FINETUNE_GIVEN(flags, base)) {
        engine->base = TIDE_BASE_BF16 + (uint64_t)flags->base;
    }
    engine->no_keep_base = flags->no_keep_base;
    engine->frozen = flags->freeze.items;
    engine->frozen_count = flags->freeze.count;
    return 0;
}

/* Splits "a,b"; NULL: no names. */
static int take_names(const char *flag, const char *text, struct finetune_names *out)
{
    out->count = 0;
    if (text == NULL) {
        return 0;
    }
    const int length = snprintf(out->text, sizeof out->text, "%s", text);
    char *rest = (size_t)length < sizeof out->text ? out->text : NULL;
    for (char *name; rest != NULL && (name = strsep(&rest, ",")) != NULL;) {
        if (name[0] == '\0' || out->count == FINETUNE_NAMES_MAX) {
            return core_err_set(-EINVAL,
                                "--%s \"%s\": expected up to %d names, none of them empty, with a "
                                "comma between them",
                                flag, text, FINETUNE_NAMES_MAX);
        }
        out->items[out->count++] = name;
    }
    return out->count > 0 ? 0
                          : core_err_set(-EINVAL, "--%s has more than %d characters", flag,
                                         FINETUNE_NAMES_BYTES - 1);
}

static int take_adapters(struct finetune_settings *settings, const struct finetune_flags *flags)
{
    struct tide_engine_options *engine = &settings->engine;
    const bool given = FINETUNE_GIVEN(flags, lora_targets);
    int rc = take_names("lora-targets", given ? flags->lora_targets : NULL,
                        &settings->lora_targets);
    if (rc == 0) {
        rc = take_names("modules-to-save", flags->modules_to_save, &settings->modules_to_save);
    }
    if (rc != 0 || (!FINETUNE_GIVEN(flags, lora) && flags->adapter == NULL)) {
        return rc;
    }
    engine->adapter = flags->adapter;
    engine->lora_rank = (uint32_t)flags->lora;
    engine->lora_alpha = FINETUNE_GIVEN(flags, lora_alpha) ? flags->lora_alpha : 0;
    engine->lora_dropout = flags->lora_dropout;
    engine->lora_rslora = flags->lora_rslora;
    engine->lora_dora = flags->lora_dora;
    engine->lora_targets = settings->lora_targets.items;
    engine->lora_target_count = settings->lora_targets.count;
    engine->modules_to_save = settings->modules_to_save.items;
    engine->modules_to_save_count = settings->modules_to_save.count;
    engine->loss = (uint64_t)flags->loss;
    engine->dpo_beta = flags->loss == TIDE_LOSS_DPO ? flags->dpo_beta : 0;
    return 0;
}

/* Given flags are taken again after the configuration. */
static int take_defaults(struct finetune_settings *settings, const struct finetune_flags *flags)
{
    struct tide_engine_options *engine = &settings->engine;
    (void)tide_engine_options_init(engine, sizeof *engine);
    engine->batch = (uint32_t)flags->batch;
    engine->accum = (uint32_t)flags->accum;
    engine->seed = (uint64_t)flags->seed;
    settings->schedule = (struct schedule){
        .kind = (enum schedule_kind)flags->schedule, .lr = flags->lr, .warmup = flags->warmup};
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
    settings->steps = flags->steps;
    settings->epochs = settings->steps > 0 ? 0 : flags->epochs;
    return take_learning(settings, flags, true);
}

static bool has_changed(const struct finetune_flag_key *key,
                        const struct finetune_settings *settings,
                        const struct finetune_settings *before)
{
    const char *now = key->of_schedule ? (const char *)&settings->schedule
                                       : (const char *)&settings->engine;
    const char *then = key->of_schedule ? (const char *)&before->schedule
                                        : (const char *)&before->engine;
    return memcmp(now + key->at, then + key->at, key->bytes) != 0;
}

/* `before`: the settings of the file. */
static void warn_overridden(const struct finetune_settings *settings,
                            const struct finetune_flags *flags,
                            const struct finetune_settings *before)
{
    for (size_t i = 0; i < finetune_flags_count; i++) {
        const struct finetune_flag *row = &finetune_flags_table[i];
        for (int k = 0; k < 3 && row->keys[k].key != NULL; k++) {
            const struct finetune_flag_key *key = &row->keys[k];
            struct core_cfg_note note;
            if (!cli_is_given(&flags->given, i) || !has_changed(key, settings, before) ||
                !finetune_config_has(&settings->config, key->key, &note) ||
                (row->at == offsetof(struct finetune_flags, precision) &&
                 strcmp(note.value, "false") == 0)) {
                continue;
            }
            core_log(CORE_LOG_WARN, "--%s wins over %s: %s in %s, line %zu", row->name, key->key,
                     note.value != NULL ? note.value : "", core_cfg_source(settings->config.cfg),
                     note.line);
        }
    }
}

/* train batch = micro-batch x accumulation x ranks. If only one of --batch and --accum is
 * given, train_batch_size determines the other one, unless the file sets that one, too. */
static int take_batch(struct finetune_settings *settings, const struct finetune_flags *flags)
{
    struct tide_engine_options *engine = &settings->engine;
    static const char *const keys[] = {"train_micro_batch_size_per_gpu",
                                       "gradient_accumulation_steps"};
    const int64_t asked[] = {FINETUNE_GIVEN(flags, batch) ? flags->batch : CORE_CFG_NONE,
                             FINETUNE_GIVEN(flags, accum) ? flags->accum : CORE_CFG_NONE};
    uint32_t *const out[] = {&engine->batch, &engine->accum};
    struct core_cfg_note note;
    for (int i = 0; i < 2; i++) {
        if (asked[i] == CORE_CFG_NONE || asked[i] == *out[i]) {
            continue;
        }
        *out[i] = (uint32_t)asked[i];
        if (asked[1 - i] != CORE_CFG_NONE ||
            finetune_config_has(&settings->config, keys[1 - i], &note) ||
            !finetune_config_has(&settings->config, "train_batch_size", &note)) {
            continue;
        }
        const int64_t train = settings->config.cfg->train_batch_size;
        const int64_t unit = asked[i] * (engine->ranks > 0 ? engine->ranks : 1);
        if (train % unit != 0) {
            return core_err_set(
                -EINVAL,
                "train_batch_size: %" PRId64 " of %s is not a multiple of --%s %" PRId64
                " x %" PRIu32 " ranks; give --batch and --accum",
                train, core_cfg_source(settings->config.cfg), i == 0 ? "batch" : "accum", asked[i],
                engine->ranks > 0 ? engine->ranks : 1);
        }
        *out[1 - i] = (uint32_t)(train / unit);
    }
    const int64_t rows = (int64_t)engine->batch * engine->accum *
                         (engine->ranks > 0 ? engine->ranks : 1);
    if (finetune_config_has(&settings->config, "train_batch_size", &note) &&
        rows != settings->config.cfg->train_batch_size) {
        core_log(CORE_LOG_WARN,
                 "a step has %" PRId64 " rows (--batch, --accum), but %s, line %zu, has "
                 "train_batch_size: %s",
                 rows, core_cfg_source(settings->config.cfg), note.line, note.value);
    }
    return 0;
}

/* Some optimizers have defaults of their own. */
static void take_type_defaults(struct finetune_settings *settings,
                               const struct finetune_flags *flags)
{
    struct tide_engine_options *engine = &settings->engine;
    struct core_cfg_note note;
    if (flags->optimizer == TIDE_LION && !FINETUNE_GIVEN(flags, betas) &&
        !finetune_config_has(&settings->config, "optimizer.params.betas", &note)) {
        engine->beta2 = 0.99;
    }
    if (flags->optimizer == TIDE_ADAGRAD && !FINETUNE_GIVEN(flags, eps) &&
        !finetune_config_has(&settings->config, "optimizer.params.eps", &note)) {
        engine->eps = 1e-10;
    }
}

static bool has_own_rates(const struct schedule *schedule)
{
    return schedule->kind == SCHEDULE_ONE_CYCLE || schedule->kind == SCHEDULE_LR_RANGE_TEST;
}

/* The schedule changes the betas unless --betas is given or the optimizer has none. */
static void take_moving_betas(struct finetune_settings *settings,
                              const struct finetune_flags *flags)
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
    } else if (FINETUNE_GIVEN(flags, betas)) {
        core_log(CORE_LOG_WARN,
                 "--betas wins over scheduler.params.cycle_momentum: the betas are constant");
        schedule->moves_beta = false;
    } else if (finetune_config_has(&settings->config, "optimizer.params.betas", &note)) {
        core_log(CORE_LOG_WARN,
                 "optimizer.params.betas in %s, line %zu, has no effect: OneCycle moves the first "
                 "beta and sets the second to %g",
                 core_cfg_source(settings->config.cfg), note.line, schedule_beta2);
    }
}

/* A first beta that grows after the cycle must stay below one until the last step. */
static int check_moving_betas(const struct finetune_settings *settings, int64_t steps)
{
    const struct schedule *schedule = &settings->schedule;
    if (!schedule->moves_beta || steps <= 0 || schedule_beta1(schedule, steps - 1) < 1) {
        return 0;
    }
    return core_err_set(
        -EINVAL,
        "%s: scheduler.params.decay_mom_rate %g lets the first beta grow to %g by step %" PRId64
        "; it must stay below 1",
        core_cfg_source(settings->config.cfg), schedule->beta_decay_rate,
        schedule_beta1(schedule, steps - 1), steps);
}

static void take_schedule(struct finetune_settings *settings, const struct finetune_flags *flags)
{
    struct schedule *schedule = &settings->schedule;
    if (FINETUNE_GIVEN(flags, schedule)) {
        *schedule = (struct schedule){
            .kind = (enum schedule_kind)flags->schedule,
            .lr = has_own_rates(schedule) ? settings->config.cfg->optimizer.lr : schedule->lr};
        settings->total_unknown = true;
    }
    take_moving_betas(settings, flags);
    if (has_own_rates(schedule)) {
        if (FINETUNE_GIVEN(flags, lr) || FINETUNE_GIVEN(flags, warmup)) {
            core_log(CORE_LOG_WARN, "--lr and --warmup have no effect: %s of %s sets all rates",
                     schedule_name(schedule->kind), core_cfg_source(settings->config.cfg));
        }
        return;
    }
    schedule->lr = FINETUNE_GIVEN(flags, lr) ? flags->lr : schedule->lr;
    if (FINETUNE_GIVEN(flags, warmup)) {
        schedule->warmup = flags->warmup;
    }
}

static int take_memory(struct finetune_settings *settings, const struct finetune_flags *flags)
{
    struct tide_engine_options *engine = &settings->engine;
    const struct {
        const char *flag;
        bool given;
        uint64_t value;
        uint64_t *out;
    } sizes[] = {
        {"device-memory", FINETUNE_GIVEN(flags, device_memory), flags->device_memory,
         &engine->device_bytes},
        {"host-memory", FINETUNE_GIVEN(flags, host_memory), flags->host_memory,
         &engine->host_bytes},
        {"tile-bytes", FINETUNE_GIVEN(flags, tile_bytes), flags->tile_bytes, &engine->tile_bytes},
        {"data-memory", FINETUNE_GIVEN(flags, data_memory), flags->data_memory,
         &settings->row_bytes}};
    for (size_t i = 0; i < 4; i++) {
        if (sizes[i].given && sizes[i].value == 0) {
            return core_err_set(-EINVAL,
                                "--%s 0: nothing fits into 0 bytes; omit it for the default",
                                sizes[i].flag);
        }
        *sizes[i].out = sizes[i].given ? sizes[i].value : *sizes[i].out;
    }
    for (size_t i = 0; i < flags->store.count; i++) {
        size_t at = engine->store_count < TIDE_STORES_MAX ? engine->store_count : 0;
        if (finetune_store_parse(flags->store.items[i], engine, settings->config.store_paths,
                                 settings->config.stores[at], PATH_MAX) != 0) {
            return -EINVAL;
        }
    }
    if (flags->place != NULL && finetune_place_parse(flags->place, engine) != 0) {
        return -EINVAL;
    }
    const bool wants_store = engine->weights == TIDE_STORE || engine->states == TIDE_STORE ||
                             engine->grads == TIDE_STORE || engine->acts == TIDE_ACTS_STORE;
    if (wants_store && engine->store_count == 0 && flags->machine == NULL) {
        return core_err_set(-EINVAL,
                            "--place needs a store: give --store DIR, a directory on a drive");
    }
    return 0;
}

/* Follows the XDG base directory specification. */
static void find_cache(struct finetune_settings *settings)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    const bool given = cache != NULL && cache[0] == '/'; /* relative paths are ignored */
    int length = given ? snprintf(settings->cache, sizeof settings->cache, "%s/tide", cache)
                 : home != NULL && home[0] == '/'
                     ? snprintf(settings->cache, sizeof settings->cache, "%s/.cache/tide", home)
                     : 0;
    const bool fits = length > 0 && length < (int)sizeof settings->cache;
    settings->engine.cache = fits ? settings->cache : NULL;
}

static int take_machine(struct finetune_settings *settings, const struct finetune_flags *flags)
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
    if (flags->dev != NULL && strcmp(flags->dev, "cpu") != 0 && strcmp(flags->dev, "cuda") != 0 &&
        strncmp(flags->dev, "cuda:", 5) != 0) {
        return core_err_set(-EINVAL, "--dev takes one of cpu|cuda|cuda:N[,M...], not \"%s\"",
                            flags->dev);
    }
    engine->io = flags->io;
    engine->stores_must_exist = !flags->make_store;
    engine->device = flags->dev;
    engine->model = flags->model;
    engine->rates = flags->rates;
    engine->measure = flags->measure;
    find_cache(settings);
    engine->trace = flags->trace;
    engine->threads = (uint32_t)flags->threads;
    engine->numa_off = (uint64_t)flags->numa;
    engine->ranks = (uint32_t)flags->ranks;
    if (FINETUNE_GIVEN(flags, zero)) {
        engine->zero_stage = (uint32_t)flags->zero;
    }
    if (FINETUNE_GIVEN(flags, gather)) {
        engine->gather = (uint64_t)flags->gather;
    }
    if (FINETUNE_GIVEN(flags, reduce)) {
        engine->reduce = (uint64_t)flags->reduce;
    }
    if (FINETUNE_GIVEN(flags, gather_within)) {
        engine->gather_within = (uint64_t)flags->gather_within;
    }
    return 0;
}

/* finetune_config_load() sets the engine's options and the schedule, this function the rest. */
static int take_config(struct finetune_settings *settings, const struct finetune_flags *flags,
                       const struct tide_inspection *model)
{
    struct finetune_config *config = &settings->config;
    int rc = finetune_config_load(config, flags, model, &settings->engine, &settings->schedule);
    if (rc != 0) {
        return rc;
    }
    settings->total_unknown = !config->has_total;
    settings->drop_last = config->drop_last;
    settings->print_every = config->print_every;
    settings->csv = config->csv != NULL ? config->csv : settings->csv;
    settings->board = config->board != NULL ? config->board : settings->board;
    return 0;
}

static int take_length(struct finetune_settings *settings, const struct finetune_flags *flags,
                       const struct tide_inspection *model)
{
    settings->vocab = model->vocab;
    settings->length = flags->length;
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

int finetune_settings_init(struct finetune_settings *out, const struct finetune_flags *flags,
                           const struct tide_inspection *model)
{
    *out = (struct finetune_settings){0};
    struct finetune_settings before;
    int rc = take_defaults(out, flags);
    if (rc != 0 || (rc = take_length(out, flags, model)) != 0) {
        goto fail;
    }
    if (flags->config != NULL && (rc = take_config(out, flags, model)) != 0) {
        goto fail;
    }
    before = *out;
    if ((rc = take_machine(out, flags)) != 0 || (rc = take_learning(out, flags, false)) != 0 ||
        (rc = take_adapters(out, flags)) != 0) {
        goto fail;
    }
    take_type_defaults(out, flags);
    if ((rc = take_batch(out, flags)) != 0 || (rc = take_memory(out, flags)) != 0) {
        goto fail;
    }
    take_schedule(out, flags);
    warn_overridden(out, flags, &before);
    return 0;
fail:
    finetune_settings_fini(out);
    return rc;
}

void finetune_settings_fini(struct finetune_settings *settings)
{
    finetune_config_fini(&settings->config);
    *settings = (struct finetune_settings){0};
}

struct finetune_data_options finetune_settings_data(const struct finetune_settings *settings,
                                                    const char *path, bool trains)
{
    const struct tide_engine_options *engine = &settings->engine;
    const bool fitted = engine->length > 0; /* rows must not be longer than planned */
    return (struct finetune_data_options){
        .path = path,
        .model = engine->model,
        .vocab = settings->vocab,
        .length_max = fitted ? engine->length : settings->length_max,
        .cut = settings->length > 0 || fitted,
        .batch = engine->batch,
        .step_max = trains ? engine->accum * engine->ranks : 1,
        .pack = trains && settings->pack,
        .split = settings->split,
        .pairs = engine->loss == TIDE_LOSS_DPO,
        .skip_bad = settings->skip_bad,
        .train_on_all = settings->train_on_all,
        .chat_format = settings->chat_format,
        .drop_last = trains && settings->drop_last,
        .shuffle = trains && settings->shuffle,
        .seed = engine->seed,
        .now = settings->now,
        .row_bytes = settings->row_bytes,
        .cache = settings->cache[0] != '\0' ? settings->cache : NULL,
        .steps = trains ? settings->steps : 0,
        .begun = trains ? settings->begun : 0,
        .place = settings->place,
    };
}

/* A step needs no more micro-batches than an epoch. A shuffled order may give another number, so
 * nothing is reduced then. */
static void fit_accum(struct finetune_settings *settings, const struct finetune_data_info *info)
{
    const bool same = !settings->shuffle || !(settings->pack || settings->split);
    if (info->whole && same && info->micro_batches < settings->engine.accum) {
        settings->engine.accum = (uint32_t)info->micro_batches;
    }
}

int finetune_settings_fit(struct finetune_settings *settings, const struct finetune_data_info *info,
                          int64_t steps)
{
    const int64_t longest = info->longest;
    struct schedule *schedule = &settings->schedule;
    int64_t length = settings->length > 0 ? settings->length : longest;
    if (length == 0) {
        length = settings->length_max < FINETUNE_LENGTH_UNKNOWN ? settings->length_max
                                                                : FINETUNE_LENGTH_UNKNOWN;
    }
    settings->engine.length = (uint32_t)length;
    settings->engine.pair_length = (uint64_t)info->longest_pair;
    fit_accum(settings, info);
    settings->engine.batch = info->batch > 0 ? (uint32_t)info->batch : settings->engine.batch;
    if (info->rows > 0) {
        settings->engine.tokens_per_row = (double)info->tokens / (double)info->rows;
    }
    if (steps == 0) {
        return 0;
    }
    if (steps > FINETUNE_STEPS_MAX) {
        return core_err_set(-EINVAL, "--epochs %g is %" PRId64 " steps; the maximum is %d",
                            settings->epochs, steps, FINETUNE_STEPS_MAX);
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
                 "--warmup %" PRId64 " is not shorter than the run, %" PRId64
                 " steps: the learning rate never reaches --lr",
                 schedule->warmup, steps);
    }
    return 0;
}
