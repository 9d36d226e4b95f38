/* recommend.h: chooses from the points of a sweep: candidates to measure again, and a setting to
 * recommend. Pure functions; any thread. */
#ifndef TOOLS_DS_NVME_BENCH_RECOMMEND_H
#define TOOLS_DS_NVME_BENCH_RECOMMEND_H

#include "tools/ds_nvme_bench/point.h"

enum { BENCH_POINTS_MAX = 1024, BENCH_CANDIDATES_MAX = 6 };

struct bench_recommendation {
    uint32_t block_bytes;
    uint32_t depth;
    uint32_t threads;
    double score;      /* smallest share of the best in any operation */
    double gain;       /* largest ratio of two settings in one operation */
    unsigned settings; /* settings measured; 1: no choice */
    bool confident;    /* intervals within 5 % and no trend */
    char reason[320];
};

struct bench_sweep {
    struct bench_point points[BENCH_POINTS_MAX];
    unsigned count;
    struct bench_recommendation recommendation;
};

/* Returns the point of a setting, or NULL. */
const struct bench_point *bench_sweep_find(const struct bench_sweep *sweep, enum bench_op op,
                                           uint32_t block_bytes, uint32_t depth, uint32_t threads);
/* Returns the best median of an operation, without points of few samples; 0: not measured. */
double bench_sweep_best(const struct bench_sweep *sweep, enum bench_op op);

/* Fills sweep->recommendation. */
void bench_sweep_recommend(struct bench_sweep *sweep);

/* Compares a setting with the fastest one of each operation, by fastest samples, and returns the
 * lowest ratio. For choosing candidates. */
double bench_sweep_score(const struct bench_sweep *sweep, const struct bench_params *setting);

/* Picks candidates: half by score; the rest are close to the best: one with at least 16 MiB in
 * flight, if there is one, then those with the fewest. Returns their number, at most
 * BENCH_CANDIDATES_MAX. */
unsigned bench_sweep_pick(const struct bench_sweep *sweep,
                          struct bench_params picked[BENCH_CANDIDATES_MAX]);

#endif
