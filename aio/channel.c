/* drive_lane.c: which queue's block goes next, and cutting it off.
 * Stride scheduling: each lane counts what it was given, divided by its weight, and the one that is
 * furthest behind goes next. A lane that had nothing to do starts at the present, so it cannot save
 * up. Drive's thread. */
#include <assert.h>
#include <errno.h>

#include "aio/drive_internal.h"
#include "core/base/err.h"

/* A part that makes durable waits for all before it; what follows waits for the part, because it is
 * not cut through before. While a block of the lane pauses, its others would only fail, too. */
static bool can_cut(const struct lane *lane, int64_t now_ns)
{
    if (lane->cut == atomic_load_explicit(&lane->tail, memory_order_seq_cst) ||
        lane->retry_ns > now_ns) {
        return false;
    }
    if (lane->cut != atomic_load_explicit(&lane->head, memory_order_relaxed)) {
        const struct part *before = &lane->parts[(lane->cut - 1) & lane->mask];
        return lane->parts[lane->cut & lane->mask].kind != AIO_SYNC &&
               (before->kind != AIO_SYNC || before->finished);
    }
    return true;
}

struct lane *aio_lane_pick(struct aio_drive *drive)
{
    struct lane *best = NULL;
    for (unsigned i = 0; i < drive->lanes_count; i++) {
        struct lane *lane = drive->lanes[i];
        if (aio_queue_failed(lane->queue) || lane->closing) {
            aio_lane_drop(lane);
            continue;
        }
        if (!can_cut(lane, drive->now_ns)) {
            continue;
        }
        if (lane->flying == 0 && lane->cut_bytes == 0 && lane->pass < drive->pass) {
            lane->pass = drive->pass;
        }
        if (best == NULL || lane->pass < best->pass ||
            (lane->pass == best->pass && lane->weight > best->weight)) {
            best = lane;
        }
    }
    return best;
}

static uint32_t block_bytes(const struct aio_drive *drive, const struct part *part, uint64_t left)
{
    uint64_t most = drive->block_bytes;
    if (part->sums.table != NULL) {
        most = (most + AIO_SUM_BYTES - 1) / AIO_SUM_BYTES * AIO_SUM_BYTES;
    }
    return (uint32_t)(left < most ? left : most);
}

void aio_lane_cut(struct aio_drive *drive, struct lane *lane, struct block *block)
{
    struct part *part = &lane->parts[lane->cut & lane->mask];
    uint64_t left = part->bytes - lane->cut_bytes;
    block->lane = lane;
    block->part = lane->cut;
    block->within = lane->cut_bytes;
    block->bytes = block_bytes(drive, part, left);
    block->moved = 0;
    block->retries = 0;
    block->repeats = 0;
    block->rereads = 0;
    block->warned = false;
    block->retry_ns = 0;
    block->start_ns = drive->now_ns;
    block->start_ran_ns = drive->ran_ns;
    part->left++;
    lane->flying++;
    lane->cut_bytes += block->bytes;
    drive->pass = lane->pass;
    lane->pass += (block->bytes + 4095) / lane->weight;
    if (part->kind == AIO_WRITE && part->sums.table != NULL && !part->sums.given) {
        aio_sums_take(drive, block);
    }
    if (lane->cut_bytes == part->bytes) {
        lane->cut++;
        lane->cut_bytes = 0;
        part->left--; /* the one that stood for what was not cut */
    }
}

static void retire(struct lane *lane)
{
    uint64_t head = atomic_load_explicit(&lane->head, memory_order_relaxed);
    while (head != lane->cut && lane->parts[head & lane->mask].finished) {
        head++;
    }
    atomic_store_explicit(&lane->head, head, memory_order_release);
}

static void finish_part(struct lane *lane, struct part *part)
{
    uint64_t value = part->value;
    part->finished = true;
    retire(lane);
    aio_queue_part_done(lane->queue, value);
}

void aio_lane_finish(struct lane *lane, uint64_t index)
{
    struct part *part = &lane->parts[index & lane->mask];
    assert(part->left > 0 && lane->flying > 0);
    lane->flying--;
    if (--part->left == 0) {
        finish_part(lane, part);
    }
}

void aio_lane_drop(struct lane *lane)
{
    uint64_t tail = atomic_load_explicit(&lane->tail, memory_order_seq_cst);
    while (lane->cut != tail) {
        struct part *part = &lane->parts[lane->cut & lane->mask];
        lane->cut++;
        lane->cut_bytes = 0;
        if (--part->left == 0) {
            finish_part(lane, part);
        }
    }
}

int aio_lane_open(struct aio_drive *drive, struct control *self)
{
    struct lane *lane = self->argument;
    if (drive->dead) {
        return core_err_set(-EIO, "%s has failed before; no queue can be opened on it",
                            drive->name);
    }
    if (drive->lanes_count == AIO_DRIVE_QUEUES_MAX) {
        return core_err_set(-ENOSPC, "%s has %d queues already", drive->name, AIO_DRIVE_QUEUES_MAX);
    }
    lane->pass = drive->pass;
    drive->lanes[drive->lanes_count++] = lane;
    return 0;
}

int aio_lane_close(struct aio_drive *drive, struct control *self)
{
    struct lane *lane = self->argument;
    uint64_t tail = atomic_load_explicit(&lane->tail, memory_order_seq_cst);
    lane->closing = true;
    lane->closer = self;
    lane->closing_ns = drive->ran_ns;
    if (tail != atomic_load_explicit(&lane->head, memory_order_relaxed)) {
        aio_queue_fail(lane->queue, -ECANCELED, "the queue was closed");
        aio_lane_drop(lane);
        aio_block_cancel(drive, lane);
    }
    return -EINPROGRESS;
}
