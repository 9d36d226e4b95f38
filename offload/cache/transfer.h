/* transfer.h: reads and writes of whole extents on one queue of the store, each with a result of its own.
 * A queue of aio ends with its first error and does not say which request that was. Here the queue is then
 * opened again, and the unfinished transfers are repeated one after the other, so that only the one at
 * fault fails. One thread at a time; its owner's lock sees to that. */
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
    struct operation *operation; /* NULL: nobody waits for this one */
    struct aio_extent *extent;   /* borrowed until it is retired, like the memory */
    unsigned char *memory;
    int rc; /* it was refused when it was submitted */
    struct core_fence fence;
};

enum { TRANSFERS_MAX = 64 };

struct transfers {
    struct aio_store *store; /* borrowed */
    struct aio_queue_options options;
    struct aio_queue *queue; /* owned; NULL: `failure` says why */
    /* Positions in the ring, each modulo TRANSFERS_MAX: retired, with the drives, accepted. */
    uint64_t first, submitted, last;
    uint64_t alone_until; /* up to this position one transfer at a time is submitted */
    bool broken;          /* transfers_repair has to be called */
    bool lost;            /* a drive may still access memory of failed transfers */
    struct core_err failure;
    struct transfer ring[TRANSFERS_MAX];
};

int transfers_open(struct transfers *transfers, struct aio_store *store,
                   const struct aio_queue_options *options);
/* Drops what is unfinished. Returns -ETIMEDOUT if a drive may still access memory. Accepts
 * zeros. */
int transfers_close(struct transfers *transfers);

/* Returns -EAGAIN without a message if the ring is full. Otherwise returns the error that no repair
 * could remove. */
int transfers_push(struct transfers *transfers, const struct transfer *transfer);

/* Returns 1 if one transfer has ended, in order, with *rc (and its message), or 0 if none has. */
int transfers_retire(struct transfers *transfers, struct transfer *out, int *rc);

/* Waits for what is in flight on a broken queue and opens another one. Only this one call may use
 * `transfers` without the lock; push and retire find it broken meanwhile. transfers_repaired ends it,
 * with the lock. */
struct aio_queue *transfers_repair(struct transfers *transfers, struct core_err *result);
void transfers_repaired(struct transfers *transfers, struct aio_queue *queue,
                        const struct core_err *result);

#endif
