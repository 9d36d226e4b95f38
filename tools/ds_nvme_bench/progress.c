/* progress.c: overwrites a line at most ten times per second. */
#include "tools/ds_nvme_bench/progress.h"

#include <stdio.h>

#include "core/base/clock.h"
#include "core/base/size.h"

static bool is_due(struct bench_progress *progress)
{
    int64_t now_ns = progress->live ? core_clock_now_ns() : 0;
    if (!progress->live || now_ns - progress->shown_ns < 100000000) {
        return false;
    }
    progress->shown_ns = now_ns;
    progress->standing = true;
    return true;
}

void bench_progress_fill(void *user, uint64_t done_bytes, uint64_t bytes)
{
    struct bench_progress *progress = user;
    if (is_due(progress)) {
        char done[32];
        char all[32];
        fprintf(stderr, "\r\033[K%s: first write, %s of at most %s", progress->path,
                core_size_print(done_bytes, done, sizeof done),
                core_size_print(bytes, all, sizeof all));
        fflush(stderr);
    }
}

void bench_progress_point(void *user, const struct bench_point *point, double share_done,
                          double seconds_left)
{
    struct bench_progress *progress = user;
    char block[32];
    core_size_print(point->params.block_bytes, block, sizeof block);
    if (progress->plain) {
        fprintf(stderr, "%s: %s, block %s, depth %u, %u thread%s\n", progress->path,
                bench_op_name(point->params.op), block, point->params.depth, point->params.threads,
                point->params.threads == 1 ? "" : "s");
    } else if (is_due(progress)) {
        fprintf(stderr, "\r\033[K%s: %3.0f %%, %.0f s left  %s, block %s, depth %u", progress->path,
                share_done * 100, seconds_left > 0 ? seconds_left : 0,
                bench_op_name(point->params.op), block, point->params.depth);
        fflush(stderr);
    }
}

void bench_progress_beat(void *user, const struct bench_point *point, double share_done,
                         double seconds_left)
{
    const struct bench_progress *progress = user;
    if (!progress->plain) {
        bench_progress_point(user, point, share_done, seconds_left);
    }
}

void bench_progress_moved(void *user, uint64_t done_bytes, uint64_t bytes)
{
    struct bench_progress *progress = user;
    if (!is_due(progress)) {
        return;
    }
    if (progress->begin_ns == 0) {
        progress->begin_ns = progress->shown_ns;
    }
    double spent = (double)(progress->shown_ns - progress->begin_ns) / 1e9;
    double share = bytes > 0 ? (double)done_bytes / (double)bytes : 1;
    fprintf(stderr, "\r\033[K%s: %3.0f %%, %.0f s left", progress->path, share * 100,
            share > 0 ? spent / share - spent : 0);
    fflush(stderr);
}

void bench_progress_clear(struct bench_progress *progress)
{
    if (progress->standing) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
        progress->standing = false;
    }
}
