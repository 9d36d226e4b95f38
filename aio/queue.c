/* queue.c: the submitter's side of a queue, and retiring in order.
 * Several drives may finish parts of several requests at once. Each request counts its parts down;
 * whoever finishes one notices it, and the first to notice moves the line for all (the others have
 * left their notice and go on), so nobody waits for anybody. */
#include "aio/queue.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aio/drive_internal.h"
#include "core/base/err.h"
#include "core/base/hash.h"

enum { DEPTH_MAX = 1 << 16, MEMORY_ALIGN_BYTES = 512 };
static const uint32_t not_submitted = UINT32_MAX;

struct aio_queue {
    struct core_line line;
    unsigned drives_count;
    struct aio_drive *drives[AIO_PATHS_MAX]; /* borrowed */
    struct lane *lanes[AIO_PATHS_MAX];       /* owned, with their parts */
    uint32_t depth;
    uint64_t mask;
    uint64_t submitted;     /* the owner's */
    uint64_t retired;       /* whose of the drives' threads is just moving the line */
    _Atomic uint32_t *left; /* owned, [mask + 1]: parts of a request that are not whole yet */
    _Atomic uint32_t notices;
    _Atomic bool failed; /* release pairs with the drives' acquire */
};

uint64_t aio_sum_seed(const struct aio_sums *sums, uint64_t index, uint64_t generation)
{
    return core_hash_seed(sums->run, sums->owner, sums->block + index, generation);
}

bool aio_queue_failed(const struct aio_queue *queue)
{
    return atomic_load_explicit(&queue->failed, memory_order_acquire);
}

/* Every caller sets `failed` before it counts its part as done, so that no drive completes a request
 * of which another one has failed a part and is still writing the sentence. */
void aio_queue_fail(struct aio_queue *queue, int code, const char *sentence)
{
    atomic_store_explicit(&queue->failed, true, memory_order_release);
    core_line_fail(&queue->line, code, sentence);
}

