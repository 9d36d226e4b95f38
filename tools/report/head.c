/* head.c: reads "run", "plan", "events" and the summary, which few lines have. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/json/json.h"
#include "tools/report/line.h"

/* Destination of a member: a double, or a text buffer of `bytes` > 0. */
struct target {
    const char *name;
    void *out;
    size_t bytes;
};

static int refuse_member(const struct report_line *line, const char *group, const char *name,
                         const char *wanted)
{
    return core_err_set(-EINVAL, "%s:%" PRIu64 ": key \"%s%s%s\" is not %s", line->path,
                        line->number, group, group[0] != '\0' ? "." : "", name, wanted);
}

static bool is_null(const struct core_json_value *value)
{
    return value == NULL || core_json_kind(value) == CORE_JSON_NULL;
}

/* *out is NULL if the member is missing or null. */
static int find_member(const struct report_line *line, const struct core_json_value *parent,
                       const char *group, enum core_json_kind kind,
                       const struct core_json_value **out)
{
    const char *point = strrchr(group, '.');
    const struct core_json_value *value = core_json_find(parent, point != NULL ? point + 1 : group);
    *out = is_null(value) ? NULL : value;
    return *out == NULL || core_json_kind(value) == kind
               ? 0
               : refuse_member(line, "", group, core_json_kind_name(kind));
}

static int take_one(const struct report_line *line, const char *group,
                    const struct core_json_value *value, const struct target *target)
{
    const enum core_json_kind kind = core_json_kind(value);
    if (target->bytes > 0 && kind == CORE_JSON_STRING) {
        snprintf(target->out, target->bytes, "%s", core_json_string(value, NULL));
        return 0;
    }
    if (target->bytes == 0 && (kind == CORE_JSON_INTEGER || kind == CORE_JSON_REAL)) {
        *(double *)target->out = core_json_real(value);
        return 0;
    }
    return refuse_member(line, group, target->name, target->bytes > 0 ? "a text" : "a number");
}

/* Targets keep their value if the member is missing or null. */
static int read_members(const struct report_line *line, const char *group,
                        const struct core_json_value *object, const struct target *targets,
                        size_t count)
{
    int rc = 0;
    if (!is_null(object) && core_json_kind(object) != CORE_JSON_OBJECT) {
        return refuse_member(line, "", group, core_json_kind_name(CORE_JSON_OBJECT));
    }
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct core_json_value *value = core_json_find(object, targets[i].name);
        rc = is_null(value) ? 0 : take_one(line, group, value, &targets[i]);
    }
    return rc;
}

/* Reads the object of `parent` with the last name of `group`: "step" for "plan.step". */
static int take_in(const struct report_line *line, const char *group,
                   const struct core_json_value *parent, const struct target *targets, size_t count)
{
    const struct core_json_value *object = NULL;
    int rc = find_member(line, parent, group, CORE_JSON_OBJECT, &object);
    return rc != 0 ? rc : read_members(line, group, object, targets, count);
}

#define COUNT(list) (sizeof(list) / sizeof(list)[0])
#define TEXT(name, to)                                                                             \
    {                                                                                              \
        name, to, sizeof(to)                                                                       \
    }
#define REAL(name, to)                                                                             \
    {                                                                                              \
        name, &(to), 0                                                                             \
    }

static int take_run(const struct report_line *line, const struct core_json_value *root,
                    struct report_plan *plan)
{
    char time[32] = "";
    const struct target targets[] = {
        TEXT("time", time),
        REAL("steps", plan->steps),
        REAL("clip", plan->clip),
        REAL("device_bytes", plan->taken_device),
        REAL("host_bytes", plan->taken_host),
    };
    int rc = take_in(line, "run", root, targets, COUNT(targets));
    if (rc == 0 && plan->time[0] == '\0') {
        memcpy(plan->time, time, sizeof plan->time);
    }
    return rc;
}

static int take_parts(const struct report_line *line, const struct core_json_value *object,
                      struct report_plan *plan)
{
    const struct core_json_value *list = NULL;
    int rc = find_member(line, object, "plan.parts", CORE_JSON_ARRAY, &list);
    plan->part_count = 0;
    for (size_t i = 0; rc == 0 && i < core_json_count(list) && i < REPORT_PARTS_MAX; i++) {
        struct report_part *part = &plan->parts[plan->part_count++];
        *part = (struct report_part){.bytes = 0};
        const struct target targets[] = {
            TEXT("tier", part->tier),
            TEXT("what", part->what),
            REAL("bytes", part->bytes),
        };
        rc = read_members(line, "plan.parts[]", core_json_at(list, i), targets, COUNT(targets));
    }
    return rc;
}

