/* drive.h: one path's thread. It alone drives the back end (a ring per device, created and used by
 * one thread), takes requests from queues (queue.h) of different urgency, cuts them into blocks,
 * keeps up to `depth` blocks in flight, and sees each block through: short transfers are continued,
 * transient errors repeated, EIO tried three more times, checksums written and verified, a drive
 * that does not answer reported. Nothing is allocated and no lock is taken after create, except by
 * attach, detach, register and the opening and closing of queues. */
#ifndef AIO_DRIVE_H
#define AIO_DRIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "aio/backend.h"
#include "core/base/cpus.h"

struct aio_drive;

enum {
    AIO_DRIVE_QUEUES_MAX = 16,
    AIO_RETRIES_MAX = 3,    /* after EIO and other lasting errors */
    AIO_REPEATS_MAX = 4096, /* after EINTR, EAGAIN, EBUSY, ENOMEM, with growing pauses */
    AIO_DEPTH_DEFAULT = 32,
    AIO_BLOCK_DEFAULT_BYTES = 1 << 20,
    AIO_ALIGN_BYTES = 4096, /* of memory, offset and size where a file is direct */
};

struct aio_drive_options {
    const char *name;                  /* of the directory or device, for messages; copied */
    const struct aio_backend *backend; /* NULL: chosen by probing, the reason logged */
    void *context;                     /* for the back end; outlives the drive */
    uint32_t depth;                    /* blocks in flight; 0: AIO_DEPTH_DEFAULT. Where the back
                                          end has less (threads: 64) that much */
    uint32_t block_bytes;              /* a multiple of 4096; 0: AIO_BLOCK_DEFAULT_BYTES. Requests
                                          with checksums use multiples of 1 MiB */
    const struct core_cpus *cpus;      /* where the thread runs, read at create; NULL: anywhere */
    int64_t warn_ns;                   /* a block this late is worth a warning; 0: 5 s */
    int64_t limit_ns;                  /* and this late an error for all queues; 0: 60 s. Both count
                                          only time in which this process ran (clock.h) */
    int64_t (*now_ns)(void *user); /* the clock of limits, pauses and latencies; NULL: clock.h's */
    void *now_user;
    bool sqpoll, iopoll, no_file_table; /* uring: see backend.h */
    uint32_t refused_flags;             /* the same */
};

int aio_drive_create(const struct aio_drive_options *options, struct aio_drive **out);

/* Queues must be closed before. Ends the thread. -ETIMEDOUT: blocks that never came back are still
 * the kernel's, and so is the memory they point to: it must not be freed (the drive is leaked). NULL
 * is fine. */
int aio_drive_destroy(struct aio_drive *drive);

struct aio_file {
    int fd;              /* borrowed until detach; -1 for mem */
    const char *name;    /* for messages; copied */
    uint64_t size_bytes; /* requests beyond are refused; 0: not checked */
    bool direct;         /* opened O_DIRECT: alignment is checked */
};

/* Makes a file known under *index. Any thread, one at a time is let in. -ENOSPC: AIO_FILES_MAX. */
int aio_drive_attach(struct aio_drive *drive, const struct aio_file *file, uint32_t *index);
/* With no request on the file left. */
int aio_drive_detach(struct aio_drive *drive, uint32_t index);

/* Registers memory that requests will point into, cut into pieces of at most 1 GiB; once in a
 * drive's life. Where the kernel does not allow it, a warning names the `ulimit -l` that would do,
 * and everything works unregistered: 0 in both cases, aio_drive_stats.registered_bytes tells. */
int aio_drive_register(struct aio_drive *drive, const struct iovec *memory, unsigned count);

enum { AIO_LATENCY_BUCKETS = 256 };

/* Counts since create. */
struct aio_drive_stats {
    uint64_t read_bytes, write_bytes;
    uint64_t blocks;       /* finished */
    uint64_t shorts;       /* transfers that moved less than asked and were continued */
    uint64_t repeats;      /* after a transient error */
    uint64_t retries;      /* after a lasting error */
    uint64_t errors;       /* blocks given up */
    uint64_t mismatches;   /* checksums that did not match, rereads included */
    uint64_t strangers;    /* completions of no block in flight, ignored */
    uint64_t stalls;       /* blocks later than warn_ns */
    uint64_t waits;        /* times the thread waited for completions */
    uint64_t hashed_bytes; /* hashed to write or verify */
    uint64_t registered_bytes;
    uint64_t cpu_ns;                          /* of the drive's thread */
    uint64_t latency[2][AIO_LATENCY_BUCKETS]; /* of reads, of writes: see aio_latency_ns */
};

void aio_drive_stats(struct aio_drive *drive, struct aio_drive_stats *out);

/* The latency in ns below which `share` (0 to 1) of the counted blocks lie, within 1/4 of a power
 * of two; 0 where there are none. `latency` may be a difference of two snapshots. */
uint64_t aio_latency_ns(const uint64_t latency[AIO_LATENCY_BUCKETS], double share);

const char *aio_drive_name(const struct aio_drive *drive);
const struct aio_backend *aio_drive_backend(const struct aio_drive *drive);
/* The back end's name and how it was set up. */
const char *aio_drive_describe(const struct aio_drive *drive);
uint32_t aio_drive_block_bytes(const struct aio_drive *drive);
uint32_t aio_drive_depth(const struct aio_drive *drive);

#endif
