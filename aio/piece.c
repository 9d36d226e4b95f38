/* drive_block.c: the life of a block: handed to the back end, answered, continued or tried again,
 * verified, finished. Drive's thread. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aio/drive_internal.h"
#include "core/base/err.h"
#include "core/base/log.h"

enum { BATCH = 64, TOKEN_INDEX_BITS = 16 };

static void append(struct aio_drive *drive, struct list *list, int32_t index)
{
    drive->blocks[index].next = NONE;
    if (list->first == NONE) {
        list->first = index;
    } else {
        drive->blocks[list->last].next = index;
    }
    list->last = index;
}

static void prepend(struct aio_drive *drive, struct list *list, int32_t index)
{
    drive->blocks[index].next = list->first;
    if (list->first == NONE) {
        list->last = index;
    }
    list->first = index;
}

static int32_t take(struct aio_drive *drive, struct list *list)
{
    int32_t index = list->first;
    if (index != NONE) {
        list->first = drive->blocks[index].next;
    }
    return index;
}

int aio_block_init(struct aio_drive *drive)
{
    drive->blocks_count = 2 * drive->depth;
    drive->blocks = calloc(drive->blocks_count, sizeof *drive->blocks);
    if (drive->blocks == NULL) {
        return core_err_set(-ENOMEM, "no memory for %u blocks of %s", drive->blocks_count,
                            drive->name);
    }
    drive->unused = drive->ready = drive->done = (struct list){NONE, NONE};
    for (uint32_t i = 0; i < drive->blocks_count; i++) {
        append(drive, &drive->unused, (int32_t)i);
    }
    return 0;
}

static int32_t buffer_of(const struct aio_drive *drive, const unsigned char *memory, uint32_t bytes)
{
    unsigned low = 0;
    unsigned high = drive->slabs_count;
    while (low < high) { /* the last slab that begins at or before the memory */
        unsigned middle = (low + high) / 2;
        if ((const unsigned char *)drive->slabs[middle].iov_base <= memory) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) {
        return NONE;
    }
    const struct iovec *slab = &drive->slabs[low - 1];
    uint64_t before = (uint64_t)(memory - (const unsigned char *)slab->iov_base);
    return before < slab->iov_len && bytes <= slab->iov_len - before ? (int32_t)(low - 1) : NONE;
}

static struct aio_op op_of(const struct aio_drive *drive, int32_t index)
{
    const struct block *block = &drive->blocks[index];
    const struct part *part = aio_part_of(block);
    uint64_t at = block->within + block->moved;
    struct aio_op op = {
        .token = (uint64_t)block->generation << TOKEN_INDEX_BITS | (uint32_t)index,
        .kind = part->kind,
        .bytes = block->bytes - block->moved,
        .file = part->file,
        .buffer = NONE,
        .fd = drive->files[part->file].fd,
        .offset = part->offset + at,
        .memory = part->kind == AIO_SYNC ? NULL : part->memory + at,
    };
    if (drive->slabs_count > 0 && part->kind != AIO_SYNC) {
        op.buffer = buffer_of(drive, op.memory, op.bytes);
    }
    return op;
}

static void release(struct aio_drive *drive, int32_t index)
{
    struct block *block = &drive->blocks[index];
    block->state = BLOCK_FREE;
    append(drive, &drive->unused, index);
    aio_lane_finish(block->lane, block->part);
}

/* Goes again, unless its queue has failed meanwhile. */
static void again(struct aio_drive *drive, int32_t index)
{
    if (drive->dead || aio_queue_failed(drive->blocks[index].lane->queue)) {
        release(drive, index);
        return;
    }
    drive->blocks[index].state = BLOCK_READY;
    append(drive, &drive->ready, index);
}

static bool is_dropped(const struct block *block)
{
    return aio_queue_failed(block->lane->queue);
}

