/* sweep.h: searches for the knee: the smallest setting that no other one beats by more than noise.
 * The adaptive sweep scans along the axes with short measurements, then measures the candidates in
 * turn until the answer is certain or the time is over. The grid measures every combination. */
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
    bool grid;             /* measure every combination as `how` says; otherwise adaptive */
    struct bench_how how;  /* the adaptive sweep chooses times and samples itself */
    unsigned rounds;       /* grid: how often each point is visited */
    double budget_seconds; /* planned duration of the adaptive sweep */
    const volatile int *stop;
    /* Called before each point, with the estimated remaining seconds; may be NULL. */
    void (*progress)(void *user, const struct bench_point *point, double share_done,
                     double seconds_left);
    /* Called regularly while a point is measured; may be NULL. */
    void (*beat)(void *user, const struct bench_point *point, double share_done,
                 double seconds_left);
    void *user;
};

/* Fills *out with points and a recommendation. Returns 0, or -errno with a message; -EINTR if *stop
 * is set. */
int bench_sweep_run(const struct bench_sweep_options *options, struct bench_sweep *out);

#endif
