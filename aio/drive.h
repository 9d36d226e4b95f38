/* drive.h: a drive, served by one thread. Only that thread talks to the back end. It takes requests
 * from queues (queue.h) of different urgency, cuts them into pieces of at most `block_bytes` and
 * keeps up to `depth` pieces in flight. It continues short transfers, repeats transient errors,
 * retries EIO and similar errors three times, computes and verifies checksums, and reports a drive
 * that does not respond. After create nothing is allocated and no lock is taken, except by attach,
 * detach, register, destroy, and the opening and closing of queues. */
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
    AIO_RETRIES_MAX = 3,    /* retries after EIO and other errors that may go away */
    AIO_REPEATS_MAX = 4096, /* repeats after EINTR, EAGAIN, EBUSY, ENOMEM or ECANCELED, with growing
                             * pauses */
    AIO_DEPTH_DEFAULT = 32,
    AIO_BLOCK_DEFAULT_BYTES = 1 << 20,
    /* alignment of offset and size of direct I/O; it is also sufficient for memory */
    AIO_ALIGN_BYTES = 4096,
};

struct aio_drive_options {
    const char *name;                  /* name of the directory or device, for messages; copied */
    const struct aio_backend *backend; /* outlives the drive; NULL: chosen by probing and logged */
    void *context;                     /* for the back end; outlives the drive */
    uint32_t depth;                    /* pieces in flight; 0: AIO_DEPTH_DEFAULT. Limited to what
                                        * the back end can do (threads: 64) */
    uint32_t block_bytes;              /* bytes of the largest piece, a multiple of 4096; 0:
                                        * AIO_BLOCK_DEFAULT_BYTES. Rounded up to whole checksum
                                        * units (sums.h) for requests with checksums */
    const struct core_cpus *cpus;      /* where the thread runs, read at create; NULL: anywhere */
    /* a piece that is in flight this long after it was cut is logged; 0: 5 s */
    int64_t warn_ns;
    /* a piece that is in flight this long after it was cut fails all queues; 0: 60 s. Both limits
     * count only time in which this process ran (clock.h) */
    int64_t limit_ns;
    int64_t (*now_ns)(void *user); /* the clock of limits, pauses and latencies; NULL: clock.h's */
    void *now_user;
    bool sqpoll, iopoll, no_file_table; /* io_uring: see backend.h */
    uint32_t refused_flags;             /* io_uring: see backend.h */
};

int aio_drive_create(const struct aio_drive_options *options, struct aio_drive **out);

/* Ends the thread. All queues must already be closed. Returns -ETIMEDOUT if transfers never
 * completed. The kernel may then still access their memory, which must not be freed, and the drive
 * is leaked. Accepts NULL. */
int aio_drive_destroy(struct aio_drive *drive);

struct aio_file {
    int fd;              /* borrowed until detach; -1 for mem */
    const char *name;    /* for messages; copied */
    uint64_t size_bytes; /* requests beyond it are refused; 0: not checked */
    bool direct;         /* opened with O_DIRECT: alignment is checked */
};

/* Attaches a file; requests name it by *index. Any thread; concurrent calls wait for each other.
 * -ENOSPC: AIO_FILES_MAX files are attached. */
int aio_drive_attach(struct aio_drive *drive, const struct aio_file *file, uint32_t *index);
/* Detaches a file. No unfinished or later request may name it. Any thread. */
int aio_drive_detach(struct aio_drive *drive, uint32_t index);

/* Registers the memory of future requests with the kernel, in slabs of at most 1 GiB; called once
 * for each drive, before its first request. If the kernel or the back end refuses, the call returns
 * 0 and the drive works without registration; if the limit on locked memory is too low, a warning
 * names the required `ulimit -l`. aio_drive_stats.registered_bytes has the result. */
int aio_drive_register(struct aio_drive *drive, const struct iovec *memory, unsigned count);

/* Takes a snapshot of the counts. Any thread. */
void aio_drive_stats(struct aio_drive *drive, struct aio_drive_stats *out);

const char *aio_drive_name(const struct aio_drive *drive);
/* Returns the back end's name and how it was set up. */
const char *aio_drive_describe(const struct aio_drive *drive);
uint32_t aio_drive_block_bytes(const struct aio_drive *drive);
uint32_t aio_drive_depth(const struct aio_drive *drive);

#endif
