/* store.c: the paths of a store, extents on them, and requests on extents. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aio/backend.h"
#include "aio/files.h"
#include "aio/measure.h"
#include "aio/space.h"
#include "aio/store.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/size.h"

struct segment {
    unsigned path;
    uint32_t file;   /* in the path's drive */
    uint64_t offset; /* offset in the file */
    uint64_t at;     /* offset in the extent */
    uint64_t bytes;
};

struct aio_extent {
    uint64_t bytes;
    uint64_t run, owner;
    uint64_t first;       /* first checksum's number within the owner */
    struct aio_sum *sums; /* owned, one per unit; NULL: no checksums */
    bool pages;           /* a unit is a page, not a MiB */
    /* data in files that the store does not own; read-only */
    bool adopted;
    unsigned segments_count;
    struct segment segments[]; /* AIO_IOV_MAX until the extent is complete */
};

struct aio_store {
    unsigned paths_count;
    struct aio_path *paths[AIO_PATHS_MAX];   /* owned */
    struct aio_drive *drives[AIO_PATHS_MAX]; /* borrowed from the paths */
    struct aio_space *spaces[AIO_PATHS_MAX]; /* owned */
    double weights[AIO_PATHS_MAX], credit[AIO_PATHS_MAX];
    uint64_t bytes;
    /* extents consist of whole units and a shorter rest */
    uint64_t align_bytes, unit_bytes;
    uint64_t run;
    bool no_sums;
};

static const double weigh_seconds = 0.6;

static int check_options(const struct aio_store_options *options, uint64_t align)
{
    if (options->paths_count == 0 || options->paths_count > AIO_PATHS_MAX ||
        align % AIO_ALIGN_BYTES != 0 ||
        (align % AIO_SUM_BYTES != 0 && AIO_SUM_BYTES % align != 0)) {
        return core_err_set(-EINVAL,
                            "invalid store: %u paths (1 to %d), alignment %" PRIu64
                            " (a multiple of %d that divides 1 MiB, or a multiple of 1 MiB)",
                            options->paths_count, AIO_PATHS_MAX, align, AIO_ALIGN_BYTES);
    }
    for (unsigned i = 0; i < options->paths_count; i++) {
        const struct aio_store_path *path = &options->paths[i];
        const char *name = path->directory != NULL ? path->directory : "memory";
        if ((path->directory == NULL) == (path->disk == NULL)) {
            return core_err_set(-EINVAL, "path %u of a store needs a directory or a disk", i);
        }
        if (path->bytes == 0 || path->bytes % align != 0 || path->weight < 0 ||
            (path->disk != NULL && path->disk->bytes < path->bytes)) {
            return core_err_set(-EINVAL,
                                "%s: invalid size %" PRIu64 " (a multiple of %" PRIu64
                                " that the disk holds) or weight %g (0 or more)",
                                name, path->bytes, align, path->weight);
        }
        for (unsigned j = 0; j < i && path->directory != NULL; j++) {
            if (options->paths[j].directory != NULL &&
                strcmp(options->paths[j].directory, path->directory) == 0) {
                return core_err_set(-EINVAL, "store directory %s is given twice", name);
            }
        }
    }
    return 0;
}

static int open_path(struct aio_store *store, const struct aio_store_options *options, unsigned i)
{
    const struct aio_store_path *given = &options->paths[i];
    struct aio_path_options path = {
        .directory = given->directory,
        .disk = given->disk,
        .data_bytes = given->bytes,
        .align_bytes = store->align_bytes,
        .run = options->run,
        .index = i,
        .count = options->paths_count,
        .backend = options->backend,
        .recipe = given->recipe,
        .unwritten = options->unwritten,
        .drive = options->drive,
        .progress = options->progress,
        .user = options->user,
    };
    if (given->cpus != NULL) {
        path.drive.cpus = given->cpus;
    }
    int rc = aio_path_open(&path, &store->paths[i]);
    if (rc != 0) {
        return rc;
    }
    store->paths_count++;
    store->drives[i] = aio_path_drive(store->paths[i]);
    store->weights[i] = given->weight;
    store->bytes += given->bytes;
    return aio_space_create(aio_path_data_offset(store->paths[i]), given->bytes, &store->spaces[i]);
}

