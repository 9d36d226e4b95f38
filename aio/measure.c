/* measure.c: keeps one or two queues of a drive full for a while and counts bytes. */
#include "aio/measure.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aio/backend.h"
#include "aio/files.h"
#include "aio/queue.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/mem.h"

enum {
    TURNS = 3,
    PARTS = 3 * TURNS,
    AHEAD_MIN = 2,
    AHEAD_MAX = 64,
    FILL_LEAST = 32 << 20,
    FILL_PIECE = 8 << 20
};
static const uint64_t buffer_bytes_max = (uint64_t)64 << 20;
static const uint64_t buffer_bytes_min = (uint64_t)8 << 20;
static const uint64_t scratch_default_bytes = (uint64_t)512 << 20;
static const double seconds_default = 1.6;
static const int64_t patience_ns = 120000000000;

/* One direction: requests that cycle through a range of the file. */
struct stream {
    struct aio_queue *queue; /* owned */
    enum aio_kind kind;
    unsigned char *memory; /* borrowed from the region */
    uint64_t memory_bytes, request_bytes;
    uint32_t file;
    uint64_t begin, bytes; /* the range in the file */
    struct aio_sum *sums;  /* borrowed; [0]: first MiB of the file; NULL: none */
    uint64_t at, memory_at;
    uint64_t submitted;
    struct core_fence fences[AHEAD_MAX];
    uint64_t ahead;     /* limit of requests in flight */
    uint64_t ahead_max; /* limit of `ahead` */
};

static int stream_submit(struct stream *stream, uint64_t bytes, struct core_fence *out)
{
    const uint64_t offset = stream->begin + stream->at;
    struct aio_iov piece = {.file = stream->file,
                            .offset = offset,
                            .memory = stream->memory + stream->memory_at,
                            .bytes = bytes};
    if (stream->sums != NULL) {
        piece.sums = (struct aio_sums){.table = stream->sums + offset / AIO_SUM_BYTES,
                                       .first = offset / AIO_SUM_BYTES};
    }
    return aio_queue_submit(stream->queue, stream->kind, &piece, 1, out);
}

static int stream_push(struct stream *stream)
{
    struct core_fence *fence = &stream->fences[stream->submitted % AHEAD_MAX];
    if (stream->submitted >= stream->ahead) {
        const uint64_t oldest = stream->submitted - stream->ahead;
        int rc = core_fence_wait(stream->fences[oldest % AHEAD_MAX], patience_ns);
        if (rc != 0) {
            return rc;
        }
    }
    int rc = stream_submit(stream, stream->request_bytes, fence);
    stream->submitted++;
    stream->at += stream->request_bytes;
    stream->memory_at += stream->request_bytes;
    if (stream->at + stream->request_bytes > stream->bytes) {
        stream->at = 0;
    }
    if (stream->memory_at + stream->request_bytes > stream->memory_bytes) {
        stream->memory_at = 0;
    }
    return rc;
}

/* Limits the requests in flight to what completes in a tenth of the measurement, because its end
 * waits for all of them. */
static void pace(struct stream *stream, double passed, double seconds)
{
    const uint64_t done = stream->submitted > stream->ahead ? stream->submitted - stream->ahead : 0;
    const double fits = passed > 0 ? (double)done / passed * seconds / 10 : 0;
    stream->ahead = fits >= (double)stream->ahead_max ? stream->ahead_max : (uint64_t)fits;
    stream->ahead = stream->ahead < AHEAD_MIN ? AHEAD_MIN : stream->ahead;
}

static int run(struct stream *streams, unsigned count, double seconds, double *bytes_per_s)
{
    const int64_t begin_ns = core_clock_now_ns();
    double passed = 0;
    uint64_t moved = 0;
    for (unsigned i = 0; i < count; i++) {
        streams[i].submitted = 0;
        streams[i].ahead = AHEAD_MIN;
    }
    for (unsigned i = 0; passed < seconds; i = (i + 1) % count) {
        int rc = stream_push(&streams[i]);
        if (rc != 0) {
            return rc;
        }
        moved += streams[i].request_bytes;
        passed = (double)(core_clock_now_ns() - begin_ns) / 1e9;
        pace(&streams[i], passed, seconds);
    }
    for (unsigned i = 0; i < count; i++) {
        int rc = core_fence_wait(aio_queue_tail(streams[i].queue), patience_ns);
        if (rc != 0) {
            return rc;
        }
    }
    *bytes_per_s = (double)moved * 1e9 / (double)(core_clock_now_ns() - begin_ns);
    return 0;
}

/* `half`: memory of one direction. */
static void plan(struct stream *stream, struct aio_drive *drive, uint64_t half)
{
    uint64_t request = aio_drive_block_bytes(drive);
    request = request < half / AHEAD_MIN ? request : half / AHEAD_MIN;
    stream->request_bytes = request < stream->bytes ? request : stream->bytes;
    stream->memory_bytes = half;
    uint64_t most = 2 * (uint64_t)aio_drive_depth(drive);
    most = most < half / stream->request_bytes ? most : half / stream->request_bytes;
    most = most < AHEAD_MAX ? most : AHEAD_MAX;
    stream->ahead_max = most < AHEAD_MIN ? AHEAD_MIN : most;
}

