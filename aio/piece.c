/* piece.c: one transfer from submission to end: continued if short, repeated if failed, verified if
 * read, reported if late. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aio/drive.h"
#include "aio/drive_internal.h"
#include "core/base/err.h"
#include "core/base/log.h"

enum { BATCH = 64, TOKEN_INDEX_BITS = 16 };

static const char *kind_name(enum aio_kind kind)
{
    static const char *const names[] = {"read", "write", "sync"};
    return names[kind];
}

static void list_append(struct aio_drive *drive, struct piece_list *list, int32_t index)
{
    drive->pieces[index].next = NONE;
    if (list->first == NONE) {
        list->first = index;
    } else {
        drive->pieces[list->last].next = index;
    }
    list->last = index;
}

static void list_prepend(struct aio_drive *drive, struct piece_list *list, int32_t index)
{
    drive->pieces[index].next = list->first;
    if (list->first == NONE) {
        list->last = index;
    }
    list->first = index;
}

static int32_t list_take(struct aio_drive *drive, struct piece_list *list)
{
    int32_t index = list->first;
    if (index != NONE) {
        list->first = drive->pieces[index].next;
    }
    return index;
}

int aio_pieces_create(struct aio_drive *drive)
{
    drive->pieces_count = 2 * drive->depth;
    drive->pieces = calloc(drive->pieces_count, sizeof *drive->pieces);
    if (drive->pieces == NULL) {
        return core_err_set(-ENOMEM, "out of memory for %u transfers of %s", drive->pieces_count,
                            drive->name);
    }
    drive->unused = drive->ready = drive->done = (struct piece_list){NONE, NONE};
    for (uint32_t i = 0; i < drive->pieces_count; i++) {
        list_append(drive, &drive->unused, (int32_t)i);
    }
    return 0;
}

static int32_t buffer_of(const struct aio_drive *drive, const unsigned char *memory, uint32_t bytes)
{
    unsigned low = 0;
    unsigned high = drive->slabs_count;
    while (low < high) { /* finds the last slab at or before the memory */
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
    const struct io_piece *piece = &drive->pieces[index];
    const struct drive_request *request = aio_request_of(piece);
    uint64_t at = piece->within + piece->moved;
    struct aio_op op = {
        .token = (uint64_t)piece->generation << TOKEN_INDEX_BITS | (uint32_t)index,
        .kind = request->kind,
        .bytes = piece->bytes - piece->moved,
        .file = request->file,
        .buffer = NONE,
        .fd = drive->files[request->file].fd,
        .offset = request->offset + at,
        .memory = request->kind == AIO_SYNC ? NULL : request->memory + at,
    };
    if (drive->slabs_count > 0 && request->kind != AIO_SYNC) {
        op.buffer = buffer_of(drive, op.memory, op.bytes);
    }
    return op;
}

static void piece_release(struct aio_drive *drive, int32_t index)
{
    struct io_piece *piece = &drive->pieces[index];
    piece->state = PIECE_FREE;
    list_append(drive, &drive->unused, index);
    aio_channel_finish(piece->channel, piece->request);
}

static void piece_retry(struct aio_drive *drive, int32_t index)
{
    if (drive->dead || aio_channel_failed(drive->pieces[index].channel)) {
        piece_release(drive, index);
        return;
    }
    drive->pieces[index].state = PIECE_READY;
    list_append(drive, &drive->ready, index);
}

static bool is_dropped(const struct io_piece *piece)
{
    return aio_channel_failed(piece->channel);
}

/* Also releases pieces of failed queues. */
static int32_t ready_take(struct aio_drive *drive)
{
    struct piece_list kept = {NONE, NONE};
    int32_t found = NONE;
    for (int32_t index = NONE;
         found == NONE && (index = list_take(drive, &drive->ready)) != NONE;) {
        const struct io_piece *piece = &drive->pieces[index];
        if (is_dropped(piece)) {
            piece_release(drive, index);
        } else if (piece->retry_ns <= drive->now_ns) {
            found = index;
        } else {
            list_append(drive, &kept, index);
        }
    }
    if (kept.first != NONE) { /* pausing pieces stay in front */
        drive->pieces[kept.last].next = drive->ready.first;
        drive->ready.last = drive->ready.first != NONE ? drive->ready.last : kept.last;
        drive->ready.first = kept.first;
    }
    return found;
}

int64_t aio_pieces_due(struct aio_drive *drive)
{
    int64_t due_ns = INT64_MAX;
    for (int32_t i = drive->ready.first; i != NONE; i = drive->pieces[i].next) {
        const struct io_piece *piece = &drive->pieces[i];
        const int64_t retry_ns = is_dropped(piece) ? 0 : piece->retry_ns;
        due_ns = retry_ns < due_ns ? retry_ns : due_ns;
    }
    if (due_ns > drive->now_ns && drive->unused.first != NONE && aio_channel_pick(drive) != NULL) {
        due_ns = 0;
    }
    return due_ns > drive->submit_ns ? due_ns : drive->submit_ns;
}

