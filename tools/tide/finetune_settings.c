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

/* ---- the configuration ---- */

enum { BATCH_MAX = 1 << 20 };

/* Placeholder for the length of a run that is unknown until the data has been read. */
static const int64_t total_later = INT64_MAX / 4;

static bool is_in_config(const struct finetune_settings *settings, const char *key,
                         struct core_cfg_note *out)
{
    size_t count = settings->cfg != NULL ? core_cfg_notes_count(settings->cfg) : 0;
    for (size_t i = 0; i < count; i++) {
        struct core_cfg_note note = core_cfg_note(settings->cfg, i);
        bool stands = note.kind == CORE_CFG_NOTE_HONOURED || note.kind == CORE_CFG_NOTE_LATER;
        if (stands && strcmp(note.key, key) == 0) {
            *out = note;
            return strncmp(note.why, "\"auto\"", 6) != 0;
        }
    }
    return false;
}

static bool is_given(const struct finetune_settings *settings, const char *key)
{
    struct core_cfg_note note;
    return is_in_config(settings, key, &note);
}

/* Warns of all keys of one kind in one line: no key is silently ignored. */
static void log_notes_of(const struct core_cfg *cfg, enum core_cfg_note_kind kind, const char *what)
{
    char names[512] = "";
    char more[32] = "";
    size_t told = 0;
    const size_t count = core_cfg_notes_of(cfg, kind);
    for (size_t i = 0; i < core_cfg_notes_count(cfg); i++) {
        struct core_cfg_note note = core_cfg_note(cfg, i);
        const size_t length = strlen(names);
        if (note.kind != kind || length + strlen(note.key) + 3 > sizeof names) {
            continue;
        }
        snprintf(names + length, sizeof names - length, "%s%s", length > 0 ? ", " : "", note.key);
        told++;
    }
    if (told < count) {
        snprintf(more, sizeof more, " and %zu more", count - told);
    }
    if (count > 0) {
        core_log(CORE_LOG_WARN, "%s: %s: %s%s (tide config says why)", core_cfg_source(cfg), what,
                 names, more);
    }
}

static void log_notes(const struct core_cfg *cfg)
{
    for (size_t i = 0; i < core_cfg_notes_count(cfg); i++) {
        struct core_cfg_note note = core_cfg_note(cfg, i);
        if (note.kind == CORE_CFG_NOTE_WARNING) {
            core_log(CORE_LOG_WARN, "%s:%zu: %s: %s", core_cfg_source(cfg), note.line, note.key,
                     note.why);
        }
    }
    log_notes_of(cfg, CORE_CFG_NOTE_LATER, "not honoured by this build");
    log_notes_of(cfg, CORE_CFG_NOTE_IGNORED, "without effect here");
}

static int load_config(struct finetune_settings *settings, const struct finetune_flags *flags,
                       const struct tide_inspection *model)
{
    struct core_cfg_options options;
    core_cfg_options_init(&options);
    options.world_size = flags->ranks;
    options.micro_batch_size = flags->batch;
    options.accumulation_steps = FINETUNE_GIVEN(flags, accum) ? flags->accum : CORE_CFG_NONE;
    options.warmup_steps = FINETUNE_GIVEN(flags, warmup) ? flags->warmup : CORE_CFG_NONE;
    options.total_steps = FINETUNE_GIVEN(flags, steps) ? flags->steps : total_later;
    options.hidden_size = model->hidden;
    options.lr = FINETUNE_GIVEN(flags, lr) ? flags->lr : options.lr;
    options.eps = FINETUNE_GIVEN(flags, eps) ? flags->eps : options.eps;
    options.weight_decay = FINETUNE_GIVEN(flags, decay) ? flags->decay : options.weight_decay;
    options.gradient_clipping = FINETUNE_GIVEN(flags, clip) ? flags->clip
                                                            : options.gradient_clipping;
    options.betas[0] = settings->engine.beta1;
    options.betas[1] = settings->engine.beta2;
    if (FINETUNE_GIVEN(flags, precision)) {
        options.precision = flags->precision == TIDE_FP32   ? CORE_CFG_FP32
                            : flags->precision == TIDE_FP16 ? CORE_CFG_FP16
                                                            : CORE_CFG_BF16;
    }
    options.has_store = flags->store.count > 0;
    int rc = core_cfg_load(flags->config, &options, &settings->cfg);
    return rc == 0 ? core_cfg_check(settings->cfg) : rc;
}

