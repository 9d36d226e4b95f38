/* environment.h: properties of the machine that measurements depend on. Read once. Strings are
 * truncated; unknown numbers are 0 or -1. */
#ifndef TOOLS_DS_NVME_BENCH_ENVIRONMENT_H
#define TOOLS_DS_NVME_BENCH_ENVIRONMENT_H

#include "core/base/block_device.h"
#include "tools/ds_nvme_bench/target.h"

struct bench_environment {
    char host[65];
    char kernel[130];
    char cpu[96];
    unsigned processors;
    uint64_t memory_bytes;
    uint64_t memlock_bytes; /* CORE_MEM_UNLIMITED: no limit */
    uint64_t huge_pages_free;
    char huge_pages[16]; /* transparent_hugepage/enabled */
    char io_uring[256];  /* whether it works, or why not */
};

struct bench_device {
    bool found;
    struct core_block_device block;
    char mount[64]; /* mount options */
};

void bench_environment_read(struct bench_environment *out);
void bench_device_read(const struct bench_target *target, struct bench_device *out);

#endif
