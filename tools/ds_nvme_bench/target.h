/* target.h: a directory under test, with a scratch file on its file system. The file has no name
 * and disappears with the process. */
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
    uint64_t file_bytes;           /* size; a multiple of 2 MiB, written once */
    double fill_bytes_per_s;       /* speed of the first write */
    double fill_first_bytes_per_s; /* speed of the first second of that write */
    struct aio_fs fs;
    const struct aio_backend *backend;
    char backend_reason[256];
    int node;                     /* node of its threads and buffers; -1: any */
    struct core_cpus node_cpus;   /* processors of `node` */
    const struct core_cpus *cpus; /* borrowed: &node_cpus, or NULL: anywhere */
};

struct bench_target_options {
    const char *path;
    const char *backend; /* NULL: chosen by probing */
    /* size of the scratch file; 0: as much as can be written in `fill_seconds` */
    uint64_t bytes;
    double fill_seconds;
    const volatile int *stop; /* if set, -EINTR is returned */
    void (*progress)(void *user, uint64_t done_bytes, uint64_t bytes); /* NULL: none */
    void *user;
};

/* Chooses the NUMA node of threads and buffers: `wanted` >= 0, or the node of the drive if it is
 * known and the machine has several. Returns -EINVAL with a message if there is no such node. Call
 * it before any point is measured; the target must not move in memory afterwards. */
int bench_target_place(struct bench_target *target, int wanted, int drive_node);

int bench_target_open(const struct bench_target_options *options, struct bench_target *out);
/* A zeroed target is allowed. */
void bench_target_close(struct bench_target *target);

/* ---- reading and writing the scratch file outside of measured points: a drive over it, with
 * memory and queues; only the caller's thread uses them ---- */

enum { BENCH_TARGET_QUEUES = 2 };
/* The time limit of a transfer. */
#define BENCH_PATIENCE_NS INT64_C(120000000000)

struct bench_target_io_options {
    const struct bench_target *target; /* borrowed for the call */
    uint64_t file_bytes;               /* 0: the target's */
    uint32_t block_bytes;              /* 0: chosen by the drive, like `depth` */
    uint32_t depth;
    uint64_t memory_bytes;
    enum core_pages pages;
    bool registered;                        /* registers the memory with the ring */
    const char *names[BENCH_TARGET_QUEUES]; /* names of the queues; NULL: none */
};

struct bench_target_io {
    struct core_region memory;                     /* owned */
    struct aio_drive *drive;                       /* owned */
    struct aio_queue *queues[BENCH_TARGET_QUEUES]; /* owned */
    uint32_t file;
};

/* Zeroes *io first. Close it even if this fails. */
int bench_target_io_open(const struct bench_target_io_options *options, struct bench_target_io *io);

/* If this fails, the kernel may still use the memory, so it is not freed. */
int bench_target_io_close(struct bench_target_io *io);

#endif
