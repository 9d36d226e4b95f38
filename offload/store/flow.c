/* flow.c: opens a flow's files, cuts ranges into pieces, and moves pieces with their checksums. */
#include "offload/store/flow.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aio/backend.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/mem.h"
#include "core/base/size.h"
#include "offload/model/save_folder.h"
#include "offload/plan/shard.h"

/* Cuts of one stream that are moved as one request. */
struct flow_piece {
    enum store_stream stream;
    uint32_t block;
    uint64_t cut; /* index of the first cut */
    uint64_t count;
    uint64_t offset; /* in the file */
    uint64_t bytes;
    uint64_t padded_bytes;
    char *memory; /* the caller's memory; NULL: none */
    char *at;     /* `memory`, or a buffer of the flow */
    struct core_fence done;
};

struct store_flow {
    const struct store_image *image; /* borrowed */
    char name[512];
    bool writes;
    bool partial;
    int64_t still_ns;        /* an error after this time without progress */
    struct aio_drive *drive; /* owned */
    struct aio_queue *queue; /* owned */
    int fds[STORE_STREAM_COUNT];
    bool direct[STORE_STREAM_COUNT];
    uint32_t files[STORE_STREAM_COUNT];
    uint64_t *sums[STORE_STREAM_COUNT]; /* owned */
    struct core_region buffers;         /* owned, STORE_FLOW_PIECES of piece_bytes */
    uint64_t piece_bytes;
    struct flow_piece pieces[STORE_FLOW_PIECES]; /* a ring */
    uint64_t begun;
    /* the pieces from here to `begun` are in flight */
    uint64_t finished;
    struct core_err failed; /* the error that ended the flow */
};

/* The drive's own limit ends waits first; these limits are for a drive whose thread is stuck. */
static const int64_t still_default_ns = INT64_C(180) * 1000000000;
static const int64_t still_more_ns = INT64_C(3) * 1000000000;

static void name_of(enum store_stream stream, char name[32])
{
    snprintf(name, 32, "%s.safetensors", store_stream_name(stream));
}

static int file_failed(const struct store_flow *flow, const char *name, const char *what)
{
    const int error = errno;
    return core_err_set(-error, "%s/%s cannot be %s: %s", flow->name, name, what, strerror(error));
}

/* ---- one file ---- */

/* Reserves the space of a whole file, so that a full disk is noticed now; a partial file only gets
 * its size. */
static int fill_header(const struct model_folder *folder, const struct store_flow *flow,
                       enum store_stream stream, int fd, const char *name)
{
    const uint64_t bytes = store_image_file_bytes(flow->image, stream);
    const char *header = flow->image->headers[stream];
    const uint64_t header_bytes = flow->image->header_bytes[stream];
    bool reserved;
    int rc = !flow->partial                     ? core_file_reserve(fd, bytes, &reserved)
             : ftruncate(fd, (off_t)bytes) != 0 ? -errno
                                                : 0;
    if (rc == 0) {
        rc = core_file_write_at(fd, header, header_bytes, 0);
    }
    if (rc != 0) {
        return model_folder_failed(folder, name, rc, bytes);
    }
    return fdatasync(fd) == 0 ? 0 : file_failed(flow, name, "made durable");
}

/* The header is compared, not parsed, because its bytes are known. */
static int check_header(struct store_flow *flow, enum store_stream stream, int fd, const char *name)
{
    const uint64_t bytes = store_image_file_bytes(flow->image, stream);
    const uint64_t header_bytes = flow->image->header_bytes[stream];
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return file_failed(flow, name, "examined");
    }
    if (!S_ISREG(info.st_mode)) {
        return core_err_set(-EINVAL, "%s/%s is not a regular file", flow->name, name);
    }
    if ((uint64_t)info.st_size != bytes) {
        return core_err_set(-EINVAL, "%s/%s has %" PRId64 " bytes; expected %" PRIu64, flow->name,
                            name, (int64_t)info.st_size, bytes);
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    char *found = malloc(header_bytes);
    int rc = found != NULL ? 0 : core_err_set(-ENOMEM, "no memory for the header of %s", name);
    const ssize_t got = rc == 0 ? core_file_read_at(fd, found, header_bytes, 0) : 0;
    if (rc == 0 && got != (ssize_t)header_bytes) {
        errno = got < 0 ? (int)-got : EIO;
        rc = file_failed(flow, name, "read");
    }
    if (rc == 0 && memcmp(found, flow->image->headers[stream], header_bytes) != 0) {
        rc = core_err_set(-EINVAL, "%s/%s has the header of another checkpoint, or a damaged one",
                          flow->name, name);
    }
    free(found);
    return rc;
}

