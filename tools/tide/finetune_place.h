/* finetune_place.h: flags that hold several values: --place, --store and --betas. Pure but for the
 * sentence of an error. */
#ifndef TOOLS_TIDE_FINETUNE_PLACE_H
#define TOOLS_TIDE_FINETUNE_PLACE_H

#include <tide/engine.h>

/* "weights=host,acts=recompute" into weights, states, grads and acts of `out`. -EINVAL with what is
 * allowed; then nothing is set. */
int tune_place_parse(const char *text, struct tide_engine_options *out);

/* "DIR" or "DIR:SIZE" as one more store of `out`. The directory's name goes into `directory`, which
 * has room for `room` bytes and outlives `out`. A colon that no size follows belongs to the name. */
int tune_store_parse(const char *text, struct tide_engine_options *out, char *directory,
                     size_t room);

/* "0.9,0.999". */
int tune_betas_parse(const char *text, double *beta1, double *beta2);

#endif
