/* finetune_config.c: turns a ds_config.json into options of a run, and warns of keys without
 * effect. */
#include "tools/tide/finetune_config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "tools/tide/paths.h"

enum { BATCH_MAX = 1 << 20 };

/* A length that is not known before the data is read. */
static const int64_t total_later = INT64_MAX / 4;

bool finetune_config_has(const struct finetune_config *config, const char *key,
                         struct core_cfg_note *out)
{
    size_t count = config->cfg != NULL ? core_cfg_notes_count(config->cfg) : 0;
    for (size_t i = 0; i < count; i++) {
        struct core_cfg_note note = core_cfg_note(config->cfg, i);
        bool in_effect = note.kind == CORE_CFG_NOTE_HONOURED || note.kind == CORE_CFG_NOTE_LATER;
        if (in_effect && strcmp(note.key, key) == 0) {
            *out = note;
            return strncmp(note.why, "\"auto\"", 6) != 0;
        }
    }
    return false;
}

static bool is_given(const struct finetune_config *config, const char *key)
{
    struct core_cfg_note note;
    return finetune_config_has(config, key, &note);
}

/* Warns of the keys of one kind in one line. */
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

static int load_config(struct finetune_config *config, const struct finetune_flags *flags,
                       const struct tide_inspection *model,
                       const struct tide_engine_options *engine)
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
    options.betas[0] = engine->beta1;
    options.betas[1] = engine->beta2;
    if (FINETUNE_GIVEN(flags, precision)) {
        options.precision = flags->precision == TIDE_FP32   ? CORE_CFG_FP32
                            : flags->precision == TIDE_FP16 ? CORE_CFG_FP16
                                                            : CORE_CFG_BF16;
    }
    options.has_store = flags->store.count > 0;
    int rc = core_cfg_load(flags->config, &options, &config->cfg);
    return rc == 0 ? core_cfg_check(config->cfg) : rc;
}

static int take_batch(struct finetune_config *config, struct tide_engine_options *engine)
{
    const struct core_cfg *cfg = config->cfg;
    if (cfg->micro_batch_size > BATCH_MAX || cfg->accumulation_steps > FINETUNE_ACCUM_MAX) {
        return core_err_set(-EINVAL,
                            "%s: %lld micro-batches of %lld rows per step; the maximum is %d "
                            "micro-batches of %d rows",
                            core_cfg_source(cfg), (long long)cfg->accumulation_steps,
                            (long long)cfg->micro_batch_size, FINETUNE_ACCUM_MAX, BATCH_MAX);
    }
    engine->batch = (uint32_t)cfg->micro_batch_size;
    engine->accum = (uint32_t)cfg->accumulation_steps;
    config->drop_last = cfg->dataloader_drop_last;
    config->print_every = cfg->steps_per_print != CORE_CFG_NONE ? cfg->steps_per_print : 1;
    return 0;
}

static uint32_t clamp_uint32(int64_t value)
{
    return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static void take_precision(const struct finetune_config *config, struct tide_engine_options *engine)
{
    const struct core_cfg *cfg = config->cfg;
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
    } else if (is_given(config, "bf16.bf16_optimizer_states") ||
               is_given(config, "optimizer.params.fp32_optimizer_states")) {
        engine->moments = TIDE_MOMENTS_FP32;
    }
}

