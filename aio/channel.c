/* channel.c: chooses the next channel and cuts pieces off its requests. Stride scheduling: the
 * channel with the smallest `pass` is next. */
#include <assert.h>

#include "aio/drive_internal.h"
#include "core/base/size.h"

bool aio_channel_failed(const struct channel *channel)
{
    return atomic_load_explicit(channel->failed, memory_order_acquire);
}

void aio_channel_fail(struct channel *channel, uint64_t value, int rc)
{
    channel->done(channel->user, value, rc);
}

static void free_places(struct channel *channel)
{
    uint64_t head = atomic_load_explicit(&channel->head, memory_order_relaxed);
    while (head != channel->cut && channel->requests[head & channel->mask].finished) {
        head++;
    }
    atomic_store_explicit(&channel->head, head, memory_order_release);
}

static void request_finish(struct channel *channel, struct drive_request *request)
{
    const uint64_t value = request->value; /* the request's place may be reused at once */
    request->finished = true;
    free_places(channel);
    channel->done(channel->user, value, 0);
}

void aio_channel_finish(struct channel *channel, uint64_t index)
{
    struct drive_request *request = &channel->requests[index & channel->mask];
    assert(request->left > 0 && channel->in_flight > 0);
    channel->in_flight--;
    if (--request->left == 0) {
        request_finish(channel, request);
    }
}

void aio_channel_drop(struct channel *channel)
{
    const uint64_t tail = atomic_load_explicit(&channel->tail, memory_order_seq_cst);
    while (channel->cut != tail) {
        struct drive_request *request = &channel->requests[channel->cut & channel->mask];
        channel->cut++;
        channel->cut_bytes = 0;
        if (--request->left == 0) {
            request_finish(channel, request);
        }
    }
}

/* A sync is a barrier in its channel. While a failed piece pauses, no other piece of the channel is
 * cut, because it might fail the same way. */
static bool can_cut(const struct channel *channel, int64_t now_ns)
{
    if (channel->cut == atomic_load_explicit(&channel->tail, memory_order_seq_cst) ||
        channel->retry_ns > now_ns) {
        return false;
    }
    if (channel->cut != atomic_load_explicit(&channel->head, memory_order_relaxed)) {
        const struct drive_request *before = &channel->requests[(channel->cut - 1) & channel->mask];
        return channel->requests[channel->cut & channel->mask].kind != AIO_SYNC &&
               (before->kind != AIO_SYNC || before->finished);
    }
    return true;
}

struct channel *aio_channel_pick(struct aio_drive *drive)
{
    struct channel *best = NULL;
    for (unsigned i = 0; i < drive->channels_count; i++) {
        struct channel *channel = drive->channels[i];
        if (aio_channel_failed(channel) || channel->closing) {
            aio_channel_drop(channel);
            continue;
        }
        if (!can_cut(channel, drive->now_ns)) {
            continue;
        }
        if (channel->in_flight == 0 && channel->cut_bytes == 0 && channel->pass < drive->pass) {
            channel->pass = drive->pass;
        }
        if (best == NULL || channel->pass < best->pass ||
            (channel->pass == best->pass && channel->weight > best->weight)) {
            best = channel;
        }
    }
    return best;
}

static uint32_t piece_bytes(const struct aio_drive *drive, const struct drive_request *request,
                            uint64_t left)
{
    uint64_t most = drive->block_bytes;
    if (request->sums.table != NULL) {
        const uint64_t unit = aio_sums_unit(&request->sums);
        most = core_round_up(most, unit);
    }
    return (uint32_t)(left < most ? left : most);
}

void aio_channel_cut(struct aio_drive *drive, struct channel *channel, struct io_piece *piece)
{
    struct drive_request *request = &channel->requests[channel->cut & channel->mask];
    piece->channel = channel;
    piece->request = channel->cut;
    piece->within = channel->cut_bytes;
    piece->bytes = piece_bytes(drive, request, request->bytes - channel->cut_bytes);
    piece->moved = 0;
    piece->retries = 0;
    piece->repeats = 0;
    piece->rereads = 0;
    piece->warned = false;
    piece->retry_ns = 0;
    piece->start_ns = drive->now_ns;
    piece->start_ran_ns = drive->ran_ns;
    request->left++;
    channel->in_flight++;
    channel->cut_bytes += piece->bytes;
    drive->pass = channel->pass;
    channel->pass += (piece->bytes + 4095) / channel->weight;
    if (request->kind == AIO_WRITE && request->sums.table != NULL) {
        aio_sums_compute(&request->sums, piece->within, request->memory + piece->within,
                         piece->bytes);
        count(&drive->hashed_bytes, piece->bytes);
    }
    if (channel->cut_bytes == request->bytes) {
        channel->cut++;
        channel->cut_bytes = 0;
        request->left--; /* nothing is left to cut */
    }
}