/* Takes the first block off the ready list whose pause is over, and releases those of failed queues. */
static int32_t take_ready(struct aio_drive *drive)
{
    struct list kept = {NONE, NONE};
    int32_t found = NONE;
    for (int32_t index = NONE; found == NONE && (index = take(drive, &drive->ready)) != NONE;) {
        const struct block *block = &drive->blocks[index];
        if (is_dropped(block)) {
            release(drive, index);
        } else if (block->retry_ns <= drive->now_ns) {
            found = index;
        } else {
            append(drive, &kept, index);
        }
    }
    if (kept.first != NONE) { /* pausing blocks stay in front of the rest */
        drive->blocks[kept.last].next = drive->ready.first;
        drive->ready.last = drive->ready.first != NONE ? drive->ready.last : kept.last;
        drive->ready.first = kept.first;
    }
    return found;
}

int64_t aio_block_due(struct aio_drive *drive)
{
    int64_t due_ns = INT64_MAX;
    for (int32_t i = drive->ready.first; i != NONE; i = drive->blocks[i].next) {
        const struct block *block = &drive->blocks[i];
        const int64_t retry_ns = is_dropped(block) ? 0 : block->retry_ns;
        due_ns = retry_ns < due_ns ? retry_ns : due_ns;
    }
    if (due_ns > drive->now_ns && drive->unused.first != NONE && aio_lane_pick(drive) != NULL) {
        due_ns = 0;
    }
    return due_ns > drive->submit_ns ? due_ns : drive->submit_ns;
}

/* What waits to go again goes before what is new. */
static int32_t next_block(struct aio_drive *drive)
{
    int32_t index = take_ready(drive);
    if (index != NONE) {
        return index;
    }
    struct lane *lane = drive->unused.first != NONE ? aio_lane_pick(drive) : NULL;
    if (lane == NULL) {
        return NONE;
    }
    index = take(drive, &drive->unused);
    aio_lane_cut(drive, lane, &drive->blocks[index]);
    return index;
}

int aio_block_fill(struct aio_drive *drive)
{
    struct aio_op ops[BATCH];
    int32_t index[BATCH];
    while (!drive->dead && drive->flying < drive->depth && drive->submit_ns <= drive->now_ns) {
        unsigned count_ops = 0;
        while (count_ops < BATCH && drive->flying + count_ops < drive->depth) {
            index[count_ops] = next_block(drive);
            if (index[count_ops] == NONE) {
                break;
            }
            struct block *block = &drive->blocks[index[count_ops]];
            block->generation++;
            ops[count_ops] = op_of(drive, index[count_ops]);
            count_ops++;
        }
        if (count_ops == 0) {
            return 0;
        }
        int taken = drive->backend->submit(drive->state, ops, count_ops);
        unsigned from = taken > 0 ? (unsigned)taken : 0;
        for (unsigned i = 0; i < from; i++) {
            drive->blocks[index[i]].state = BLOCK_FLYING;
        }
        drive->flying += from;
        for (unsigned i = count_ops; i-- > from;) {
            drive->blocks[index[i]].state = BLOCK_READY;
            prepend(drive, &drive->ready, index[i]);
        }
        if (from < count_ops) {
            return taken < 0 ? taken : 0;
        }
    }
    return 0;
}

void aio_block_sweep(struct aio_drive *drive)
{
    struct list kept = {NONE, NONE};
    for (int32_t index = take(drive, &drive->ready); index != NONE;
         index = take(drive, &drive->ready)) {
        if (is_dropped(&drive->blocks[index])) {
            release(drive, index);
        } else {
            append(drive, &kept, index);
        }
    }
    drive->ready = kept;
}

static void give_up(struct aio_drive *drive, int32_t index, int code)
{
    count(&drive->errors, 1);
    aio_queue_fail(drive->blocks[index].lane->queue, code, core_err_sentence());
    release(drive, index);
}

