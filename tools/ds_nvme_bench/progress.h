/* progress.h: progress on stderr: a live line on a terminal; with -v, a line per point. */
#ifndef TOOLS_DS_NVME_BENCH_PROGRESS_H
#define TOOLS_DS_NVME_BENCH_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/ds_nvme_bench/point.h"

struct bench_progress {
    bool live;        /* shows a live line */
    bool plain;       /* -v */
    const char *path; /* borrowed */
    int64_t shown_ns;
    bool standing;    /* a live line is visible */
    int64_t begin_ns; /* start of the operation of bench_progress_moved() */
};

/* For bench_target_options and bench_sweep_options; `user` is the struct bench_progress. */
void bench_progress_fill(void *user, uint64_t done_bytes, uint64_t bytes);
void bench_progress_point(void *user, const struct bench_point *point, double share_done,
                          double seconds_left);

/* Updates only the live line. */
void bench_progress_beat(void *user, const struct bench_point *point, double share_done,
                         double seconds_left);
/* For bench_verify_options and bench_swap_options. */
void bench_progress_moved(void *user, uint64_t done_bytes, uint64_t bytes);

/* Clears the live line, before other output. */
void bench_progress_clear(struct bench_progress *progress);

#endif
