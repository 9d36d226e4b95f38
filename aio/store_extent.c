/* store_extent.c: where extents lie: in proportion to the paths' weights, to the last unit. Set-up
 * thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "aio/path.h"
#include "aio/store_parts.h"
#include "aio/stripe.h"
#include "core/base/err.h"

/* Takes `bytes` of one path, as few ranges as there are; *at moves on. */
static int take(struct aio_store *store, struct aio_extent *extent, unsigned path, uint64_t bytes,
                uint64_t *at)
{
    while (bytes > 0) {
        struct aio_range range;
        if (extent->segments_count == AIO_PIECES_MAX) {
            return core_err_set(-ENOSPC, "%s: its free space is in too many small pieces",
                                aio_drive_name(store->drives[path]));
        }
        int rc = aio_space_take(store->spaces[path], bytes, &range);
        if (rc != 0) {
            return rc;
        }
        uint64_t over = range.bytes < bytes ? range.bytes % store->unit_bytes : 0;
        if (over == range.bytes) { /* shorter than a unit: no sum may straddle two ranges */
            aio_space_give(store->spaces[path], range);
            return -ENOSPC;
        }
        if (over > 0) {
            range.bytes -= over;
            aio_space_split(store->spaces[path],
                            (struct aio_range){range.offset + range.bytes, over});
        }
        extent->segments[extent->segments_count++] = (struct segment){
            .path = path,
            .file = aio_path_file(store->paths[path]),
            .offset = range.offset,
            .at = *at,
            .bytes = range.bytes};
        *at += range.bytes;
        bytes -= range.bytes;
    }
    return 0;
}

/* Units that a path still has; a last piece shorter than a unit counts on small grains only. */
static uint64_t free_units(const struct aio_store *store, unsigned path)
{
    return aio_space_free_bytes(store->spaces[path]) / store->unit_bytes;
}

/* Where the last piece goes that is shorter than a unit: the path that is furthest behind. */
static unsigned place_rest(struct aio_store *store, uint64_t bytes)
{
    unsigned best = store->paths_count;
    double sum = 0;
    for (unsigned i = 0; i < store->paths_count; i++) {
        sum += store->weights[i];
    }
    double part = (double)bytes / (double)store->unit_bytes;
    for (unsigned i = 0; i < store->paths_count; i++) {
        store->credit[i] += part * store->weights[i] / sum;
        if (aio_space_free_bytes(store->spaces[i]) >= bytes &&
            (best == store->paths_count || store->credit[i] > store->credit[best])) {
            best = i;
        }
    }
    if (best < store->paths_count) {
        store->credit[best] -= part;
    }
    return best;
}

static int place(struct aio_store *store, struct aio_extent *extent)
{
    uint64_t whole = extent->bytes / store->unit_bytes;
    uint64_t rest = extent->bytes % store->unit_bytes;
    rest = (rest + store->align_bytes - 1) / store->align_bytes * store->align_bytes;
    whole += rest == store->unit_bytes;
    rest %= store->unit_bytes;
    uint64_t units[AIO_PATHS_MAX];
    uint64_t shares[AIO_PATHS_MAX] = {0};
    uint64_t sum = 0;
    for (unsigned i = 0; i < store->paths_count; i++) {
        units[i] = free_units(store, i);
        sum += units[i];
    }
    if (sum < whole) {
        return -ENOSPC;
    }
    aio_stripe_share(store->weights, store->credit, units, store->paths_count, whole, shares);
    uint64_t at = 0;
    int rc = 0;
    for (unsigned i = 0; i < store->paths_count && rc == 0; i++) {
        rc = take(store, extent, i, shares[i] * store->unit_bytes, &at);
    }
    if (rc == 0 && rest > 0) {
        unsigned path = place_rest(store, rest);
        rc = path < store->paths_count ? take(store, extent, path, rest, &at) : -ENOSPC;
    }
    return rc;
}