static void finish(struct aio_drive *drive, int32_t index)
{
    const struct block *block = &drive->blocks[index];
    const struct part *part = aio_part_of(block);
    count(&drive->finished, 1);
    if (part->kind != AIO_SYNC) {
        bool write = part->kind == AIO_WRITE;
        int64_t ns = drive->now_ns - block->start_ns;
        count(write ? &drive->write_bytes : &drive->read_bytes, block->bytes);
        count(&drive->latency[write][aio_latency_bucket(ns > 0 ? (uint64_t)ns : 0)], 1);
    }
    release(drive, index);
}

/* Pauses grow, so that a kernel short of memory gets some time; the whole budget is about 4 s. The
 * block and its lane pause; other lanes go on. */
static void pause_before_repeat(const struct aio_drive *drive, struct block *block)
{
    if (block->repeats > 8) {
        block->retry_ns = drive->now_ns + (block->repeats < 64 ? 20000 : 1000000);
        block->lane->retry_ns = block->retry_ns;
    }
}

/* ECANCELED that nobody asked for: io_uring gives it where a signal keeps the kernel from starting a
 * thread of its own. */
static bool is_transient(int64_t code)
{
    return code == -EINTR || code == -EAGAIN || code == -EBUSY || code == -ENOMEM ||
           code == -ECANCELED;
}

/* Errors that trying again cannot cure. */
static bool is_final(int64_t code)
{
    return code == -ENOSPC || code == -EDQUOT || code == -EFBIG || code == -EINVAL ||
           code == -EBADF || code == -EFAULT || code == -EROFS || code == -EPERM ||
           code == -EOPNOTSUPP;
}

static void failed(struct aio_drive *drive, int32_t index, int code)
{
    struct block *block = &drive->blocks[index];
    const struct part *part = aio_part_of(block);
    const char *file = drive->files[part->file].name;
    uint64_t offset = part->offset + block->within + block->moved;
    uint32_t bytes = block->bytes - block->moved;
    bool leaving = block->lane->closing || drive->ending || drive->dead;
    if (is_transient(code) && ++block->repeats <= AIO_REPEATS_MAX && !leaving) {
        count(&drive->repeats, 1);
        pause_before_repeat(drive, block);
        again(drive, index);
        return;
    }
    if (!is_transient(code) && !is_final(code) && block->retries < AIO_RETRIES_MAX && !leaving) {
        block->retries++;
        count(&drive->retries, 1);
        core_log(CORE_LOG_WARN, "%s: %s of %u bytes at offset %" PRIu64 ": %s; retry %u of %d",
                 file, aio_kind_name(part->kind), bytes, offset, strerror(-code), block->retries,
                 AIO_RETRIES_MAX);
        again(drive, index);
        return;
    }
    if (code == -ENOSPC || code == -EDQUOT) {
        core_err_set(code, "%s is full: %s of %u bytes at offset %" PRIu64 ": %s", file,
                     aio_kind_name(part->kind), bytes, offset, strerror(-code));
    } else if (code == -EOPNOTSUPP && drive->options.iopoll) {
        core_err_set(code,
                     "%s: completions can be polled only on a drive with poll queues "
                     "(nvme.poll_queues=N at boot) and with direct I/O: %s of %u bytes: %s",
                     file, aio_kind_name(part->kind), bytes, strerror(-code));
    } else if (block->retries > 0 || block->repeats > 0) {
        core_err_set(code, "%s: %s of %u bytes at offset %" PRIu64 " failed %u times: %s", file,
                     aio_kind_name(part->kind), bytes, offset, block->retries + block->repeats + 1,
                     strerror(-code));
    } else {
        core_err_set(code, "%s: %s of %u bytes at offset %" PRIu64 ": %s", file,
                     aio_kind_name(part->kind), bytes, offset, strerror(-code));
    }
    give_up(drive, index, code);
}

/* The rest of a short transfer goes on where it stopped; on a direct file at the last aligned byte.
 * A transfer that gains nothing that way counts as a repeat, so that the loop has an end. */
