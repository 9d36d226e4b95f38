/* progress.h: one live line on a terminal; on a pipe nothing but what -v asks for. stderr only. */
#ifndef TOOLS_DS_NVME_BENCH_PROGRESS_H
#define TOOLS_DS_NVME_BENCH_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/ds_nvme_bench/point.h"

struct bench_progress {
    bool live;        /* stderr is a terminal and -q was not given */
    bool plain;       /* -v: a line a point */
    const char *path; /* borrowed */
    int64_t shown_ns;
    bool standing;    /* a live line stands there */
    int64_t begin_ns; /* of what bench_progress_moved tells of */
};

/* For bench_target_options and bench_sweep_options; `user` is the progress. */
void bench_progress_fill(void *user, uint64_t done_bytes, uint64_t bytes);
void bench_progress_point(void *user, const struct bench_point *point, double share_done,
                          double seconds_left);

/* The same while a point is measured: the live line alone. */
void bench_progress_beat(void *user, const struct bench_point *point, double share_done,
                         double seconds_left);
/* For bench_verify_options and bench_swap_options. */
void bench_progress_moved(void *user, uint64_t done_bytes, uint64_t bytes);

/* Takes the live line away, before anything else is printed. */
void bench_progress_clear(struct bench_progress *progress);

#endif
