/* target.h: a directory under test, with a nameless scratch file that disappears with the
 * process. */
#ifndef TOOLS_DS_NVME_BENCH_TARGET_H
#define TOOLS_DS_NVME_BENCH_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "aio/backend.h"
#include "aio/files.h"
#include "aio/queue.h"
#include "core/base/cpus.h"
#include "core/base/mem.h"

struct bench_target {
    const char *path; /* borrowed from the options */
    int fd;           /* owned */
    bool direct;
    uint64_t file_bytes;     /* of the scratch file; a multiple of 2 MiB */
    double fill_bytes_per_s; /* of the first write */
    struct aio_fs fs;
    const struct aio_backend *backend;
    char backend_reason[256];
    int node;                     /* of threads and buffers; -1: any */
    struct core_cpus node_cpus;   /* processors of `node` */
    const struct core_cpus *cpus; /* borrowed: &node_cpus; NULL: any processor */
};

struct bench_target_options {
    const char *path;
    const char *backend; /* NULL: chosen by probing */
    /* of the scratch file; 0: as `fill_seconds` allow, at most 8 GiB and a quarter of the free
     * space */
    uint64_t bytes;
    double fill_seconds;
    const volatile int *stop; /* may be NULL; if *stop is set: -EINTR */
    void (*progress)(void *user, uint64_t done_bytes, uint64_t bytes); /* NULL: none */
    void *user;
};

/* Chooses the NUMA node: `wanted` or, if negative, `drive_node`. Changes nothing if both are
 * negative or the machine has one node. Fails if there is no node `wanted`. Call it before the
 * first point; then the target must not move, because `cpus` points into it. */
int bench_target_place(struct bench_target *target, int wanted, int drive_node);

/* Creates and fills the scratch file. On failure there is nothing to close. */
int bench_target_open(const struct bench_target_options *options, struct bench_target *out);
/* Deletes the scratch file. A zeroed target is allowed. */
void bench_target_close(struct bench_target *target);

/* ---- transfers outside measured points, on the caller's thread ---- */

enum { BENCH_TARGET_QUEUES = 2 };
/* The time limit of a transfer. */
#define BENCH_PATIENCE_NS INT64_C(120000000000)

struct bench_target_io_options {
    const struct bench_target *target; /* borrowed for the call */
    uint64_t file_bytes;               /* 0: the target's size */
    uint32_t block_bytes;              /* 0: the default of a drive, also for `depth` */
    uint32_t depth;
    uint64_t memory_bytes;
    enum core_pages pages;
    bool registered;                        /* registers the memory with the ring */
    const char *names[BENCH_TARGET_QUEUES]; /* NULL: no such queue */
};

struct bench_target_io {
    struct core_region memory;                     /* owned */
    struct aio_drive *drive;                       /* owned */
    struct aio_queue *queues[BENCH_TARGET_QUEUES]; /* owned */
    uint32_t file;
};

/* Fills memory with incompressible bytes, which repeat after 32 MiB. */
void bench_target_fill(unsigned char *memory, uint64_t bytes);

/* Zeroes *io first. Call bench_target_io_close() even after a failure. */
int bench_target_io_open(const struct bench_target_io_options *options, struct bench_target_io *io);

/* Returns 0 or the first error; then memory is not freed, because the kernel may still use it. */
int bench_target_io_close(struct bench_target_io *io);

#endif
