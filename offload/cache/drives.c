/* drives.c: a cache's store: directories, queues, registered memory. Called only by cache_create
 * and cache_destroy. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/hash.h"
#include "offload/cache/cache_internal.h"

enum { PATH_BYTES = 4096 };

/* A directory of the store, and what to remove at the end. */
struct store_directory {
    char path[PATH_BYTES];     /* ours, inside the caller's; empty: memory */
    char parent[PATH_BYTES];   /* the caller's directory if we created it; else empty */
    struct aio_mem_disk *disk; /* owned; NULL: a directory, or the caller's disk */
};

static int place_path(struct cache *cache, const struct cache_options *options, unsigned i,
                      struct aio_store_path *path)
{
    struct store_directory *ours = &cache->directories[i];
    cache->directory_count++;
    path->bytes = path->bytes / CACHE_STORE_BYTES * CACHE_STORE_BYTES;
    path->weight = options->path_count == 1 ? 1 : path->weight;
    if (path->disk != NULL) {
        return 0;
    }
    const char *parent = path->directory;
    path->directory = NULL;
    if (options->backend != NULL && strcmp(options->backend, "mem") == 0) {
        int rc = aio_mem_create(path->bytes, &ours->disk);
        path->disk = ours->disk;
        return rc;
    }
    if (strlen(parent) + sizeof "/" CACHE_FOLDER_NAME > PATH_BYTES) {
        return core_err_set(-ENAMETOOLONG,
                            "the path of a store's directory has %zu bytes; the maximum is %zu",
                            strlen(parent), PATH_BYTES - sizeof "/" CACHE_FOLDER_NAME);
    }
    if (mkdir(parent, 0700) == 0) {
        snprintf(ours->parent, sizeof ours->parent, "%s", parent);
    } else if (errno != EEXIST) {
        return core_err_set(-errno, "the store's directory %s cannot be created: %s", parent,
                            strerror(errno));
    }
    snprintf(ours->path, sizeof ours->path, "%.4000s/" CACHE_FOLDER_NAME, parent);
    path->directory = ours->path;
    return 0;
}

static int register_memory(struct cache *cache, const struct cache_options *options)
{
    struct iovec *all = calloc(options->memory_count + 1, sizeof *all);
    if (all == NULL) {
        return core_err_set(-ENOMEM, "out of memory for %u ranges", options->memory_count + 1);
    }
    all[0] = (struct iovec){.iov_base = cache->region.base, .iov_len = cache->region.bytes};
    if (options->memory_count > 0) {
        memcpy(all + 1, options->memory, options->memory_count * sizeof *all);
    }
    const int rc = aio_store_register(cache->store, all, options->memory_count + 1);
    free(all);
    return rc;
}

int drives_open(struct cache *cache, const struct cache_options *options)
{
    static const enum aio_urgency urgencies[QUEUE_COUNT] = {AIO_WEIGHTS, AIO_STATES, AIO_WRITEBACK};
    static const char *const names[QUEUE_COUNT] = {"blocks now", "blocks later", "blocks written"};
    struct aio_store_path paths[AIO_PATHS_MAX];
    cache->directories = calloc(options->path_count, sizeof *cache->directories);
    if (cache->directories == NULL) {
        return core_err_set(-ENOMEM, "out of memory for a store");
    }
    for (unsigned i = 0; i < options->path_count; i++) {
        paths[i] = options->paths[i];
        int rc = place_path(cache, options, i, &paths[i]);
        if (rc != 0) {
            return rc;
        }
    }
    const struct aio_store_options store = {
        .paths = paths,
        .paths_count = options->path_count,
        .run = core_hash_seed((uint64_t)core_clock_now_ns(), (uint64_t)getpid(), 0, 0),
        .align_bytes = CACHE_ALIGN_BYTES,
        .backend = options->backend,
        .no_sums = options->no_sums,
        .unwritten = true,
        .drive = options->drive,
    };
    int rc = aio_store_open(&store, &cache->store);
    for (unsigned i = 0; rc == 0 && i < QUEUE_COUNT; i++) {
        const struct aio_queue_options queue = {.name = names[i],
                                                .urgency = urgencies[i],
                                                .depth = TRANSFERS_MAX,
                                                .bell = &cache->work};
        rc = transfers_open(&cache->queues[i], cache->store, &queue);
    }
    return rc == 0 ? register_memory(cache, options) : rc;
}

int drives_close(struct cache *cache)
{
    const int rc = aio_store_close(cache->store);
    for (unsigned i = 0; i < cache->directory_count; i++) {
        const struct store_directory *ours = &cache->directories[i];
        aio_mem_destroy(ours->disk);
        if (ours->path[0] != '\0') {
            (void)rmdir(ours->path); /* the store removes only one that it created */
        }
        if (ours->parent[0] != '\0') {
            (void)rmdir(ours->parent); /* it stays if others have put files into it */
        }
    }
    free(cache->directories);
    return rc;
}
