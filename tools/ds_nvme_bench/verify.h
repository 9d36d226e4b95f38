/* verify.h: writes bytes that name their own place and pass, reads them back out of order and
 * compares every one. */
#ifndef TOOLS_DS_NVME_BENCH_VERIFY_H
#define TOOLS_DS_NVME_BENCH_VERIFY_H

#include "tools/ds_nvme_bench/point.h"

struct bench_verify_options {
    const struct bench_target *target; /* borrowed */
    struct bench_params params;        /* block and depth */
    unsigned passes;
    uint64_t seed;
    const volatile int *stop;
    void (*progress)(void *user, uint64_t done_bytes, uint64_t bytes); /* or NULL */
    void *user;
};

struct bench_verify {
    uint64_t bytes;       /* compared */
    uint64_t wrong;       /* pieces of 4 KiB that were not what was written */
    uint64_t first_wrong; /* offset of the first, where there are any */
    unsigned pass;        /* in which it was seen */
};

/* 0 with the counts, also where bytes were wrong. */
int bench_verify_run(const struct bench_verify_options *options, struct bench_verify *out);

/* The bytes that belong at `offset` (a multiple of 4096) in a pass. */
void bench_verify_fill(uint64_t seed, unsigned pass, uint64_t offset, void *memory, uint64_t bytes);
/* How many pieces of 4 KiB are not that; *first gets the offset of the first of them. */
uint64_t bench_verify_compare(uint64_t seed, unsigned pass, uint64_t offset, const void *memory,
                              uint64_t bytes, uint64_t *first);

#endif
