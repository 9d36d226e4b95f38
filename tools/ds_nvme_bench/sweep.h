/* sweep.h: looks for the knee: the smallest setting that no other beats by more than noise.
 * The adaptive sweep measures shortly along the axes, then the candidates in turn until more
 * measuring cannot change the answer or its time is over. The grid measures everything it is told. */
#ifndef TOOLS_DS_NVME_BENCH_SWEEP_H
#define TOOLS_DS_NVME_BENCH_SWEEP_H

#include "tools/ds_nvme_bench/point.h"

enum { BENCH_POINTS_MAX = 1024, BENCH_LIST_MAX = 32 };

struct bench_sweep_options {
    const struct bench_target *target; /* borrowed */
    bool ops[BENCH_OP_COUNT];
    uint32_t blocks[BENCH_LIST_MAX];
    unsigned block_count;
    uint32_t depths[BENCH_LIST_MAX];
    unsigned depth_count;
    uint32_t threads[BENCH_LIST_MAX];
    unsigned thread_count;
    bool grid;             /* every combination, `how` each; else adaptive */
    struct bench_how how;  /* of the grid; the adaptive sweep takes all but the times from it */
    unsigned rounds;       /* of the grid: how often each point is visited */
    double budget_seconds; /* of the adaptive sweep */
    const volatile int *stop;
    /* Told before each point, with the seconds that are left as far as one can know. */
    void (*progress)(void *user, const struct bench_point *point, double share_done,
                     double seconds_left);
    /* The same again and again while a point is measured. Both may be NULL. */
    void (*beat)(void *user, const struct bench_point *point, double share_done,
                 double seconds_left);
    void *user;
};

struct bench_recommendation {
    uint32_t block_bytes;
    uint32_t depth;
    uint32_t threads;
    double score;   /* of each operation the share of the best seen; the least of them */
    double gain;    /* of the best setting over the worst, for the verdict */
    bool confident; /* intervals within 5 % and no trend */
    char reason[320];
};

struct bench_sweep {
    struct bench_point points[BENCH_POINTS_MAX];
    unsigned count;
    double seconds;
    struct bench_recommendation recommendation;
};

int bench_sweep_run(const struct bench_sweep_options *options, struct bench_sweep *out);

/* The point of a setting, or NULL. */
const struct bench_point *bench_sweep_find(const struct bench_sweep *sweep, enum bench_op op,
                                           uint32_t block_bytes, uint32_t depth, uint32_t threads);
/* The best median of an operation; 0 where none was measured. */
double bench_sweep_best(const struct bench_sweep *sweep, enum bench_op op);

/* Chooses among the measured points; called by run, and by tests on made-up points. */
void bench_sweep_recommend(struct bench_sweep *sweep);

#endif
