/* progress.h: progress on stderr: one live line on a terminal; with -v, one line for each point. */
#ifndef TOOLS_DS_NVME_BENCH_PROGRESS_H
#define TOOLS_DS_NVME_BENCH_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/ds_nvme_bench/point.h"

struct bench_progress {
    bool live;        /* stderr is a terminal and -q was not given */
    bool plain;       /* -v: one line for each point */
    const char *path; /* borrowed */
    int64_t shown_ns;
    bool standing;    /* a live line is visible */
    int64_t begin_ns; /* start of the operation that bench_progress_moved reports */
};

/* Callbacks for bench_target_options and bench_sweep_options; `user` is the struct
 * bench_progress. */
void bench_progress_fill(void *user, uint64_t done_bytes, uint64_t bytes);
void bench_progress_point(void *user, const struct bench_point *point, double share_done,
                          double seconds_left);

/* Called while a point is measured; updates only the live line. */
void bench_progress_beat(void *user, const struct bench_point *point, double share_done,
                         double seconds_left);
/* Callback for bench_verify_options and bench_swap_options. */
void bench_progress_moved(void *user, uint64_t done_bytes, uint64_t bytes);

/* Removes the live line. Call it before anything else is printed. */
void bench_progress_clear(struct bench_progress *progress);

#endif