/* Opens for direct I/O if possible; cuts of scales are too small for that. */
static int open_file(struct store_flow *flow, const struct store_flow_options *options,
                     enum store_stream stream)
{
    const bool pages = stream != STORE_STREAM_M_SCALES && stream != STORE_STREAM_V_SCALES;
    /* An existing file was taken over from a removed checkpoint. */
    const bool fills = options->writes && !options->joins;
    const int make = fills ? O_RDWR | O_CREAT : options->writes ? O_RDWR : O_RDONLY;
    char name[32];
    name_of(stream, name);
    /* Opening a pipe must not wait for a writer. */
    int plain = openat(options->folder, name, make | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (plain < 0) {
        return file_failed(flow, name, fills ? "created" : "opened");
    }
    const struct model_folder folder = {flow->name, options->folder};
    int rc = fills ? fill_header(&folder, flow, stream, plain, name)
                   : check_header(flow, stream, plain, name);
    flow->fds[stream] = plain;
    if (rc == 0 && fcntl(plain, F_SETFL, 0) != 0) { /* the requests of a drive may block */
        return file_failed(flow, name, "opened");
    }
    if (rc == 0 && pages) {
        const int fd = core_file_open_direct(
            options->folder, name, options->writes ? O_RDWR : O_RDONLY, &flow->direct[stream]);
        if (fd < 0) {
            errno = -fd;
            return file_failed(flow, name, "opened");
        }
        flow->fds[stream] = fd;
        close(plain);
    }
    if (rc != 0) {
        return rc;
    }
    char whole[sizeof flow->name + 40];
    snprintf(whole, sizeof whole, "%s/%s", flow->name, name);
    const struct aio_file file = {.fd = flow->fds[stream],
                                  .name = whole,
                                  .size_bytes = store_image_file_bytes(flow->image, stream),
                                  .direct = flow->direct[stream]};
    return aio_drive_attach(flow->drive, &file, &flow->files[stream]);
}

/* ---- opening and closing a flow ---- */

static int start_drive(struct store_flow *flow, const struct store_flow_options *options)
{
    struct aio_drive_options drive = {
        .name = flow->name, .depth = STORE_FLOW_PIECES, .limit_ns = options->limit_ns};
    const struct aio_queue_options queue = {
        .name = "checkpoint", .urgency = AIO_CHECKPOINT, .depth = 2 * STORE_FLOW_PIECES};
    int rc = 0;
    drive.backend = options->recipe;
    if (drive.backend == NULL) {
        rc = aio_backend_choose(options->backend, true, NULL, 0, &drive.backend);
    }
    if (rc != 0) {
        return rc;
    }
    rc = aio_drive_create(&drive, &flow->drive);
    return rc == 0 ? aio_queue_open(&flow->drive, 1, &queue, &flow->queue) : rc;
}

/* STORE_FLOW_PIECE_BYTES, or less for a small checkpoint; at least the largest cut. */
static uint64_t piece_bytes(const struct store_image *image)
{
    uint64_t all = 0;
    uint64_t cut = AIO_ALIGN_BYTES;
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        for (uint32_t b = 0; b < image->blocks->count; b++) {
            if (store_image_bytes(image, (enum store_stream)s, b) > 0) {
                const uint64_t one =
                    store_image_cut(image, (enum store_stream)s, b, 0).padded_bytes;
                cut = one > cut ? one : cut;
                all += core_round_up(store_image_bytes(image, (enum store_stream)s, b),
                                     AIO_ALIGN_BYTES);
            }
        }
    }
    const uint64_t share = core_round_up(all / STORE_FLOW_PIECES, AIO_ALIGN_BYTES);
    const uint64_t least = core_round_up(cut, AIO_ALIGN_BYTES);
    return share < least ? least : share < STORE_FLOW_PIECE_BYTES ? share : STORE_FLOW_PIECE_BYTES;
}

