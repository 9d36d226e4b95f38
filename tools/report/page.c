/* page.c: the frame, the head with its figures, the panels, and the values for page.js. */
#include "tools/report/page.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "tools/report/page_parts.h"
#include "tools/report/panels.h"
#include "tools/report/run.h"
#include "tools/report/text.h"

static void write_lines(FILE *out, const char *const *lines)
{
    for (size_t i = 0; lines[i] != NULL; i++) {
        fputs(lines[i], out);
    }
}

/* "Qwen3-4B" of a path. */
static void write_name(FILE *out, const struct report_run *run)
{
    const char *path = run->plan.model[0] != '\0' ? run->plan.model : run->path;
    size_t length = strlen(path);
    char name[REPORT_NAME_BYTES];
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    size_t from = length;
    while (from > 0 && path[from - 1] != '/') {
        from--;
    }
    snprintf(name, sizeof name, "%.*s", (int)(length - from), path + from);
    report_escape(out, name);
}

/* A figure, and below it what to hold it against. */
static void write_tile(FILE *out, const char *name, enum report_unit unit, double value,
                       const char *against, double other)
{
    char number[REPORT_NUMBER_BYTES];
    if (!isfinite(value)) {
        return;
    }
    fprintf(out, "<div class=\"tile\"><span>%s</span><b>%s</b><small>", name,
            report_number(value, unit, number));
    if (isfinite(other)) {
        fprintf(out, "%s %s", against, report_number(other, unit, number));
    }
    fputs("</small></div>\n", out);
}

static void write_steps(FILE *out, const struct report_run *run)
{
    char number[REPORT_NUMBER_BYTES];
    const double planned = run->plan.steps;
    const bool all = !isfinite(planned) || (double)run->last >= planned;
    fprintf(out, "<div class=\"tile\"><span>Steps</span><b>%" PRIu64 "</b><small>", run->last);
    if (isfinite(planned)) {
        fprintf(out, "of %.0f, ", planned);
    }
    fprintf(out, "%s in %s</small></div>\n",
            !run->summary.known ? "so far"
            : all               ? "all"
                                : "stopped",
            report_number(run->whole[REPORT_SECONDS].sum, REPORT_TIME, number));
}

static void write_tiles(FILE *out, const struct report_run *run)
{
    const struct report_plan *plan = &run->plan;
    const double seconds = report_run_seconds(run, 0.5);
    const double rss = run->whole[REPORT_RSS].count > 0 ? run->whole[REPORT_RSS].high : (double)NAN;
    fputs("<div class=\"tiles\">", out);
    write_steps(out, run);
    write_tile(out, "Loss", REPORT_PLAIN, run->last_loss, "from", run->first_loss);
    write_tile(out, "Eval loss", REPORT_PLAIN, run->last_eval, "best", run->best_eval);
    write_tile(out, "Time of a step", REPORT_TIME, seconds, "planned", plan->seconds);
    write_tile(out, "Speed", REPORT_PER_SEC,
               seconds > 0 ? report_run_mean(run, REPORT_TOKENS) / seconds : (double)NAN, "planned",
               plan->rate);
    write_tile(out, "Memory, peak", REPORT_GB,
               run->summary.known ? fmax(rss, run->summary.peak_rss_gb) : rss, "planned",
               (plan->device_bytes + plan->host_bytes) / 1e9);
    fputs("</div>\n", out);
}

static void write_fact(FILE *out, const char *before, const char *text, const char *after)
{
    if (text[0] != '\0') {
        fprintf(out, "<li>%s", before);
        report_escape(out, text);
        fprintf(out, "%s</li>", after);
    }
}

static void write_facts(FILE *out, const struct report_run *run)
{
    const struct report_plan *plan = &run->plan;
    char number[REPORT_NUMBER_BYTES];
    fputs("<ul class=\"facts\">", out);
    if (isfinite(plan->parameters)) {
        fprintf(out, "<li>%s parameters</li>",
                report_number(plan->parameters, REPORT_COUNT, number));
    }
    write_fact(out, "", plan->precision, "");
    write_fact(out, "", plan->optimizer, "");
    if (isfinite(plan->batch) && isfinite(plan->accum) && isfinite(plan->length)) {
        fprintf(out, "<li>%.0f x %.0f rows of %.0f tokens</li>", plan->accum, plan->batch,
                plan->length);
    }
    if (plan->ranks > 1) {
        fprintf(out, "<li>%.0f ranks, ZeRO %.0f</li>", plan->ranks, plan->zero_stage);
    }
    write_fact(out, "on ", plan->device, "");
    write_fact(out, "activations: ", plan->acts, "");
    write_fact(out, "updates: ", plan->timing, "");
    write_fact(out, "began ", plan->time, "");
    fputs("</ul>\n", out);
}

static void write_head(FILE *out, const struct report_run *run)
{
    fputs("<header><p class=\"mark\">tide report</p><h1>", out);
    write_name(out, run);
    fputs("</h1>", out);
    write_facts(out, run);
    write_tiles(out, run);
    fputs("</header>\n", out);
}

/* Means of all buckets, for what the pointer stands on. */
static void write_values(FILE *out, const struct report_run *run)
{
    fprintf(out,
            "<script type=\"application/json\" id=\"values\">{\"first\":%" PRIu64
            ",\"last\":%" PRIu64 ",\"width\":%" PRIu64 ",\"buckets\":%zu,\"of\":{",
            run->first, run->last, run->width, run->buckets);
    bool any = false;
    for (int i = 0; i < REPORT_FIGURES; i++) {
        if (run->whole[i].count == 0) {
            continue;
        }
        fprintf(out, "%s\"%d\":[", any ? ",\n" : "\n", i);
        any = true;
        for (size_t at = 0; at < run->buckets; at++) {
            const struct report_bucket *bucket = &run->figures[at][i];
            fputs(at > 0 ? "," : "", out);
            if (bucket->count > 0) {
                fprintf(out, "%.6g", report_bucket_mean(bucket));
            } else {
                fputs("null", out);
            }
        }
        fputc(']', out);
    }
    fputs("}}</script>\n", out);
}

void report_page_write(FILE *out, const struct report_run *run)
{
    fputs("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n"
          "<meta name=\"generator\" content=\"tide report\">\n"
          "<link rel=\"icon\" href=\"data:,\">\n<title>",
          out);
    write_name(out, run);
    fputs(" \xc2\xb7 tide report</title>\n<style>\n", out);
    write_lines(out, report_page_css);
    fputs("</style></head><body>\n", out);
    write_head(out, run);
    fputs("<main>\n", out);
    report_panels_causes(out, run);
    report_panels_charts(out, run);
    report_panels_plan(out, run);
    report_panels_tiers(out, run);
    report_panels_events(out, run);
    fputs("</main>\n<footer>From <code>", out);
    report_escape(out, run->path);
    fprintf(out, "</code>, steps %" PRIu64 " to %" PRIu64, run->first, run->last);
    if (run->width > 1) {
        fprintf(out, ", %" PRIu64 " a point", run->width);
    }
    fputs(". Move over a chart, or focus one and use the arrow keys.</footer>\n", out);
    write_values(out, run);
    fputs("<script>\n", out);
    write_lines(out, report_page_js);
    fputs("</script></body></html>\n", out);
}
