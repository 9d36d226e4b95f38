/* config.h: reads a ds_config.json by a table of its keys (table.h), which docs/ds_config.md
 * prints. The result is a struct for the engine, and notes about keys for people. A configuration
 * is constant; any thread. */
#ifndef CORE_CONFIG_CONFIG_H
#define CORE_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct core_json_write;
struct core_cfg_detail;

/* An integer without a value. A real has NaN, a choice -1, a string NULL. */
#define CORE_CFG_NONE INT64_MIN

enum core_cfg_dtype { CORE_CFG_FP32, CORE_CFG_FP16, CORE_CFG_BF16 };
enum core_cfg_device { CORE_CFG_DEVICE_NONE, CORE_CFG_DEVICE_CPU, CORE_CFG_DEVICE_NVME };
enum core_cfg_optimizer {
    CORE_CFG_ADAM, /* weight decay is decoupled by default */
    CORE_CFG_ADAMW,
    CORE_CFG_ADAGRAD,
    CORE_CFG_LION,
    CORE_CFG_SGD,
    CORE_CFG_OPTIMIZERS, /* types from this number on are refused */
};
enum core_cfg_scheduler {
    CORE_CFG_LR_RANGE_TEST,
    CORE_CFG_ONE_CYCLE,
    CORE_CFG_WARMUP,
    CORE_CFG_WARMUP_DECAY,
    CORE_CFG_WARMUP_COSINE,
};
enum core_cfg_warmup { CORE_CFG_WARMUP_LOG, CORE_CFG_WARMUP_LINEAR };

struct core_cfg {
    /* Batch sizes, given or derived; CORE_CFG_NONE: sizes are missing or refused. */
    int64_t train_batch_size;
    int64_t micro_batch_size; /* rows per rank and micro-batch */
    int64_t accumulation_steps;
    int64_t world_size; /* ranks for which batch sizes were derived */

    int64_t steps_per_print;
    double gradient_clipping; /* 0: off */
    int grad_accum_dtype;     /* enum core_cfg_dtype */
    bool dataloader_drop_last;

    struct {
        int type; /* enum core_cfg_optimizer */
        double lr;
        double betas[2];
        double eps;
        double weight_decay;
        double momentum;
        bool bias_correction;
        bool adam_w_mode; /* decoupled weight decay; always for AdamW */
        bool fp32_optimizer_states;
    } optimizer;

    struct {
        int type; /* enum core_cfg_scheduler */
        double warmup_min_lr, warmup_max_lr, warmup_min_ratio, cos_min_ratio;
        int64_t warmup_num_steps, total_num_steps;
        int warmup_type; /* enum core_cfg_warmup */
        double range_min_lr, range_step_rate;
        int64_t range_step_size;
        bool range_staircase;
        double cycle_min_lr, cycle_max_lr, decay_lr_rate;
        double cycle_min_mom, cycle_max_mom, decay_mom_rate;
        int64_t cycle_first_step_size, cycle_second_step_size;
        int64_t cycle_first_stair_count, cycle_second_stair_count, decay_step_size;
        bool cycle_momentum;
    } scheduler;

    struct {
        bool enabled;
        double loss_scale; /* 0: dynamic */
        int64_t initial_scale_power, loss_scale_window, hysteresis, min_loss_scale;
        bool consecutive_hysteresis;
    } fp16;

    struct {
        bool enabled;
        bool check_grad_overflow;
        bool check_grad_overflow_given; /* steps may be skipped only if it was given */
        bool optimizer_states;
    } bf16;

    struct {
        int64_t stage;
        bool overlap_comm;
        int64_t reduce_bucket_size; /* elements */
        bool quantized_weights;
        bool quantized_gradients;
        int64_t hpz_partition_size; /* ranks; 0 and 1: no secondary partition */
        struct {
            int device; /* enum core_cfg_device */
            const char *nvme_path;
            bool pin_memory;
        } offload_param;
        struct {
            int device; /* enum core_cfg_device */
            const char *nvme_path;
            bool pin_memory;
            double ratio;
        } offload_optimizer;
    } zero;

    struct {
        int64_t block_size;
    } aio;

    struct {
        bool cpu_checkpointing;
    } activation;

    struct {
        bool enabled;
        const char *output_path, *job_name;
    } tensorboard, csv_monitor;

    struct core_cfg_detail *detail; /* owned */
};

/* Values for "auto" (batch sizes and total_steps also for missing keys), and facts outside the
 * file. Without a value (CORE_CFG_NONE or NaN, as after core_cfg_options_init), "auto" takes the
 * Hugging Face trainer's default, if there is one. */
struct core_cfg_options {
    int64_t world_size; /* 1 by default */
    int64_t micro_batch_size, accumulation_steps;
    int64_t warmup_steps, total_steps;
    int64_t hidden_size; /* of the model, for "auto" in ZeRO keys; 0: unknown */
    double lr, betas[2], eps, weight_decay, gradient_clipping;
    int precision;  /* enum core_cfg_dtype; -1: none, so that "auto" is bf16 */
    bool has_store; /* nvme_path may be missing */
};
void core_cfg_options_init(struct core_cfg_options *options);

/* Reads a path, "-" (standard input) or url-safe base64 of a configuration. Fails if there is no
 * valid JSON object; core_cfg_check() reports wrong keys and values. */
int core_cfg_load(const char *argument, const struct core_cfg_options *options,
                  struct core_cfg **out);

/* Like core_cfg_load(), for text; `source` is its name in messages. */
int core_cfg_parse(const char *text, size_t bytes, const char *source,
                   const struct core_cfg_options *options, struct core_cfg **out);

void core_cfg_destroy(struct core_cfg *cfg);

/* Returns 0, or -EINVAL with the first refusal and the number of others. An engine reads the struct
 * only after 0. */
int core_cfg_check(const struct core_cfg *cfg);

enum core_cfg_note_kind {
    CORE_CFG_NOTE_HONOURED,  /* given and honoured */
    CORE_CFG_NOTE_LATER,     /* given and known, but without effect in this build */
    CORE_CFG_NOTE_IGNORED,   /* given, but without effect; `why` gives the reason */
    CORE_CFG_NOTE_DEFAULTED, /* default or derived */
    CORE_CFG_NOTE_WARNING,   /* accepted, but read `why` */
    CORE_CFG_NOTE_REFUSED,   /* `why` says what is wrong */
};
enum { CORE_CFG_NOTE_KINDS = CORE_CFG_NOTE_REFUSED + 1 };

const char *core_cfg_note_kind_name(enum core_cfg_note_kind kind);

struct core_cfg_note {
    enum core_cfg_note_kind kind;
    size_t line, column; /* in the file; 0: none */
    const char *key;     /* "zero_optimization.stage" */
    const char *value;   /* value as JSON; NULL: none */
    const char *why;     /* "": nothing to add */
};

const char *core_cfg_source(const struct core_cfg *cfg);
size_t core_cfg_notes_count(const struct core_cfg *cfg);
size_t core_cfg_notes_of(const struct core_cfg *cfg, enum core_cfg_note_kind kind);
/* Refusals come first, then warnings, comment keys, and keys in the order of the table. */
struct core_cfg_note core_cfg_note(const struct core_cfg *cfg, size_t index);

/* Writes the configuration as a JSON object that can be read again, with defaults and "auto" filled
 * in. `key` is as in core_json_write_object_begin(). */
void core_cfg_write(const struct core_cfg *cfg, struct core_json_write *write, const char *key);

/* Writes the table as Markdown: docs/ds_config.md. */
void core_cfg_document(FILE *file);

#endif
