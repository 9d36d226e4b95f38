/* drive.h: a drive, served by one thread, which makes all calls into the open back end except
 * `wake`.
 * The thread takes requests from queues (queue.h) by urgency, cuts them into pieces and keeps up to
 * `depth` pieces in flight. It repeats failed transfers, handles checksums, and reports a drive
 * that does not respond. Requests are submitted and served without allocations and locks, except
 * those of log messages. */
#ifndef AIO_DRIVE_H
#define AIO_DRIVE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "aio/backend.h"
#include "aio/stats.h"
#include "core/base/cpus.h"

struct aio_drive;

enum {
    AIO_DRIVE_QUEUES_MAX = 16,
    AIO_RETRIES_MAX = 3,    /* retries after EIO and other errors that may pass */
    AIO_REPEATS_MAX = 4096, /* repeats after EINTR, EAGAIN, EBUSY, ENOMEM or ECANCELED, with growing
                             * pauses */
    AIO_DEPTH_DEFAULT = 32,
    AIO_BLOCK_DEFAULT_BYTES = 1 << 20,
    /* alignment of offset and size of direct I/O */
    AIO_ALIGN_BYTES = 4096,
};

struct aio_drive_options {
    const char *name;                  /* of the directory or device, for messages; copied */
    const struct aio_backend *backend; /* outlives the drive; NULL: chosen by probing */
    void *context;                     /* for the back end; outlives the drive */
    uint32_t depth;                    /* pieces in flight; 0: AIO_DEPTH_DEFAULT. The back end may
                                        * limit it (threads: 64) */
    uint32_t block_bytes;              /* largest piece, a multiple of 4096; 0:
                                        * AIO_BLOCK_DEFAULT_BYTES. With checksums, rounded up to
                                        * whole units (sums.h) */
    const struct core_cpus *cpus;      /* where the thread runs, read at create; NULL: anywhere */
    /* warn about a piece in flight this long after it was cut; 0: 5 s */
    int64_t warn_ns;
    /* fail all queues on the drive if a piece is in flight this long after it was cut; 0: 60 s.
     * Without now_ns, both limits count time in which this process ran (clock.h) */
    int64_t limit_ns;
    int64_t (*now_ns)(void *user); /* for limits, pauses and latencies; NULL: clock.h's */
    void *now_user;
    bool sqpoll, iopoll, no_file_table; /* io_uring: see backend.h */
    uint32_t refused_flags;             /* io_uring: see backend.h */
};

int aio_drive_create(const struct aio_drive_options *options, struct aio_drive **out);

/* Ends the thread. All queues must be closed. Returns -ETIMEDOUT if transfers are still in flight:
 * the drive is leaked, and their memory must not be freed. Accepts NULL. */
int aio_drive_destroy(struct aio_drive *drive);

struct aio_file {
    int fd;              /* borrowed until detach; -1 for mem */
    const char *name;    /* for messages; copied */
    uint64_t size_bytes; /* requests beyond it are refused; 0: not checked */
    bool direct;         /* opened with O_DIRECT: alignment is checked */
};

/* Attaches a file; requests name it by *index. Any thread; may block. -ENOSPC: AIO_FILES_MAX files
 * are attached. */
int aio_drive_attach(struct aio_drive *drive, const struct aio_file *file, uint32_t *index);
/* Detaches a file. No unfinished or later request may name it. Any thread. */
int aio_drive_detach(struct aio_drive *drive, uint32_t index);

/* Registers the memory of future requests with the kernel, in slabs of at most 1 GiB; at most once,
 * before the first request. A refusal is no error. If the limit on locked memory is too low, a
 * warning names the required `ulimit -l`. */
int aio_drive_register(struct aio_drive *drive, const struct iovec *memory, unsigned count);

/* Takes a snapshot. Any thread. */
void aio_drive_stats(struct aio_drive *drive, struct aio_drive_stats *out);

const char *aio_drive_name(const struct aio_drive *drive);
/* Returns the back end's name and how it was set up. */
const char *aio_drive_describe(const struct aio_drive *drive);
uint32_t aio_drive_block_bytes(const struct aio_drive *drive);
uint32_t aio_drive_depth(const struct aio_drive *drive);

#endif