static double middle(const double rates[TURNS])
{
    const double low = fmin(rates[0], rates[1]);
    const double high = fmax(rates[0], rates[1]);
    return fmax(low, fmin(high, rates[2]));
}

/* Medians of three hide a short stall. */
static int measure_in(struct aio_drive *drive, struct stream streams[2], double seconds,
                      struct aio_rates *out)
{
    struct aio_drive_stats before;
    struct aio_drive_stats after;
    double reads[TURNS] = {0};
    double writes[TURNS] = {0};
    double mixed[TURNS] = {0};
    aio_drive_stats(drive, &before);
    for (int turn = 0; turn < TURNS; turn++) {
        int rc = run(&streams[1], 1, seconds / PARTS, &writes[turn]);
        if (rc != 0) {
            return rc;
        }
        rc = run(&streams[0], 1, seconds / PARTS, &reads[turn]);
        if (rc != 0) {
            return rc;
        }
        rc = run(streams, 2, seconds / PARTS, &mixed[turn]);
        if (rc != 0) {
            return rc;
        }
    }
    aio_drive_stats(drive, &after);
    uint64_t moved = after.read_bytes + after.write_bytes - before.read_bytes - before.write_bytes;
    *out = (struct aio_rates){
        .read_bytes_per_s = middle(reads),
        .write_bytes_per_s = middle(writes),
        .mixed_bytes_per_s = middle(mixed),
        .hashed_bytes = after.hashed_bytes - before.hashed_bytes,
        .cpu_ns_per_byte = moved > 0 ? (double)(after.cpu_ns - before.cpu_ns) / (double)moved : 0};
    return 0;
}

struct range {
    uint32_t file;
    uint64_t offset, bytes;
    struct aio_sum *sums; /* borrowed; [0]: first MiB of the file; NULL: none */
};

static int measure(struct aio_drive *drive, const struct range *range, double seconds,
                   struct aio_rates *out)
{
    const uint64_t align = range->sums != NULL ? AIO_SUM_BYTES : AIO_ALIGN_BYTES;
    const uint64_t bytes = range->bytes;
    uint64_t half = bytes / 2 / align * align;
    if (half < align) {
        return core_err_set(-EINVAL, "%s: %" PRIu64 " bytes are too few for a measurement",
                            aio_drive_name(drive), bytes);
    }
    uint64_t buffer_bytes = 2 * (uint64_t)aio_drive_depth(drive) * aio_drive_block_bytes(drive);
    buffer_bytes = buffer_bytes < buffer_bytes_max ? buffer_bytes : buffer_bytes_max;
    buffer_bytes = buffer_bytes > buffer_bytes_min ? buffer_bytes : buffer_bytes_min;
    struct core_region region = {0};
    struct core_region_options memory = {
        .name = "measuring", .bytes = 2 * buffer_bytes, .pages = CORE_PAGES_THP};
    struct aio_queue *queues[2] = {NULL, NULL};
    int rc = core_region_alloc(&memory, &region);
    for (int i = 0; i < 2 && rc == 0; i++) {
        struct aio_queue_options options = {.name = i == 0 ? "measured reads" : "measured writes",
                                            .urgency = AIO_STATES};
        rc = aio_queue_open(&drive, 1, &options, &queues[i]);
    }
    if (rc == 0) {
        struct stream streams[2];
        for (unsigned i = 0; i < 2; i++) {
            streams[i] = (struct stream){.queue = queues[i],
                                         .kind = i == 0 ? AIO_READ : AIO_WRITE,
                                         .memory = region.base + i * buffer_bytes,
                                         .file = range->file,
                                         .begin = range->offset + i * half,
                                         .bytes = half,
                                         .sums = range->sums};
            plan(&streams[i], drive, buffer_bytes);
        }
        rc = measure_in(drive, streams, seconds, out);
    }
    bool stuck = aio_queue_close(queues[0]) != 0;
    stuck |= aio_queue_close(queues[1]) != 0;
    if (!stuck) { /* stuck: the kernel may still access the memory */
        core_region_free(&region);
    }
    return rc;
}

int aio_measure_drive(struct aio_drive *drive, uint32_t file, uint64_t offset, uint64_t bytes,
                      double seconds, struct aio_rates *out)
{
    return measure(drive, &(struct range){.file = file, .offset = offset, .bytes = bytes}, seconds,
                   out);
}

/* First writes may be slower than those of a run. Fills the range for about `seconds`, but at least
 * FILL_LEAST bytes if it is so long, and sets range->bytes. */
