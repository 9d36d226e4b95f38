/* auto.c: turns legacy forms of keys into the present ones, and "auto" into the caller's value,
 * that of the Hugging Face trainer or the default. */
#include <math.h>
#include <string.h>

#include "core/config/internal.h"

static struct core_cfg_value *value_of(struct core_cfg_detail *detail, const char *path)
{
    return &detail->values[core_cfg_index(path)];
}

/* Moves cpu_offload or cpu_offload_param: true means {device: cpu} in `section`. */
static void move_offload(struct core_cfg_detail *detail, const char *old, const char *section,
                         const char *device)
{
    size_t row = core_cfg_index(old);
    const struct core_cfg_value *value = &detail->values[row];
    if (!value->given || value->is_none) {
        return;
    }
    if (value->truth && value_of(detail, section)->given) {
        core_cfg_tell(detail, CORE_CFG_NOTE_REFUSED, row,
                      "%s on line %zu sets the same in the newer form; keep only that", section,
                      value_of(detail, section)->place.line);
        return;
    }
    core_cfg_tell(detail, CORE_CFG_NOTE_WARNING, row, "an older form; write %s: %s instead", device,
                  value->truth ? "\"cpu\"" : "\"none\"");
    if (value->truth) {
        struct core_cfg_value *target = value_of(detail, device);
        target->integer = CORE_CFG_DEVICE_CPU;
        target->origin = CORE_CFG_DERIVED;
        target->why = "from the older form";
    }
}

static void move_pinning(struct core_cfg_detail *detail)
{
    static const char *const pins[] = {"zero_optimization.offload_param.pin_memory",
                                       "zero_optimization.offload_optimizer.pin_memory"};
    size_t row = core_cfg_index("zero_optimization.cpu_offload_use_pin_memory");
    const struct core_cfg_value *value = &detail->values[row];
    if (!value->given || value->is_none) {
        return;
    }
    core_cfg_tell(detail, CORE_CFG_NOTE_WARNING, row,
                  "an older form; write pin_memory inside the offload sections instead");
    for (size_t i = 0; i < 2; i++) {
        struct core_cfg_value *pin = value_of(detail, pins[i]);
        if (!pin->given) {
            pin->truth = value->truth;
            pin->origin = CORE_CFG_DERIVED;
            pin->why = "from the older form";
        }
    }
}

static const char *const from_caller = "\"auto\": as requested";
static const char *const from_trainer = "\"auto\": the default of the Hugging Face trainer";

static void fill_real(struct core_cfg_detail *detail, const char *path, double asked,
                      double otherwise)
{
    struct core_cfg_value *value = value_of(detail, path);
    if (value->origin == CORE_CFG_AUTO) {
        value->is_none = false;
        value->real[0] = isnan(asked) ? otherwise : asked;
        value->why = isnan(asked) ? from_trainer : from_caller;
    }
}

static void fill_integer(struct core_cfg_detail *detail, const char *path, int64_t asked,
                         int64_t otherwise)
{
    struct core_cfg_value *value = value_of(detail, path);
    if (value->origin == CORE_CFG_AUTO) {
        int64_t chosen = asked == CORE_CFG_NONE ? otherwise : asked;
        value->is_none = chosen == CORE_CFG_NONE;
        value->integer = chosen;
        value->why = asked != CORE_CFG_NONE       ? from_caller
                     : otherwise != CORE_CFG_NONE ? from_trainer
                                                  : "\"auto\": the run fills it in";
    }
}

/* Fills in `factor` times the model's hidden size or its square; if that is unknown, keeps the
 * default. */
static void fill_hidden(struct core_cfg_detail *detail, const char *path, double factor,
                        bool squared)
{
    int64_t hidden = detail->options->hidden_size;
    struct core_cfg_value *value = value_of(detail, path);
    if (value->origin != CORE_CFG_AUTO) {
        return;
    }
    value->why = "\"auto\": the default, because the model's hidden size is not known here";
    if (hidden > 0) {
        double chosen = factor * (double)hidden * (squared ? (double)hidden : 1);
        value->integer = chosen < 0x1p63 ? (int64_t)chosen : INT64_MAX;
        value->why = "\"auto\": from the model's hidden size";
    }
}

