/* rules.c: checks and derives keys that depend on each other. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/config/internal.h"

static struct core_cfg_value *value_of(struct core_cfg_detail *detail, const char *path)
{
    return &detail->values[core_cfg_index(path)];
}

static void refuse(struct core_cfg_detail *detail, const char *path, const char *why)
{
    core_cfg_tell(detail, CORE_CFG_NOTE_REFUSED, core_cfg_index(path), "%s", why);
}

static void warn(struct core_cfg_detail *detail, const char *path, const char *why)
{
    core_cfg_tell(detail, CORE_CFG_NOTE_WARNING, core_cfg_index(path), "%s", why);
}

static void derive(struct core_cfg_value *value, int64_t integer, const char *why)
{
    value->is_none = false;
    value->integer = integer;
    value->origin = CORE_CFG_DERIVED;
    value->why = value->why != NULL && value->given ? value->why : why;
}

/* Derives the missing size `out` from `whole` and `known`; refuses a `whole` that is not a
 * multiple. */
static void divide(struct core_cfg_detail *detail, struct core_cfg_value *out, int64_t whole,
                   int64_t known, const char *name)
{
    int64_t world = detail->options->world_size;
    int64_t unit = 0;
    if (__builtin_mul_overflow(known, world, &unit) || whole % unit != 0) {
        core_cfg_tell(detail, CORE_CFG_NOTE_REFUSED, core_cfg_index("train_batch_size"),
                      "%" PRId64 " is not a multiple of %s %" PRId64 " x world size %" PRId64,
                      whole, name, known, world);
        return;
    }
    derive(out, whole / unit, "from the batch rule: train = micro x accumulation x world");
}

static void multiply(struct core_cfg_detail *detail, struct core_cfg_value *train, int64_t micro,
                     int64_t accumulation)
{
    int64_t world = detail->options->world_size;
    int64_t product = 0;
    bool overflows = __builtin_mul_overflow(micro, accumulation, &product) ||
                     __builtin_mul_overflow(product, world, &product);
    if (overflows) {
        refuse(detail, "train_batch_size", "micro batch x accumulation x world is beyond 64 bits");
    } else if (train->is_none) {
        derive(train, product, "from the batch rule: train = micro x accumulation x world");
    } else if (train->integer != product) {
        core_cfg_tell(detail, CORE_CFG_NOTE_REFUSED, core_cfg_index("train_batch_size"),
                      "%" PRId64 " is not micro batch %" PRId64 " x accumulation %" PRId64
                      " x world size %" PRId64 ", which is %" PRId64,
                      train->integer, micro, accumulation, world, product);
    }
}

/* Takes missing sizes from the caller; the micro batch only without a train batch. */
static void batch_from_caller(struct core_cfg_detail *detail, struct core_cfg_value *train,
                              struct core_cfg_value *micro, struct core_cfg_value *accumulation)
{
    const struct core_cfg_options *options = detail->options;
    if (train->is_none && micro->is_none && options->micro_batch_size > 0) {
        derive(micro, options->micro_batch_size, "as requested");
    }
    if (accumulation->is_none && options->accumulation_steps > 0) {
        derive(accumulation, options->accumulation_steps, "as requested");
    }
}

static void apply_batch(struct core_cfg_detail *detail)
{
    struct core_cfg_value *train = value_of(detail, "train_batch_size");
    struct core_cfg_value *micro = value_of(detail, "train_micro_batch_size_per_gpu");
    struct core_cfg_value *accumulation = value_of(detail, "gradient_accumulation_steps");
    if (core_cfg_was_refused(detail, "train_batch_size") ||
        core_cfg_was_refused(detail, "train_micro_batch_size_per_gpu") ||
        core_cfg_was_refused(detail, "gradient_accumulation_steps")) {
        return; /* the refused value cannot be used */
    }
    batch_from_caller(detail, train, micro, accumulation);
    if (train->is_none && micro->is_none) {
        refuse(detail, "train_batch_size",
               "neither it nor train_micro_batch_size_per_gpu is given; allowed: an integer from 1 "
               "up for at least one of them");
        return;
    }
    if (accumulation->is_none && (train->is_none || micro->is_none)) {
        derive(accumulation, 1, "from the batch rule, for lack of other keys");
    }
    if (micro->is_none) {
        divide(detail, micro, train->integer, accumulation->integer, "gradient_accumulation_steps");
    } else if (accumulation->is_none) {
        divide(detail, accumulation, train->integer, micro->integer,
               "train_micro_batch_size_per_gpu");
    } else {
        multiply(detail, train, micro->integer, accumulation->integer);
    }
}

