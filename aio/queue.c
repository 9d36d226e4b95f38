/* queue.c: submits the requests of a queue, and completes them in order.
 * A thread that finishes a request adds a notice; the thread of the first notice advances the line
 * for the others, so no drive waits for another. */
#include "aio/queue.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aio/drive_internal.h"
#include "core/base/err.h"

enum { DEPTH_MAX = 1 << 16, MEMORY_ALIGN_BYTES = 512 };
static const uint32_t not_submitted = UINT32_MAX;

struct aio_queue {
    struct core_line line;
    unsigned drives_count;
    struct aio_drive *drives[AIO_PATHS_MAX]; /* borrowed */
    struct channel *channels[AIO_PATHS_MAX]; /* owned, with their requests */
    uint32_t depth;
    uint64_t mask;
    uint64_t submitted; /* used only by the owner */
    uint64_t completed; /* used by the thread advancing the line */
    /* owned: unfinished drive_requests of a request */
    _Atomic uint32_t *left;
    _Atomic uint32_t notices;
    _Atomic bool failed; /* release pairs with the drives' acquire */
};

static bool is_failed(const struct aio_queue *queue)
{
    return atomic_load_explicit(&queue->failed, memory_order_acquire);
}

/* Sets `failed` before the failing range counts as finished: no other drive may complete the
 * request before the message is written. */
static void queue_done(void *user, uint64_t value, int rc)
{
    struct aio_queue *queue = user;
    if (rc != 0) {
        atomic_store_explicit(&queue->failed, true, memory_order_release);
        core_line_fail(&queue->line, rc, core_err_message());
        return;
    }
    if (atomic_fetch_sub_explicit(&queue->left[value & queue->mask], 1, memory_order_acq_rel) !=
        1) {
        return;
    }
    if (atomic_fetch_add_explicit(&queue->notices, 1, memory_order_acq_rel) != 0) {
        return;
    }
    uint32_t seen = 1;
    do {
        uint64_t next = queue->completed;
        while (atomic_load_explicit(&queue->left[(next + 1) & queue->mask], memory_order_acquire) ==
               0) {
            next++;
            atomic_store_explicit(&queue->left[next & queue->mask], not_submitted,
                                  memory_order_relaxed);
        }
        if (next != queue->completed) {
            queue->completed = next;
            if (!is_failed(queue)) {
                core_line_reach(&queue->line, next);
            }
        }
        uint32_t noticed = atomic_fetch_sub_explicit(&queue->notices, seen, memory_order_acq_rel);
        seen = noticed - seen;
    } while (seen != 0);
}

static uint64_t power_of_two(uint64_t n)
{
    uint64_t power = 1;
    while (power < n) {
        power *= 2;
    }
    return power;
}

static void channel_free(struct channel *channel)
{
    if (channel != NULL) {
        free(channel->requests);
        free(channel);
    }
}

static int channel_no_memory(const struct aio_queue *queue, const struct aio_drive *drive)
{
    return core_err_set(-ENOMEM, "out of memory for %u requests of queue %s on %s", queue->depth,
                        queue->line.name, drive->name);
}

static int channel_create(struct aio_queue *queue, struct aio_drive *drive, uint64_t weight,
                          struct channel **out)
{
    struct channel *channel = aligned_alloc(64, (sizeof *channel + 63) / 64 * 64);
    if (channel == NULL) {
        return channel_no_memory(queue, drive);
    }
    memset(channel, 0, sizeof *channel);
    uint64_t size = power_of_two(2 * (uint64_t)queue->depth);
    size = size < AIO_IOV_MAX ? AIO_IOV_MAX : size;
    channel->done = queue_done;
    channel->user = queue;
    channel->failed = &queue->failed;
    channel->mask = size - 1;
    channel->weight = weight;
    channel->requests = calloc(size, sizeof *channel->requests);
    int rc = channel->requests != NULL ? aio_drive_open_channel(drive, channel)
                                       : channel_no_memory(queue, drive);
    if (rc != 0) {
        channel_free(channel);
        return rc;
    }
    *out = channel;
    return 0;
}

static int create_counts(struct aio_queue *queue)
{
    queue->mask = power_of_two((uint64_t)queue->depth + 1) - 1;
    queue->left = calloc(queue->mask + 1, sizeof *queue->left);
    if (queue->left == NULL) {
        return core_err_set(-ENOMEM, "out of memory for %u requests of queue %s", queue->depth,
                            queue->line.name);
    }
    for (uint64_t i = 0; i <= queue->mask; i++) {
        atomic_init(&queue->left[i], not_submitted);
    }
    return 0;
}