static void fill_precision(struct core_cfg_detail *detail, const char *path,
                           enum core_cfg_dtype type)
{
    struct core_cfg_value *value = value_of(detail, path);
    if (value->origin == CORE_CFG_AUTO) {
        const int asked = detail->options->precision;
        value->truth = (asked < 0 ? CORE_CFG_BF16 : asked) == (int)type;
        value->why = asked < 0 ? "\"auto\": bf16, the default precision of tide" : from_caller;
    }
}

/* Leaves a missing batch size to the batch rule (rules.c). */
static void fill_batch(struct core_cfg_detail *detail)
{
    const struct core_cfg_options *options = detail->options;
    struct core_cfg_value *train = value_of(detail, "train_batch_size");
    struct core_cfg_value *micro = value_of(detail, "train_micro_batch_size_per_gpu");
    struct core_cfg_value *accumulation = value_of(detail, "gradient_accumulation_steps");
    if (train->is_none || micro->is_none || accumulation->is_none) {
        bool derivable = !train->is_none;
        fill_integer(detail, "gradient_accumulation_steps", options->accumulation_steps,
                     derivable && !micro->is_none ? CORE_CFG_NONE : 1);
        fill_integer(detail, "train_micro_batch_size_per_gpu", options->micro_batch_size,
                     derivable ? CORE_CFG_NONE : 8);
    }
    if (train->origin == CORE_CFG_AUTO) {
        train->why = "\"auto\": from the other two and the number of ranks";
    }
}

static void fill_optimizer(struct core_cfg_detail *detail)
{
    const struct core_cfg_options *options = detail->options;
    struct core_cfg_value *betas = value_of(detail, "optimizer.params.betas");
    fill_real(detail, "optimizer.params.lr", options->lr, 5e-5);
    fill_real(detail, "optimizer.params.eps", options->eps, 1e-8);
    fill_real(detail, "optimizer.params.weight_decay", options->weight_decay, 0);
    if (betas->origin == CORE_CFG_AUTO) {
        bool asked = !isnan(options->betas[0]) && !isnan(options->betas[1]);
        betas->real[0] = asked ? options->betas[0] : 0.9;
        betas->real[1] = asked ? options->betas[1] : 0.999;
        betas->why = asked ? from_caller : from_trainer;
    }
}

static void fill_schedule(struct core_cfg_detail *detail)
{
    const struct core_cfg_options *options = detail->options;
    const struct core_cfg_value *lr = value_of(detail, "optimizer.params.lr");
    fill_real(detail, "scheduler.params.warmup_min_lr", (double)NAN, 0);
    fill_real(detail, "scheduler.params.warmup_max_lr", options->lr,
              lr->given ? lr->real[0] : 5e-5);
    fill_integer(detail, "scheduler.params.warmup_num_steps", options->warmup_steps, 0);
    fill_integer(detail, "scheduler.params.total_num_steps", options->total_steps, CORE_CFG_NONE);
}

void core_cfg_resolve(struct core_cfg_detail *detail)
{
    move_offload(detail, "zero_optimization.cpu_offload", "zero_optimization.offload_optimizer",
                 "zero_optimization.offload_optimizer.device");
    move_offload(detail, "zero_optimization.cpu_offload_param", "zero_optimization.offload_param",
                 "zero_optimization.offload_param.device");
    move_pinning(detail);
    fill_batch(detail);
    fill_optimizer(detail);
    fill_schedule(detail);
    fill_real(detail, "gradient_clipping", detail->options->gradient_clipping, 1.0);
    fill_precision(detail, "fp16.enabled", CORE_CFG_FP16);
    fill_precision(detail, "bf16.enabled", CORE_CFG_BF16);
    fill_hidden(detail, "zero_optimization.reduce_bucket_size", 1, true);
    fill_hidden(detail, "zero_optimization.stage3_prefetch_bucket_size", 0.9, true);
    fill_hidden(detail, "zero_optimization.stage3_param_persistence_threshold", 10, false);
    size_t count = core_cfg_row_count();
    for (size_t i = 0; i < count; i++) {
        struct core_cfg_value *value = &detail->values[i];
        if (value->origin == CORE_CFG_AUTO && value->why == NULL) {
            value->why = "\"auto\": the default";
        }
    }
}
