/* bench_aio_deepspeed.c: times DeepSpeed's async_io in a separate process. */
#include <stdio.h>

#include "tests/bench/bench_aio.h"
#include "tests/bench/bench_peer.h"

static struct bench_figure peer_whole(enum bench_pattern pattern)
{
    struct bench_figure figure = {0, 0};
    char line[128];
    bench_peer_ask(bench_pattern_names[pattern], "figure ", line, sizeof line);
    if (sscanf(line, "%lf %lf", &figure.bytes_per_s, &figure.cpu_ms_per_gib) != 2) {
        bench_die("figure");
    }
    return figure;
}

void bench_against_deepspeed(void)
{
    char size[32];
    snprintf(size, sizeof size, "%llu", (unsigned long long)bench.bytes);
    bench_peer_start(bench.python, "aio_peer.py",
                     (const char *const[3]){bench.files[0], bench.files[1], size});
    struct bench_side side;
    bench_side_open(&side, NULL, false);
    for (int pattern = 0; pattern < BENCH_PATTERNS; pattern++) {
        struct bench_row ours;
        struct bench_row theirs;
        char name[64];
        for (int i = 0; i < bench.pairs; i++) {
            for (int turn = 0; turn < 2; turn++) {
                if ((turn + i) % 2 == 0) {
                    theirs.samples[i] = peer_whole((enum bench_pattern)pattern);
                } else {
                    ours.samples[i] = bench_side_whole(&side, (enum bench_pattern)pattern);
                }
            }
        }
        snprintf(name, sizeof name, "whole_%s",
                 pattern == BENCH_MIXED ? "swap" : bench_pattern_names[pattern]);
        bench_report(name, &ours, &theirs, "deepspeed");
    }
    bench_side_close(&side);
    bench_peer_end();
}
