/* plan_json.h: a plan as JSON (docs/plan-json.md). Main thread. */
#ifndef TOOLS_TIDE_PLAN_JSON_H
#define TOOLS_TIDE_PLAN_JSON_H

#include <stdbool.h>
#include <tide/engine.h>

struct core_json_write;

enum { PLAN_JSON_VERSION = 1 };

/* Writes an object under `key`, which may be NULL; with `what_if`, also the times of a step on
 * machines with twice as much of one part. The caller ends the writer. */
int cli_plan_write_json(struct core_json_write *json, const char *key, const struct tide_plan *plan,
                        const struct tide_engine_options *options, bool what_if);

#endif
