/* adopt.c: makes extents from parts of a checkpoint's files, one part per stream. */
#include "offload/store/adopt.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "offload/plan/shard.h"
#include "offload/store/store_parts.h"

/* ---- files ---- */

/* Whether the checkpoint is on the same drive as the store, so that later reads cost nothing
 * extra. */
static bool is_beside(const struct store *store, int fd)
{
    struct stat mine;
    struct stat theirs;
    const char *directory = store->places[0].directory;
    return store->place_count == 1 && directory[0] != '\0' && stat(directory, &mine) == 0 &&
           fstat(fd, &theirs) == 0 && mine.st_dev == theirs.st_dev;
}

static int take_file(struct store *store, const struct store_checkpoint *checkpoint,
                     enum store_stream stream)
{
    struct store_adopting *adopting = &store->adopting;
    char name[STORE_PATH_BYTES + 40];
    snprintf(name, sizeof name, "%s/%s.safetensors", store_checkpoint_path(checkpoint),
             store_stream_name(stream));
    const int fd = fcntl(store_checkpoint_direct_file(checkpoint, stream), F_DUPFD_CLOEXEC, 0);
    if (fd < 0) {
        const int code = errno;
        return core_err_set(-code, "%s cannot be kept open: %s", name, strerror(code));
    }
    const struct aio_file file = {
        .fd = fd,
        .name = name,
        .size_bytes = store_image_file_bytes(store_checkpoint_image(checkpoint), stream),
        .direct = true};
    int rc = aio_drive_attach(aio_store_drive(store->extents, 0), &file, &adopting->files[stream]);
    if (rc != 0) {
        close(fd);
        return rc;
    }
    adopting->fds[stream] = fd;
    return 0;
}

int store_adopt_begin(struct store *store, const struct store_checkpoint *checkpoint)
{
    struct store_adopting *adopting = &store->adopting;
    int rc = 0;
    if (adopting->open) {
        return core_err_set(-EBUSY, "a store can adopt only one checkpoint");
    }
    adopting->open = true;
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        const int fd = store_checkpoint_direct_file(checkpoint, (enum store_stream)s);
        adopting->fds[s] = -1;
        if (rc == 0 && fd >= 0 && is_beside(store, fd)) {
            rc = take_file(store, checkpoint, (enum store_stream)s);
        }
    }
    return rc;
}

void store_adopt_close(struct store *store)
{
    struct store_adopting *adopting = &store->adopting;
    for (int s = 0; adopting->open && s < STORE_STREAM_COUNT; s++) {
        if (adopting->fds[s] >= 0) {
            close(adopting->fds[s]);
        }
    }
    adopting->open = false;
}

/* ---- chunks ---- */

/* The streams of a kind in the order of an extent; unused places stay STORE_STREAM_COUNT. */
static void streams_of(enum store_kind kind, enum store_stream streams[3])
{
    const bool states = kind == STORE_STATES;
    streams[0] = states ? STORE_STREAM_MASTER : STORE_STREAM_WEIGHTS;
    streams[1] = states ? STORE_STREAM_M : STORE_STREAM_COUNT;
    streams[2] = states ? STORE_STREAM_V : STORE_STREAM_COUNT;
}

static uint64_t element_bytes(const struct plan_format *format, enum store_stream stream)
{
    switch (stream) {
    case STORE_STREAM_WEIGHTS: return format->weight_bytes;
    case STORE_STREAM_MASTER: return format->master_bytes;
    case STORE_STREAM_M: return format->m_bytes;
    case STORE_STREAM_V: return format->v_bytes;
    case STORE_STREAM_M_SCALES:
    case STORE_STREAM_V_SCALES:
    case STORE_STREAM_COUNT: break;
    }
    return 0;
}

/* Finds the parts of a chunk's extent in the checkpoint's files. Returns their number; 0: they are
 * not aligned as an extent requires. */
static unsigned parts_of(const struct store *store, const struct store_place *place,
                         const struct store_image *image, struct plan_span span,
                         struct aio_extent_part parts[3])
{
    enum store_stream streams[3];
    unsigned count = 0;
    streams_of(place->kind, streams);
    if (place->kind == STORE_STATES && image->format.q8_block > 0) {
        return 0;
    }
    for (int i = 0; i < 3; i++) {
        const uint64_t bytes = span.count * element_bytes(&image->format, streams[i]);
        if (bytes == 0) {
            continue;
        }
        if (store->adopting.fds[streams[i]] < 0 || bytes % AIO_SUM_BYTES != 0) {
            return 0;
        }
        parts[count++] = (struct aio_extent_part){
            .file = store->adopting.files[streams[i]],
            .offset = store_image_cut(image, streams[i], place->block,
                                      span.first / PLAN_CUT_ELEMENTS)
                          .offset,
            .bytes = bytes};
    }
    return count;
}

int store_adopt(struct store *store, const struct store_place *place,
                const struct store_checkpoint *checkpoint, struct plan_span span,
                const void *memory)
{
    struct aio_extent_part parts[3];
    struct store_chunk *chunk = store_chunk_find(store, place);
    if (chunk == NULL) {
        return -ENOENT;
    }
    const unsigned count = store->adopting.open
                               ? parts_of(store, place, store_checkpoint_image(checkpoint), span,
                                          parts)
                               : 0;
    if (count == 0) {
        return 0;
    }
    struct aio_extent *extent = NULL;
    int rc = aio_extent_adopt(store->extents, parts, count, ++store->next_owner, &extent);
    if (rc != 0) {
        return rc;
    }
    const char *at = memory;
    const uint64_t bytes = aio_extent_bytes(extent);
    assert(bytes == aio_extent_bytes(chunk->extents[0]));
    for (uint64_t i = 0; i < bytes / AIO_SUM_BYTES; i++) {
        aio_extent_hashed(
            extent, i,
            core_hash(at + i * AIO_SUM_BYTES, AIO_SUM_BYTES, aio_extent_seed(extent, i)));
    }
    chunk->adopted = extent;
    chunk->borrows = true;
    return 1;
}

uint64_t store_adopted_bytes(struct store *store)
{
    uint64_t bytes = 0;
    struct store_cursor cursor = {0};
    for (struct store_chunk *chunk; (chunk = store_chunk_each(store, &cursor)) != NULL;) {
        const bool there = chunk->adopted != NULL && store_chunk_current(chunk) == chunk->adopted;
        bytes += there ? aio_extent_bytes(chunk->adopted) : 0;
    }
    return bytes;
}

int store_adopt_release(struct store *store)
{
    int rc = 0;
    if (store == NULL || !store->adopting.open || store_adopted_bytes(store) > 0) {
        return 0;
    }
    struct store_cursor cursor = {0};
    for (struct store_chunk *chunk; (chunk = store_chunk_each(store, &cursor)) != NULL;) {
        aio_extent_free(store->extents, chunk->adopted);
        chunk->adopted = NULL;
    }
    for (int s = 0; s < STORE_STREAM_COUNT; s++) {
        if (store->adopting.fds[s] >= 0) {
            const int detached = aio_drive_detach(aio_store_drive(store->extents, 0),
                                                  store->adopting.files[s]);
            rc = rc == 0 ? detached : rc;
        }
    }
    store_adopt_close(store);
    return rc;
}
