/* transfer.c: a ring of transfers over a queue that is replaced when it fails. */
#include "offload/cache/transfer.h"

#include <errno.h>

int transfers_open(struct transfers *transfers, struct aio_store *store,
                   const struct aio_queue_options *options)
{
    *transfers = (struct transfers){.store = store, .options = *options};
    return aio_store_queue(store, options, &transfers->queue);
}

int transfers_close(struct transfers *transfers)
{
    const int rc = aio_queue_close(transfers->queue);
    transfers->queue = NULL;
    return transfers->lost ? -ETIMEDOUT : rc;
}

static struct transfer *transfer_at(struct transfers *transfers, uint64_t position)
{
    return &transfers->ring[position % TRANSFERS_MAX];
}

static void submit_more(struct transfers *transfers)
{
    while (transfers->submitted != transfers->last &&
           (transfers->submitted >= transfers->alone_until ||
            transfers->submitted == transfers->first)) {
        struct transfer *next = transfer_at(transfers, transfers->submitted);
        const uint64_t bytes = aio_extent_bytes(next->extent);
        const bool reads = next->kind == TRANSFER_LOAD || next->kind == TRANSFER_READ;
        int rc = reads ? aio_store_read(transfers->queue, next->extent, 0, next->memory, bytes,
                                        &next->fence)
                       : aio_store_write(transfers->queue, next->extent, 0, next->memory, bytes,
                                         &next->fence);
        if (rc == -EAGAIN || (rc != 0 && core_fence_poll(aio_queue_tail(transfers->queue)) == rc)) {
            return; /* full, or failed, which transfers_retire finds */
        }
        next->rc = rc;
        if (rc != 0) {
            next->fence = aio_queue_tail(transfers->queue); /* the transfer fails in its turn */
            transfers->failure = core_err_keep(rc);
        }
        transfers->submitted++;
    }
}

int transfers_push(struct transfers *transfers, const struct transfer *transfer)
{
    if (transfers->queue == NULL && !transfers->broken) {
        return core_err_first(&transfers->failure, 0);
    }
    if (transfers->last - transfers->first == TRANSFERS_MAX) {
        return -EAGAIN;
    }
    *transfer_at(transfers, transfers->last++) = *transfer;
    if (!transfers->broken) {
        submit_more(transfers);
    }
    return 0;
}

static int retire_first(struct transfers *transfers, struct transfer *out)
{
    *out = *transfer_at(transfers, transfers->first++);
    if (transfers->submitted < transfers->first) {
        transfers->submitted = transfers->first;
    }
    return 1;
}

int transfers_retire(struct transfers *transfers, struct transfer *out, int *rc)
{
    if (transfers->broken || transfers->first == transfers->last) {
        return 0;
    }
    if (transfers->queue == NULL) {
        *rc = core_err_first(&transfers->failure, 0);
        return retire_first(transfers, out);
    }
    if (transfers->submitted == transfers->first) {
        submit_more(transfers);
    }
    if (transfers->submitted == transfers->first) {
        return 0;
    }
    const struct transfer *oldest = transfer_at(transfers, transfers->first);
    const int state = core_fence_poll(oldest->fence);
    if (state < 0) {
        transfers->failure = core_err_keep(state);
        transfers->broken = true;
    }
    if (state <= 0) {
        return 0;
    }
    *rc = oldest->rc != 0 ? core_err_first(&transfers->failure, 0) : 0;
    (void)retire_first(transfers, out);
    submit_more(transfers);
    return 1;
}

struct aio_queue *transfers_repair(struct transfers *transfers, struct core_err *result)
{
    struct aio_queue *queue = NULL;
    int rc = aio_queue_close(transfers->queue);
    if (rc == 0) {
        rc = aio_store_queue(transfers->store, &transfers->options, &queue);
    }
    *result = core_err_keep(rc);
    return queue;
}

void transfers_repaired(struct transfers *transfers, struct aio_queue *queue,
                        const struct core_err *result)
{
    const uint64_t in_flight = transfers->submitted - transfers->first;
    transfers->broken = false;
    transfers->queue = queue;
    transfers->lost = transfers->lost || result->code == -ETIMEDOUT;
    if (queue == NULL) { /* all transfers in the ring fail with `failure` */
        if (transfers->failure.code == -EAGAIN) {
            transfers->failure.code = -EIO; /* callers take -EAGAIN for a full ring */
        }
        return;
    }
    if (in_flight == 1) { /* only one was in flight, so it caused the failure */
        struct transfer *oldest = transfer_at(transfers, transfers->first);
        oldest->rc = transfers->failure.code;
        oldest->fence = (struct core_fence){.line = NULL};
        return;
    }
    transfers->alone_until = transfers->submitted > transfers->alone_until ? transfers->submitted
                                                                           : transfers->alone_until;
    transfers->submitted = transfers->first;
}
