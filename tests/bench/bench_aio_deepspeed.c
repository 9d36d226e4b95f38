/* bench_aio_deepspeed.c: DeepSpeed's async_io on the same files, in a process of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench_aio.h"

static FILE *peer_in;
static FILE *peer_out;

static void start_peer(const char *script)
{
    int to[2];
    int from[2];
    char size[32];
    snprintf(size, sizeof size, "%llu", (unsigned long long)bench.bytes);
    if (pipe(to) != 0 || pipe(from) != 0) {
        bench_die("pipe");
    }
    pid_t child = fork();
    if (child == 0) {
        dup2(to[0], 0);
        dup2(from[1], 1);
        close(to[1]);
        close(from[0]);
        execl(bench.python, bench.python, script, bench.files[0], bench.files[1], size,
              (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    peer_in = fdopen(to[1], "w");
    peer_out = fdopen(from[0], "r");
}

static struct bench_figure peer_whole(enum bench_pattern pattern)
{
    struct bench_figure figure = {0, 0};
    char line[512];
    fprintf(peer_in, "%s\n", bench_pattern_names[pattern]);
    fflush(peer_in);
    while (fgets(line, sizeof line, peer_out) != NULL) {
        if (sscanf(line, "figure %lf %lf", &figure.bytes_per_s, &figure.cpu_ms_per_gib) == 2) {
            return figure;
        }
        if (strncmp(line, "note ", 5) == 0) {
            printf("# %s", line + 5);
        }
    }
    fprintf(stderr, "bench_aio: the peer ended\n");
    exit(1);
}

void bench_against_deepspeed(void)
{
    char script[512];
    const char *root = getenv("TIDE_TEST_ROOT");
    snprintf(script, sizeof script, "%s/bench/aio_peer.py", root != NULL ? root : "tests");
    start_peer(script);
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
    fclose(peer_in);
    fclose(peer_out);
    wait(NULL);
}
