/* finetune_place.h: parses flags with several values: --place, --store and --betas. Pure functions,
 * except for the message of an error. */
#ifndef TOOLS_TIDE_FINETUNE_PLACE_H
#define TOOLS_TIDE_FINETUNE_PLACE_H

#include <tide/engine.h>

/* Parses "weights=host,acts=recompute" into weights, states, grads and acts of `out`. Returns 0, or
 * -EINVAL with a message; then nothing is set. */
int finetune_place_parse(const char *text, struct tide_engine_options *out);

/* Adds "DIR" or "DIR:SIZE" to the stores of `out`, an array that begins at `paths` (room for
 * TIDE_STORES_MAX). Writes the name of the directory to `directory`, which has `room` bytes. Both
 * must outlive `out`. If the last name of the path has a colon that no number follows, the folder
 * must exist. Returns 0, or -EINVAL with a message. */
int finetune_store_parse(const char *text, struct tide_engine_options *out,
                         struct tide_store_path *paths, char *directory, size_t room);

/* Parses "0.9,0.999". Returns 0, or -EINVAL with a message. */
int finetune_betas_parse(const char *text, double *beta1, double *beta2);

#endif
