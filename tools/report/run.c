/* run.c: collects steps in buckets. */
#include "tools/report/run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"

int report_run_init(struct report_run *run, const char *path, uint64_t first, uint64_t last)
{
    const uint64_t span = last - first + 1;
    const uint64_t width = (span + REPORT_BUCKETS_MAX - 1) / REPORT_BUCKETS_MAX;
    *run = (struct report_run){
        .path = path,
        .first = first,
        .last = last,
        .width = width,
        .buckets = (size_t)((span + width - 1) / width),
        .first_loss = (double)NAN,
        .last_loss = (double)NAN,
        .last_eval = (double)NAN,
        .best_eval = (double)NAN,
        .times_below = UINT32_MAX,
    };
    run->figures = calloc(run->buckets, sizeof *run->figures);
    run->times = calloc(REPORT_TIMES_MAX, sizeof *run->times);
    run->events = calloc(REPORT_EVENTS_MAX, sizeof *run->events);
    if (run->figures == NULL || run->times == NULL || run->events == NULL) {
        report_run_fini(run);
        return core_err_set(-ENOMEM, "no memory for a report");
    }
    return 0;
}

void report_run_fini(struct report_run *run)
{
    if (run != NULL) {
        free(run->figures);
        free(run->times);
        free(run->events);
        *run = (struct report_run){0};
    }
}

static void add_value(struct report_bucket *bucket, double value)
{
    if (isnan(value)) {
        return;
    }
    if (isinf(value)) {
        bucket->odd++;
        return;
    }
    bucket->low = bucket->count == 0 || value < bucket->low ? value : bucket->low;
    bucket->high = bucket->count == 0 || value > bucket->high ? value : bucket->high;
    bucket->sum += value;
    bucket->count++;
}

/* Returns an evenly distributed hash, so that the sample of times has no period. */
static uint32_t hash_of(uint64_t index)
{
    index *= UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)((index ^ index >> 29) * UINT64_C(0xBF58476D1CE4E5B9) >> 32);
}

static void halve_times(struct report_run *run)
{
    size_t kept = 0;
    run->times_below /= 2;
    for (size_t i = 0; i < run->time_count; i++) {
        if (run->times[i].hash < run->times_below) {
            run->times[kept++] = run->times[i];
        }
    }
    run->time_count = kept;
}

static void add_time(struct report_run *run, uint64_t index, double seconds)
{
    const uint32_t hash = hash_of(index);
    if (run->time_count == REPORT_TIMES_MAX) {
        halve_times(run);
    }
    if (isfinite(seconds) && hash < run->times_below && run->time_count < REPORT_TIMES_MAX) {
        run->times[run->time_count++] = (struct report_time){(float)seconds, hash};
    }
}

/* Returns NaN if unknown. */
static double compute_of(const double *of)
{
    double left = of[REPORT_SECONDS];
    for (int i = REPORT_WAIT_READ; i <= REPORT_WAIT_OTHER; i++) {
        left -= isfinite(of[i]) ? of[i] : 0;
    }
    return left > 0 || isnan(left) ? left : 0;
}

void report_run_add(struct report_run *run, const struct report_values *values)
{
    struct report_bucket *row = run->figures[(values->step - run->first) / run->width];
    const double *of = values->of;
    for (int i = 0; i < REPORT_COMPUTE; i++) {
        add_value(&row[i], of[i]);
        add_value(&run->whole[i], of[i]);
    }
    const double compute = compute_of(of);
    add_value(&row[REPORT_COMPUTE], compute);
    add_value(&run->whole[REPORT_COMPUTE], compute);
    if (run->steps > 0) { /* the first step opens files and selects algorithms */
        add_time(run, run->steps - 1, of[REPORT_SECONDS]);
    }
    if (isfinite(of[REPORT_LOSS])) {
        run->first_loss = isnan(run->first_loss) ? of[REPORT_LOSS] : run->first_loss;
        run->last_loss = of[REPORT_LOSS];
    }
    if (isfinite(of[REPORT_EVAL])) {
        run->last_eval = of[REPORT_EVAL];
        run->best_eval = fmin(run->best_eval, of[REPORT_EVAL]);
    }
    run->steps++;
}

void report_run_event(struct report_run *run, uint64_t step, const char *kind, const char *text)
{
    if (run->event_count == REPORT_EVENTS_MAX) {
        run->events_lost++;
        return;
    }
    struct report_event *event = &run->events[run->event_count++];
    event->step = step;
    snprintf(event->kind, sizeof event->kind, "%s", kind);
    snprintf(event->text, sizeof event->text, "%s", text);
}

static int compare_times(const void *left, const void *right)
{
    const float a = ((const struct report_time *)left)->seconds;
    const float b = ((const struct report_time *)right)->seconds;
    return (a > b) - (a < b);
}

void report_run_end(struct report_run *run)
{
    if (run->time_count == 0 && run->whole[REPORT_SECONDS].count > 0) {
        run->times[run->time_count++].seconds = (float)run->whole[REPORT_SECONDS].low;
    }
    qsort(run->times, run->time_count, sizeof *run->times, compare_times);
}

double report_run_seconds(const struct report_run *run, double part)
{
    if (run->time_count == 0) {
        return (double)NAN;
    }
    size_t at = (size_t)(part * (double)run->time_count);
    return (double)run->times[at < run->time_count ? at : run->time_count - 1].seconds;
}
