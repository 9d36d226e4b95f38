/* recommend.c: chooses candidates from points, then a setting and its reason. */
#include "tools/ds_nvme_bench/recommend.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Settings that reach 98 % of the best count as equally good. */
static const double good_enough = 0.98;
static const double wide_interval = 0.05;
/* Preferred bytes in flight if noise hides which small settings are good. */
static const double robust_bytes = 8 << 20;

const struct bench_point *bench_sweep_find(const struct bench_sweep *sweep, enum bench_op op,
                                           uint32_t block_bytes, uint32_t depth, uint32_t threads)
{
    for (unsigned i = 0; i < sweep->count; i++) {
        const struct bench_params *params = &sweep->points[i].params;
        if (params->op == op && params->block_bytes == block_bytes && params->depth == depth &&
            params->threads == threads) {
            return &sweep->points[i];
        }
    }
    return NULL;
}

double bench_sweep_best(const struct bench_sweep *sweep, enum bench_op op)
{
    double best = 0;
    unsigned most = 0;
    for (unsigned i = 0; i < sweep->count; i++) {
        bool ours = sweep->points[i].params.op == op;
        most = ours && sweep->points[i].count > most ? sweep->points[i].count : most;
    }
    /* Points with few samples are left out: the best of many would be best by chance. */
    for (unsigned i = 0; i < sweep->count; i++) {
        const struct bench_point *point = &sweep->points[i];
        if (point->params.op == op && point->count * 2 > most && point->median > best) {
            best = point->median;
        }
    }
    return best;
}

/* ---- candidates ---- */

enum { IN_FLIGHT_ENOUGH = 16 << 20 };

/* The fastest sample is what a point can reach: other users of a drive only slow it down. */
static double best_sample(const struct bench_point *point)
{
    double best = 0;
    for (unsigned i = 0; i < point->count; i++) {
        best = fmax(best, point->samples[i]);
    }
    return best;
}

double bench_sweep_score(const struct bench_sweep *sweep, const struct bench_params *setting)
{
    double best[BENCH_OP_COUNT] = {0};
    double score = 1;
    for (unsigned i = 0; i < sweep->count; i++) {
        double able = best_sample(&sweep->points[i]);
        enum bench_op op = sweep->points[i].params.op;
        best[op] = able > best[op] ? able : best[op];
    }
    for (int op = 0; op < BENCH_OP_COUNT; op++) {
        const struct bench_point *point = bench_sweep_find(
            sweep, (enum bench_op)op, setting->block_bytes, setting->depth, setting->threads);
        if (best[op] > 0) {
            double share = point != NULL ? best_sample(point) / best[op] : 0;
            score = share < score ? share : score;
        }
    }
    return score;
}

struct candidate {
    struct bench_params setting;
    double score;
};

static int by_score(const void *a, const void *b)
{
    const struct candidate *x = a;
    const struct candidate *y = b;
    return x->score > y->score ? -1 : x->score < y->score;
}

static uint64_t in_flight(const struct bench_params *setting)
{
    return (uint64_t)setting->block_bytes * setting->depth * setting->threads;
}

static int by_in_flight(const void *a, const void *b)
{
    uint64_t left = in_flight(&((const struct candidate *)a)->setting);
    uint64_t right = in_flight(&((const struct candidate *)b)->setting);
    return left < right ? -1 : left > right;
}

