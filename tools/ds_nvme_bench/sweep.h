/* sweep.h: looks for the knee: the smallest setting that no other beats by more than noise.
 * The adaptive sweep measures shortly along the axes, then the candidates in turn until more
 * measuring cannot change the answer or its time is over. The grid measures everything it is told. */
#ifndef TOOLS_DS_NVME_BENCH_SWEEP_H
#define TOOLS_DS_NVME_BENCH_SWEEP_H

#include "tools/ds_nvme_bench/recommend.h"

enum { BENCH_LIST_MAX = 32 };

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

int bench_sweep_run(const struct bench_sweep_options *options, struct bench_sweep *out);

#endif
