/* finetune_place.h: flags that hold several values: --place, --store and --betas. Pure but for the
 * sentence of an error. */
#ifndef TOOLS_TIDE_FINETUNE_PLACE_H
#define TOOLS_TIDE_FINETUNE_PLACE_H

#include <tide/engine.h>

/* "weights=host,acts=recompute" into weights, states, grads and acts of `out`. -EINVAL with what is
 * allowed; then nothing is set. */
int tune_place_parse(const char *text, struct tide_engine_options *out);

/* Adds "DIR" or "DIR:SIZE" to the stores of `out`, which are the first ones of `paths`
 * (TIDE_STORES_MAX). The directory's name is written to `directory`, which has `room` bytes. Both outlive
 * `out`. A colon without a size after it belongs to the name. */
int tune_store_parse(const char *text, struct tide_engine_options *out,
                     struct tide_store_path *paths, char *directory, size_t room);

/* "0.9,0.999". */
int tune_betas_parse(const char *text, double *beta1, double *beta2);

#endif
