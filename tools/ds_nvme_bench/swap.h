/* swap.h: imitates the I/O of an optimizer step: reads states of tensors and writes them back, at
 * the same time, through a few slots. */
#ifndef TOOLS_DS_NVME_BENCH_SWAP_H
#define TOOLS_DS_NVME_BENCH_SWAP_H

#include "tools/ds_nvme_bench/point.h"

struct bench_swap_options {
    const struct bench_target *target; /* borrowed */
    struct bench_params params;        /* block and depth; op and threads are ignored */
    uint64_t tensor_bytes;             /* states of a tensor; a multiple of 1 MiB */
    unsigned passes;                   /* measured steps, after an unmeasured one */
    bool checksums;
    const volatile int *stop;
    void (*progress)(void *user, uint64_t done_bytes, uint64_t bytes); /* or NULL */
    void *user;
};

struct bench_swap {
    unsigned tensors;
    uint64_t bytes; /* read plus written, per step */
    double seconds[BENCH_SAMPLES_MAX];
    unsigned count;
    double bytes_per_s; /* median */
    struct bench_interval interval;
    double cpu_ms_per_gib;
};

/* Overwrites the scratch file. -EINTR: *stop is set. */
int bench_swap_run(const struct bench_swap_options *options, struct bench_swap *out);

#endif