static int take_config_batch(struct finetune_settings *settings, const struct core_cfg *cfg)
{
    if (cfg->micro_batch_size > BATCH_MAX || cfg->accumulation_steps > FINETUNE_ACCUM_MAX) {
        return core_err_set(-EINVAL,
                            "%s: %lld micro-batches of %lld rows per step; the maximum is %d "
                            "micro-batches of %d rows",
                            core_cfg_source(cfg), (long long)cfg->accumulation_steps,
                            (long long)cfg->micro_batch_size, FINETUNE_ACCUM_MAX, BATCH_MAX);
    }
    settings->engine.batch = (uint32_t)cfg->micro_batch_size;
    settings->engine.accum = (uint32_t)cfg->accumulation_steps;
    settings->drop_last = cfg->dataloader_drop_last;
    settings->print_every = cfg->steps_per_print != CORE_CFG_NONE ? cfg->steps_per_print : 1;
    return 0;
}

static uint32_t clamp_uint32(int64_t value)
{
    return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static void take_config_precision(struct finetune_settings *settings, const struct core_cfg *cfg)
{
    struct tide_engine_options *engine = &settings->engine;
    engine->precision = cfg->fp16.enabled ? TIDE_FP16 : cfg->bf16.enabled ? TIDE_BF16 : TIDE_FP32;
    engine->gradients_fp32 = cfg->grad_accum_dtype == CORE_CFG_FP32;
    engine->check_overflow = cfg->bf16.enabled && cfg->bf16.check_grad_overflow_given &&
                             cfg->bf16.check_grad_overflow;
    if (cfg->fp16.enabled) {
        engine->loss_scale = cfg->fp16.loss_scale;
        engine->initial_loss_scale = ldexp(1, (int)cfg->fp16.initial_scale_power);
        engine->min_loss_scale = (double)cfg->fp16.min_loss_scale;
        engine->scale_window = clamp_uint32(cfg->fp16.loss_scale_window);
        engine->hysteresis = clamp_uint32(cfg->fp16.hysteresis);
        engine->consecutive_hysteresis = cfg->fp16.consecutive_hysteresis;
    }
    if (cfg->bf16.optimizer_states || !cfg->optimizer.fp32_optimizer_states) {
        engine->moments = TIDE_MOMENTS_BF16;
    } else if (is_given(settings, "bf16.bf16_optimizer_states") ||
               is_given(settings, "optimizer.params.fp32_optimizer_states")) {
        engine->moments = TIDE_MOMENTS_FP32;
    }
}

static void take_config_optimizer(struct finetune_settings *settings, const struct core_cfg *cfg)
{
    struct tide_engine_options *engine = &settings->engine;
    engine->clip = cfg->gradient_clipping;
    if (cfg->optimizer.type < 0 && !is_given(settings, "optimizer.params.lr")) {
        return; /* the file has no optimizer */
    }
    switch (cfg->optimizer.type) {
    case CORE_CFG_ADAM:
        engine->optimizer = cfg->optimizer.adam_w_mode ? TIDE_ADAMW : TIDE_ADAM;
        break;
    case CORE_CFG_ADAGRAD: engine->optimizer = TIDE_ADAGRAD; break;
    case CORE_CFG_LION: engine->optimizer = TIDE_LION; break;
    case CORE_CFG_SGD: engine->optimizer = TIDE_SGD; break;
    default: engine->optimizer = TIDE_ADAMW; break;
    }
    settings->schedule.lr = cfg->optimizer.lr;
    engine->beta1 = cfg->optimizer.betas[0];
    engine->beta2 = cfg->optimizer.betas[1];
    if (engine->optimizer == TIDE_SGD) {
        engine->beta1 = cfg->optimizer.momentum;
    }
    engine->eps = cfg->optimizer.eps;
    engine->decay = cfg->optimizer.weight_decay;
    engine->no_bias_correction = !cfg->optimizer.bias_correction;
}

static void take_config_warmup(struct finetune_settings *settings, const struct core_cfg *cfg)
{
    struct schedule *schedule = &settings->schedule;
    schedule->warmup = cfg->scheduler.warmup_num_steps;
    schedule->log_warmup = cfg->scheduler.warmup_type == CORE_CFG_WARMUP_LOG;
    schedule->warmup_min_ratio = cfg->scheduler.warmup_min_ratio;
    schedule->cos_min_ratio = cfg->scheduler.cos_min_ratio;
    schedule->min_lr = cfg->scheduler.warmup_min_lr;
    if (schedule->kind != SCHEDULE_WARMUP_COSINE && !isnan(cfg->scheduler.warmup_max_lr)) {
        schedule->lr = cfg->scheduler.warmup_max_lr;
    }
    settings->total_unknown = cfg->scheduler.total_num_steps == total_later ||
                              cfg->scheduler.total_num_steps == CORE_CFG_NONE;
    schedule->total = settings->total_unknown ? 0 : cfg->scheduler.total_num_steps;
}

static void take_config_cycle(struct finetune_settings *settings, const struct core_cfg *cfg)
{
    struct schedule *schedule = &settings->schedule;
    schedule->moves_beta = cfg->scheduler.cycle_momentum;
    schedule->min_beta = cfg->scheduler.cycle_min_mom;
    schedule->max_beta = cfg->scheduler.cycle_max_mom;
    schedule->beta_decay_rate = cfg->scheduler.decay_mom_rate;
    schedule->min_lr = cfg->scheduler.cycle_min_lr;
    schedule->max_lr = cfg->scheduler.cycle_max_lr;
    schedule->first_steps = cfg->scheduler.cycle_first_step_size;
    schedule->second_steps = cfg->scheduler.cycle_second_step_size != CORE_CFG_NONE
                                 ? cfg->scheduler.cycle_second_step_size
                                 : schedule->first_steps;
    schedule->first_stairs = cfg->scheduler.cycle_first_stair_count;
    schedule->second_stairs = cfg->scheduler.cycle_second_stair_count != CORE_CFG_NONE
                                  ? cfg->scheduler.cycle_second_stair_count
                                  : schedule->first_stairs;
    schedule->decay_steps = cfg->scheduler.decay_step_size;
    schedule->decay_rate = cfg->scheduler.decay_lr_rate;
}

static void take_config_schedule(struct finetune_settings *settings, const struct core_cfg *cfg)
{
    struct schedule *schedule = &settings->schedule;
    switch (cfg->scheduler.type) {
    case CORE_CFG_LR_RANGE_TEST:
        schedule->kind = SCHEDULE_LR_RANGE_TEST;
        schedule->lr = cfg->scheduler.range_min_lr;
        schedule->range_steps = cfg->scheduler.range_step_size;
        schedule->range_rate = cfg->scheduler.range_step_rate;
        schedule->range_staircase = cfg->scheduler.range_staircase;
        return;
    case CORE_CFG_ONE_CYCLE:
        schedule->kind = SCHEDULE_ONE_CYCLE;
        take_config_cycle(settings, cfg);
        return;
    case CORE_CFG_WARMUP: schedule->kind = SCHEDULE_WARMUP; break;
    case CORE_CFG_WARMUP_DECAY: schedule->kind = SCHEDULE_WARMUP_DECAY; break;
    case CORE_CFG_WARMUP_COSINE: schedule->kind = SCHEDULE_WARMUP_COSINE; break;
    default: return;
    }
    take_config_warmup(settings, cfg);
}

static uint32_t tier_of(int device)
{
    return device == CORE_CFG_DEVICE_NVME  ? TIDE_STORE
           : device == CORE_CFG_DEVICE_CPU ? TIDE_HOST
                                           : TIDE_DEVICE;
}

static int add_config_store(struct finetune_settings *settings, const char *path)
{
    struct tide_engine_options *engine = &settings->engine;
    for (size_t i = 0; path != NULL && i < engine->store_count; i++) {
        if (strcmp(engine->stores[i].directory, path) == 0) {
            return 0;
        }
    }
    if (path == NULL || path[0] == '\0') {
        return 0;
    }
    if (strlen(path) >= FINETUNE_PATH_BYTES) {
        return core_err_set(-EINVAL, "nvme_path has %zu bytes; the maximum is %d", strlen(path),
                            FINETUNE_PATH_BYTES - 1);
    }
    char *kept = settings->stores[engine->store_count];
    snprintf(kept, FINETUNE_PATH_BYTES, "%s", path);
    settings->store_paths[engine->store_count++] = (struct tide_store_path){
        .struct_bytes = sizeof(struct tide_store_path), .directory = kept};
    engine->stores = settings->store_paths;
    return 0;
}

static int take_config_offload(struct finetune_settings *settings,
                               const struct finetune_flags *flags, const struct core_cfg *cfg)
{
    struct tide_engine_options *engine = &settings->engine;
    engine->zero_stage = (uint32_t)cfg->zero.stage;
    engine->gather = cfg->zero.quantized_weights ? TIDE_GATHER_INT8 : TIDE_GATHER_EXACT;
    engine->reduce = cfg->zero.quantized_gradients ? TIDE_REDUCE_INT4 : TIDE_REDUCE_EXACT;
    engine->gather_within = (uint64_t)cfg->zero.hpz_partition_size;
    if (is_given(settings, "zero_optimization.offload_param.device")) {
        engine->weights = tier_of(cfg->zero.offload_param.device);
    }
    if (is_given(settings, "zero_optimization.offload_optimizer.device")) {
        engine->states = tier_of(cfg->zero.offload_optimizer.device);
    }
    if (cfg->activation.cpu_checkpointing) {
        engine->acts = TIDE_ACTS_HOST;
    }
    const char *paths[] = {engine->weights == TIDE_STORE ? cfg->zero.offload_param.nvme_path : NULL,
                           engine->states == TIDE_STORE ? cfg->zero.offload_optimizer.nvme_path
                                                        : NULL};
    for (size_t i = 0; i < 2; i++) {
        if (flags->store.count == 0 && add_config_store(settings, paths[i]) != 0) {
            return -EINVAL;
        }
    }
    return 0;
}

/* Sets the folder of a monitor, or a file in it, where DeepSpeed puts it; a flag wins. */
static int take_config_monitor(const char *flag, const char *key, const char *folders[2],
                               char *path, const char **out)
{
    const bool here = folders[0] == NULL || folders[0][0] == '\0';
    const bool csv = strcmp(flag, "csv") == 0;
    if (*out != NULL) {
        core_log(CORE_LOG_WARN, "--%s wins over %s", flag, key);
        return 0;
    }
    int length = snprintf(path, FINETUNE_PATH_BYTES, "%s%s%s%s", here ? "" : folders[0],
                          here ? "" : "/", folders[1], csv ? "/steps.csv" : "");
    if (length < 0 || length >= FINETUNE_PATH_BYTES) {
        return core_err_set(-EINVAL, "%s names a path of %d bytes; the maximum is %d", key, length,
                            FINETUNE_PATH_BYTES - 1);
    }
    *out = path;
    return 0;
}

static int take_config_monitors(struct finetune_settings *settings, const struct core_cfg *cfg)
{
    int rc = 0;
    if (cfg->tensorboard.enabled) {
        rc = take_config_monitor(
            "tensorboard", "tensorboard.output_path",
            (const char *[]){cfg->tensorboard.output_path, cfg->tensorboard.job_name},
            settings->board_path, &settings->board);
    }
    if (rc == 0 && cfg->csv_monitor.enabled) {
        rc = take_config_monitor(
            "csv", "csv_monitor.output_path",
            (const char *[]){cfg->csv_monitor.output_path, cfg->csv_monitor.job_name},
            settings->csv_path, &settings->csv);
    }
    return rc;
}

static int take_config(struct finetune_settings *settings, const struct finetune_flags *flags,
                       const struct tide_inspection *model)
{
    int rc = load_config(settings, flags, model);
    if (rc != 0) {
        return rc;
    }
    const struct core_cfg *cfg = settings->cfg;
    log_notes(cfg);
    take_config_precision(settings, cfg);
    take_config_optimizer(settings, cfg);
    take_config_schedule(settings, cfg);
    if ((rc = take_config_batch(settings, cfg)) != 0 ||
        (rc = take_config_offload(settings, flags, cfg)) != 0) {
        return rc;
    }
    return take_config_monitors(settings, cfg);
}

/* ---- flags over it ---- */

/* Takes the values of the optimizer from the flags: all of them, or only from flags that were
 * given. */
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

/* "a,b" -> a and b; NULL: none. */
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

/* Takes the defaults of the table. Flags that were given are taken again after the configuration. */
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

/* Returns whether a key has another value now than the file gave it. */
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

/* Warns of each key of the file that a flag has overridden with another value. `before`: the
 * settings after the file was read. */
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
                !is_in_config(settings, key->key, &note) ||
                (row->at == offsetof(struct finetune_flags, precision) &&
                 strcmp(note.value, "false") == 0)) {
                continue;
            }
            core_log(CORE_LOG_WARN, "--%s wins over %s: %s in %s, line %zu", row->name, key->key,
                     note.value != NULL ? note.value : "", core_cfg_source(settings->cfg),
                     note.line);
        }
    }
}

