/* verify.h: writes bytes that depend on offset and pass, reads them back in another order, and
 * compares them. */
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
    uint64_t bytes;       /* bytes compared */
    uint64_t wrong;       /* wrong pieces of 4 KiB */
    uint64_t first_wrong; /* offset */
    unsigned pass;        /* of the first wrong piece */
};

/* Overwrites the scratch file. Wrong bytes are not an error. -EINTR: *stop is set. */
int bench_verify_run(const struct bench_verify_options *options, struct bench_verify *out);

/* Fills `memory` with the bytes of `offset` (a multiple of 4096) in a pass. */
void bench_verify_fill(uint64_t seed, unsigned pass, uint64_t offset, void *memory, uint64_t bytes);
/* Returns the number of pieces of 4 KiB that differ from bench_verify_fill(); *first gets the
 * offset of the first such piece. */
uint64_t bench_verify_compare(uint64_t seed, unsigned pass, uint64_t offset, const void *memory,
                              uint64_t bytes, uint64_t *first);

#endif
