/* options.h: the options of a run. */
#ifndef TOOLS_DS_NVME_BENCH_OPTIONS_H
#define TOOLS_DS_NVME_BENCH_OPTIONS_H

#include "tools/ds_nvme_bench/sweep.h"
#include "tools/tide/cli.h"

enum bench_mode { BENCH_SWEEP, BENCH_POINT, BENCH_VERIFY, BENCH_SWAP, BENCH_SOAK };

enum { BENCH_DIRS_MAX = 16 };

struct bench_options {
    const char *dirs[BENCH_DIRS_MAX]; /* borrowed from argv, as are all strings here */
    unsigned dir_count;
    enum bench_mode mode;
    /* without target, stop and callbacks */
    struct bench_sweep_options sweep;
    const char *backend; /* NULL: chosen by probing */
    uint64_t io_bytes;   /* of the scratch file; 0: chosen */
    uint64_t tensor_bytes;
    unsigned passes; /* of verify and swap */
    const char *json;
    const char *csv;
    const char *plot;
    const char *config;
    const char *baseline;
    double tolerance;
    double params;
    double rated_bytes;
    struct cli_common common;
};

extern const struct cli_command bench_command;

/* Returns -1 if the run can start; else the exit code, after help or a message. */
int bench_options_parse(int argc, char **argv, struct bench_options *out);

const char *bench_mode_name(enum bench_mode mode);

#endif
