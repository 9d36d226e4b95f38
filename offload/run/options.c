/* options.c: derives formats of streams, and other values, from the options. */
#include "offload/run/options.h"

#include <string.h>

static uint8_t moment_bytes(enum core_update_type moments)
{
    return moments == CORE_UPDATE_F32 ? 4 : moments == CORE_UPDATE_BF16 ? 2 : 1;
}

enum core_update_type run_options_gradients(const struct run_options *options)
{
    if (options->gradients_fp32 || options->type == KERN_F32) {
        return CORE_UPDATE_F32;
    }
    return options->type == KERN_BF16 ? CORE_UPDATE_BF16 : CORE_UPDATE_FP16;
}

enum block_weights run_options_weights(enum kern_type type)
{
    return type == KERN_BF16   ? BLOCK_WEIGHTS_BF16
           : type == KERN_FP16 ? BLOCK_WEIGHTS_FP16
                               : BLOCK_WEIGHTS_FP32;
}

enum core_update_master run_options_master(const struct run_options *options)
{
    switch (options->type) {
    case KERN_BF16: return CORE_UPDATE_MASTER_SPLIT;
    case KERN_FP16: return CORE_UPDATE_MASTER_FP16;
    case KERN_F32:
    case KERN_F64: break;
    }
    return CORE_UPDATE_MASTER_F32;
}

void run_options_groups(const struct run_options *options, double lr, const double betas[2],
                        uint64_t step, struct adam_group groups[MODEL_GROUP_COUNT])
{
    for (size_t i = 0; i < MODEL_GROUP_COUNT; i++) {
        groups[i] = options->group;
        groups[i].lr = lr;
        groups[i].beta1 = betas[0];
        groups[i].beta2 = betas[1];
        groups[i].decay = i == MODEL_GROUP_DECAY ? options->group.decay : 0;
        groups[i].step = step;
    }
}

struct plan_format run_options_format(const struct run_options *options)
{
    return run_options_format_of(options, run_options_master(options),
                                 run_options_gradients(options));
}

struct plan_format run_options_format_of(const struct run_options *options,
                                         enum core_update_master master,
                                         enum core_update_type gradients)
{
    static const uint8_t master_bytes[] = {[CORE_UPDATE_MASTER_SPLIT] = 2,
                                           [CORE_UPDATE_MASTER_BF16] = 4,
                                           [CORE_UPDATE_MASTER_FP16] = 4,
                                           [CORE_UPDATE_MASTER_F32] = 0};
    const bool has_m = options->rule != CORE_UPDATE_ADAGRAD;
    const bool has_v = options->rule == CORE_UPDATE_ADAM || options->rule == CORE_UPDATE_ADAMW ||
                       options->rule == CORE_UPDATE_ADAGRAD;
    const uint8_t moment = moment_bytes(options->moments);
    return (struct plan_format){
        .weight_bytes = master == CORE_UPDATE_MASTER_F32 ? 4 : 2,
        .master_bytes = master_bytes[master],
        .m_bytes = has_m ? moment : 0,
        .v_bytes = has_v ? moment : 0,
        .grad_bytes = gradients == CORE_UPDATE_F32 ? 4 : 2,
        .q8_block = options->moments == CORE_UPDATE_Q8 ? CORE_UPDATE_Q8_BLOCK : 0,
    };
}

double run_options_touched_bytes(const struct plan_format *format)
{
    const double states = (double)plan_state_bytes(format, CORE_UPDATE_TILE) / CORE_UPDATE_TILE;
    const bool reads_weights = format->master_bytes < sizeof(float);
    return 2 * states + format->grad_bytes + (reads_weights ? 2 : 1) * format->weight_bytes;
}

const char *run_options_file_io(const struct run_options *options)
{
    return options->io != NULL && strcmp(options->io, "mem") == 0 ? NULL : options->io;
}

int64_t run_options_stall_ns(const struct run_options *options)
{
    const int64_t half_an_hour_ns = INT64_C(1800) * 1000000000;
    const int64_t group = 1 + options->micro_batches / RUN_OPTIONS_GROUPS; /* an approximation;
                                                                        * prepare.c decides on
                                                                        * groups */
    return options->stall_limit_ns > 0 ? options->stall_limit_ns : half_an_hour_ns * group;
}
