/* plan_json.h: a plan as JSON (docs/plan-json.md). Main thread. */
#ifndef TOOLS_TIDE_PLAN_JSON_H
#define TOOLS_TIDE_PLAN_JSON_H

#include <stdbool.h>
#include <tide/engine.h>

struct core_json_write;

enum { PLAN_JSON_VERSION = 1 };

/* Writes one object under `key`, which may be NULL (see core_json_write_object_begin()). With
 * `what_if` the object also has the times of a step on machines that have twice as much of one
 * part. The caller ends the writer. Returns 0, or -errno with a message. */
int cli_plan_write_json(struct core_json_write *json, const char *key, const struct tide_plan *plan,
                        const struct tide_engine_options *options, bool what_if);

#endif
