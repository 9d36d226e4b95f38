/* queue.h: an in-order queue of requests over one or several drives (striping). One thread submits
 * (the queue's owner).
 * Drives work on several requests at once; the queue's line advances in order. A reached fence
 * means that its request and all earlier ones are complete: bytes transferred, results checked,
 * checksums verified. The first failed request ends the queue: the line gets the error code and
 * message, and requests not yet at a back end are dropped. The kernel may access memory of requests
 * in flight until aio_queue_close has returned 0. */
#ifndef AIO_QUEUE_H
#define AIO_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "aio/drive.h"
#include "aio/sums.h"
#include "core/base/fence.h"

struct aio_queue;

/* Priority among queues that share a drive: a busy queue gets eight times the bytes of a busy queue
 * of the next level, so none starves. */
enum aio_urgency { AIO_WEIGHTS, AIO_STATES, AIO_WRITEBACK, AIO_CHECKPOINT, AIO_URGENCY_COUNT };

enum { AIO_PATHS_MAX = 16, AIO_IOV_MAX = 64, AIO_QUEUE_DEPTH_DEFAULT = 256 };

struct aio_queue_options {
    const char *name; /* of the line */
    enum aio_urgency urgency;
    uint32_t depth;         /* limit of incomplete requests; 0: AIO_QUEUE_DEPTH_DEFAULT */
    struct core_bell *bell; /* borrowed: the line's bell; NULL: the line has its own */
};

/* Opens a queue over drives[0 .. count - 1], which outlive it. */
int aio_queue_open(struct aio_drive *const *drives, unsigned count,
                   const struct aio_queue_options *options, struct aio_queue **out);

/* Fails the line with -ECANCELED if requests are incomplete, drops unsubmitted requests, cancels
 * those in flight and waits for them. To complete requests first, wait for aio_queue_tail. Returns
 * 0 if the caller may free all memory; -ETIMEDOUT if a drive does not respond: memory of its
 * requests must not be freed. Queue and line must not be used afterwards. Accepts NULL. */
int aio_queue_close(struct aio_queue *queue);

/* Contiguous bytes of one file on one drive. */
struct aio_iov {
    unsigned drive; /* index into the queue's drives */
    uint32_t file;  /* index from aio_drive_attach */
    uint64_t offset;
    void *memory;
    uint64_t bytes;
    struct aio_sums sums;
};

/* Submits one read or write of `count` (1 to AIO_IOV_MAX) ranges, perhaps on several drives. Never
 * blocks. *out is reached when this request and all earlier ones are complete.
 * -EAGAIN: `depth` requests are incomplete or a drive's ring is full; wait for an older fence.
 * -EINVAL: wrong alignment, or a range beyond a file's end. A failed queue returns its error. */
int aio_queue_submit(struct aio_queue *queue, enum aio_kind kind, const struct aio_iov *iovs,
                     unsigned count, struct core_fence *out);

/* Submits one range on drive 0 without checksums. */
int aio_queue_read(struct aio_queue *queue, uint32_t file, uint64_t offset, void *memory,
                   uint64_t bytes, struct core_fence *out);
int aio_queue_write(struct aio_queue *queue, uint32_t file, uint64_t offset, const void *memory,
                    uint64_t bytes, struct core_fence *out);

/* Makes this queue's earlier writes to the file durable (fdatasync). Starts after the queue's
 * earlier requests on that drive; later ones wait for its end. */
int aio_queue_sync(struct aio_queue *queue, unsigned drive, uint32_t file, struct core_fence *out);

/* Returns a fence that is reached when all requests so far are complete. */
struct core_fence aio_queue_tail(struct aio_queue *queue);

#endif
