/* finetune_place.h: parses --place, --store and --betas. Pure functions, except for error
 * messages. */
#ifndef TOOLS_TIDE_FINETUNE_PLACE_H
#define TOOLS_TIDE_FINETUNE_PLACE_H

#include <tide/engine.h>

/* Parses "weights=host,acts=recompute" into `out`. On an error nothing is set. */
int finetune_place_parse(const char *text, struct tide_engine_options *out);

/* Adds "DIR" or "DIR:SIZE" to the stores of `out`, in `paths` ([TIDE_STORES_MAX]), with the name of
 * the directory in `directory` ([room]). `paths` and `directory` must outlive `out`. A folder
 * whose name ends like "a:b", without a number, must exist. */
int finetune_store_parse(const char *text, struct tide_engine_options *out,
                         struct tide_store_path *paths, char *directory, size_t room);

/* Parses "0.9,0.999". */
int finetune_betas_parse(const char *text, double *beta1, double *beta2);

#endif
