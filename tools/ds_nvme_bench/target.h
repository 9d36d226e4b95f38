/* target.h: one directory under test: a scratch file that nobody else sees, on its file system.
 * The file has no name and is gone with the process, whatever ends it. */
#ifndef TOOLS_DS_NVME_BENCH_TARGET_H
#define TOOLS_DS_NVME_BENCH_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "aio/backend.h"
#include "aio/files.h"
#include "core/base/cpus.h"

struct bench_target {
    const char *path; /* borrowed from the options */
    int fd;           /* owned */
    bool direct;
    uint64_t file_bytes;           /* written once, a multiple of 2 MiB */
    double fill_bytes_per_s;       /* of the first write */
    double fill_first_bytes_per_s; /* of its first second */
    struct aio_fs fs;
    const struct aio_backend *backend;
    char backend_reason[256];
    int node;                     /* where its threads and buffers go; -1: anywhere */
    struct core_cpus node_cpus;   /* of that node */
    const struct core_cpus *cpus; /* borrowed: &node_cpus, or NULL: anywhere */
};

struct bench_target_options {
    const char *path;
    const char *backend; /* NULL: chosen by probing */
    uint64_t bytes;      /* of the scratch file; 0: what is written in `fill_seconds` */
    double fill_seconds;
    const volatile int *stop;                                          /* set: leave with -EINTR */
    void (*progress)(void *user, uint64_t done_bytes, uint64_t bytes); /* NULL: none */
    void *user;
};

/* Puts threads and buffers on a node: `wanted` >= 0, or the drive's where it is known and the machine
 * has several. -EINVAL with a sentence for a node that is not there. Before any point is measured;
 * the target does not move in memory afterwards. */
int bench_target_place(struct bench_target *target, int wanted, int drive_node);

int bench_target_open(const struct bench_target_options *options, struct bench_target *out);
/* A zeroed target is fine. */
void bench_target_close(struct bench_target *target);

#endif
