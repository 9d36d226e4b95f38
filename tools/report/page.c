/* page.c: writes the page's frame and the run's data as JSON, which page.js draws. */
#include "tools/report/page.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/json/write.h"
#include "tools/report/page_parts.h"
#include "tools/report/run.h"

static const char *const figure_names[REPORT_FIGURES] = {
    [REPORT_LOSS] = "loss",
    [REPORT_EVAL] = "eval",
    [REPORT_NORM] = "norm",
    [REPORT_LR] = "lr",
    [REPORT_SCALE] = "scale",
    [REPORT_SKIPPED] = "skipped",
    [REPORT_TOKENS] = "tokens",
    [REPORT_SECONDS] = "seconds",
    [REPORT_RATE] = "rate",
    [REPORT_READ] = "read",
    [REPORT_WRITE] = "write",
    [REPORT_UP] = "up",
    [REPORT_DOWN] = "down",
    [REPORT_GATHER] = "gather",
    [REPORT_REDUCE] = "reduce",
    [REPORT_GATHER_BETWEEN] = "gather_between",
    [REPORT_REDUCE_BETWEEN] = "reduce_between",
    [REPORT_WAIT_READ] = "wait_read",
    [REPORT_WAIT_WRITE] = "wait_write",
    [REPORT_WAIT_UPDATE] = "wait_update",
    [REPORT_WAIT_COPY] = "wait_copy",
    [REPORT_WAIT_IMBALANCE] = "wait_imbalance",
    [REPORT_WAIT_OTHER] = "wait_other",
    [REPORT_WAIT_DATA] = "wait_data",
    [REPORT_RIGHT] = "right",
    [REPORT_WRONG] = "wrong",
    [REPORT_LOST_BYTES] = "lost_bytes",
    [REPORT_LOST_SECONDS] = "lost_seconds",
    [REPORT_RSS] = "rss",
    [REPORT_DRIVE] = "drive_1",
    [REPORT_DRIVE + 1] = "drive_2",
    [REPORT_DRIVE + 2] = "drive_3",
    [REPORT_DRIVE + 3] = "drive_4",
    [REPORT_DRIVE + 4] = "drive_5",
    [REPORT_DRIVE + 5] = "drive_6",
    [REPORT_DRIVE + 6] = "drive_7",
    [REPORT_DRIVE_LAST] = "drive_8",
    [REPORT_CHOSEN] = "chosen",
    [REPORT_REJECTED] = "rejected",
    [REPORT_MARGIN] = "margin",
    [REPORT_ACCURACY] = "accuracy",
    [REPORT_EVAL_MARGIN] = "eval_margin",
    [REPORT_EVAL_ACCURACY] = "eval_accuracy",
    [REPORT_COMPUTE] = "compute",
};

static void write_lines(FILE *out, const char *const *lines)
{
    for (size_t i = 0; lines[i] != NULL; i++) {
        fputs(lines[i], out);
    }
}

/* Writes the last name in the path of the model ("Qwen3-4B") or, if unknown, of the log. */
static void find_name(const struct report_run *run, char name[REPORT_NAME_BYTES])
{
    const char *path = run->plan.model[0] != '\0' ? run->plan.model : run->path;
    size_t length = strlen(path);
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    size_t from = length;
    while (from > 0 && path[from - 1] != '/') {
        from--;
    }
    snprintf(name, REPORT_NAME_BYTES, "%.*s", (int)(length - from), path + from);
}

/* ---- the data; a number that the log does not have is null ---- */

enum part { LOW, HIGH, SUM, COUNT, ODD };

static void write_part(struct core_json_write *json, const struct report_run *run, int figure,
                       const char *key, enum part part)
{
    core_json_write_array_begin(json, key);
    for (size_t at = 0; at < run->buckets; at++) {
        const struct report_bucket *bucket = &run->figures[at][figure];
        const bool none = bucket->count == 0;
        switch (part) {
        case LOW: core_json_write_real(json, NULL, none ? (double)NAN : bucket->low); break;
        case HIGH: core_json_write_real(json, NULL, none ? (double)NAN : bucket->high); break;
        case SUM: core_json_write_real(json, NULL, none ? (double)NAN : bucket->sum); break;
        case COUNT: core_json_write_unsigned(json, NULL, bucket->count); break;
        case ODD: core_json_write_unsigned(json, NULL, bucket->odd); break;
        }
    }
    core_json_write_array_end(json);
}

/* For buckets of one step, writes only the sum, which is also low and high; null: no value. */
static void write_figure(struct core_json_write *json, const struct report_run *run, int figure)
{
    const struct report_bucket *whole = &run->whole[figure];
    core_json_write_object_begin(json, figure_names[figure]);
    core_json_write_object_begin(json, "whole");
    core_json_write_real(json, "low", whole->low);
    core_json_write_real(json, "high", whole->high);
    core_json_write_real(json, "sum", whole->sum);
    core_json_write_unsigned(json, "count", whole->count);
    core_json_write_unsigned(json, "odd", whole->odd);
    core_json_write_object_end(json);
    if (whole->count > 0) {
        write_part(json, run, figure, "sum", SUM);
    } else {
        core_json_write_array_begin(json, "sum");
        core_json_write_array_end(json);
    }
    if (whole->count > 0 && run->width > 1) {
        write_part(json, run, figure, "low", LOW);
        write_part(json, run, figure, "high", HIGH);
    }
    if (run->width > 1 || whole->count == 0) {
        write_part(json, run, figure, "count", COUNT);
    }
    if (whole->odd > 0) {
        write_part(json, run, figure, "odd", ODD);
    }
    core_json_write_object_end(json);
}