/* Repeated pieces go first. */
static int32_t next_piece(struct aio_drive *drive)
{
    int32_t index = ready_take(drive);
    if (index != NONE) {
        return index;
    }
    struct channel *channel = drive->unused.first != NONE ? aio_channel_pick(drive) : NULL;
    if (channel == NULL) {
        return NONE;
    }
    index = list_take(drive, &drive->unused);
    aio_channel_cut(drive, channel, &drive->pieces[index]);
    return index;
}

int aio_pieces_submit(struct aio_drive *drive)
{
    struct aio_op ops[BATCH];
    int32_t index[BATCH];
    while (!drive->dead && drive->in_flight < drive->depth && drive->submit_ns <= drive->now_ns) {
        unsigned count_ops = 0;
        while (count_ops < BATCH && drive->in_flight + count_ops < drive->depth) {
            index[count_ops] = next_piece(drive);
            if (index[count_ops] == NONE) {
                break;
            }
            struct io_piece *piece = &drive->pieces[index[count_ops]];
            piece->generation++;
            ops[count_ops] = op_of(drive, index[count_ops]);
            count_ops++;
        }
        if (count_ops == 0) {
            return 0;
        }
        int taken = drive->backend->submit(drive->state, ops, count_ops);
        unsigned from = taken > 0 ? (unsigned)taken : 0;
        for (unsigned i = 0; i < from; i++) {
            drive->pieces[index[i]].state = PIECE_IN_FLIGHT;
        }
        drive->in_flight += from;
        for (unsigned i = count_ops; i-- > from;) {
            drive->pieces[index[i]].state = PIECE_READY;
            list_prepend(drive, &drive->ready, index[i]);
        }
        if (from < count_ops) {
            return taken < 0 ? taken : 0;
        }
    }
    return 0;
}

void aio_pieces_drop(struct aio_drive *drive)
{
    struct piece_list kept = {NONE, NONE};
    for (int32_t index = list_take(drive, &drive->ready); index != NONE;
         index = list_take(drive, &drive->ready)) {
        if (is_dropped(&drive->pieces[index])) {
            piece_release(drive, index);
        } else {
            list_append(drive, &kept, index);
        }
    }
    drive->ready = kept;
}

static void piece_fail(struct aio_drive *drive, int32_t index, int rc)
{
    const struct io_piece *piece = &drive->pieces[index];
    count(&drive->errors, 1);
    aio_channel_fail(piece->channel, aio_request_of(piece)->value, rc);
    piece_release(drive, index);
}

static void piece_finish(struct aio_drive *drive, int32_t index)
{
    const struct io_piece *piece = &drive->pieces[index];
    const struct drive_request *request = aio_request_of(piece);
    count(&drive->finished, 1);
    if (request->kind != AIO_SYNC) {
        bool write = request->kind == AIO_WRITE;
        int64_t ns = drive->now_ns - piece->start_ns;
        count(write ? &drive->write_bytes : &drive->read_bytes, piece->bytes);
        count(&drive->latency[write][aio_latency_bucket(ns > 0 ? (uint64_t)ns : 0)], 1);
    }
    piece_release(drive, index);
}

/* Growing pauses, about 4 s in total: the kernel can recover memory. */
static void pause_before_repeat(const struct aio_drive *drive, struct io_piece *piece)
{
    if (piece->repeats > 8) {
        piece->retry_ns = drive->now_ns + (piece->repeats < 64 ? 20000 : 1000000);
        piece->channel->retry_ns = piece->retry_ns;
    }
}

/* io_uring also returns ECANCELED if a signal stops a worker's start. */
static bool is_transient(int64_t rc)
{
    return rc == -EINTR || rc == -EAGAIN || rc == -EBUSY || rc == -ENOMEM || rc == -ECANCELED;
}

/* A retry cannot fix these. */
static bool is_final(int64_t rc)
{
    return rc == -ENOSPC || rc == -EDQUOT || rc == -EFBIG || rc == -EINVAL || rc == -EBADF ||
           rc == -EFAULT || rc == -EROFS || rc == -EPERM || rc == -EOPNOTSUPP;
}

/* Fails the piece if the error is final, at the limit, or if queue or drive closes; else repeats
 * it. */