static int take_asked(const struct report_line *line, const struct core_json_value *object,
                      struct report_plan *plan)
{
    const struct target targets[] = {
        TEXT("model", plan->model),         TEXT("device", plan->device),
        TEXT("precision", plan->precision), TEXT("optimizer", plan->optimizer),
        REAL("ranks", plan->ranks),         REAL("zero_stage", plan->zero_stage),
        REAL("batch", plan->batch),         REAL("accum", plan->accum),
        REAL("seq_len", plan->length),
    };
    return take_in(line, "plan.asked", object, targets, COUNT(targets));
}

static int take_step(const struct report_line *line, const struct core_json_value *object,
                     struct report_plan *plan)
{
    const struct target targets[] = {
        REAL("seconds", plan->seconds),         REAL("tokens_per_second", plan->rate),
        TEXT("bottleneck", plan->bottleneck),   REAL("store_read_bytes", plan->read),
        REAL("store_write_bytes", plan->write), REAL("h2d_bytes", plan->up),
        REAL("d2h_bytes", plan->down),
    };
    return take_in(line, "plan.step", object, targets, COUNT(targets));
}

static int take_plan(const struct report_line *line, const struct core_json_value *root,
                     struct report_plan *plan)
{
    const struct core_json_value *object = NULL;
    int rc = find_member(line, root, "plan", CORE_JSON_OBJECT, &object);
    const struct target own[] = {
        REAL("parameters", plan->parameters),
    };
    const struct target tiers[] = {
        REAL("device_bytes", plan->device_bytes),
        REAL("host_bytes", plan->host_bytes),
        REAL("store_bytes", plan->store_bytes),
    };
    const struct target chosen[] = {
        TEXT("acts", plan->acts),
        TEXT("timing", plan->timing),
    };
    if (rc != 0 || object == NULL) {
        return rc;
    }
    plan->known = true;
    rc = read_members(line, "plan", object, own, COUNT(own));
    if (rc != 0 || (rc = take_in(line, "plan.tiers", object, tiers, COUNT(tiers))) != 0 ||
        (rc = take_in(line, "plan.chosen", object, chosen, COUNT(chosen))) != 0 ||
        (rc = take_asked(line, object, plan)) != 0 || (rc = take_step(line, object, plan)) != 0) {
        return rc;
    }
    return take_parts(line, object, plan);
}

static int take_events(const struct report_line *line, const struct core_json_value *root,
                       uint64_t step, struct report_run *run)
{
    const struct core_json_value *list = NULL;
    int rc = find_member(line, root, "events", CORE_JSON_ARRAY, &list);
    for (size_t i = 0; rc == 0 && i < core_json_count(list); i++) {
        struct report_event event = {.kind = "event"};
        const struct target targets[] = {TEXT("kind", event.kind), TEXT("text", event.text)};
        rc = read_members(line, "events[]", core_json_at(list, i), targets, COUNT(targets));
        if (rc == 0) {
            report_run_event(run, step, event.kind, event.text);
        }
    }
    return rc;
}

static int take_summary(const struct report_line *line, const struct core_json_value *root,
                        struct report_summary *sum)
{
    const double none = (double)NAN;
    double median_seconds = none; /* only checked */
    *sum = (struct report_summary){true, none, none};
    const struct target targets[] = {
        REAL("median_seconds", median_seconds),
        REAL("peak_rss_gb", sum->peak_rss_gb),
        REAL("plan_seconds", sum->plan_seconds),
    };
    return read_members(line, "", root, targets, COUNT(targets));
}

int report_head_take(const struct report_line *line, enum report_line_kind kind, uint64_t step,
                     struct report_run *run)
{
    struct core_json *doc = NULL;
    int rc = core_json_parse(line->text, line->bytes, line->path, NULL, &doc);
    if (rc != 0) {
        return core_err_prefix(rc, "line %" PRIu64, line->number);
    }
    const struct core_json_value *root = core_json_root(doc);
    rc = take_events(line, root, step, run);
    if (rc == 0 && kind == REPORT_LINE_SUMMARY) {
        rc = take_summary(line, root, &run->summary);
    } else if (rc == 0) {
        rc = take_run(line, root, &run->plan);
        if (rc == 0) {
            rc = take_plan(line, root, &run->plan);
        }
    }
    core_json_destroy(doc);
    return rc;
}