static int make(struct store_flow *flow, const struct store_flow_options *options)
{
    flow->piece_bytes = piece_bytes(flow->image);
    /* Transfers on large pages are faster. */
    const struct core_region_options buffers = {.name = "buffers of a checkpoint",
                                                .bytes = STORE_FLOW_PIECES * flow->piece_bytes,
                                                .pages = CORE_PAGES_THP,
                                                .lazy = true};
    int rc = core_region_alloc(&buffers, &flow->buffers);
    if (rc == 0) {
        rc = start_drive(flow, options);
    }
    for (int s = 0; rc == 0 && s < STORE_STREAM_COUNT; s++) {
        const enum store_stream stream = (enum store_stream)s;
        if (!store_image_has(flow->image, stream)) {
            continue;
        }
        flow->sums[s] = calloc(store_image_cuts(flow->image, stream), sizeof *flow->sums[s]);
        rc = flow->sums[s] != NULL
                 ? open_file(flow, options, stream)
                 : core_err_set(-ENOMEM, "no memory for the checksums of %s", flow->name);
    }
    return rc;
}

int store_flow_open(const struct store_flow_options *options, struct store_flow **out)
{
    struct store_flow *flow = calloc(1, sizeof *flow);
    if (flow == NULL) {
        return core_err_set(-ENOMEM, "no memory for the files of %s", options->name);
    }
    flow->image = options->image;
    flow->writes = options->writes;
    flow->partial = options->partial;
    flow->still_ns = options->limit_ns > 0 ? options->limit_ns + still_more_ns : still_default_ns;
    snprintf(flow->name, sizeof flow->name, "%s", options->name);
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        flow->fds[s] = -1;
    }
    int rc = make(flow, options);
    if (rc != 0) {
        const struct core_err kept = core_err_keep(rc);
        return core_err_first(&kept, store_flow_close(flow));
    }
    *out = flow;
    return 0;
}

int store_flow_close(struct store_flow *flow)
{
    if (flow == NULL) {
        return 0;
    }
    int rc = aio_queue_close(flow->queue);
    const int ended = flow->drive != NULL ? aio_drive_destroy(flow->drive) : 0;
    if (rc == 0) {
        rc = ended;
    }
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        if (flow->fds[s] >= 0) {
            close(flow->fds[s]);
        }
        free(flow->sums[s]);
    }
    if (rc == 0) { /* otherwise a drive may still write there */
        core_region_free(&flow->buffers);
    }
    free(flow);
    return rc;
}

uint64_t *store_flow_sums(struct store_flow *flow, enum store_stream stream)
{
    return flow->sums[stream];
}

int store_flow_direct_file(const struct store_flow *flow, enum store_stream stream)
{
    return flow->direct[stream] ? flow->fds[stream] : -1;
}

/* ---- one piece ---- */

/* A piece of as many cuts as fit. */
static struct flow_piece piece_at(const struct store_flow *flow, enum store_stream stream,
                                  uint32_t block, uint64_t cut, uint64_t end)
{
    struct flow_piece piece = {.stream = stream, .block = block, .cut = cut};
    piece.offset = store_image_cut(flow->image, stream, block, cut).offset;
    while (cut < end) {
        const struct store_cut next = store_image_cut(flow->image, stream, block, cut++);
        if (piece.count > 0 && piece.padded_bytes + next.padded_bytes > flow->piece_bytes) {
            break;
        }
        piece.count++;
        piece.bytes += next.bytes;
        piece.padded_bytes += next.padded_bytes;
    }
    return piece;
}

/* Requests use the caller's memory if the file allows that address and no padding is needed. */
static char *place_of(const struct store_flow *flow, const struct flow_piece *piece, uint32_t turn)
{
    const bool aligned = !flow->direct[piece->stream] ||
                         (uintptr_t)piece->memory % AIO_ALIGN_BYTES == 0;
    return piece->memory != NULL && aligned && piece->bytes == piece->padded_bytes
               ? piece->memory
               : (char *)flow->buffers.base + turn * flow->piece_bytes;
}

