/* store.c: the paths of a store: opened, weighed, closed. Set-up thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aio/measure.h"
#include "aio/mem.h"
#include "aio/path.h"
#include "aio/store_parts.h"
#include "core/base/err.h"
#include "core/base/log.h"

static const double weigh_seconds = 0.6;

static int check_options(const struct aio_store_options *options, uint64_t align)
{
    if (options->paths_count == 0 || options->paths_count > AIO_PATHS_MAX ||
        align % AIO_ALIGN_BYTES != 0 ||
        (align % AIO_SUM_BYTES != 0 && AIO_SUM_BYTES % align != 0)) {
        return core_err_set(-EINVAL,
                            "a store of %u paths (1 to %d) in units of %" PRIu64
                            " bytes (a multiple of %d that divides 1 MiB, or a multiple of 1 MiB)",
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
                                "%s: %" PRIu64 " bytes for extents of %" PRIu64 " bytes' grain",
                                name, path->bytes, align);
        }
        for (unsigned j = 0; j < i && path->directory != NULL; j++) {
            if (options->paths[j].directory != NULL &&
                strcmp(options->paths[j].directory, path->directory) == 0) {
                return core_err_set(-EINVAL, "%s is given twice", name);
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

/* Where the caller does not know, each path is measured alone; what counts is the mixed rate. */
static int weigh(struct aio_store *store, const struct aio_store_options *options)
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
        core_log(CORE_LOG_INFO, "%s: %.2f GB/s reading and writing at once",
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
        return core_err_set(-ENOMEM, "no memory for a store");
    }
    store->align_bytes = align;
    store->unit_bytes = (align + AIO_SUM_BYTES - 1) / AIO_SUM_BYTES * AIO_SUM_BYTES;
    store->run = options->run;
    store->no_sums = options->no_sums;
    for (unsigned i = 0; rc == 0 && i < options->paths_count; i++) {
        rc = open_path(store, options, i);
    }
    rc = rc == 0 ? weigh(store, options) : rc;
    if (rc != 0) {
        const struct core_err kept = core_err_keep(rc);
        return core_err_first(&kept, aio_store_close(store));
    }
    *out = store;
    return 0;
}

int aio_store_close(struct aio_store *store)
{
    int rc = 0;
    if (store == NULL) {
        return 0;
    }
    for (unsigned i = 0; i < store->paths_count; i++) {
        int closed = aio_path_close(store->paths[i]);
        rc = rc != 0 ? rc : closed;
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

double aio_store_weight(const struct aio_store *store, unsigned path)
{
    return store->weights[path];
}

bool aio_store_reclaimed(const struct aio_store *store, unsigned path)
{
    return aio_path_reclaimed(store->paths[path]);
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