static void piece_failed(struct aio_drive *drive, int32_t index, int rc)
{
    struct io_piece *piece = &drive->pieces[index];
    const struct drive_request *request = aio_request_of(piece);
    const char *file = drive->files[request->file].name;
    uint64_t offset = request->offset + piece->within + piece->moved;
    uint32_t bytes = piece->bytes - piece->moved;
    bool leaving = piece->channel->closing || drive->ending || drive->dead;
    if (is_transient(rc) && ++piece->repeats <= AIO_REPEATS_MAX && !leaving) {
        count(&drive->repeats, 1);
        pause_before_repeat(drive, piece);
        piece_retry(drive, index);
        return;
    }
    if (!is_transient(rc) && !is_final(rc) && piece->retries < AIO_RETRIES_MAX && !leaving) {
        piece->retries++;
        count(&drive->retries, 1);
        core_log(CORE_LOG_WARN, "%s: %s of %u bytes at offset %" PRIu64 ": %s; retry %u of %d",
                 file, kind_name(request->kind), bytes, offset, strerror(-rc), piece->retries,
                 AIO_RETRIES_MAX);
        piece_retry(drive, index);
        return;
    }
    if (rc == -ENOSPC || rc == -EDQUOT) {
        core_err_set(rc, "%s is full: %s of %u bytes at offset %" PRIu64 ": %s", file,
                     kind_name(request->kind), bytes, offset, strerror(-rc));
    } else if (rc == -EOPNOTSUPP && drive->iopoll) {
        core_err_set(rc,
                     "%s: polled completions need direct I/O and a drive with poll queues "
                     "(nvme.poll_queues=N at boot): %s of %u bytes: %s",
                     file, kind_name(request->kind), bytes, strerror(-rc));
    } else if (piece->retries > 0 || piece->repeats > 0) {
        core_err_set(rc, "%s: %s of %u bytes at offset %" PRIu64 " failed %u times: %s", file,
                     kind_name(request->kind), bytes, offset, piece->retries + piece->repeats + 1,
                     strerror(-rc));
    } else {
        core_err_set(rc, "%s: %s of %u bytes at offset %" PRIu64 ": %s", file,
                     kind_name(request->kind), bytes, offset, strerror(-rc));
    }
    piece_fail(drive, index, rc);
}

/* Continues a short transfer where it stopped; with direct I/O, at the last aligned offset. No
 * progress counts as a repeat, which bounds the loop. */
static void piece_continue(struct aio_drive *drive, int32_t index, uint32_t moved)
{
    struct io_piece *piece = &drive->pieces[index];
    const struct attached_file *file = &drive->files[aio_request_of(piece)->file];
    count(&drive->short_transfers, 1);
    if (file->direct) {
        moved = moved / AIO_ALIGN_BYTES * AIO_ALIGN_BYTES;
    }
    if (moved == 0) {
        piece_failed(drive, index, -EAGAIN);
        return;
    }
    piece->moved += moved;
    piece_retry(drive, index);
}

/* Fails a piece whose transfer moved 0 bytes: the file is too short. */
static void piece_ended_early(struct aio_drive *drive, int32_t index)
{
    const struct io_piece *piece = &drive->pieces[index];
    const struct drive_request *request = aio_request_of(piece);
    core_err_set(-ENODATA,
                 "%s: %s at offset %" PRIu64
                 " transferred 0 bytes: the file ends before byte %" PRIu64,
                 drive->files[request->file].name, kind_name(request->kind),
                 request->offset + piece->within + piece->moved,
                 request->offset + piece->within + piece->bytes);
    piece_fail(drive, index, -ENODATA);
}

static void piece_completed(struct aio_drive *drive, int32_t index, int64_t result)
{
    struct io_piece *piece = &drive->pieces[index];
    const struct drive_request *request = aio_request_of(piece);
    uint32_t wanted = piece->bytes - piece->moved;
    if (request->kind == AIO_SYNC && result >= 0) {
        piece_finish(drive, index);
    } else if (result < 0) {
        piece_failed(drive, index, (int)result);
    } else if (result > wanted) {
        core_err_set(-EPROTO, "%s: %s of %u bytes returned %" PRId64, drive->name,
                     kind_name(request->kind), wanted, result);
        piece_fail(drive, index, -EPROTO);
    } else if (result == 0) {
        piece_ended_early(drive, index);
    } else if (result < wanted) {
        piece_continue(drive, index, (uint32_t)result);
    } else if (request->kind == AIO_READ && request->sums.table != NULL) {
        piece->moved = piece->bytes;
        piece->state = PIECE_DONE;
        list_append(drive, &drive->done, index);
    } else {
        piece_finish(drive, index);
    }
}