/* Measures the paths without a weight if there are several. The weight is the mixed rate. */
static int measure_weights(struct aio_store *store, const struct aio_store_options *options)
{
    for (unsigned i = 0; i < store->paths_count; i++) {
        struct aio_rates rates = {0};
        if (store->weights[i] > 0) {
            continue;
        }
        if (store->paths_count == 1) {
            store->weights[i] = 1;
            continue;
        }
        int rc = aio_measure_drive(store->drives[i], aio_path_file(store->paths[i]),
                                   aio_path_data_offset(store->paths[i]), options->paths[i].bytes,
                                   weigh_seconds, &rates);
        if (rc != 0) {
            return rc;
        }
        store->weights[i] = rates.mixed_bytes_per_s;
        core_log(CORE_LOG_INFO, "%s: %.2f GB/s, reads and writes together",
                 aio_drive_name(store->drives[i]), rates.mixed_bytes_per_s / 1e9);
    }
    return 0;
}

int aio_store_open(const struct aio_store_options *options, struct aio_store **out)
{
    uint64_t align = options->align_bytes != 0 ? options->align_bytes : AIO_EXTENT_ALIGN_BYTES;
    int rc = check_options(options, align);
    if (rc != 0) {
        return rc;
    }
    struct aio_store *store = calloc(1, sizeof *store);
    if (store == NULL) {
        return core_err_set(-ENOMEM, "out of memory for a store");
    }
    store->align_bytes = align;
    store->unit_bytes = core_round_up(align, AIO_SUM_BYTES);
    store->run = options->run;
    store->no_sums = options->no_sums;
    for (unsigned i = 0; i < options->paths_count; i++) {
        rc = open_path(store, options, i);
        if (rc != 0) {
            goto fail;
        }
    }
    rc = measure_weights(store, options);
    if (rc != 0) {
        goto fail;
    }
    *out = store;
    return 0;
fail:;
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, aio_store_close(store));
}

int aio_store_close(struct aio_store *store)
{
    int rc = 0;
    if (store == NULL) {
        return 0;
    }
    for (unsigned i = 0; i < store->paths_count; i++) {
        const int closed = aio_path_close(store->paths[i]);
        if (rc == 0) {
            rc = closed;
        }
        aio_space_destroy(store->spaces[i]);
    }
    free(store);
    return rc;
}

uint64_t aio_store_bytes(const struct aio_store *store)
{
    return store->bytes;
}

uint64_t aio_store_free_bytes(const struct aio_store *store)
{
    uint64_t bytes = 0;
    for (unsigned i = 0; i < store->paths_count; i++) {
        bytes += aio_space_free_bytes(store->spaces[i]);
    }
    return bytes;
}

unsigned aio_store_paths(const struct aio_store *store)
{
    return store->paths_count;
}

struct aio_drive *aio_store_drive(const struct aio_store *store, unsigned path)
{
    return store->drives[path];
}

int aio_store_register(struct aio_store *store, const struct iovec *memory, unsigned count)
{
    int rc = 0;
    for (unsigned i = 0; i < store->paths_count && rc == 0; i++) {
        rc = aio_drive_register(store->drives[i], memory, count);
    }
    return rc;
}

int aio_store_queue(struct aio_store *store, const struct aio_queue_options *options,
                    struct aio_queue **out)
{
    return aio_queue_open(store->drives, store->paths_count, options, out);
}

