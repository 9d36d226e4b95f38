/* explain.h: describes in words what limits a plan's step, and why another plan was not chosen.
 * Pure. */
#ifndef OFFLOAD_PLAN_EXPLAIN_H
#define OFFLOAD_PLAN_EXPLAIN_H

#include <stddef.h>

#include "offload/plan/plan.h"

/* Writes a phrase about the bottleneck to `text`, such as "the drive, 97 % busy", and returns
 * `text`. */
const char *plan_bottleneck_print(const struct plan_prediction *predicted, char *text,
                                  size_t bytes);

/* Writes to `text` why an alternative was not chosen, such as "12 % slower, 0.310 GB less memory",
 * and returns `text`. */
const char *plan_alternative_print(const struct plan_input *input, const struct plan *plan,
                                   const struct plan_alternative *alternative, char *text,
                                   size_t bytes);

#endif