static int make_sums(const struct aio_store *store, struct aio_extent *extent)
{
    const uint64_t sums = (extent->bytes + AIO_SUM_BYTES - 1) / AIO_SUM_BYTES;
    extent->run = store->run;
    extent->sums = store->no_sums ? NULL : calloc(sums, sizeof *extent->sums);
    return extent->sums != NULL || store->no_sums
               ? 0
               : core_err_set(-ENOMEM, "no memory for the checksums of an extent");
}

int aio_extent_adopt(struct aio_store *store, const struct aio_extent_part *parts, unsigned count,
                     uint64_t owner, struct aio_extent **out)
{
    struct aio_extent *extent = calloc(1, sizeof *extent);
    if (extent == NULL) {
        return core_err_set(-ENOMEM, "no memory for an extent");
    }
    int rc = count > 0 && count <= AIO_PIECES_MAX
                 ? 0
                 : core_err_set(-EINVAL, "an extent of %u parts", count);
    extent->owner = owner;
    extent->adopted = true;
    for (unsigned i = 0; rc == 0 && i < count; i++) {
        const uint64_t unit = i + 1 < count ? AIO_SUM_BYTES : AIO_ALIGN_BYTES;
        if (parts[i].bytes == 0 || parts[i].bytes % unit != 0 ||
            parts[i].offset % AIO_ALIGN_BYTES != 0) {
            rc = core_err_set(-EINVAL,
                              "part %u of an extent: %" PRIu64 " bytes at %" PRIu64
                              " of a file; whole MiB, the last one whole pages",
                              i, parts[i].bytes, parts[i].offset);
            break;
        }
        extent->segments[extent->segments_count++] = (struct segment){.file = parts[i].file,
                                                                      .offset = parts[i].offset,
                                                                      .at = extent->bytes,
                                                                      .bytes = parts[i].bytes};
        extent->bytes += parts[i].bytes;
    }
    rc = rc != 0 ? rc : make_sums(store, extent);
    if (rc != 0) {
        aio_extent_free(store, extent);
        return rc;
    }
    *out = extent;
    return 0;
}

int aio_extent_alloc(struct aio_store *store, uint64_t bytes, uint64_t owner,
                     struct aio_extent **out)
{
    uint64_t free_before = aio_store_free_bytes(store);
    if (bytes == 0 || bytes > store->bytes) {
        return core_err_set(bytes == 0 ? -EINVAL : -ENOSPC,
                            "an extent of %" PRIu64 " bytes in a store of %" PRIu64, bytes,
                            store->bytes);
    }
    struct aio_extent *extent = calloc(1, sizeof *extent);
    if (extent == NULL) {
        return core_err_set(-ENOMEM, "no memory for an extent");
    }
    extent->bytes = (bytes + AIO_ALIGN_BYTES - 1) / AIO_ALIGN_BYTES * AIO_ALIGN_BYTES;
    extent->owner = owner;
    int rc = make_sums(store, extent);
    rc = rc == 0 ? place(store, extent) : rc;
    if (rc != 0) {
        aio_extent_free(store, extent);
        return rc != -ENOSPC ? rc
                             : core_err_set(-ENOSPC,
                                            "the store is full: %" PRIu64 " bytes are asked for,"
                                            " %" PRIu64 " of %" PRIu64 " are free",
                                            bytes, free_before, store->bytes);
    }
    *out = extent;
    return 0;
}

void aio_extent_free(struct aio_store *store, struct aio_extent *extent)
{
    if (extent == NULL) {
        return;
    }
    const bool given_back = store != NULL && !extent->adopted;
    for (unsigned i = 0; given_back && i < extent->segments_count; i++) {
        const struct segment *segment = &extent->segments[i];
        aio_space_give(store->spaces[segment->path],
                       (struct aio_range){segment->offset, segment->bytes});
    }
    free(extent->sums);
    free(extent);
}

uint64_t aio_extent_bytes(const struct aio_extent *extent)
{
    return extent->bytes;
}

uint64_t aio_extent_on(const struct aio_extent *extent, unsigned path)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < extent->segments_count; i++) {
        bytes += extent->segments[i].path == path ? extent->segments[i].bytes : 0;
    }
    return bytes;
}
