/* store_request.c: reads and writes of extents as requests of a queue, and the sums that go with them.
 * The queue's owner. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>

#include "aio/store_parts.h"
#include "core/base/err.h"

static int check_range(const struct aio_extent *extent, uint64_t offset, uint64_t bytes)
{
    bool fits = offset < extent->bytes && bytes <= extent->bytes - offset && bytes > 0;
    bool whole = offset % AIO_SUM_BYTES == 0 &&
                 (bytes % AIO_SUM_BYTES == 0 || offset + bytes == extent->bytes);
    return fits && whole ? 0
                         : core_err_set(-EINVAL,
                                        "%" PRIu64 " bytes at %" PRIu64 " of an extent of %" PRIu64
                                        ": whole MiB, or up to its end",
                                        bytes, offset, extent->bytes);
}

/* The pieces of [offset, offset + bytes), one a segment that it touches. */
static unsigned pieces_of(const struct aio_extent *extent, uint64_t offset, unsigned char *memory,
                          uint64_t bytes, struct aio_piece pieces[AIO_PIECES_MAX])
{
    unsigned count = 0;
    for (unsigned i = 0; i < extent->segments_count; i++) {
        const struct segment *segment = &extent->segments[i];
        uint64_t begin = segment->at > offset ? segment->at : offset;
        uint64_t end = segment->at + segment->bytes;
        end = end < offset + bytes ? end : offset + bytes;
        if (begin >= end) {
            continue;
        }
        uint64_t block = begin / AIO_SUM_BYTES;
        pieces[count++] = (struct aio_piece){
            .drive = segment->path,
            .file = segment->file,
            .offset = segment->offset + (begin - segment->at),
            .memory = memory + (begin - offset),
            .bytes = end - begin,
            .sums = {.table = extent->sums != NULL ? extent->sums + block : NULL,
                     .run = extent->run,
                     .owner = extent->owner,
                     .block = block},
        };
    }
    return count;
}

int aio_store_read(struct aio_queue *queue, const struct aio_extent *extent, uint64_t offset,
                   void *memory, uint64_t bytes, struct core_fence *out)
{
    struct aio_piece pieces[AIO_PIECES_MAX];
    int rc = check_range(extent, offset, bytes);
    if (rc != 0) {
        return rc;
    }
    unsigned count = pieces_of(extent, offset, memory, bytes, pieces);
    return aio_queue_submit(queue, AIO_READ, pieces, count, out);
}

static int write_extent(struct aio_queue *queue, struct aio_extent *extent,
                        const struct aio_piece *whole, bool given, struct core_fence *out)
{
    struct aio_piece pieces[AIO_PIECES_MAX];
    assert(!extent->adopted);
    int rc = check_range(extent, whole->offset, whole->bytes);
    if (rc != 0) {
        return rc;
    }
    unsigned count = pieces_of(extent, whole->offset, whole->memory, whole->bytes, pieces);
    for (unsigned i = 0; i < count; i++) {
        pieces[i].sums.given = given;
    }
    return aio_queue_submit(queue, AIO_WRITE, pieces, count, out);
}

/* A write only reads its memory; pieces serve both directions. */
static struct aio_piece whole_of(uint64_t offset, const void *memory, uint64_t bytes)
{
    union {
        const void *in;
        void *out;
    } pointer = {.in = memory};
    return (struct aio_piece){.offset = offset, .memory = pointer.out, .bytes = bytes};
}

int aio_store_write(struct aio_queue *queue, struct aio_extent *extent, uint64_t offset,
                    const void *memory, uint64_t bytes, struct core_fence *out)
{
    struct aio_piece whole = whole_of(offset, memory, bytes);
    return write_extent(queue, extent, &whole, false, out);
}

int aio_store_write_hashed(struct aio_queue *queue, struct aio_extent *extent, uint64_t offset,
                           const void *memory, uint64_t bytes, struct core_fence *out)
{
    struct aio_piece whole = whole_of(offset, memory, bytes);
    return write_extent(queue, extent, &whole, true, out);
}

static struct aio_sums sums_of(const struct aio_extent *extent)
{
    return (struct aio_sums){.run = extent->run, .owner = extent->owner};
}

uint64_t aio_extent_seed(const struct aio_extent *extent, uint64_t index)
{
    struct aio_sums sums = sums_of(extent);
    return aio_sum_seed(&sums, index,
                        extent->sums != NULL ? extent->sums[index].generation + 1 : 0);
}

void aio_extent_hashed(struct aio_extent *extent, uint64_t index, uint64_t hash)
{
    if (extent->sums != NULL) {
        extent->sums[index].generation++;
        extent->sums[index].value = hash;
    }
}
