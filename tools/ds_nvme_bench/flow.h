/* flow.h: a drive over a target's scratch file with the memory and the queues of one walk over it, for
 * everything that is not a measured point. The caller's thread enters. Private to swap.c, verify.c and
 * target.c. */
#ifndef TOOLS_DS_NVME_BENCH_FLOW_H
#define TOOLS_DS_NVME_BENCH_FLOW_H

#include "aio/queue.h"
#include "core/base/mem.h"
#include "tools/ds_nvme_bench/target.h"

enum { BENCH_FLOW_QUEUES = 2 };
/* How long anything may take that is waited for. */
#define BENCH_PATIENCE_NS INT64_C(120000000000)

struct bench_flow_options {
    const struct bench_target *target; /* borrowed for the call */
    uint64_t file_bytes;               /* 0: the target's */
    uint32_t block_bytes;              /* 0: the drive's own choice; `depth` too */
    uint32_t depth;
    uint64_t memory_bytes;
    enum core_pages pages;
    bool registered;                      /* the memory, with the ring */
    const char *names[BENCH_FLOW_QUEUES]; /* of the queues; NULL: none */
};

struct bench_flow {
    struct core_region memory;                   /* owned */
    struct aio_drive *drive;                     /* owned */
    struct aio_queue *queues[BENCH_FLOW_QUEUES]; /* owned */
    uint32_t file;
};

/* *flow is zeroed first; close it also where this fails. */
int bench_flow_open(const struct bench_flow_options *options, struct bench_flow *flow);

/* Not 0: the kernel may still use the memory, which stays. */
int bench_flow_close(struct bench_flow *flow);

#endif
