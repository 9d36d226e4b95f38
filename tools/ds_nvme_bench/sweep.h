/* sweep.h: searches for the smallest setting that no other beats by more than noise. The adaptive
 * sweep scans the axes briefly, then measures candidates until the answer is certain or the time is
 * over. The grid measures all combinations that fit. */
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
    bool grid;             /* else adaptive */
    struct bench_how how;  /* the adaptive sweep chooses times and samples */
    unsigned rounds;       /* grid: visits of a point */
    double budget_seconds; /* of the adaptive sweep */
    const volatile int *stop;
    /* Called before a point, with the estimated remaining seconds; may be NULL. */
    void (*progress)(void *user, const struct bench_point *point, double share_done,
                     double seconds_left);
    /* Called regularly while a point is measured; may be NULL. */
    void (*beat)(void *user, const struct bench_point *point, double share_done,
                 double seconds_left);
    void *user;
};

/* -EINTR: *stop is set. */
int bench_sweep_run(const struct bench_sweep_options *options, struct bench_sweep *out);

#endif