/* train batch = micro-batch x accumulation x ranks. If one of the two flags is given alone, the
 * train_batch_size of the file stays, unless the file sets the other factor. */
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
        if (asked[1 - i] != CORE_CFG_NONE || is_in_config(settings, keys[1 - i], &note) ||
            !is_in_config(settings, "train_batch_size", &note)) {
            continue;
        }
        const int64_t train = settings->cfg->train_batch_size;
        const int64_t unit = asked[i] * (engine->ranks > 0 ? engine->ranks : 1);
        if (train % unit != 0) {
            return core_err_set(-EINVAL,
                                "train_batch_size: %" PRId64
                                " of %s is not a multiple of --%s %" PRId64 " x %" PRIu32
                                " ranks; give --batch and --accum",
                                train, core_cfg_source(settings->cfg), i == 0 ? "batch" : "accum",
                                asked[i], engine->ranks > 0 ? engine->ranks : 1);
        }
        *out[1 - i] = (uint32_t)(train / unit);
    }
    const int64_t rows = (int64_t)engine->batch * engine->accum *
                         (engine->ranks > 0 ? engine->ranks : 1);
    if (is_in_config(settings, "train_batch_size", &note) &&
        rows != settings->cfg->train_batch_size) {
        core_log(CORE_LOG_WARN,
                 "a step has %" PRId64 " rows (--batch, --accum), not the train_batch_size: %s of "
                 "%s, line %zu",
                 rows, note.value, core_cfg_source(settings->cfg), note.line);
    }
    return 0;
}

