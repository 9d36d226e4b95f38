/* transfer.h: reads and writes whole extents on a queue of the store, with a result for each
 * transfer. A queue of aio ends with its first error and does not say which request failed, so the
 * queue is opened again; if several transfers were in flight, they are repeated one by one. One
 * thread at a time calls, but transfers may be pushed and retired during transfers_repair. */
#ifndef OFFLOAD_CACHE_TRANSFER_H
#define OFFLOAD_CACHE_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

#include "aio/store.h"
#include "core/base/err.h"

struct block;
struct operation;

enum transfer_kind {
    TRANSFER_LOAD,  /* extent to the block's slot */
    TRANSFER_CLEAN, /* the block's slot to its extent */
    TRANSFER_READ,  /* extent to the caller's memory */
    TRANSFER_WRITE, /* the caller's memory to an extent */
};

struct transfer {
    enum transfer_kind kind;
    struct block *block;
    struct operation *operation; /* NULL: reads ahead, or writes a dirty slot */
    struct aio_extent *extent;   /* borrowed until the transfer is retired, like the memory */
    unsigned char *memory;
    /* error of submitting, or of the queue while only this transfer was in flight; 0: none */
    int rc;
    struct core_fence fence;
};

enum { TRANSFERS_MAX = 64 };

struct transfers {
    struct aio_store *store; /* borrowed */
    struct aio_queue_options options;
    struct aio_queue *queue; /* owned; NULL: `failure` says why */
    /* Numbers of transfers retired, submitted, and pushed so far. Transfer n is at ring[n %
     * TRANSFERS_MAX]. */
    uint64_t first, submitted, last;
    uint64_t alone_until; /* transfers below this number go one at a time */
    bool broken;          /* transfers_repair must be called */
    bool lost;            /* a drive may still access memory of failed transfers */
    struct core_err failure;
    struct transfer ring[TRANSFERS_MAX];
};

int transfers_open(struct transfers *transfers, struct aio_store *store,
                   const struct aio_queue_options *options);
/* Drops unfinished transfers. Returns -ETIMEDOUT if a drive may still access memory. Accepts a
 * zeroed struct. */
int transfers_close(struct transfers *transfers);

/* Adds a transfer. Returns -EAGAIN without a message if the ring is full, or the error of a queue
 * that could not be repaired. */
int transfers_push(struct transfers *transfers, const struct transfer *transfer);

/* If the oldest transfer has ended, takes it off the ring, sets *rc to its result (with a message)
 * and returns 1; otherwise returns 0. */
int transfers_retire(struct transfers *transfers, struct transfer *out, int *rc);

/* Closes a broken queue and opens another one for transfers_repaired. Called without the lock; push
 * and retire do not use the queue until transfers_repaired, which is called with the lock. */
struct aio_queue *transfers_repair(struct transfers *transfers, struct core_err *result);
void transfers_repaired(struct transfers *transfers, struct aio_queue *queue,
                        const struct core_err *result);

#endif
