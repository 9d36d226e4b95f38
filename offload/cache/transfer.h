/* transfer.h: reads and writes whole extents on one queue of the store; each transfer has its own
 * result. A queue of aio ends with its first error and does not say which request failed. Here the
 * queue is then opened again, and the unfinished transfers are repeated one after the other, so
 * that only the faulty one fails. One thread at a time; the owner's lock ensures that. */
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
    struct aio_extent *extent;   /* borrowed until the transfer is retired, like the memory */
    unsigned char *memory;
    int rc; /* error with which submitting was refused; 0: none */
    struct core_fence fence;
};

enum { TRANSFERS_MAX = 64 };

struct transfers {
    struct aio_store *store; /* borrowed */
    struct aio_queue_options options;
    struct aio_queue *queue; /* owned; NULL: `failure` says why */
    /* Positions in the ring, each modulo TRANSFERS_MAX: retired, passed to the drives, accepted. */
    uint64_t first, submitted, last;
    uint64_t alone_until; /* up to this position only one transfer at a time is submitted */
    bool broken;          /* transfers_repair has to be called */
    bool lost;            /* a drive may still access memory of failed transfers */
    struct core_err failure;
    struct transfer ring[TRANSFERS_MAX];
};

int transfers_open(struct transfers *transfers, struct aio_store *store,
                   const struct aio_queue_options *options);
/* Drops unfinished transfers. Returns -ETIMEDOUT if a drive may still access memory. Accepts
 * zeros. */
int transfers_close(struct transfers *transfers);

/* Returns -EAGAIN without a message if the ring is full. Otherwise returns the error that no repair
 * could remove. */
int transfers_push(struct transfers *transfers, const struct transfer *transfer);

/* Returns 1 if one transfer has ended, in order, with *rc (and its message), or 0 if none has. */
int transfers_retire(struct transfers *transfers, struct transfer *out, int *rc);

/* Waits for transfers in flight on a broken queue and opens another queue. Only this call may use
 * `transfers` without the lock; push and retire find it broken in the meantime. transfers_repaired,
 * with the lock, ends the repair. */
struct aio_queue *transfers_repair(struct transfers *transfers, struct core_err *result);
void transfers_repaired(struct transfers *transfers, struct aio_queue *queue,
                        const struct core_err *result);

#endif
