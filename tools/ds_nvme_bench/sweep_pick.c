/* sweep_pick.c: which of the settings that were scanned may turn out best. */
#include <stdlib.h>
#include <string.h>

#include "tools/ds_nvme_bench/sweep_parts.h"

enum { IN_FLIGHT_ENOUGH = 16 << 20 };

/* What a point can do, as far as a few samples tell: drives that others share lose time now and
 * then, and none is faster than it is. */
static double capability(const struct bench_point *point)
{
    double most = 0;
    for (unsigned i = 0; i < point->count; i++) {
        most = point->samples[i] > most ? point->samples[i] : most;
    }
    return most;
}

double bench_sweep_score(const struct bench_sweep *sweep, const struct bench_params *setting)
{
    double best[BENCH_OP_COUNT] = {0};
    double score = 1;
    for (unsigned i = 0; i < sweep->count; i++) {
        double able = capability(&sweep->points[i]);
        enum bench_op op = sweep->points[i].params.op;
        best[op] = able > best[op] ? able : best[op];
    }
    for (int op = 0; op < BENCH_OP_COUNT; op++) {
        const struct bench_point *point = bench_sweep_find(
            sweep, (enum bench_op)op, setting->block_bytes, setting->depth, setting->threads);
        if (best[op] > 0) {
            double share = point != NULL ? capability(point) / best[op] : 0;
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