static void write_plan(struct core_json_write *json, const struct report_plan *plan)
{
    const struct {
        const char *key, *text;
    } texts[] = {
        {"device", plan->device}, {"precision", plan->precision},   {"optimizer", plan->optimizer},
        {"acts", plan->acts},     {"timing", plan->timing},         {"time", plan->time},
        {"model", plan->model},   {"bottleneck", plan->bottleneck},
    };
    const struct {
        const char *key;
        double value;
    } reals[] = {
        {"ranks", plan->ranks},
        {"zero_stage", plan->zero_stage},
        {"batch", plan->batch},
        {"accum", plan->accum},
        {"length", plan->length},
        {"parameters", plan->parameters},
        {"device_bytes", plan->device_bytes},
        {"host_bytes", plan->host_bytes},
        {"store_bytes", plan->store_bytes},
        {"seconds", plan->seconds},
        {"rate", plan->rate},
        {"read", plan->read},
        {"write", plan->write},
        {"up", plan->up},
        {"down", plan->down},
        {"steps", plan->steps},
        {"clip", plan->clip},
        {"taken_device", plan->taken_device},
        {"taken_host", plan->taken_host},
    };
    core_json_write_object_begin(json, "plan");
    core_json_write_bool(json, "known", plan->known);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        core_json_write_string(json, texts[i].key, texts[i].text);
    }
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        core_json_write_real(json, reals[i].key, reals[i].value);
    }
    core_json_write_array_begin(json, "parts");
    for (size_t i = 0; i < plan->part_count; i++) {
        core_json_write_object_begin(json, NULL);
        core_json_write_string(json, "tier", plan->parts[i].tier);
        core_json_write_string(json, "what", plan->parts[i].what);
        core_json_write_real(json, "bytes", plan->parts[i].bytes);
        core_json_write_object_end(json);
    }
    core_json_write_array_end(json);
    core_json_write_object_end(json);
}

static void write_summary(struct core_json_write *json, const struct report_summary *summary)
{
    if (!summary->known) {
        core_json_write_null(json, "summary");
        return;
    }
    core_json_write_object_begin(json, "summary");
    core_json_write_real(json, "peak_rss_gb", summary->peak_rss_gb);
    core_json_write_real(json, "plan_seconds", summary->plan_seconds);
    core_json_write_object_end(json);
}

static void write_events(struct core_json_write *json, const struct report_run *run)
{
    core_json_write_array_begin(json, "events");
    for (size_t i = 0; i < run->event_count; i++) {
        core_json_write_object_begin(json, NULL);
        core_json_write_unsigned(json, "step", run->events[i].step);
        core_json_write_string(json, "kind", run->events[i].kind);
        core_json_write_string(json, "text", run->events[i].text);
        core_json_write_object_end(json);
    }
    core_json_write_array_end(json);
    core_json_write_unsigned(json, "events_lost", run->events_lost);
    core_json_write_unsigned(json, "restarts", run->restarts);
    core_json_write_unsigned(json, "repeated", run->repeated);
    core_json_write_bool(json, "torn", run->torn);
}

static int write_run(struct core_json_write *json, const struct report_run *run)
{
    char name[REPORT_NAME_BYTES];
    find_name(run, name);
    core_json_write_object_begin(json, NULL);
    core_json_write_string(json, "name", name);
    core_json_write_string(json, "path", run->path);
    core_json_write_unsigned(json, "first", run->first);
    core_json_write_unsigned(json, "last", run->last);
    core_json_write_unsigned(json, "width", run->width);
    core_json_write_unsigned(json, "buckets", run->buckets);
    core_json_write_real(json, "first_loss", run->first_loss);
    core_json_write_real(json, "last_loss", run->last_loss);
    core_json_write_real(json, "last_eval", run->last_eval);
    core_json_write_real(json, "best_eval", run->best_eval);
    core_json_write_real(json, "median_seconds", report_run_seconds(run, 0.5));
    write_plan(json, &run->plan);
    write_summary(json, &run->summary);
    write_events(json, run);
    core_json_write_object_begin(json, "figures");
    for (int i = 0; i < REPORT_FIGURES; i++) {
        write_figure(json, run, i);
    }
    core_json_write_object_end(json);
    core_json_write_object_end(json);
    return core_json_write_end(json);
}

/* Escapes "<", so that no text can end the script element. */
static void put_json(FILE *out, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '<') {
            fputs("\\u003c", out);
        } else {
            fputc(text[i], out);
        }
    }
}

static void put_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '&': fputs("&amp;", out); break;
        default: fputc((unsigned char)*text < 0x20 ? ' ' : *text, out);
        }
    }
}

int report_page_write(FILE *out, const struct report_run *run)
{
    char name[REPORT_NAME_BYTES];
    struct core_json_write json;
    core_json_write_init_text(&json);
    json.nan_is_null = true;
    int rc = write_run(&json, run);
    if (rc != 0) {
        goto end;
    }
    find_name(run, name);
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n"
          "<meta name=\"generator\" content=\"tide report\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n<title>",
          out);
    put_text(out, name);
    fputs(" \xc2\xb7 tide report</title>\n<style>\n", out);
    write_lines(out, report_page_css);
    fputs("</style></head><body>\n<div id=\"page\"><p>This page is drawn by its script.</p></div>\n"
          "<script type=\"application/json\" id=\"run\">",
          out);
    put_json(out, json.text, json.bytes);
    fputs("</script>\n<script>\n", out);
    write_lines(out, report_page_js);
    fputs("</script></body></html>\n", out);
end:
    core_json_write_fini(&json);
    return rc;
}