static void continue_short(struct aio_drive *drive, int32_t index, uint32_t moved)
{
    struct block *block = &drive->blocks[index];
    const struct file *file = &drive->files[aio_part_of(block)->file];
    count(&drive->shorts, 1);
    if (file->direct) {
        moved = moved / AIO_ALIGN_BYTES * AIO_ALIGN_BYTES;
    }
    if (moved == 0) {
        failed(drive, index, -EAGAIN);
        return;
    }
    block->moved += moved;
    again(drive, index);
}

static void ended_early(struct aio_drive *drive, int32_t index)
{
    const struct block *block = &drive->blocks[index];
    const struct part *part = aio_part_of(block);
    core_err_set(
        -ENODATA, "%s: %s at offset %" PRIu64 " moved nothing: the file ends before byte %" PRIu64,
        drive->files[part->file].name, aio_kind_name(part->kind),
        part->offset + block->within + block->moved, part->offset + block->within + block->bytes);
    give_up(drive, index, -ENODATA);
}

static void answered(struct aio_drive *drive, int32_t index, int64_t result)
{
    struct block *block = &drive->blocks[index];
    const struct part *part = aio_part_of(block);
    uint32_t asked = block->bytes - block->moved;
    if (part->kind == AIO_SYNC && result >= 0) {
        finish(drive, index);
    } else if (result < 0) {
        failed(drive, index, (int)result);
    } else if (result > asked) {
        core_err_set(-EPROTO, "%s: %s of %u bytes answered %" PRId64, drive->name,
                     aio_kind_name(part->kind), asked, result);
        give_up(drive, index, -EPROTO);
    } else if (result == 0) {
        ended_early(drive, index);
    } else if (result < asked) {
        continue_short(drive, index, (uint32_t)result);
    } else if (part->kind == AIO_READ && part->sums.table != NULL) {
        block->moved = block->bytes;
        block->state = BLOCK_DONE;
        append(drive, &drive->done, index);
    } else {
        finish(drive, index);
    }
}

void aio_block_event(struct aio_drive *drive, const struct aio_event *event)
{
    uint32_t index = event->token & ((1u << TOKEN_INDEX_BITS) - 1);
    uint32_t generation = (uint32_t)(event->token >> TOKEN_INDEX_BITS);
    if (event->token >= AIO_TOKEN_LIMIT || index >= drive->blocks_count ||
        drive->blocks[index].state != BLOCK_FLYING ||
        drive->blocks[index].generation != generation) {
        bool first = atomic_load_explicit(&drive->strangers, memory_order_relaxed) == 0;
        count(&drive->strangers, 1);
        core_log(first ? CORE_LOG_WARN : CORE_LOG_DEBUG,
                 "%s: an answer to nothing that was asked (token %" PRIx64 ", result %" PRId64
                 ") is ignored",
                 drive->name, event->token, event->result);
        return;
    }
    drive->flying--;
    answered(drive, (int32_t)index, event->result);
}

static void mismatched(struct aio_drive *drive, int32_t index, int64_t sum_index, uint64_t found)
{
    struct block *block = &drive->blocks[index];
    const struct part *part = aio_part_of(block);
    const struct aio_sum *sum = &part->sums.table[sum_index];
    const char *file = drive->files[part->file].name;
    uint64_t offset = part->offset + (uint64_t)sum_index * AIO_SUM_BYTES;
    count(&drive->mismatches, 1);
    if (sum->generation == 0) {
        core_err_set(-ENODATA, "%s: block %" PRIu64 " at offset %" PRIu64 " was never written",
                     file, part->sums.block + (uint64_t)sum_index, offset);
        give_up(drive, index, -ENODATA);
    } else if (block->rereads == 0 && !drive->dead) {
        block->rereads = 1;
        block->moved = 0;
        core_log(CORE_LOG_WARN,
                 "%s: checksum at offset %" PRIu64 " is %016" PRIx64 ", not %016" PRIx64
                 "; read again",
                 file, offset, found, sum->value);
        again(drive, index);
    } else {
        core_err_set(-EBADMSG,
                     "%s: checksum at offset %" PRIu64 " is %016" PRIx64 ", not %016" PRIx64
                     " (block %" PRIu64 ", generation %" PRIu64
                     "), read twice: the drive gave back something else than was written",
                     file, offset, found, sum->value, part->sums.block + (uint64_t)sum_index,
                     sum->generation);
        give_up(drive, index, -EBADMSG);
    }
}

