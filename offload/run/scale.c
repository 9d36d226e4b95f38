/* scale.c: changes the loss scale by the rules that DeepSpeed documents and implements. */
#include "offload/run/scale.h"

#include <errno.h>
#include <math.h>

#include "core/base/err.h"

void run_scale_init(struct run_scale *scale, const struct run_scale_options *options)
{
    *scale = (struct run_scale){
        .options = *options,
        .value = options->fixed > 0 ? options->fixed : options->first,
        .hysteresis_left = options->hysteresis,
    };
}

int run_scale_step(struct run_scale *scale, bool overflow)
{
    const struct run_scale_options *options = &scale->options;
    if (options->fixed > 0) {
        return 0;
    }
    const uint64_t now = ++scale->steps;
    if (overflow) {
        scale->last_overflow = now;
        if (scale->hysteresis_left > 1) {
            scale->hysteresis_left--;
            return 0;
        }
        if (scale->value <= options->least) {
            return core_err_set(-ERANGE,
                                "step %llu overflowed at the smallest loss scale, %g: the "
                                "gradients of this run exceed the range of fp16; use bf16",
                                (unsigned long long)now, options->least);
        }
        scale->value = fmax(scale->value / 2, options->least);
        return 0;
    }
    if (options->consecutive_hysteresis) {
        scale->hysteresis_left = options->hysteresis;
    }
    const uint64_t clean = now - scale->last_overflow - 1; /* steps without overflow before this
                                                            * one */
    if (clean > 0 && clean % options->window == 0) {
        if (!options->consecutive_hysteresis) {
            scale->hysteresis_left = options->hysteresis;
        }
        scale->value *= 2;
    }
    return 0;
}
