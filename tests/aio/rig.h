/* rig.h: opens a drive, a file and a queue on any back end. */
#ifndef TESTS_AIO_RIG_H
#define TESTS_AIO_RIG_H

#include "aio/backend.h"
#include "aio/drive.h"
#include "aio/queue.h"
#include "tests/aio/fault.h"

struct rig {
    struct aio_drive *drive;
    struct aio_queue *queue;
    struct aio_mem_disk *disk; /* of the back end mem */
    uint32_t file;
    int fd;
    char path[512];
};

struct rig_options {
    const char *backend;     /* uring, libaio, threads, mem */
    struct aio_fault *fault; /* wraps the back end; NULL: no faults; rig_open sets `inner` */
    uint64_t bytes;
    struct aio_drive_options drive; /* rig_open sets backend and context */
    uint32_t queue_depth;
};

/* Returns the back ends that work here; ends with NULL. */
const char *const *rig_backends(void);

/* Opens with a file of zeros; fails the case on an error. */
void rig_open(struct rig *rig, const struct rig_options *options);
/* Closes queue and drive, and removes the file. */
void rig_close(struct rig *rig);

/* Returns memory at a multiple of 4 KiB; rig_free frees it. */
void *rig_memory(uint64_t bytes);
void rig_free(void *memory);
/* Fills memory with bytes that depend on position and seed. Excluded from ThreadSanitizer, which
 * would take minutes. */
void rig_fill(void *memory, uint64_t bytes, uint64_t seed);

#endif