void aio_block_verify(struct aio_drive *drive, unsigned max)
{
    for (unsigned i = 0; i < max; i++) {
        int32_t index = take(drive, &drive->done);
        if (index == NONE) {
            return;
        }
        uint64_t found = 0;
        int64_t wrong = aio_sums_check(drive, &drive->blocks[index], &found);
        if (wrong != NONE) {
            mismatched(drive, index, wrong, found);
        } else {
            finish(drive, index);
        }
    }
}

void aio_block_cancel(struct aio_drive *drive, const struct lane *lane)
{
    for (uint32_t i = 0; i < drive->blocks_count; i++) {
        const struct block *block = &drive->blocks[i];
        if (block->state == BLOCK_FLYING && (lane == NULL || block->lane == lane)) {
            drive->backend->cancel(drive->state,
                                   (uint64_t)block->generation << TOKEN_INDEX_BITS | i);
        }
    }
}

const char *aio_kind_name(enum aio_kind kind)
{
    static const char *const names[] = {"read", "write", "sync"};
    return names[kind];
}

unsigned aio_latency_bucket(uint64_t ns)
{
    if (ns < 4) {
        return (unsigned)ns;
    }
    unsigned top = 63u - (unsigned)__builtin_clzll(ns);
    return top * 4 + (unsigned)(ns >> (top - 2) & 3);
}

uint64_t aio_latency_ns(const uint64_t latency[AIO_LATENCY_BUCKETS], double share)
{
    uint64_t total = 0;
    for (unsigned i = 0; i < AIO_LATENCY_BUCKETS; i++) {
        total += latency[i];
    }
    uint64_t seen = 0;
    for (unsigned i = 0; i < AIO_LATENCY_BUCKETS; i++) {
        seen += latency[i];
        if (latency[i] > 0 && (double)seen >= share * (double)total) {
            /* the upper end of the bucket */
            return i < 8 ? i : (uint64_t)(i % 4 + 5) << (i / 4 - 2);
        }
    }
    return 0;
}

void aio_block_watch(struct aio_drive *drive)
{
    for (uint32_t i = 0; i < drive->blocks_count && !drive->dead; i++) {
        struct block *block = &drive->blocks[i];
        int64_t late_ns = drive->ran_ns - block->start_ran_ns;
        if (block->state != BLOCK_FLYING || late_ns < drive->options.warn_ns) {
            continue;
        }
        const struct part *part = aio_part_of(block);
        const char *kind = aio_kind_name(part->kind);
        const char *file = drive->files[part->file].name;
        uint64_t offset = part->offset + block->within + block->moved;
        uint32_t bytes = block->bytes - block->moved;
        if (late_ns >= drive->options.limit_ns) {
            core_err_set(-ETIMEDOUT,
                         "%s does not answer: %s of %u bytes at offset %" PRIu64
                         " of %s has waited for %.1f s",
                         drive->name, kind, bytes, offset, file, (double)late_ns / 1e9);
            aio_drive_die(drive, -ETIMEDOUT);
        } else if (!block->warned) {
            block->warned = true;
            count(&drive->stalls, 1);
            core_log(CORE_LOG_WARN,
                     "%s is slow: %s of %u bytes at offset %" PRIu64 " of %s has waited for %.1f s"
                     " (error at %.1f s)",
                     drive->name, kind, bytes, offset, file, (double)late_ns / 1e9,
                     (double)drive->options.limit_ns / 1e9);
        }
    }
}