static int fill(struct aio_drive *drive, double seconds, struct range *range)
{
    struct core_region region = {0};
    struct stream stream = {.kind = AIO_WRITE, .file = range->file, .sums = range->sums};
    struct core_fence before = {0};
    struct core_region_options memory = {
        .name = "measuring", .bytes = FILL_PIECE, .pages = CORE_PAGES_THP};
    const int64_t end_ns = core_clock_now_ns() + (int64_t)(seconds * 1e9);
    int rc = core_region_alloc(&memory, &region);
    if (rc != 0) {
        return rc;
    }
    rc = aio_queue_open(&drive, 1, &(struct aio_queue_options){.name = "first write"},
                        &stream.queue);
    if (rc != 0) {
        goto end;
    }
    stream.memory = region.base;
    while (stream.at < range->bytes && (stream.at < FILL_LEAST || core_clock_now_ns() < end_ns)) {
        struct core_fence fence;
        const uint64_t left = range->bytes - stream.at;
        const uint64_t piece = left < FILL_PIECE ? left : FILL_PIECE;
        rc = stream_submit(&stream, piece, &fence);
        if (rc != 0) {
            goto end;
        }
        rc = core_fence_wait(before, patience_ns); /* keeps two requests in flight */
        if (rc != 0) {
            goto end;
        }
        before = fence;
        stream.at += piece;
    }
    rc = core_fence_wait(aio_queue_tail(stream.queue), patience_ns);
    range->bytes = stream.at;
end:
    if (aio_queue_close(stream.queue) == 0) {
        core_region_free(&region);
    }
    return rc;
}

/* Makes a checksum per MiB, as a store does, if requests are whole MiB. */
static int make_sums(const struct aio_drive *drive, struct range *range)
{
    const uint64_t sums = range->bytes / AIO_SUM_BYTES;
    if (sums < 2 || aio_drive_block_bytes(drive) % AIO_SUM_BYTES != 0) {
        return 0;
    }
    range->bytes = sums * AIO_SUM_BYTES;
    range->sums = calloc(sums, sizeof *range->sums);
    return range->sums != NULL
               ? 0
               : core_err_set(-ENOMEM, "out of memory for %" PRIu64 " checksums", sums);
}

static int measure_file(const char *directory, int fd, const struct aio_fs *fs,
                        const struct aio_measure_options *options, struct aio_rates *out)
{
    bool direct = fs->verdict == AIO_FS_DIRECT;
    uint64_t bytes = options->bytes != 0 ? options->bytes : scratch_default_bytes;
    if (options->bytes == 0 && bytes > fs->free_bytes / 4) {
        bytes = fs->free_bytes / 4;
    }
    bytes = bytes / AIO_ALIGN_BYTES * AIO_ALIGN_BYTES;
    bool reserved; /* false: first writes allocate the space */
    int rc = bytes > 0 ? core_file_reserve(fd, bytes, &reserved) : -ENOSPC;
    if (rc != 0) {
        return core_err_set(rc, "%s: cannot create a temporary file of %" PRIu64 " bytes: %s",
                            directory, bytes, strerror(-rc));
    }
    struct aio_drive_options drive_options = {
        .name = directory, .depth = options->depth, .block_bytes = options->block_bytes};
    struct aio_drive *drive = NULL;
    struct aio_file file = {.fd = fd, .name = directory, .size_bytes = bytes, .direct = direct};
    struct range range = {.bytes = bytes};
    const double seconds = options->seconds > 0 ? options->seconds : seconds_default;
    rc = aio_backend_choose(options->backend, direct, NULL, 0, &drive_options.backend);
    if (rc != 0) {
        return rc;
    }
    rc = aio_drive_create(&drive_options, &drive);
    if (rc != 0) {
        return rc;
    }
    rc = aio_drive_attach(drive, &file, &range.file);
    if (rc != 0) {
        goto end;
    }
    if (options->sums) {
        rc = make_sums(drive, &range);
        if (rc != 0) {
            goto end;
        }
    }
    rc = fill(drive, seconds, &range);
    if (rc != 0) {
        goto end;
    }
    rc = measure(drive, &range, seconds, out);
end:;
    const int ended = aio_drive_destroy(drive);
    free(ended == 0 ? range.sums : NULL); /* else the drive still holds them */
    return rc != 0 ? rc : ended;
}

int aio_measure_path(const char *directory, const struct aio_measure_options *options,
                     struct aio_rates *out)
{
    const struct aio_measure_options defaults = {0};
    struct aio_fs fs;
    int dir_fd = aio_dir_look(directory);
    if (dir_fd < 0) {
        return dir_fd;
    }
    int rc = aio_fs_look(dir_fd, directory, &fs);
    if (rc == 0 && fs.verdict == AIO_FS_REFUSED) {
        rc = core_err_set(-ENOTSUP, "%s: %s", directory, fs.reason);
    }
    int fd = rc == 0 ? aio_fs_scratch(dir_fd, directory, fs.verdict == AIO_FS_DIRECT) : rc;
    close(dir_fd);
    if (fd < 0) {
        return fd;
    }
    if (fs.verdict == AIO_FS_BUFFERED) {
        core_log(CORE_LOG_WARN, "%s is measured through the page cache: %s", directory, fs.reason);
    }
    rc = measure_file(directory, fd, &fs, options != NULL ? options : &defaults, out);
    close(fd);
    return rc;
}