void aio_pieces_complete(struct aio_drive *drive, const struct aio_event *event)
{
    uint32_t index = event->token & ((1u << TOKEN_INDEX_BITS) - 1);
    uint32_t generation = (uint32_t)(event->token >> TOKEN_INDEX_BITS);
    if (event->token >= AIO_TOKEN_LIMIT || index >= drive->pieces_count ||
        drive->pieces[index].state != PIECE_IN_FLIGHT ||
        drive->pieces[index].generation != generation) {
        bool first = atomic_load_explicit(&drive->unknown_completions, memory_order_relaxed) == 0;
        count(&drive->unknown_completions, 1);
        core_log(first ? CORE_LOG_WARN : CORE_LOG_DEBUG,
                 "%s: unknown completion token %" PRIx64 " (result %" PRId64 ") ignored",
                 drive->name, event->token, event->result);
        return;
    }
    drive->in_flight--;
    piece_completed(drive, (int32_t)index, event->result);
}

static void sum_mismatched(struct aio_drive *drive, int32_t index, int64_t sum_index,
                           uint64_t found)
{
    struct io_piece *piece = &drive->pieces[index];
    const struct drive_request *request = aio_request_of(piece);
    const struct aio_sum *sum = &request->sums.table[sum_index];
    const char *file = drive->files[request->file].name;
    uint64_t offset = request->offset + (uint64_t)sum_index * aio_sums_unit(&request->sums);
    count(&drive->mismatches, 1);
    if (sum->generation == 0) {
        core_err_set(-ENODATA, "%s: block %" PRIu64 " at offset %" PRIu64 " was never written",
                     file, request->sums.first + (uint64_t)sum_index, offset);
        piece_fail(drive, index, -ENODATA);
    } else if (piece->rereads == 0 && !drive->dead) {
        piece->rereads = 1;
        piece->moved = 0;
        core_log(CORE_LOG_WARN,
                 "%s: checksum mismatch at offset %" PRIu64 ": found %016" PRIx64
                 ", expected %016" PRIx64 "; reading again",
                 file, offset, found, sum->value);
        piece_retry(drive, index);
    } else {
        core_err_set(-EBADMSG,
                     "%s: checksum mismatch at offset %" PRIu64 ": found %016" PRIx64
                     ", expected %016" PRIx64 " (block %" PRIu64 ", generation %" PRIu64
                     "), read twice: the drive returned data other than what was written",
                     file, offset, found, sum->value, request->sums.first + (uint64_t)sum_index,
                     sum->generation);
        piece_fail(drive, index, -EBADMSG);
    }
}

void aio_pieces_verify(struct aio_drive *drive, unsigned max)
{
    for (unsigned i = 0; i < max; i++) {
        int32_t index = list_take(drive, &drive->done);
        if (index == NONE) {
            return;
        }
        uint64_t found = 0;
        const struct io_piece *piece = &drive->pieces[index];
        const struct drive_request *request = aio_request_of(piece);
        const int64_t wrong = aio_sums_verify(
            &request->sums, piece->within, request->memory + piece->within, piece->bytes, &found);
        count(&drive->hashed_bytes, piece->bytes);
        if (wrong >= 0) {
            sum_mismatched(drive, index, wrong, found);
        } else {
            piece_finish(drive, index);
        }
    }
}

void aio_pieces_cancel(struct aio_drive *drive, const struct channel *channel)
{
    for (uint32_t i = 0; i < drive->pieces_count; i++) {
        const struct io_piece *piece = &drive->pieces[i];
        if (piece->state == PIECE_IN_FLIGHT && (channel == NULL || piece->channel == channel)) {
            drive->backend->cancel(drive->state,
                                   (uint64_t)piece->generation << TOKEN_INDEX_BITS | i);
        }
    }
}

int aio_pieces_watch(struct aio_drive *drive)
{
    for (uint32_t i = 0; i < drive->pieces_count; i++) {
        struct io_piece *piece = &drive->pieces[i];
        const int64_t late_ns = drive->ran_ns - piece->start_ran_ns;
        if (piece->state != PIECE_IN_FLIGHT || late_ns < drive->warn_ns) {
            continue;
        }
        const struct drive_request *request = aio_request_of(piece);
        const char *kind = kind_name(request->kind);
        const char *file = drive->files[request->file].name;
        const uint64_t offset = request->offset + piece->within + piece->moved;
        const uint32_t bytes = piece->bytes - piece->moved;
        if (late_ns >= drive->limit_ns) {
            return core_err_set(-ETIMEDOUT,
                                "%s does not respond: %s of %u bytes at offset %" PRIu64
                                " of %s has been waiting for %.1f s",
                                drive->name, kind, bytes, offset, file, (double)late_ns / 1e9);
        }
        if (!piece->warned) {
            piece->warned = true;
            count(&drive->stalls, 1);
            core_log(CORE_LOG_WARN,
                     "%s is slow: %s of %u bytes at offset %" PRIu64
                     " of %s has been waiting for %.1f s (error at %.1f s)",
                     drive->name, kind, bytes, offset, file, (double)late_ns / 1e9,
                     (double)drive->limit_ns / 1e9);
        }
    }
    return 0;
}