static void apply_precision(struct core_cfg_detail *detail)
{
    const struct core_cfg_value *fp16 = value_of(detail, "fp16.enabled");
    const struct core_cfg_value *bf16 = value_of(detail, "bf16.enabled");
    if (fp16->truth && bf16->truth) {
        core_cfg_tell(detail, CORE_CFG_NOTE_REFUSED, core_cfg_index("fp16.enabled"),
                      "bf16.enabled on line %zu is also true; allowed: one of the two",
                      bf16->place.line);
    }
    if (fp16->truth && value_of(detail, "fp16.loss_scale")->real[0] == 0) {
        static const char *const above[] = {"fp16.loss_scale_window", "fp16.min_loss_scale"};
        for (size_t i = 0; i < 2; i++) {
            if (value_of(detail, above[i])->integer <= 0) {
                core_cfg_tell(detail, CORE_CFG_NOTE_REFUSED, core_cfg_index(above[i]),
                              "found %" PRId64
                              "; allowed: an integer of at least 1, because the loss "
                              "scale adapts (loss_scale 0)",
                              value_of(detail, above[i])->integer);
            }
        }
    }
    const struct core_cfg_value *states = value_of(detail, "bf16.bf16_optimizer_states");
    if (states->truth && !value_of(detail, "bf16.bf16_master_weights_and_grads")->truth) {
        refuse(detail, "bf16.bf16_optimizer_states",
               "also needs bf16_master_weights_and_grads: true");
    }
}

static void apply_offload(struct core_cfg_detail *detail, const char *device, const char *path,
                          int64_t stage_min)
{
    const struct core_cfg_value *value = value_of(detail, device);
    if (value->integer == CORE_CFG_DEVICE_NVME && !detail->options->has_store) {
        const struct core_cfg_value *where = value_of(detail, path);
        if (where->is_none || where->text[0] == '\0') {
            refuse(detail, path, "device is \"nvme\"; allowed: the path of a directory on a drive");
        }
    }
    if (value->integer != CORE_CFG_DEVICE_NONE &&
        value_of(detail, "zero_optimization.stage")->integer < stage_min) {
        core_cfg_tell(detail, CORE_CFG_NOTE_WARNING, core_cfg_index(device),
                      "DeepSpeed honours it from stage %" PRId64 " on; tide in every stage",
                      stage_min);
    }
}

static void apply_zero(struct core_cfg_detail *detail)
{
    int64_t stage = value_of(detail, "zero_optimization.stage")->integer;
    struct core_cfg_value *overlap = value_of(detail, "zero_optimization.overlap_comm");
    if (overlap->is_none) {
        overlap->is_none = false;
        overlap->truth = stage == 3;
        overlap->origin = CORE_CFG_DERIVED;
        overlap->why = "from the stage: on in stage 3, off below";
    }
    apply_offload(detail, "zero_optimization.offload_param.device",
                  "zero_optimization.offload_param.nvme_path", 3);
    apply_offload(detail, "zero_optimization.offload_optimizer.device",
                  "zero_optimization.offload_optimizer.nvme_path", 1);
    if (value_of(detail, "zero_optimization.offload_optimizer.ratio")->real[0] < 1 && stage != 3) {
        refuse(detail, "zero_optimization.offload_optimizer.ratio",
               "a ratio below 1 needs stage 3; allowed here: 1.0");
    }
    if (value_of(detail, "zero_optimization.elastic_checkpoint")->truth && stage == 3) {
        warn(detail, "zero_optimization.elastic_checkpoint", "has no effect in stage 3");
    }
}

/* Removes the notes about parameters, so that only the refusal of their type is reported. */
static void forget_parameters(struct core_cfg_detail *detail, const char *params)
{
    size_t kept = 0;
    for (size_t i = 0; i < detail->notes_count; i++) {
        if (strncmp(detail->notes[i].key, params, strlen(params)) != 0) {
            detail->notes[kept++] = detail->notes[i];
        }
    }
    detail->notes_count = kept;
}

static void type_default(struct core_cfg_detail *detail, const char *path, double value)
{
    struct core_cfg_value *kept = value_of(detail, path);
    if (kept->origin == CORE_CFG_PRESET && !kept->given) {
        kept->real[0] = value;
        kept->origin = CORE_CFG_DERIVED;
        kept->why = "the default of this type";
    }
}

