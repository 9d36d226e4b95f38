/* bench_aio_fio.c: runs fio on our file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench_aio.h"

static const char *const fio_names[BENCH_PATTERNS] = {"read", "write", "rw"};

/* Returns the n-th field, from 1, of fio's terse output. */
static double field(const char *line, int n)
{
    for (int i = 1; i < n && line != NULL; i++) {
        line = strchr(line, ';');
        line = line != NULL ? line + 1 : NULL;
    }
    return line != NULL ? atof(line) : 0;
}

struct bench_figure bench_fio(enum bench_pattern pattern, const char *engine, const char *more)
{
    char command[1024];
    char line[8192] = "";
    snprintf(
        command, sizeof command,
        "%sfio --name=b --filename=%s --size=%llu --bs=1m --iodepth=32 --direct=1 --ioengine=%s"
        " --rw=%s --time_based --runtime=%.0fms --minimal %s 2>/dev/null",
        strstr(more, "fixedbufs") != NULL ? "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 " : "",
        bench.files[0], (unsigned long long)bench.bytes, engine, fio_names[pattern],
        bench.seconds * 1000, more);
    FILE *pipe = popen(command, "r");
    if (pipe == NULL || fgets(line, sizeof line, pipe) == NULL || pclose(pipe) != 0) {
        fprintf(stderr, "bench_aio: fio failed\n");
        exit(1);
    }
    double moved = (field(line, 6) + field(line, 47)) * 1024;
    double rate = (field(line, 7) + field(line, 48)) * 1024;
    double ms = field(line, 9) > field(line, 50) ? field(line, 9) : field(line, 50);
    double cpu = (field(line, 88) + field(line, 89)) / 100 * ms;
    return (struct bench_figure){rate, cpu * bench_gib / moved};
}

bool bench_has_fio(void)
{
    return system("fio --version >/dev/null 2>&1") == 0;
}

void bench_against_fio(const char *backend, const char *engine, const char *more, const char *peer)
{
    for (int pattern = 0; pattern < BENCH_PATTERNS; pattern++) {
        struct bench_row ours;
        struct bench_row theirs;
        char name[64];
        struct bench_side side;
        bench_side_open(&side, backend, false);
        for (int i = 0; i < bench.pairs; i++) {
            for (int turn = 0; turn < 2; turn++) { /* the sides alternate in going first */
                if ((turn + i) % 2 == 0) {
                    theirs.samples[i] = bench_fio((enum bench_pattern)pattern, engine, more);
                } else {
                    ours.samples[i] = bench_side_run(&side, (enum bench_pattern)pattern,
                                                     bench.seconds);
                }
            }
        }
        bench_side_close(&side);
        snprintf(name, sizeof name, "%s_%s", backend, bench_pattern_names[pattern]);
        bench_report(name, &ours, &theirs, peer);
    }
}