static void take_optimizer(const struct finetune_config *config, struct tide_engine_options *engine,
                           struct schedule *schedule)
{
    const struct core_cfg *cfg = config->cfg;
    engine->clip = cfg->gradient_clipping;
    if (cfg->optimizer.type < 0 && !is_given(config, "optimizer.params.lr")) {
        return; /* the file sets neither type nor lr */
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
    schedule->lr = cfg->optimizer.lr;
    engine->beta1 = cfg->optimizer.betas[0];
    engine->beta2 = cfg->optimizer.betas[1];
    if (engine->optimizer == TIDE_SGD) {
        engine->beta1 = cfg->optimizer.momentum;
    }
    engine->eps = cfg->optimizer.eps;
    engine->decay = cfg->optimizer.weight_decay;
    engine->no_bias_correction = !cfg->optimizer.bias_correction;
}

static void take_warmup(struct finetune_config *config, struct schedule *schedule)
{
    const struct core_cfg *cfg = config->cfg;
    schedule->warmup = cfg->scheduler.warmup_num_steps;
    schedule->log_warmup = cfg->scheduler.warmup_type == CORE_CFG_WARMUP_LOG;
    schedule->warmup_min_ratio = cfg->scheduler.warmup_min_ratio;
    schedule->cos_min_ratio = cfg->scheduler.cos_min_ratio;
    schedule->min_lr = cfg->scheduler.warmup_min_lr;
    if (schedule->kind != SCHEDULE_WARMUP_COSINE && !isnan(cfg->scheduler.warmup_max_lr)) {
        schedule->lr = cfg->scheduler.warmup_max_lr;
    }
    config->has_total = cfg->scheduler.total_num_steps != total_later &&
                        cfg->scheduler.total_num_steps != CORE_CFG_NONE;
    schedule->total = config->has_total ? cfg->scheduler.total_num_steps : 0;
}

static void take_cycle(const struct core_cfg *cfg, struct schedule *schedule)
{
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

static void take_schedule(struct finetune_config *config, struct schedule *schedule)
{
    const struct core_cfg *cfg = config->cfg;
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
        take_cycle(cfg, schedule);
        return;
    case CORE_CFG_WARMUP: schedule->kind = SCHEDULE_WARMUP; break;
    case CORE_CFG_WARMUP_DECAY: schedule->kind = SCHEDULE_WARMUP_DECAY; break;
    case CORE_CFG_WARMUP_COSINE: schedule->kind = SCHEDULE_WARMUP_COSINE; break;
    default: return;
    }
    take_warmup(config, schedule);
}

static uint32_t tier_of(int device)
{
    return device == CORE_CFG_DEVICE_NVME  ? TIDE_STORE
           : device == CORE_CFG_DEVICE_CPU ? TIDE_HOST
                                           : TIDE_DEVICE;
}

static int add_store(struct finetune_config *config, struct tide_engine_options *engine,
                     const char *path)
{
    for (size_t i = 0; path != NULL && i < engine->store_count; i++) {
        if (strcmp(engine->stores[i].directory, path) == 0 ||
            cli_path_is_same(engine->stores[i].directory, path)) {
            return 0;
        }
    }
    if (path == NULL || path[0] == '\0') {
        return 0;
    }
    if (strlen(path) >= PATH_MAX) {
        return core_err_set(-EINVAL, "nvme_path has %zu bytes; the maximum is %d", strlen(path),
                            PATH_MAX - 1);
    }
    char *kept = config->stores[engine->store_count];
    snprintf(kept, PATH_MAX, "%s", path);
    config->store_paths[engine->store_count++] = (struct tide_store_path){
        .struct_bytes = sizeof(struct tide_store_path), .directory = kept};
    engine->stores = config->store_paths;
    return 0;
}

static int take_offload(struct finetune_config *config, const struct finetune_flags *flags,
                        struct tide_engine_options *engine)
{
    const struct core_cfg *cfg = config->cfg;
    engine->zero_stage = (uint32_t)cfg->zero.stage;
    engine->gather = cfg->zero.quantized_weights ? TIDE_GATHER_INT8 : TIDE_GATHER_EXACT;
    engine->reduce = cfg->zero.quantized_gradients ? TIDE_REDUCE_INT4 : TIDE_REDUCE_EXACT;
    engine->gather_within = (uint64_t)cfg->zero.hpz_partition_size;
    if (is_given(config, "zero_optimization.offload_param.device")) {
        engine->weights = tier_of(cfg->zero.offload_param.device);
    }
    if (is_given(config, "zero_optimization.offload_optimizer.device")) {
        engine->states = tier_of(cfg->zero.offload_optimizer.device);
    }
    if (cfg->activation.cpu_checkpointing) {
        engine->acts = TIDE_ACTS_HOST;
    }
    const char *paths[] = {engine->weights == TIDE_STORE ? cfg->zero.offload_param.nvme_path : NULL,
                           engine->states == TIDE_STORE ? cfg->zero.offload_optimizer.nvme_path
                                                        : NULL};
    for (size_t i = 0; i < 2; i++) {
        if (flags->store.count == 0 && add_store(config, engine, paths[i]) != 0) {
            return -EINVAL;
        }
    }
    return 0;
}

/* A monitor's section, and the flag that wins over it. */
struct monitor {
    const char *flag, *given; /* `given`: the flag's value; NULL: none */
    const char *key;          /* of the folder */
    const char *folder, *name, *file;
};

/* Sets DeepSpeed's path of the monitor's folder or file, unless the flag is given. */
static int take_monitor(const struct monitor *monitor, char *path, const char **out)
{
    const bool here = monitor->folder == NULL || monitor->folder[0] == '\0';
    if (monitor->given != NULL) {
        core_log(CORE_LOG_WARN, "--%s wins over %s", monitor->flag, monitor->key);
        return 0;
    }
    int length = snprintf(path, PATH_MAX, "%s%s%s%s", here ? "" : monitor->folder, here ? "" : "/",
                          monitor->name, monitor->file);
    if (length < 0 || length >= PATH_MAX) {
        return core_err_set(-EINVAL, "%s names a path of %d bytes; the maximum is %d", monitor->key,
                            length, PATH_MAX - 1);
    }
    *out = path;
    return 0;
}

static int take_monitors(struct finetune_config *config, const struct finetune_flags *flags)
{
    const struct core_cfg *cfg = config->cfg;
    int rc = 0;
    if (cfg->tensorboard.enabled) {
        rc = take_monitor(&(struct monitor){.flag = "tensorboard",
                                            .given = flags->tensorboard,
                                            .key = "tensorboard.output_path",
                                            .folder = cfg->tensorboard.output_path,
                                            .name = cfg->tensorboard.job_name,
                                            .file = ""},
                          config->board_path, &config->board);
    }
    if (rc == 0 && cfg->csv_monitor.enabled) {
        rc = take_monitor(&(struct monitor){.flag = "csv",
                                            .given = flags->csv,
                                            .key = "csv_monitor.output_path",
                                            .folder = cfg->csv_monitor.output_path,
                                            .name = cfg->csv_monitor.job_name,
                                            .file = "/steps.csv"},
                          config->csv_path, &config->csv);
    }
    return rc;
}

int finetune_config_load(struct finetune_config *out, const struct finetune_flags *flags,
                         const struct tide_inspection *model, struct tide_engine_options *engine,
                         struct schedule *schedule)
{
    int rc = load_config(out, flags, model, engine);
    if (rc != 0) {
        return rc;
    }
    log_notes(out->cfg);
    take_precision(out, engine);
    take_optimizer(out, engine, schedule);
    take_schedule(out, schedule);
    if ((rc = take_batch(out, engine)) != 0 || (rc = take_offload(out, flags, engine)) != 0) {
        return rc;
    }
    return take_monitors(out, flags);
}

void finetune_config_fini(struct finetune_config *config)
{
    core_cfg_destroy(config->cfg);
    *config = (struct finetune_config){0};
}
