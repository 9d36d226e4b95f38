/* queue.h: an in-order queue of requests over one drive or several (striping).
 * One thread submits (the queue's owner); the drives work on several requests at once, and the
 * queue retires them in order on its line, so that a fence says that a request and all before it
 * are whole: every byte moved, every result checked, every checksum verified.
 * The first request that fails ends the queue: its line carries code and sentence (file, offset,
 * cause), what was not yet handed to the back end is dropped. Memory in flight is the kernel's
 * until aio_queue_close has returned 0. */
#ifndef AIO_QUEUE_H
#define AIO_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "aio/drive.h"
#include "core/base/fence.h"

struct aio_queue;

/* Of queues that share a drive: the more urgent gets a share of the blocks eight times that of the
 * next one, so that it goes first and none starves. */
enum aio_urgency { AIO_WEIGHTS, AIO_STATES, AIO_WRITEBACK, AIO_CHECKPOINT, AIO_URGENCY_COUNT };

enum { AIO_PATHS_MAX = 16, AIO_PIECES_MAX = 64, AIO_QUEUE_DEPTH_DEFAULT = 256 };

struct aio_queue_options {
    const char *name; /* of the line */
    enum aio_urgency urgency;
    uint32_t depth;         /* requests not yet retired; 0: AIO_QUEUE_DEPTH_DEFAULT */
    struct core_bell *bell; /* borrowed: shared bell of the line; NULL: its own */
};

/* Opens a queue over drives[0 .. count - 1], which outlive it. */
int aio_queue_open(struct aio_drive *const *drives, unsigned count,
                   const struct aio_queue_options *options, struct aio_queue **out);

/* Drops what was not begun (the line then fails with -ECANCELED), asks for an early end of what is
 * in flight and waits for it. 0: all memory is the caller's again. -ETIMEDOUT: a drive stalled, its
 * memory must not be freed. To end in good order wait for aio_queue_tail first. The queue is gone
 * in either case, and with it its line. NULL is fine. */
int aio_queue_close(struct aio_queue *queue);

/* The checksum of 1 MiB (the last one of an extent: what is left) and how often it was written;
 * kept in RAM by whoever owns the data. */
enum { AIO_SUM_BYTES = 1 << 20 };
struct aio_sum {
    uint64_t value;
    uint64_t generation; /* 0: never written */
};

/* Where the sums of a piece are. The seed of each is (run, owner, block, generation). */
struct aio_sums {
    struct aio_sum *table; /* of the piece's first byte, which starts a sum; NULL: no checksums */
    uint64_t run, owner;   /* owner: shard, extent: what tells data apart */
    uint64_t block;        /* number of the first sum within the owner */
    bool given;            /* WRITE: the caller has hashed already and raised the generation */
};

struct aio_piece {
    unsigned drive; /* index into the queue's drives */
    uint32_t file;  /* index by aio_drive_attach */
    uint64_t offset;
    void *memory;
    uint64_t bytes;
    struct aio_sums sums;
};

/* READ or WRITE one piece or several, which may lie on several drives. Never blocks. -EAGAIN when
 * `depth` requests wait: wait on an older fence; -EINVAL for what no file could do (alignment, end
 * of file); or the error with which the queue has ended. On success *out is reached when all pieces
 * are whole. */
int aio_queue_submit(struct aio_queue *queue, enum aio_kind kind, const struct aio_piece *pieces,
                     unsigned count, struct core_fence *out);

/* One piece on drive 0 without checksums. */
int aio_queue_read(struct aio_queue *queue, uint32_t file, uint64_t offset, void *memory,
                   uint64_t bytes, struct core_fence *out);
int aio_queue_write(struct aio_queue *queue, uint32_t file, uint64_t offset, const void *memory,
                    uint64_t bytes, struct core_fence *out);

/* Makes what this queue wrote to the file on that drive durable (fdatasync): begins when all earlier
 * requests of the queue on that drive have ended, and later ones begin after it. */
int aio_queue_sync(struct aio_queue *queue, unsigned drive, uint32_t file, struct core_fence *out);

/* The point behind everything submitted so far. */
struct core_fence aio_queue_tail(struct aio_queue *queue);
struct core_line *aio_queue_line(struct aio_queue *queue);

/* The seed of one sum. */
uint64_t aio_sum_seed(const struct aio_sums *sums, uint64_t index, uint64_t generation);

#endif
