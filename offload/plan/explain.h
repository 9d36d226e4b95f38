/* explain.h: describes what limits a plan's step, and why another plan was not chosen. Pure. */
#ifndef OFFLOAD_PLAN_EXPLAIN_H
#define OFFLOAD_PLAN_EXPLAIN_H

#include <stddef.h>

#include "offload/plan/plan.h"

/* Writes a phrase such as "the drive, 97 % busy" to `text`, and returns `text`. */
const char *plan_bottleneck_print(const struct plan_prediction *predicted, char *text,
                                  size_t bytes);

/* Writes a phrase such as "12 % slower, 0.310 GB less memory" to `text`, and returns `text`. */
const char *plan_alternative_print(const struct plan_input *input, const struct plan *plan,
                                   const struct plan_alternative *alternative, char *text,
                                   size_t bytes);

#endif