static int mismatch(const struct store_flow *flow, const struct flow_piece *piece, uint64_t cut,
                    const uint64_t sums[2])
{
    return core_err_set(-EBADMSG,
                        "%s/%s.safetensors: elements from %" PRIu64 " of %s do not match their "
                        "checksum: %016" PRIx64 " was written, %016" PRIx64 " was read",
                        flow->name, store_stream_name(piece->stream), cut * PLAN_CUT_ELEMENTS,
                        flow->image->blocks->list[piece->block].name, sums[0], sums[1]);
}

static int sum_piece(struct store_flow *flow, const struct flow_piece *piece)
{
    uint64_t *sums = flow->sums[piece->stream] +
                     flow->image->first_cuts[piece->stream][piece->block];
    uint64_t done = 0;
    for (uint64_t c = piece->cut; c < piece->cut + piece->count; c++) {
        const struct store_cut cut = store_image_cut(flow->image, piece->stream, piece->block, c);
        const uint64_t sum = core_hash(piece->at + done, cut.padded_bytes, 0);
        if (flow->writes) {
            sums[c] = sum;
        } else if (sums[c] != sum) {
            return mismatch(flow, piece, c, (const uint64_t[]){sums[c], sum});
        }
        done += cut.padded_bytes;
    }
    return 0;
}

static int finish(struct store_flow *flow, struct flow_piece *piece)
{
    int rc = core_fence_wait_moving(piece->done, flow->still_ns);
    if (rc != 0 || flow->writes) {
        return rc;
    }
    rc = sum_piece(flow, piece);
    if (rc == 0 && piece->memory != NULL && piece->at != piece->memory) {
        memcpy(piece->memory, piece->at, piece->bytes);
    }
    return rc;
}

static int request(struct store_flow *flow, struct flow_piece *piece)
{
    if (!flow->writes) {
        return aio_queue_read(flow->queue, flow->files[piece->stream], piece->offset, piece->at,
                              piece->padded_bytes, &piece->done);
    }
    if (piece->at != piece->memory) {
        memcpy(piece->at, piece->memory, piece->bytes);
        memset(piece->at + piece->bytes, 0, piece->padded_bytes - piece->bytes);
    }
    (void)sum_piece(flow, piece);
    return aio_queue_write(flow->queue, flow->files[piece->stream], piece->offset, piece->at,
                           piece->padded_bytes, &piece->done);
}

/* ---- several pieces ---- */

/* Waits for all pieces and keeps the first error. Afterwards nothing uses the caller's memory,
 * unless the drive has failed; then that memory must stay until the flow is closed. */
static int end_flow(struct store_flow *flow, int rc)
{
    flow->failed = core_err_keep(rc);
    while (flow->finished < flow->begun) {
        const struct flow_piece *piece = &flow->pieces[flow->finished++ % STORE_FLOW_PIECES];
        (void)core_fence_wait_moving(piece->done, flow->still_ns);
    }
    return core_err_first(&flow->failed, 0);
}

/* Returns an earlier error of the flow. */
static int finish_until(struct store_flow *flow, uint64_t point)
{
    if (flow->failed.code != 0) {
        return core_err_first(&flow->failed, 0);
    }
    while (flow->finished < point) {
        int rc = finish(flow, &flow->pieces[flow->finished++ % STORE_FLOW_PIECES]);
        if (rc != 0) {
            return end_flow(flow, rc);
        }
    }
    return 0;
}

static int begin_piece(struct store_flow *flow, const struct flow_piece *piece)
{
    const uint32_t turn = (uint32_t)(flow->begun % STORE_FLOW_PIECES);
    struct flow_piece *mine = &flow->pieces[turn];
    const bool full = flow->begun - flow->finished == STORE_FLOW_PIECES;
    int rc = finish_until(flow, flow->finished + (full ? 1 : 0));
    if (rc != 0) {
        return rc;
    }
    *mine = *piece;
    mine->at = place_of(flow, mine, turn);
    rc = request(flow, mine);
    if (rc != 0) {
        return end_flow(flow, rc);
    }
    flow->begun++;
    return 0;
}

/* ---- ranges ---- */