static void apply_optimizer(struct core_cfg_detail *detail)
{
    size_t row = core_cfg_index("optimizer.type");
    const struct core_cfg_value *type = &detail->values[row];
    struct core_cfg_value *decoupled = value_of(detail, "optimizer.params.adam_w_mode");
    if (core_cfg_was_refused(detail, "optimizer.type")) {
        forget_parameters(detail, "optimizer.params.");
        return;
    }
    if (type->is_none) {
        if (value_of(detail, "optimizer.params")->given) {
            core_cfg_tell(detail, CORE_CFG_NOTE_WARNING, core_cfg_index("optimizer"),
                          "has no type; AdamW is used");
        }
        return;
    }
    if (type->integer >= CORE_CFG_OPTIMIZERS) {
        char name[32];
        core_cfg_choice_name(core_cfg_row(row), type->integer, name, sizeof name);
        forget_parameters(detail, "optimizer.params.");
        bool one_bit = strncmp(name, "OneBit", 6) == 0 || strncmp(name, "ZeroOne", 7) == 0;
        core_cfg_tell(detail, CORE_CFG_NOTE_REFUSED, row,
                      "%s %s; allowed: one of Adam, AdamW, Adagrad, Lion, SGD", name,
                      one_bit ? "cannot be used with ZeRO" : "is not implemented");
    } else if (type->integer == CORE_CFG_ADAGRAD) {
        type_default(detail, "optimizer.params.lr", 1e-2);
        type_default(detail, "optimizer.params.eps", 1e-10);
    } else if (type->integer == CORE_CFG_ADAMW && !decoupled->truth) {
        warn(detail, "optimizer.params.adam_w_mode", "AdamW always uses decoupled weight decay");
        decoupled->truth = true;
    }
}

static void require(struct core_cfg_detail *detail, const char *path, const char *allowed)
{
    const struct core_cfg_value *value = value_of(detail, path);
    if (value->is_none && value->origin != CORE_CFG_AUTO) {
        core_cfg_tell(detail, CORE_CFG_NOTE_REFUSED, core_cfg_index(path),
                      "must be given for this type; allowed: %s", allowed);
    }
}

static void apply_scheduler(struct core_cfg_detail *detail)
{
    const struct core_cfg_value *type = value_of(detail, "scheduler.type");
    if (core_cfg_was_refused(detail, "scheduler.type")) {
        forget_parameters(detail, "scheduler.params.");
        return;
    }
    if (type->is_none) {
        if (value_of(detail, "scheduler")->given) {
            warn(detail, "scheduler", "has no type, so there is no schedule");
        }
        return;
    }
    if (type->integer == CORE_CFG_ONE_CYCLE) {
        require(detail, "scheduler.params.cycle_min_lr", "a number of at least 0");
        require(detail, "scheduler.params.cycle_max_lr", "a number above 0");
    }
    if (type->integer == CORE_CFG_WARMUP_DECAY || type->integer == CORE_CFG_WARMUP_COSINE) {
        struct core_cfg_value *total = value_of(detail, "scheduler.params.total_num_steps");
        if (!total->given && detail->options->total_steps > 0) {
            derive(total, detail->options->total_steps, "as requested");
        }
        require(detail, "scheduler.params.total_num_steps", "an integer of at least 1");
        if (!total->is_none &&
            total->integer < value_of(detail, "scheduler.params.warmup_num_steps")->integer) {
            warn(detail, "scheduler.params.total_num_steps",
                 "the run ends before the warmup (warmup_num_steps) does");
        }
    }
    const struct core_cfg_value *warmup = value_of(detail, "scheduler.params.warmup_num_steps");
    const bool warms = type->integer == CORE_CFG_WARMUP || type->integer == CORE_CFG_WARMUP_DECAY ||
                       type->integer == CORE_CFG_WARMUP_COSINE;
    if (warms && warmup->integer < 2) {
        warn(detail, "scheduler.params.warmup_num_steps",
             "DeepSpeed warms up for at least 2 steps: the first two have the lowest rate");
    }
    struct core_cfg_value *max_lr = value_of(detail, "scheduler.params.warmup_max_lr");
    if (type->integer == CORE_CFG_WARMUP_DECAY && max_lr->is_none) {
        max_lr->is_none = false;
        max_lr->real[0] = 1e-3;
        max_lr->origin = CORE_CFG_DERIVED;
        max_lr->why = "the default of this type";
    }
}

static void apply_vocabulary(struct core_cfg_detail *detail)
{
    const struct core_cfg_value *value = value_of(detail, "vocabulary_size");
    if (!value->is_none && value->integer % 8 != 0) {
        warn(detail, "vocabulary_size", "not a multiple of 8, which makes products slower");
    }
}

void core_cfg_apply_rules(struct core_cfg_detail *detail)
{
    apply_batch(detail);
    apply_precision(detail);
    apply_zero(detail);
    apply_optimizer(detail);
    apply_scheduler(detail);
    apply_vocabulary(detail);
}
