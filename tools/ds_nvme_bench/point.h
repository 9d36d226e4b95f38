/* point.h: measures one setting on one target: bandwidth, latencies, processor time. The caller's
 * thread submits and waits; I/O threads have drives of their own. */
#ifndef TOOLS_DS_NVME_BENCH_POINT_H
#define TOOLS_DS_NVME_BENCH_POINT_H

#include "aio/drive.h"
#include "core/base/mem.h"
#include "tools/ds_nvme_bench/stats.h"
#include "tools/ds_nvme_bench/target.h"

enum bench_op { BENCH_READ, BENCH_WRITE, BENCH_RW, BENCH_OP_COUNT };

/* Returns "read", "write" or "rw". */
const char *bench_op_name(enum bench_op op);

struct bench_params {
    enum bench_op op;
    uint32_t block_bytes;
    uint32_t depth;   /* blocks in flight per thread */
    uint32_t threads; /* I/O threads, each with a drive and a part of the file */
};

struct bench_how {
    double ramp_seconds;
    double sample_seconds;
    unsigned samples;
    bool checksums; /* XXH3-64 of each MiB */
    bool buffers;   /* register the buffers with the ring */
    bool files;     /* register the files */
    bool sqpoll;
    bool iopoll;
    enum core_pages pages;    /* of the buffers */
    int node;                 /* of buffers and threads; or BENCH_NODE_* */
    void (*beat)(void *user); /* called regularly; may be NULL */
    void *user;
};
enum { BENCH_NODE_AUTO = -1, BENCH_NODE_ANY = -2 };

/* Samples accumulate over rounds. */
struct bench_point {
    struct bench_params params;
    double samples[BENCH_SAMPLES_MAX]; /* bytes per second; rw: of both directions */
    unsigned count;
    double median;
    struct bench_interval interval;
    double read_share;    /* share of bytes that were read */
    double latency_ms[4]; /* p50, p99, p99.9 and maximum of a block */
    uint32_t latency[AIO_LATENCY_BUCKETS];
    double cpu_ms_per_gib;
    uint64_t shorts;
    uint64_t retries;
    uint64_t errors;
    double bytes;       /* bytes moved, the ramp included */
    double cpu_seconds; /* of the process while these bytes moved */
    char setup[96];     /* state of the back end */
    bool unregistered;  /* no buffers were registered, although requested */
};

/* Adds samples of point->params to *point. Writes overwrite the scratch file. `memory` has at least
 * bench_point_memory() bytes. -EINTR: *stop is set. -ETIMEDOUT: the kernel may still use
 * `memory`. */
int bench_point_run(const struct bench_target *target, const struct core_region *memory,
                    const struct bench_how *how, const volatile int *stop,
                    struct bench_point *point);

/* Returns the bytes of the file in flight at once. */
uint64_t bench_point_in_flight(const struct bench_params *params);
/* Returns the bytes of buffers that a setting needs. A setting above BENCH_MEMORY_MAX is not
 * measured. */
uint64_t bench_point_memory(const struct bench_params *params);
#define BENCH_MEMORY_MAX ((uint64_t)768 << 20)

#endif