void aio_queue_part_done(struct aio_queue *queue, uint64_t value)
{
    if (atomic_fetch_sub_explicit(&queue->left[value & queue->mask], 1, memory_order_acq_rel) !=
        1) {
        return;
    }
    if (atomic_fetch_add_explicit(&queue->notices, 1, memory_order_acq_rel) != 0) {
        return;
    }
    uint32_t seen = 1;
    do {
        uint64_t next = queue->retired;
        while (atomic_load_explicit(&queue->left[(next + 1) & queue->mask], memory_order_acquire) ==
               0) {
            next++;
            atomic_store_explicit(&queue->left[next & queue->mask], not_submitted,
                                  memory_order_relaxed);
        }
        if (next != queue->retired) {
            queue->retired = next;
            if (!aio_queue_failed(queue)) {
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

static void free_lane(struct lane *lane)
{
    if (lane != NULL) {
        free(lane->parts);
        free(lane);
    }
}

static int no_lane(const struct aio_queue *queue, const struct aio_drive *drive)
{
    return core_err_set(-ENOMEM, "no memory for %u requests of queue %s on %s", queue->depth,
                        queue->line.name, drive->name);
}

static int make_lane(struct aio_queue *queue, struct aio_drive *drive, uint64_t weight,
                     struct lane **out)
{
    struct lane *lane = aligned_alloc(64, (sizeof *lane + 63) / 64 * 64);
    if (lane == NULL) {
        return no_lane(queue, drive);
    }
    memset(lane, 0, sizeof *lane);
    uint64_t size = power_of_two(2 * (uint64_t)queue->depth);
    size = size < AIO_PIECES_MAX ? AIO_PIECES_MAX : size;
    lane->queue = queue;
    lane->mask = size - 1;
    lane->weight = weight;
    lane->parts = calloc(size, sizeof *lane->parts);
    int rc = lane->parts != NULL ? aio_drive_ask(drive, aio_lane_open, lane)
                                 : no_lane(queue, drive);
    if (rc != 0) {
        free_lane(lane);
        return rc;
    }
    *out = lane;
    return 0;
}

static int make_requests(struct aio_queue *queue)
{
    queue->mask = power_of_two((uint64_t)queue->depth + 1) - 1;
    queue->left = calloc(queue->mask + 1, sizeof *queue->left);
    if (queue->left == NULL) {
        return core_err_set(-ENOMEM, "no memory for %u requests of queue %s", queue->depth,
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
                            "a queue over %u drives (1 to %d), %u requests deep (%d at most), of"
                            " urgency %u (below %d)",
                            drives_count, AIO_PATHS_MAX, options->depth, DEPTH_MAX,
                            options->urgency, AIO_URGENCY_COUNT);
    }
    struct aio_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL) {
        return core_err_set(-ENOMEM, "no memory for a queue");
    }
    core_line_init(&queue->line, options->name != NULL ? options->name : "io", options->bell);
    queue->depth = options->depth != 0 ? options->depth : AIO_QUEUE_DEPTH_DEFAULT;
    uint64_t weight = (uint64_t)1 << (3 * (AIO_URGENCY_COUNT - 1 - options->urgency));
    int rc = make_requests(queue);
    for (unsigned i = 0; rc == 0 && i < drives_count; i++) {
        queue->drives[i] = drives[i];
        rc = make_lane(queue, drives[i], weight, &queue->lanes[i]);
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
        int lane_rc = aio_drive_ask(queue->drives[i], aio_lane_close, queue->lanes[i]);
        rc = rc != 0 ? rc : lane_rc;
    }
    if (rc != 0) {
        return rc; /* leaked on purpose: late answers still find their lane */
    }
    for (unsigned i = 0; i < queue->drives_count; i++) {
        free_lane(queue->lanes[i]);
    }
    free(queue->left);
    free(queue);
    return 0;
}

static int check_piece(const struct aio_queue *queue, const struct aio_piece *piece)
{
    if (piece->drive >= queue->drives_count || piece->file >= AIO_FILES_MAX) {
        return core_err_set(-EINVAL, "queue %s: no file %u on drive %u", queue->line.name,
                            piece->file, piece->drive);
    }
    const struct file *file = &queue->drives[piece->drive]->files[piece->file];
    if (!atomic_load_explicit(&file->used, memory_order_acquire)) {
        return core_err_set(-EINVAL, "queue %s: file %u of %s is not attached", queue->line.name,
                            piece->file, queue->drives[piece->drive]->name);
    }
    if (piece->bytes == 0 ||
        (file->size_bytes != 0 &&
         (piece->offset > file->size_bytes || piece->bytes > file->size_bytes - piece->offset))) {
        return core_err_set(-EINVAL,
                            "%s: %" PRIu64 " bytes at offset %" PRIu64 " of %" PRIu64 " bytes",
                            file->name, piece->bytes, piece->offset, file->size_bytes);
    }
    if (file->direct &&
        (piece->offset % AIO_ALIGN_BYTES != 0 || piece->bytes % AIO_ALIGN_BYTES != 0 ||
         (uintptr_t)piece->memory % MEMORY_ALIGN_BYTES != 0)) {
        return core_err_set(-EINVAL,
                            "%s: offset %" PRIu64 " and %" PRIu64
                            " bytes must be multiples of %d, memory %p of %d",
                            file->name, piece->offset, piece->bytes, AIO_ALIGN_BYTES, piece->memory,
                            MEMORY_ALIGN_BYTES);
    }
    return 0;
}

/* How many more parts the lane has room for. */
static uint64_t room(const struct lane *lane)
{
    uint64_t tail = atomic_load_explicit(&lane->tail, memory_order_relaxed);
    return lane->mask + 1 - (tail - atomic_load_explicit(&lane->head, memory_order_acquire));
}

static int check_room(const struct aio_queue *queue, const struct aio_piece *pieces, unsigned n)
{
    int error = atomic_load_explicit(&queue->line.error, memory_order_acquire);
    if (error != 0) {
        return core_err_adopt(error, queue->line.sentence);
    }
    uint64_t reached = atomic_load_explicit(&queue->line.reached, memory_order_acquire);
    if (queue->submitted - reached >= queue->depth) {
        return -EAGAIN;
    }
    unsigned wanted[AIO_PATHS_MAX] = {0};
    for (unsigned i = 0; i < n; i++) {
        if (++wanted[pieces[i].drive] > room(queue->lanes[pieces[i].drive])) {
            return -EAGAIN;
        }
    }
    return 0;
}

static void push(struct aio_queue *queue, enum aio_kind kind, const struct aio_piece *piece)
{
    struct lane *lane = queue->lanes[piece->drive];
    uint64_t tail = atomic_load_explicit(&lane->tail, memory_order_relaxed);
    lane->parts[tail & lane->mask] = (struct part){
        .kind = kind,
        .file = piece->file,
        .offset = piece->offset,
        .memory = piece->memory,
        .bytes = piece->bytes,
        .sums = piece->sums,
        .value = queue->submitted,
        .left = 1,
    };
    atomic_store_explicit(&lane->tail, tail + 1, memory_order_seq_cst);
}

static int submit(struct aio_queue *queue, enum aio_kind kind, const struct aio_piece *pieces,
                  unsigned n, struct core_fence *out)
{
    int rc = check_room(queue, pieces, n);
    if (rc != 0) {
        return rc;
    }
    queue->submitted++;
    atomic_store_explicit(&queue->left[queue->submitted & queue->mask], n, memory_order_release);
    uint32_t touched = 0;
    for (unsigned i = 0; i < n; i++) {
        push(queue, kind, &pieces[i]);
        touched |= 1u << pieces[i].drive;
    }
    for (unsigned i = 0; touched != 0; i++, touched >>= 1) {
        if ((touched & 1) != 0) {
            aio_drive_ring(queue->drives[i]);
        }
    }
    *out = aio_queue_tail(queue);
    return 0;
}

int aio_queue_submit(struct aio_queue *queue, enum aio_kind kind, const struct aio_piece *pieces,
                     unsigned n, struct core_fence *out)
{
    if (n == 0 || n > AIO_PIECES_MAX || kind == AIO_SYNC) {
        return core_err_set(-EINVAL, "queue %s: a request of %u pieces; 1 to %d", queue->line.name,
                            n, AIO_PIECES_MAX);
    }
    for (unsigned i = 0; i < n; i++) {
        int rc = check_piece(queue, &pieces[i]);
        if (rc != 0) {
            return rc;
        }
    }
    return submit(queue, kind, pieces, n, out);
}

int aio_queue_read(struct aio_queue *queue, uint32_t file, uint64_t offset, void *memory,
                   uint64_t bytes, struct core_fence *out)
{
    struct aio_piece piece = {.file = file, .offset = offset, .memory = memory, .bytes = bytes};
    return aio_queue_submit(queue, AIO_READ, &piece, 1, out);
}

int aio_queue_write(struct aio_queue *queue, uint32_t file, uint64_t offset, const void *memory,
                    uint64_t bytes, struct core_fence *out)
{
    union {
        const void *in;
        void *out;
    } pointer = {.in = memory}; /* a write only reads it */
    struct aio_piece piece = {
        .file = file, .offset = offset, .memory = pointer.out, .bytes = bytes};
    return aio_queue_submit(queue, AIO_WRITE, &piece, 1, out);
}

int aio_queue_sync(struct aio_queue *queue, unsigned drive, uint32_t file, struct core_fence *out)
{
    struct aio_piece piece = {.drive = drive, .file = file};
    if (drive >= queue->drives_count || file >= AIO_FILES_MAX ||
        !atomic_load_explicit(&queue->drives[drive]->files[file].used, memory_order_acquire)) {
        return core_err_set(-EINVAL, "queue %s: no file %u on drive %u", queue->line.name, file,
                            drive);
    }
    return submit(queue, AIO_SYNC, &piece, 1, out);
}

struct core_fence aio_queue_tail(struct aio_queue *queue)
{
    return (struct core_fence){.line = &queue->line, .value = queue->submitted};
}

struct core_line *aio_queue_line(struct aio_queue *queue)
{
    return &queue->line;
}