/* Sets defaults that depend on the type of optimizer, unless other values were given. */
static void take_type_defaults(struct finetune_settings *settings,
                               const struct finetune_flags *flags)
{
    struct tide_engine_options *engine = &settings->engine;
    struct core_cfg_note note;
    if (flags->optimizer == TIDE_LION && !FINETUNE_GIVEN(flags, betas) &&
        !is_in_config(settings, "optimizer.params.betas", &note)) {
        engine->beta2 = 0.99;
    }
    if (flags->optimizer == TIDE_ADAGRAD && !FINETUNE_GIVEN(flags, eps) &&
        !is_in_config(settings, "optimizer.params.eps", &note)) {
        engine->eps = 1e-10;
    }
}

/* Returns whether the schedule of the configuration sets the learning rates itself. */
static bool has_own_rates(const struct schedule *schedule)
{
    return schedule->kind == SCHEDULE_ONE_CYCLE || schedule->kind == SCHEDULE_LR_RANGE_TEST;
}

/* A schedule that changes betas needs an optimizer with betas, and --betas must not be given. */
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
    } else if (is_in_config(settings, "optimizer.params.betas", &note)) {
        core_log(CORE_LOG_WARN,
                 "optimizer.params.betas in %s, line %zu, has no effect: OneCycle moves the first "
                 "beta and sets the second to %g",
                 core_cfg_source(settings->cfg), note.line, schedule_beta2);
    }
}

