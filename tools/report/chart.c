/* chart.c: axes, legend, marks; the shapes are chart_shape.c's. */
#include "tools/report/chart.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/report/chart_shape.h"

/* Values this far above nearly all others are cut at the top, or nothing else would be seen. */
static const double outlier = 2;

static int compare(const void *left, const void *right)
{
    const double a = *(const double *)left;
    const double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The highest value of a bucket: of the whole stack, or of any line's mean. */
static double top_of(const struct report_chart *chart, const struct report_bucket *row)
{
    double top = (double)NAN;
    double sum = 0;
    for (size_t i = 0; i < chart->count; i++) {
        const double mean = report_bucket_mean(&row[chart->series[i].figure]);
        sum += isnan(mean) ? 0 : mean;
        top = fmax(top, chart->stacked && !isnan(mean) ? sum : mean);
    }
    return top;
}

struct span {
    double low, high; /* of all values; NaN where there is none */
    double usual;     /* 95 of 100 buckets are below */
    double least;     /* above 0 */
};

static struct span span_of(const struct report_run *run, const struct report_chart *chart)
{
    double tops[REPORT_BUCKETS_MAX];
    size_t count = 0;
    struct span span = {(double)NAN, (double)NAN, (double)NAN, (double)NAN};
    for (size_t at = 0; at < run->buckets; at++) {
        const struct report_bucket *row = run->figures[at];
        const double top = top_of(chart, row);
        if (isnan(top)) {
            continue;
        }
        tops[count++] = top;
        span.high = fmax(span.high, top);
        for (size_t i = 0; i < chart->count; i++) {
            const struct report_bucket *bucket = &row[chart->series[i].figure];
            if (bucket->count > 0) {
                span.low = fmin(span.low, bucket->low);
                span.high = chart->stacked ? span.high : fmax(span.high, bucket->high);
                span.least = bucket->low > 0 ? fmin(span.least, bucket->low) : span.least;
            }
        }
    }
    qsort(tops, count, sizeof *tops, compare);
    span.usual = count > 0 ? tops[(count * 95) / 100 < count ? (count * 95) / 100 : count - 1]
                           : (double)NAN;
    if (count > 1 && count < 20) { /* of few, the highest one may be the odd one */
        span.usual = tops[count - 2];
    }
    return span;
}

static struct report_scale scale_of(const struct report_chart *chart, const struct span *span)
{
    struct report_scale scale;
    double high = fmax(span->high, isfinite(chart->limit) ? chart->limit : span->high);
    double low = fmin(span->low, isfinite(chart->limit) ? chart->limit : span->low);
    if (chart->may_log && span->least > 0 && high > span->least * 60) {
        report_scale_log(&scale, span->least, high);
        return scale;
    }
    if (chart->from_zero && span->usual > 0 && high > span->usual * outlier) {
        high = fmax(span->usual * 1.15, isfinite(chart->limit) ? chart->limit : 0);
    }
    report_scale_linear(&scale, chart->from_zero ? fmin(0, low) : low, high, 4);
    return scale;
}

static void write_legend(FILE *out, const struct report_run *run, const struct report_chart *chart)
{
    char number[REPORT_NUMBER_BYTES];
    fputs("<ul class=\"key\">", out);
    for (size_t i = 0; i < chart->count; i++) {
        const struct report_series *series = &chart->series[i];
        const struct report_bucket *whole = &run->whole[series->figure];
        if (whole->count + whole->odd == 0) {
            continue;
        }
        fprintf(out, "<li class=\"%s\"><i></i>%s <output data-f=\"%d\" data-u=\"%s\">",
                series->colour, series->name, (int)series->figure, report_unit_name(chart->unit));
        if (chart->sums) {
            fputs(report_number(whole->sum, chart->unit, number), out);
        } else if (chart->unit != REPORT_PLAIN) { /* what is learnt has no mean */
            fprintf(out, "\xc3\x98 %s",
                    report_number(report_bucket_mean(whole), chart->unit, number));
        }
        fputs("</output></li>", out);
    }
    if (isfinite(chart->limit)) {
        fprintf(out, "<li class=\"limit\"><i></i>%s <b>%s</b></li>", chart->limit_name,
                report_number(chart->limit, chart->unit, number));
    }
    fputs("</ul>", out);
}

static void write_axes(FILE *out, const struct report_run *run, const struct report_chart *chart,
                       const struct report_scale *scale)
{
    struct report_scale steps;
    char number[REPORT_NUMBER_BYTES];
    fputs("<div class=\"ys\">", out);
    for (size_t i = 0; i < scale->tick_count; i++) {
        fprintf(out, "<span style=\"bottom:%.3f%%\">%s</span>",
                100 * report_scale_place(scale, scale->ticks[i]),
                report_tick(scale->ticks[i], chart->unit, number));
    }
    fputs("</div><div class=\"xs\">", out);
    report_scale_linear(&steps, (double)run->first, (double)run->last, 6);
    for (size_t i = 0; i < steps.tick_count; i++) {
        const double step = steps.ticks[i] < (double)run->first ? (double)run->first
                                                                : steps.ticks[i];
        const double place = 100 * report_shape_place(run, step);
        const bool whole = step == floor(step) && step <= (double)run->last;
        if (whole && !(i > 0 && step == steps.ticks[i - 1])) {
            fprintf(out, "<span style=\"left:%.3f%%\">%s</span>", place,
                    report_tick(step, REPORT_COUNT, number));
        }
    }
    fputs("</div>", out);
}

static void write_marks(FILE *out, const struct report_run *run)
{
    for (size_t i = 0; i < run->event_count; i++) {
        const struct report_event *event = &run->events[i];
        if (strcmp(event->kind, "resumed") == 0 && event->step >= run->first &&
            event->step <= run->last) {
            const double x = 1000 * report_shape_place(run, (double)event->step);
            fprintf(out, "<path class=\"resumed\" d=\"M%.1f 0V1000\"/>", x);
        }
    }
}

static void write_picture(FILE *out, const struct report_run *run, const struct report_chart *chart,
                          const struct report_scale *scale)
{
    fprintf(out,
            "<svg viewBox=\"0 0 1000 1000\" preserveAspectRatio=\"none\" role=\"img\" "
            "aria-label=\"%s over steps %" PRIu64 " to %" PRIu64 "\">",
            chart->title, run->first, run->last);
    for (size_t i = 0; i < scale->tick_count; i++) {
        fprintf(out, "<path class=\"grid\" d=\"M0 %.1fH1000\"/>",
                1000 - 1000 * report_scale_place(scale, scale->ticks[i]));
    }
    if (chart->stacked) {
        report_shape_stack(out, run, chart, scale);
    } else {
        report_shape_lines(out, run, chart, scale);
    }
    write_marks(out, run);
    if (isfinite(chart->limit)) {
        fprintf(out, "<path class=\"limit\" d=\"M0 %.1fH1000\"/>",
                1000 - 1000 * report_scale_place(scale, chart->limit));
    }
    fputs("</svg>", out);
}

bool report_chart_write(FILE *out, const struct report_run *run, const struct report_chart *chart)
{
    const struct span span = span_of(run, chart);
    char number[REPORT_NUMBER_BYTES];
    if (isnan(span.high)) {
        return false;
    }
    const struct report_scale scale = scale_of(chart, &span);
    fprintf(out, "<figure id=\"%s\" tabindex=\"0\"><figcaption><h2>%s</h2>", chart->id,
            chart->title);
    write_legend(out, run, chart);
    fputs("</figcaption><div class=\"plot\">", out);
    write_picture(out, run, chart, &scale);
    write_axes(out, run, chart, &scale);
    fputs("<div class=\"cursor\" hidden></div></div>", out);
    fprintf(out, "<p>%s", chart->about);
    if (span.high > scale.high * 1.0001) {
        fprintf(out, " Cut at the top: up to %s.", report_number(span.high, chart->unit, number));
    }
    fputs("</p></figure>\n", out);
    return true;
}
