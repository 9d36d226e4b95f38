/* flow_open.c: creates or opens the files of a flow, checks their headers, and starts its drive. */
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
#include "offload/model/save_folder.h"
#include "offload/plan/shard.h"
#include "offload/store/flow_parts.h"

/* The drive's own limit ends a wait first, with a better message; these limits are for a drive
 * whose thread is stuck. */
static const int64_t still_default_ns = INT64_C(180) * 1000000000;
static const int64_t still_more_ns = INT64_C(3) * 1000000000;

static void name_of(enum store_stream stream, char name[32])
{
    snprintf(name, 32, "%s.safetensors", store_stream_name(stream));
}

static int failed(const struct store_flow *flow, const char *name, const char *what)
{
    const int code = errno;
    return core_err_set(-code, "%s/%s cannot be %s: %s", flow->name, name, what, strerror(code));
}

/* ---- one file ---- */

/* Reserves all space at the start, so that a disk that is too small is found now. */
static int fill_header(const struct model_folder *folder, const struct store_flow *flow,
                       enum store_stream stream, int fd, const char *name)
{
    const uint64_t bytes = store_image_file_bytes(flow->image, stream);
    const char *header = flow->image->headers[stream];
    const uint64_t header_bytes = flow->image->header_bytes[stream];
    bool reserved;
    int code = core_file_reserve(fd, bytes, &reserved);
    code = code == 0 ? core_file_write_at(fd, header, header_bytes, 0) : code;
    if (code != 0) {
        return model_folder_failed(folder, name, code, bytes);
    }
    return fdatasync(fd) == 0 ? 0 : failed(flow, name, "made durable");
}

/* The header's exact bytes are known, so it is compared and not parsed. */
static int check_header(struct store_flow *flow, enum store_stream stream, int fd, const char *name)
{
    const uint64_t bytes = store_image_file_bytes(flow->image, stream);
    const uint64_t header_bytes = flow->image->header_bytes[stream];
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return failed(flow, name, "examined");
    }
    if (!S_ISREG(info.st_mode) || (uint64_t)info.st_size != bytes) {
        return core_err_set(-EINVAL, "%s/%s has %" PRId64 " bytes; expected %" PRIu64, flow->name,
                            name, (int64_t)info.st_size, bytes);
    }
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    char *found = malloc(header_bytes);
    int rc = found != NULL ? 0 : core_err_set(-ENOMEM, "no memory for the header of %s", name);
    const ssize_t got = rc == 0 ? core_file_read_at(fd, found, header_bytes, 0) : 0;
    if (rc == 0 && got != (ssize_t)header_bytes) {
        errno = got < 0 ? (int)-got : EIO;
        rc = failed(flow, name, "read");
    }
    if (rc == 0 && memcmp(found, flow->image->headers[stream], header_bytes) != 0) {
        rc = core_err_set(-EINVAL, "%s/%s has the header of another checkpoint, or a damaged one",
                          flow->name, name);
    }
    free(found);
    return rc;
}

/* Opens for direct I/O if the file system supports it and cuts are whole pages; scales are too
 * small for that. */
static int open_file(struct store_flow *flow, const struct store_flow_options *options,
                     enum store_stream stream)
{
    const bool pages = stream != STORE_STREAM_M_SCALES && stream != STORE_STREAM_V_SCALES;
    /* A file that exists was taken over from a removed checkpoint. */
    const int make = options->writes ? O_RDWR | O_CREAT : O_RDONLY;
    char name[32];
    name_of(stream, name);
    int plain = openat(options->folder, name, make | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (plain < 0) {
        return failed(flow, name, options->writes ? "created" : "opened");
    }
    const struct model_folder folder = {flow->name, options->folder};
    int rc = options->writes ? fill_header(&folder, flow, stream, plain, name)
                             : check_header(flow, stream, plain, name);
    int direct = -1;
    if (rc == 0 && pages) {
        direct = openat(options->folder, name,
                        (options->writes ? O_RDWR : O_RDONLY) | O_DIRECT | O_CLOEXEC | O_NOFOLLOW);
        if (direct < 0 && errno != EINVAL) {
            rc = failed(flow, name, "opened");
        }
    }
    flow->direct[stream] = direct >= 0;
    flow->fds[stream] = direct >= 0 ? direct : plain;
    if (direct >= 0) {
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

/* ---- all ---- */

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

/* Bytes of a piece: at least a cut, but not more than the largest file needs. */
static uint64_t piece_bytes(const struct store_image *image)
{
    uint64_t all = 0;
    uint64_t cut = AIO_ALIGN_BYTES;
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        for (uint32_t b = 0; b < image->block_count; b++) {
            if (store_image_bytes(image, (enum store_stream)s, b) > 0) {
                const uint64_t one =
                    store_image_cut(image, (enum store_stream)s, b, 0).padded_bytes;
                cut = one > cut ? one : cut;
                all += plan_round_up(store_image_bytes(image, (enum store_stream)s, b),
                                     AIO_ALIGN_BYTES);
            }
        }
    }
    const uint64_t share = plan_round_up(all / STORE_FLOW_PIECES, AIO_ALIGN_BYTES);
    const uint64_t least = plan_round_up(cut, AIO_ALIGN_BYTES);
    return share < least ? least : share < STORE_FLOW_PIECE_BYTES ? share : STORE_FLOW_PIECE_BYTES;
}

static int make(struct store_flow *flow, const struct store_flow_options *options)
{
    flow->piece_bytes = piece_bytes(flow->image);
    /* Large pages: a drive moves pieces on them several times as fast. */
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
    rc = rc == 0 ? ended : rc;
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        if (flow->fds[s] >= 0) {
            close(flow->fds[s]);
        }
        free(flow->sums[s]);
    }
    if (rc == 0) { /* else a drive may still write there */
        core_region_free(&flow->buffers);
    }
    free(flow);
    return rc;
}
