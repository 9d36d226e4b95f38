/* explain.h: describes in words what limits a plan's step, and why another plan was not chosen.
 * Pure. */
#ifndef OFFLOAD_PLAN_EXPLAIN_H
#define OFFLOAD_PLAN_EXPLAIN_H

#include <stddef.h>

#include "offload/plan/plan.h"

/* Describes the bottleneck in a phrase: "the drive, 97 % busy". Returns text. */
const char *plan_bottleneck_print(const struct plan_prediction *predicted, char *text,
                                  size_t bytes);

/* Says why an alternative was not chosen, in a phrase: "12 % slower, 0.310 GB less memory". Returns
 * text. */
const char *plan_alternative_print(const struct plan_input *input, const struct plan *plan,
                                   const struct plan_alternative *alternative, char *text,
                                   size_t bytes);

#endif