/* Takes `bytes` of a path in whole units, except the end; advances *at. */
static int take(struct aio_store *store, struct aio_extent *extent, unsigned path, uint64_t bytes,
                uint64_t *at)
{
    while (bytes > 0) {
        struct aio_range range;
        if (extent->segments_count == AIO_IOV_MAX) {
            return core_err_set(-ENOSPC, "%s: the free space is too fragmented",
                                aio_drive_name(store->drives[path]));
        }
        int rc = aio_space_take(store->spaces[path], bytes, &range);
        if (rc != 0) {
            return rc;
        }
        uint64_t over = range.bytes < bytes ? range.bytes % store->unit_bytes : 0;
        /* shorter than a unit: a checksum must not cover two ranges */
        if (over == range.bytes) {
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

static uint64_t free_units(const struct aio_store *store, unsigned path)
{
    return aio_space_free_bytes(store->spaces[path]) / store->unit_bytes;
}

/* Returns the path with the largest credit of those with space, or paths_count. */
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

static struct aio_sums sums_of(const struct aio_extent *extent)
{
    return (struct aio_sums){
        .run = extent->run, .owner = extent->owner, .first = extent->first, .pages = extent->pages};
}

static uint64_t unit_of(const struct aio_extent *extent)
{
    const struct aio_sums sums = sums_of(extent);
    return aio_sums_unit(&sums);
}

static int make_sums(const struct aio_store *store, struct aio_extent *extent)
{
    const uint64_t unit = unit_of(extent);
    const uint64_t sums = (extent->bytes + unit - 1) / unit;
    extent->run = store->run;
    extent->sums = store->no_sums ? NULL : calloc(sums, sizeof *extent->sums);
    return extent->sums != NULL || store->no_sums
               ? 0
               : core_err_set(-ENOMEM, "out of memory for the checksums of an extent");
}

static struct aio_extent *extent_create(void)
{
    return calloc(1, sizeof(struct aio_extent) + AIO_IOV_MAX * sizeof(struct segment));
}

static struct aio_extent *extent_shrink(struct aio_extent *extent)
{
    struct aio_extent *less = realloc(extent, sizeof *extent + extent->segments_count *
                                                                   sizeof extent->segments[0]);
    return less != NULL ? less : extent;
}

int aio_extent_adopt(struct aio_store *store, const struct aio_extent_part *parts, unsigned count,
                     uint64_t owner, struct aio_extent **out)
{
    struct aio_extent *extent = extent_create();
    if (extent == NULL) {
        return core_err_set(-ENOMEM, "out of memory for an extent");
    }
    int rc = 0;
    if (count == 0 || count > AIO_IOV_MAX) {
        rc = core_err_set(-EINVAL, "an extent has %u parts; expected 1 to %d", count, AIO_IOV_MAX);
        goto fail;
    }
    extent->owner = owner;
    extent->adopted = true;
    for (unsigned i = 0; i < count; i++) {
        const uint64_t unit = i + 1 < count ? AIO_SUM_BYTES : AIO_ALIGN_BYTES;
        if (parts[i].bytes == 0 || parts[i].bytes % unit != 0 ||
            parts[i].offset % AIO_ALIGN_BYTES != 0) {
            rc = core_err_set(-EINVAL,
                              "part %u of an extent has %" PRIu64 " bytes at offset %" PRIu64
                              "; expected whole MiB (the last part: whole pages) at a page",
                              i, parts[i].bytes, parts[i].offset);
            goto fail;
        }
        extent->segments[extent->segments_count++] = (struct segment){.file = parts[i].file,
                                                                      .offset = parts[i].offset,
                                                                      .at = extent->bytes,
                                                                      .bytes = parts[i].bytes};
        extent->bytes += parts[i].bytes;
    }
    rc = make_sums(store, extent);
    if (rc != 0) {
        goto fail;
    }
    *out = extent_shrink(extent);
    return 0;
fail:
    aio_extent_free(store, extent);
    return rc;
}

int aio_extent_adopt_known(struct aio_store *store, const struct aio_extent_part *part,
                           const struct aio_known_sums *sums, struct aio_extent **out)
{
    struct aio_extent *extent = NULL;
    int rc = aio_extent_adopt(store, part, 1, sums->owner, &extent);
    if (rc != 0) {
        return rc;
    }
    assert(extent != NULL);
    free(extent->sums);
    extent->pages = sums->pages;
    extent->first = sums->first;
    rc = make_sums(store, extent);
    if (rc != 0) {
        aio_extent_free(store, extent);
        return rc;
    }
    extent->run = 0;
    const uint64_t unit = unit_of(extent);
    for (uint64_t i = 0; i < (extent->bytes + unit - 1) / unit; i++) {
        aio_extent_hashed(extent, i, sums->values[i]);
    }
    *out = extent;
    return 0;
}

static int allocate(struct aio_store *store, uint64_t bytes, uint64_t owner, bool pages,
                    struct aio_extent **out)
{
    uint64_t free_before = aio_store_free_bytes(store);
    if (bytes == 0 || bytes > store->bytes) {
        return core_err_set(bytes == 0 ? -EINVAL : -ENOSPC,
                            "an extent of %" PRIu64 " bytes does not fit into a store of %" PRIu64,
                            bytes, store->bytes);
    }
    struct aio_extent *extent = extent_create();
    if (extent == NULL) {
        return core_err_set(-ENOMEM, "out of memory for an extent");
    }
    extent->bytes = core_round_up(bytes, AIO_ALIGN_BYTES);
    extent->owner = owner;
    extent->pages = pages;
    int rc = make_sums(store, extent);
    if (rc != 0) {
        goto fail;
    }
    rc = place(store, extent);
    if (rc == -ENOSPC) {
        rc = core_err_set(-ENOSPC,
                          "the store is full: %" PRIu64 " bytes are needed, %" PRIu64 " of %" PRIu64
                          " are free%s",
                          bytes, free_before, store->bytes,
                          free_before >= extent->bytes ? ", in pieces that are too short" : "");
    }
    if (rc != 0) {
        goto fail;
    }
    *out = extent_shrink(extent);
    return 0;
fail:
    aio_extent_free(store, extent);
    return rc;
}

int aio_extent_alloc(struct aio_store *store, uint64_t bytes, uint64_t owner,
                     struct aio_extent **out)
{
    return allocate(store, bytes, owner, false, out);
}

int aio_extent_alloc_paged(struct aio_store *store, uint64_t bytes, uint64_t owner,
                           struct aio_extent **out)
{
    return allocate(store, bytes, owner, true, out);
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

static int check_range(const struct aio_extent *extent, uint64_t offset, uint64_t bytes)
{
    bool fits = offset < extent->bytes && bytes <= extent->bytes - offset && bytes > 0;
    const uint64_t unit = unit_of(extent);
    bool whole = offset % unit == 0 && (bytes % unit == 0 || offset + bytes == extent->bytes);
    return fits && whole
               ? 0
               : core_err_set(-EINVAL,
                              "%" PRIu64 " bytes at %" PRIu64 " of an extent of %" PRIu64
                              " are not a whole number of %s (only the last one may be cut)",
                              bytes, offset, extent->bytes, extent->pages ? "pages" : "MiB");
}

/* Returns the number of `iovs`, one per touched segment. */
static unsigned iovs_of(const struct aio_extent *extent, uint64_t offset, unsigned char *memory,
                        uint64_t bytes, struct aio_iov iovs[AIO_IOV_MAX])
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
        uint64_t first = begin / unit_of(extent);
        iovs[count++] = (struct aio_iov){
            .drive = segment->path,
            .file = segment->file,
            .offset = segment->offset + (begin - segment->at),
            .memory = memory + (begin - offset),
            .bytes = end - begin,
            .sums = {.table = extent->sums != NULL ? extent->sums + first : NULL,
                     .run = extent->run,
                     .owner = extent->owner,
                     .first = extent->first + first,
                     .pages = extent->pages},
        };
    }
    return count;
}

int aio_store_read(struct aio_queue *queue, const struct aio_extent *extent, uint64_t offset,
                   void *memory, uint64_t bytes, struct core_fence *out)
{
    struct aio_iov iovs[AIO_IOV_MAX];
    int rc = check_range(extent, offset, bytes);
    if (rc != 0) {
        return rc;
    }
    unsigned count = iovs_of(extent, offset, memory, bytes, iovs);
    return aio_queue_submit(queue, AIO_READ, iovs, count, out);
}

int aio_store_write(struct aio_queue *queue, struct aio_extent *extent, uint64_t offset,
                    const void *memory, uint64_t bytes, struct core_fence *out)
{
    struct aio_iov iovs[AIO_IOV_MAX];
    /* not const, because struct aio_iov also serves reads */
    union {
        const void *in;
        void *out;
    } pointer = {.in = memory};
    assert(!extent->adopted);
    int rc = check_range(extent, offset, bytes);
    if (rc != 0) {
        return rc;
    }
    unsigned count = iovs_of(extent, offset, pointer.out, bytes, iovs);
    return aio_queue_submit(queue, AIO_WRITE, iovs, count, out);
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