unsigned bench_sweep_pick(const struct bench_sweep *sweep,
                          struct bench_params picked[BENCH_CANDIDATES_MAX])
{
    struct candidate all[BENCH_POINTS_MAX];
    unsigned count = 0;
    for (unsigned i = 0; i < sweep->count; i++) {
        struct bench_params setting = sweep->points[i].params;
        bool seen = false;
        setting.op = BENCH_READ;
        for (unsigned k = 0; k < count; k++) {
            seen = seen || memcmp(&all[k].setting, &setting, sizeof setting) == 0;
        }
        if (!seen) {
            all[count++] = (struct candidate){setting, bench_sweep_score(sweep, &setting)};
        }
    }
    qsort(all, count, sizeof *all, by_score);
    unsigned taken = 0;
    while (taken < count && taken < BENCH_CANDIDATES_MAX / 2) {
        picked[taken] = all[taken].setting;
        taken++;
    }
    unsigned near = taken;
    while (near < count && all[near].score >= all[0].score * 0.85) {
        near++;
    }
    unsigned first = taken;
    qsort(all + first, near - first, sizeof *all, by_in_flight);
    unsigned full = first;
    while (full < near && in_flight(&all[full].setting) < IN_FLIGHT_ENOUGH) {
        full++;
    }
    if (full < near) {
        picked[taken++] = all[full].setting;
    }
    for (unsigned i = first; i < near && taken < BENCH_CANDIDATES_MAX; i++) {
        if (i != full) {
            picked[taken++] = all[i].setting;
        }
    }
    return taken;
}

/* ---- recommendation ---- */

struct field {
    const struct bench_sweep *sweep; /* borrowed */
    unsigned most[BENCH_OP_COUNT];   /* most samples of a point; 0: not measured */
    double best[BENCH_OP_COUNT];     /* highest pace of these points */
};

/* Divides the n-th sample by the mean of the n-th samples, because a slow drive slows all points of
 * a round. */
static double pace_of(const struct field *field, const struct bench_point *point)
{
    double shares[BENCH_SAMPLES_MAX];
    for (unsigned s = 0; s < point->count; s++) {
        double sum = 0;
        unsigned count = 0;
        for (unsigned i = 0; i < field->sweep->count; i++) {
            const struct bench_point *other = &field->sweep->points[i];
            if (other->params.op == point->params.op && other->count == point->count) {
                sum += other->samples[s];
                count++;
            }
        }
        shares[s] = sum > 0 ? point->samples[s] * count / sum : 0;
    }
    return bench_median(shares, point->count);
}

static void field_init(struct field *field, const struct bench_sweep *sweep)
{
    *field = (struct field){.sweep = sweep};
    for (unsigned i = 0; i < sweep->count; i++) {
        const struct bench_point *point = &sweep->points[i];
        unsigned *most = &field->most[point->params.op];
        *most = point->count > *most ? point->count : *most;
    }
    for (unsigned i = 0; i < sweep->count; i++) {
        const struct bench_point *point = &sweep->points[i];
        if (point->count > 0 && point->count == field->most[point->params.op]) {
            double *best = &field->best[point->params.op];
            *best = fmax(*best, pace_of(field, point));
        }
    }
}

struct judged {
    const struct bench_params *setting;
    double score;   /* smallest share of the best in any operation */
    bool whole;     /* every operation has the full number of samples */
    bool confident; /* 5 samples or more, within 5 %, no trend */
    double in_flight;
};

static struct judged judge(const struct field *field, const struct bench_params *setting)
{
    struct judged judged = {.setting = setting, .score = 1, .whole = true, .confident = true};
    judged.in_flight = (double)in_flight(setting);
    for (int op = 0; op < BENCH_OP_COUNT; op++) {
        if (field->most[op] == 0) {
            continue;
        }
        const struct bench_point *point = bench_sweep_find(field->sweep, (enum bench_op)op,
                                                           setting->block_bytes, setting->depth,
                                                           setting->threads);
        if (point == NULL || point->count != field->most[op]) {
            judged.whole = false;
            return judged;
        }
        int trend = 0;
        bench_trend(point->samples, point->count, &trend);
        double width = (point->interval.high - point->interval.low) / 2 / point->median;
        judged.confident = judged.confident && point->count >= 5 && width <= wide_interval &&
                           !trend;
        judged.score = fmin(judged.score, pace_of(field, point) / field->best[op]);
    }
    return judged;
}