int aio_queue_open(struct aio_drive *const *drives, unsigned drives_count,
                   const struct aio_queue_options *options, struct aio_queue **out)
{
    if (drives_count == 0 || drives_count > AIO_PATHS_MAX || options->depth > DEPTH_MAX ||
        options->urgency >= AIO_URGENCY_COUNT) {
        return core_err_set(-EINVAL,
                            "invalid queue: %u drives (1 to %d), depth %u (at most %d),"
                            " urgency %u (below %d)",
                            drives_count, AIO_PATHS_MAX, options->depth, DEPTH_MAX,
                            options->urgency, AIO_URGENCY_COUNT);
    }
    struct aio_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL) {
        return core_err_set(-ENOMEM, "out of memory for a queue");
    }
    core_line_init(&queue->line, options->name != NULL ? options->name : "io", options->bell);
    queue->depth = options->depth != 0 ? options->depth : AIO_QUEUE_DEPTH_DEFAULT;
    uint64_t weight = (uint64_t)1 << (3 * (AIO_URGENCY_COUNT - 1 - options->urgency));
    int rc = create_counts(queue);
    for (unsigned i = 0; rc == 0 && i < drives_count; i++) {
        queue->drives[i] = drives[i];
        rc = channel_create(queue, drives[i], weight, &queue->channels[i]);
        queue->drives_count += rc == 0;
    }
    if (rc != 0) {
        aio_queue_close(queue);
        return rc;
    }
    *out = queue;
    return 0;
}

int aio_queue_close(struct aio_queue *queue)
{
    if (queue == NULL) {
        return 0;
    }
    int rc = 0;
    for (unsigned i = 0; i < queue->drives_count; i++) {
        const int channel_rc = aio_drive_close_channel(queue->drives[i], queue->channels[i]);
        if (rc == 0) {
            rc = channel_rc;
        }
    }
    if (rc != 0) {
        return rc; /* leaked: late completions refer to their channel */
    }
    for (unsigned i = 0; i < queue->drives_count; i++) {
        channel_free(queue->channels[i]);
    }
    free(queue->left);
    free(queue);
    return 0;
}

static int check_iov(const struct aio_queue *queue, const struct aio_iov *iov)
{
    if (iov->drive >= queue->drives_count || iov->file >= AIO_FILES_MAX) {
        return core_err_set(-EINVAL, "queue %s: no file %u on drive %u", queue->line.name,
                            iov->file, iov->drive);
    }
    const struct attached_file *file = &queue->drives[iov->drive]->files[iov->file];
    if (!atomic_load_explicit(&file->used, memory_order_acquire)) {
        return core_err_set(-EINVAL, "queue %s: file %u of %s is not attached", queue->line.name,
                            iov->file, queue->drives[iov->drive]->name);
    }
    if (iov->bytes == 0 ||
        (file->size_bytes != 0 &&
         (iov->offset > file->size_bytes || iov->bytes > file->size_bytes - iov->offset))) {
        return core_err_set(-EINVAL,
                            "%s: %" PRIu64 " bytes at offset %" PRIu64
                            " are outside the file of %" PRIu64 " bytes",
                            file->name, iov->bytes, iov->offset, file->size_bytes);
    }
    if (file->direct && (iov->offset % AIO_ALIGN_BYTES != 0 || iov->bytes % AIO_ALIGN_BYTES != 0 ||
                         (uintptr_t)iov->memory % MEMORY_ALIGN_BYTES != 0)) {
        return core_err_set(-EINVAL,
                            "%s: unaligned request: offset %" PRIu64 " and length %" PRIu64
                            " must be multiples of %d, address %p a multiple of %d",
                            file->name, iov->offset, iov->bytes, AIO_ALIGN_BYTES, iov->memory,
                            MEMORY_ALIGN_BYTES);
    }
    return 0;
}

static uint64_t channel_room(const struct channel *channel)
{
    uint64_t tail = atomic_load_explicit(&channel->tail, memory_order_relaxed);
    return channel->mask + 1 - (tail - atomic_load_explicit(&channel->head, memory_order_acquire));
}

