/* plan_text.h: a plan for people. Main thread. */
#ifndef TOOLS_TIDE_PLAN_TEXT_H
#define TOOLS_TIDE_PLAN_TEXT_H

#include <stdio.h>
#include <tide/engine.h>

/* Prints the bytes of the tiers and their parts, the choices, the time of a step and its
 * bottleneck. */
int cli_plan_print(const struct tide_plan *plan, const struct tide_engine_options *options,
                   FILE *stream);

/* Prints the main figures before a run. */
void cli_plan_print_short(const struct tide_plan *plan, const struct tide_engine_options *options,
                          FILE *stream);

/* Prints the times of a step with twice as much of each part of the machine, the most useful part
 * first. */
int cli_plan_print_what_if(const struct tide_plan *plan, FILE *stream);

enum { CLI_WHAT_IFS_MAX = 16 };

/* Writes what cli_plan_print_what_if() prints. */
int cli_plan_what_ifs(const struct tide_plan *plan, struct tide_plan_what_if out[CLI_WHAT_IFS_MAX],
                      size_t *count);

void cli_plan_print_tape(const struct tide_plan *plan, FILE *stream);

/* Functions that end in _name return "store", "recompute", "layer", "deferred" ... */
const char *cli_plan_place_name(uint64_t place);
/* Returns the most tokens of a pair; 0 without pairs. */
uint64_t cli_plan_pair_length(const struct tide_engine_options *options);
const char *cli_plan_acts_name(uint64_t acts);
const char *cli_plan_order_name(uint64_t order);
const char *cli_plan_timing_name(uint64_t timing);

/* Returns the terabytes that a day of steps writes to the drives. */
double cli_plan_wear_tb(const struct tide_plan_info *info);

#endif