/* If both are good enough, one with at least `in_flight_least` bytes in flight wins, then the one
 * closer to this limit. Otherwise the faster one wins. */
static bool beats(const struct judged *a, const struct judged *b, double in_flight_least)
{
    bool a_good = a->score >= good_enough;
    bool b_good = b->score >= good_enough;
    if (!a_good || !b_good) {
        return a_good != b_good ? a_good : a->score > b->score;
    }
    bool a_full = a->in_flight >= in_flight_least;
    bool b_full = b->in_flight >= in_flight_least;
    if (a_full != b_full) {
        return a_full;
    }
    if (fabs(a->in_flight - b->in_flight) > 0.5) {
        return (a->in_flight < b->in_flight) == a_full;
    }
    return a->score > b->score;
}

static struct judged choose(const struct field *field, double in_flight_least)
{
    struct judged chosen = {.setting = NULL};
    for (unsigned i = 0; i < field->sweep->count; i++) {
        struct judged judged = judge(field, &field->sweep->points[i].params);
        if (judged.whole && (chosen.setting == NULL || beats(&judged, &chosen, in_flight_least))) {
            chosen = judged;
        }
    }
    return chosen;
}

/* Compares the fastest samples, which ignore short loads. */
static double gain_of(const struct bench_sweep *sweep)
{
    double gain = 1;
    for (unsigned i = 0; i < sweep->count; i++) {
        double able = best_sample(&sweep->points[i]);
        for (unsigned k = 0; k < sweep->count && able > 0; k++) {
            if (sweep->points[k].params.op == sweep->points[i].params.op) {
                gain = fmax(gain, best_sample(&sweep->points[k]) / able);
            }
        }
    }
    return gain;
}

static unsigned count_settings(const struct bench_sweep *sweep)
{
    unsigned count = 0;
    for (unsigned i = 0; i < sweep->count; i++) {
        const struct bench_params *params = &sweep->points[i].params;
        bool seen = false;
        for (unsigned k = 0; k < i; k++) {
            const struct bench_params *other = &sweep->points[k].params;
            seen = seen || (other->block_bytes == params->block_bytes &&
                            other->depth == params->depth && other->threads == params->threads);
        }
        count += !seen;
    }
    return count;
}

static void explain(struct bench_recommendation *made)
{
    const char *unsteady =
        made->confident
            ? ""
            : "; the drive was not steady, so at least 8 MiB are in flight if that costs nothing";
    if (made->settings == 1) {
        snprintf(made->reason, sizeof made->reason, "no other setting was measured");
    } else if (made->score < good_enough) {
        snprintf(made->reason, sizeof made->reason,
                 "no setting is within %.0f %% of the best of every operation; this one comes "
                 "closest and reaches at least %.1f %%",
                 (1 - good_enough) * 100, made->score * 100);
    } else {
        snprintf(made->reason, sizeof made->reason,
                 "the smallest setting within %.0f %% of the best of every operation: it reaches "
                 "at least %.1f %%%s",
                 (1 - good_enough) * 100, made->score * 100, unsteady);
    }
}

void bench_sweep_recommend(struct bench_sweep *sweep)
{
    struct field field;
    struct bench_recommendation *made = &sweep->recommendation;
    field_init(&field, sweep);
    struct judged chosen = choose(&field, 0);
    *made = (struct bench_recommendation){.gain = gain_of(sweep),
                                          .settings = count_settings(sweep)};
    if (chosen.setting == NULL) {
        snprintf(made->reason, sizeof made->reason, "no setting was measured for every operation");
        return;
    }
    bool certain = chosen.confident;
    if (!certain) {
        chosen = choose(&field, robust_bytes);
    }
    made->block_bytes = chosen.setting->block_bytes;
    made->depth = chosen.setting->depth;
    made->threads = chosen.setting->threads;
    made->score = chosen.score;
    made->confident = certain;
    explain(made);
}