/* `memory` NULL: into the flow's buffers. */
static int move_stream(struct store_flow *flow, enum store_stream stream, uint32_t block,
                       const uint64_t cuts[2], char *memory)
{
    int rc = 0;
    for (uint64_t cut = cuts[0]; rc == 0 && cut < cuts[1];) {
        struct flow_piece piece = piece_at(flow, stream, block, cut, cuts[1]);
        piece.memory = memory;
        rc = begin_piece(flow, &piece);
        cut += piece.count;
        memory = memory != NULL ? memory + piece.bytes : NULL;
    }
    return rc;
}

int store_flow_begin(struct store_flow *flow, uint32_t block, uint64_t first, uint64_t count,
                     const struct store_arrays *arrays)
{
    const uint64_t end = first + count;
    const uint64_t cuts[2] = {first / PLAN_CUT_ELEMENTS,
                              (end + PLAN_CUT_ELEMENTS - 1) / PLAN_CUT_ELEMENTS};
    assert(first % PLAN_CUT_ELEMENTS == 0 && end <= flow->image->blocks->list[block].elements &&
           (end % PLAN_CUT_ELEMENTS == 0 || end == flow->image->blocks->list[block].elements));
    int rc = finish_until(flow, flow->finished); /* returns an earlier error */
    for (int s = 0; rc == 0 && s < STORE_STREAM_COUNT; s++) {
        if (arrays->at[s] != NULL && store_image_bytes(flow->image, (enum store_stream)s, block)) {
            rc = move_stream(flow, (enum store_stream)s, block, cuts, arrays->at[s]);
        }
    }
    return rc;
}

uint64_t store_flow_tail(const struct store_flow *flow)
{
    return flow->begun;
}

int store_flow_wait(struct store_flow *flow, uint64_t point)
{
    assert(point <= flow->begun);
    return finish_until(flow, point);
}

/* Sets `cuts` to the next range of marked cuts from cuts[1] on (`marks` NULL: all). Returns false
 * if there is none. */
static bool next_marked(const unsigned char *marks, uint64_t count, uint64_t cuts[2])
{
    for (cuts[0] = cuts[1];
         cuts[0] < count && marks != NULL && (marks[cuts[0]] & STORE_MARK_OWN) == 0; cuts[0]++) {
    }
    for (cuts[1] = cuts[0];
         cuts[1] < count && (marks == NULL || (marks[cuts[1]] & STORE_MARK_OWN) != 0); cuts[1]++) {
    }
    return cuts[0] < cuts[1];
}

int store_flow_check(struct store_flow *flow, uint32_t block, const struct store_marks *marks)
{
    const struct store_image *image = flow->image;
    int rc = 0;
    assert(!flow->writes);
    for (int s = 0; rc == 0 && s < STORE_STREAM_COUNT; s++) {
        const uint64_t first = image->first_cuts[s][block];
        const uint64_t count = image->first_cuts[s][block + 1] - first;
        const unsigned char *own = marks != NULL && marks->at[s] != NULL ? marks->at[s] + first
                                                                         : NULL;
        uint64_t cuts[2] = {0, 0};
        while (rc == 0 && next_marked(own, count, cuts)) {
            rc = move_stream(flow, (enum store_stream)s, block, cuts, NULL);
        }
    }
    return rc == 0 ? finish_until(flow, flow->begun) : rc;
}

void store_flow_turn(struct store_flow *flow)
{
    assert(flow->writes && flow->finished == flow->begun);
    flow->writes = false;
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        if (flow->fds[s] >= 0) {
            (void)posix_fadvise(flow->fds[s], 0, 0, POSIX_FADV_DONTNEED);
        }
    }
}

int store_flow_sync(struct store_flow *flow)
{
    int rc = finish_until(flow, flow->begun);
    for (int s = 0; rc == 0 && s < STORE_STREAM_COUNT; s++) {
        struct core_fence done = {0};
        if (flow->fds[s] >= 0) {
            rc = aio_queue_sync(flow->queue, 0, flow->files[s], &done);
            if (rc == 0) {
                rc = core_fence_wait_moving(done, flow->still_ns);
            }
        }
    }
    return rc;
}