static int check_room(const struct aio_queue *queue, const struct aio_iov *iovs, unsigned n)
{
    int error = atomic_load_explicit(&queue->line.error, memory_order_acquire);
    if (error != 0) {
        return core_err_adopt(error, queue->line.message);
    }
    uint64_t reached = atomic_load_explicit(&queue->line.reached, memory_order_acquire);
    if (queue->submitted - reached >= queue->depth) {
        return -EAGAIN;
    }
    unsigned wanted[AIO_PATHS_MAX] = {0};
    for (unsigned i = 0; i < n; i++) {
        if (++wanted[iovs[i].drive] > channel_room(queue->channels[iovs[i].drive])) {
            return -EAGAIN;
        }
    }
    return 0;
}

static void queue_push(struct aio_queue *queue, enum aio_kind kind, const struct aio_iov *iov)
{
    struct channel *channel = queue->channels[iov->drive];
    uint64_t tail = atomic_load_explicit(&channel->tail, memory_order_relaxed);
    channel->requests[tail & channel->mask] = (struct drive_request){
        .kind = kind,
        .file = iov->file,
        .offset = iov->offset,
        .memory = iov->memory,
        .bytes = iov->bytes,
        .sums = iov->sums,
        .value = queue->submitted,
        .left = 1,
    };
    atomic_store_explicit(&channel->tail, tail + 1, memory_order_seq_cst);
}

static int queue_submit(struct aio_queue *queue, enum aio_kind kind, const struct aio_iov *iovs,
                        unsigned n, struct core_fence *out)
{
    int rc = check_room(queue, iovs, n);
    if (rc != 0) {
        return rc;
    }
    queue->submitted++;
    atomic_store_explicit(&queue->left[queue->submitted & queue->mask], n, memory_order_release);
    uint32_t touched = 0;
    for (unsigned i = 0; i < n; i++) {
        queue_push(queue, kind, &iovs[i]);
        touched |= 1u << iovs[i].drive;
    }
    for (unsigned i = 0; touched != 0; i++, touched >>= 1) {
        if ((touched & 1) != 0) {
            aio_drive_wake(queue->drives[i]);
        }
    }
    *out = aio_queue_tail(queue);
    return 0;
}

int aio_queue_submit(struct aio_queue *queue, enum aio_kind kind, const struct aio_iov *iovs,
                     unsigned n, struct core_fence *out)
{
    if (n == 0 || n > AIO_IOV_MAX || kind == AIO_SYNC) {
        return core_err_set(-EINVAL, "queue %s: a request has %u ranges; expected 1 to %d",
                            queue->line.name, n, AIO_IOV_MAX);
    }
    for (unsigned i = 0; i < n; i++) {
        int rc = check_iov(queue, &iovs[i]);
        if (rc != 0) {
            return rc;
        }
    }
    return queue_submit(queue, kind, iovs, n, out);
}

int aio_queue_read(struct aio_queue *queue, uint32_t file, uint64_t offset, void *memory,
                   uint64_t bytes, struct core_fence *out)
{
    struct aio_iov iov = {.file = file, .offset = offset, .memory = memory, .bytes = bytes};
    return aio_queue_submit(queue, AIO_READ, &iov, 1, out);
}

int aio_queue_write(struct aio_queue *queue, uint32_t file, uint64_t offset, const void *memory,
                    uint64_t bytes, struct core_fence *out)
{
    union {
        const void *in;
        void *out;
    } pointer = {.in = memory}; /* a write only reads it */
    struct aio_iov iov = {.file = file, .offset = offset, .memory = pointer.out, .bytes = bytes};
    return aio_queue_submit(queue, AIO_WRITE, &iov, 1, out);
}

int aio_queue_sync(struct aio_queue *queue, unsigned drive, uint32_t file, struct core_fence *out)
{
    struct aio_iov iov = {.drive = drive, .file = file};
    if (drive >= queue->drives_count || file >= AIO_FILES_MAX ||
        !atomic_load_explicit(&queue->drives[drive]->files[file].used, memory_order_acquire)) {
        return core_err_set(-EINVAL, "queue %s: no file %u on drive %u", queue->line.name, file,
                            drive);
    }
    return queue_submit(queue, AIO_SYNC, &iov, 1, out);
}

struct core_fence aio_queue_tail(struct aio_queue *queue)
{
    return (struct core_fence){.line = &queue->line, .value = queue->submitted};
}
