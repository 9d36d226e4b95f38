/* chart_shape.c: paths. A bucket is a column of its own width; a gap in the figures is one here. */
#include "tools/report/chart_shape.h"

#include <math.h>

static double left_of(const struct report_run *run, size_t bucket)
{
    return 1000.0 * (double)bucket / (double)run->buckets;
}

/* Few columns have air between them. */
static double right_of(const struct report_run *run, size_t bucket)
{
    return left_of(run, bucket + 1) - (run->buckets <= 80 ? 80.0 / (double)(run->buckets + 7) : 0);
}

static double middle_of(const struct report_run *run, size_t bucket)
{
    return 1000.0 * ((double)bucket + 0.5) / (double)run->buckets;
}

double report_shape_place(const struct report_run *run, double step)
{
    const double bucket = floor((step - (double)run->first) / (double)run->width);
    return (bucket + 0.5) / (double)run->buckets;
}

static double y_of(const struct report_scale *scale, double value)
{
    return 1000 - 1000 * report_scale_place(scale, value);
}

/* Runs of buckets that have values: [from, to). False at the end. */
static bool next_run(const struct report_run *run, enum report_figure figure, size_t *from,
                     size_t *to)
{
    size_t at = *to;
    while (at < run->buckets && run->figures[at][figure].count == 0) {
        at++;
    }
    *from = at;
    while (at < run->buckets && run->figures[at][figure].count > 0) {
        at++;
    }
    *to = at;
    return *from < *to;
}

static void write_band(FILE *out, const struct report_run *run, const struct report_series *series,
                       const struct report_scale *scale)
{
    size_t from = 0;
    size_t to = 0;
    if (run->width == 1) {
        return; /* a bucket has one value */
    }
    fprintf(out, "<path class=\"band %s\" d=\"", series->colour);
    while (next_run(run, series->figure, &from, &to)) {
        for (size_t at = from; at < to; at++) {
            fprintf(out, "%c%.1f %.1f", at == from ? 'M' : 'L', middle_of(run, at),
                    y_of(scale, run->figures[at][series->figure].high));
        }
        for (size_t at = to; at-- > from;) {
            fprintf(out, "L%.1f %.1f", middle_of(run, at),
                    y_of(scale, run->figures[at][series->figure].low));
        }
        fputc('Z', out);
    }
    fputs("\"/>", out);
}

/* A dot is a line of no length with round ends. */
static void write_dot(FILE *out, const struct report_run *run, size_t at,
                      const struct report_bucket *bucket, const struct report_scale *scale)
{
    fprintf(out, "M%.1f %.1fh.01", middle_of(run, at), y_of(scale, report_bucket_mean(bucket)));
}

static bool is_alone(const struct report_run *run, size_t at, enum report_figure figure)
{
    return run->figures[at][figure].count > 0 &&
           (at == 0 || run->figures[at - 1][figure].count == 0) &&
           (at + 1 == run->buckets || run->figures[at + 1][figure].count == 0);
}

static void write_line(FILE *out, const struct report_run *run, const struct report_series *series,
                       const struct report_scale *scale)
{
    size_t from = 0;
    size_t to = 0;
    fprintf(out, "<path class=\"line %s\" d=\"", series->colour);
    while (next_run(run, series->figure, &from, &to)) {
        for (size_t at = from; at < to; at++) {
            fprintf(out, "%c%.1f %.1f", at == from ? 'M' : 'L', middle_of(run, at),
                    y_of(scale, report_bucket_mean(&run->figures[at][series->figure])));
        }
    }
    fputs("\"/>", out);
}

/* All values of a series of dots; of a line, those that stand alone. */
static void write_dots(FILE *out, const struct report_run *run, const struct report_series *series,
                       const struct report_scale *scale)
{
    fprintf(out, "<path class=\"dots %s\" d=\"", series->colour);
    for (size_t at = 0; at < run->buckets; at++) {
        const struct report_bucket *bucket = &run->figures[at][series->figure];
        if (bucket->count > 0 && (series->dots || is_alone(run, at, series->figure))) {
            write_dot(out, run, at, bucket, scale);
        }
    }
    fputs("\"/>", out);
}

static void write_odd(FILE *out, const struct report_run *run, const struct report_series *series)
{
    if (run->whole[series->figure].odd == 0) {
        return;
    }
    fputs("<path class=\"odd\" d=\"", out);
    for (size_t at = 0; at < run->buckets; at++) {
        if (run->figures[at][series->figure].odd > 0) {
            fprintf(out, "M%.1f 1000V940", middle_of(run, at));
        }
    }
    fputs("\"/>", out);
}

void report_shape_lines(FILE *out, const struct report_run *run, const struct report_chart *chart,
                        const struct report_scale *scale)
{
    for (size_t i = 0; i < chart->count; i++) {
        const struct report_series *series = &chart->series[i];
        if (!series->dots) {
            write_band(out, run, series, scale);
            write_line(out, run, series, scale);
        }
        write_dots(out, run, series, scale);
        write_odd(out, run, series);
    }
}

/* Buckets that share a column: all have one of their own, or about 60 columns share them. */
static size_t column_of(const struct report_run *run, const struct report_chart *chart)
{
    return chart->sums ? (run->buckets + 59) / 60 : 1;
}

static double mean_of(const struct report_run *run, enum report_figure figure,
                      const size_t column[2])
{
    double sum = 0;
    double count = 0;
    for (size_t at = column[0]; at < column[1]; at++) {
        sum += run->figures[at][figure].count > 0 ? run->figures[at][figure].sum : 0;
        count += run->figures[at][figure].count;
    }
    return count > 0 ? sum / count : 0;
}

/* One part of one column: from `low` up to `high`. */
static void write_part(FILE *out, const struct report_run *run, const size_t column[2], double low,
                       double high)
{
    if (low - high > 0.05) {
        fprintf(out, "M%.2f %.1fV%.1fH%.2fV%.1fZ", left_of(run, column[0]), low, high,
                right_of(run, column[1] - 1), low);
    }
}

void report_shape_stack(FILE *out, const struct report_run *run, const struct report_chart *chart,
                        const struct report_scale *scale)
{
    const size_t width = column_of(run, chart);
    double tops[REPORT_BUCKETS_MAX] = {0};
    for (size_t i = 0; i < chart->count; i++) {
        const enum report_figure figure = chart->series[i].figure;
        if (run->whole[figure].high <= 0) {
            continue;
        }
        fprintf(out, "<path class=\"area %s\" d=\"", chart->series[i].colour);
        for (size_t at = 0; at < run->buckets; at += width) {
            const size_t end = at + width < run->buckets ? at + width : run->buckets;
            const double low = tops[at];
            tops[at] += mean_of(run, figure, (const size_t[]){at, end});
            write_part(out, run, (const size_t[]){at, end}, y_of(scale, low),
                       y_of(scale, tops[at]));
        }
        fputs("\"/>", out);
    }
}