/* If the first beta grows after the cycle, it must stay below one until the last step. */
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
        core_cfg_source(settings->cfg), schedule->beta_decay_rate,
        schedule_beta1(schedule, steps - 1), steps);
}

static void take_schedule(struct finetune_settings *settings, const struct finetune_flags *flags)
{
    struct schedule *schedule = &settings->schedule;
    if (FINETUNE_GIVEN(flags, schedule)) {
        *schedule = (struct schedule){.kind = (enum schedule_kind)flags->schedule,
                                      .lr = has_own_rates(schedule) ? settings->cfg->optimizer.lr
                                                                    : schedule->lr};
        settings->total_unknown = true;
    }
    take_moving_betas(settings, flags);
    if (has_own_rates(schedule)) {
        if (FINETUNE_GIVEN(flags, lr) || FINETUNE_GIVEN(flags, warmup)) {
            core_log(CORE_LOG_WARN, "--lr and --warmup have no effect: %s of %s sets all rates",
                     schedule_name(schedule->kind), core_cfg_source(settings->cfg));
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
        if (finetune_store_parse(flags->store.items[i], engine, settings->store_paths,
                                 settings->stores[at], FINETUNE_PATH_BYTES) != 0) {
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

/* Finds the cache folder by the XDG base directory specification. */
static void find_cache(struct finetune_settings *settings)
{
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    const bool given = cache != NULL && cache[0] == '/'; /* relative paths must be ignored */
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
    core_cfg_destroy(settings->cfg);
    *settings = (struct finetune_settings){0};
}

struct finetune_data_options finetune_settings_data(const struct finetune_settings *settings,
                                                    const char *path, bool trains)
{
    const struct tide_engine_options *engine = &settings->engine;
    const bool fitted = engine->length > 0; /* no row may be longer than the plan assumes */
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
    };
}

/* Plans no micro-batches that no step will have. They go to rank 0 first, so a rank gets the same ones as with the
 * larger number. Another order may pack rows into another number of micro-batches. */
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
