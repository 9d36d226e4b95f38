/* blocks.c: the block store of applications, over offload/cache. Any thread may call; a forked
 * child is refused. */
#include <tide/blocks.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/base/err.h"
#include "offload/api/abi.h"
#include "offload/api/context.h"
#include "offload/cache/cache.h"

struct tide_blocks {
    struct tide_context *context; /* borrowed */
    struct cache *cache;          /* owned */
    pid_t process;                /* the creator */
};

_Static_assert((int)TIDE_BLOCKS_TOKENS == (int)CACHE_TOKENS, "the header says how many");
_Static_assert((int)TIDE_STORES_MAX == (int)AIO_PATHS_MAX, "every store has a path");

/* ---- create and destroy ---- */

static int read_stores(const struct tide_blocks_options *given, struct aio_store_path *paths)
{
    if (given->store_count > TIDE_STORES_MAX) {
        return core_err_set(-EINVAL, "store_count is %zu; 0 to %d are possible", given->store_count,
                            TIDE_STORES_MAX);
    }
    for (size_t i = 0; i < given->store_count; i++) {
        struct tide_store_path store;
        int rc = abi_struct_read_at("tide_store_path", given->stores, i, &store, sizeof store);
        if (rc != 0) {
            return rc;
        }
        if (store.directory == NULL || store.directory[0] == '\0') {
            return core_err_set(-EINVAL, "store %zu has no directory", i);
        }
        paths[i] = (struct aio_store_path){.directory = store.directory, .bytes = store.bytes};
    }
    return 0;
}

static int read_memory(const struct tide_blocks_options *given, struct iovec **out)
{
    if (given->memory_count == 0) {
        return 0;
    }
    if (given->memory_count > AIO_BUFFERS_MAX) {
        return core_err_set(-EINVAL, "memory_count is %zu; 0 to %d are possible",
                            given->memory_count, AIO_BUFFERS_MAX);
    }
    struct iovec *ranges = calloc(given->memory_count, sizeof *ranges);
    if (ranges == NULL) {
        return core_err_set(-ENOMEM, "no memory for %zu ranges", given->memory_count);
    }
    for (size_t i = 0; i < given->memory_count; i++) {
        struct tide_memory memory;
        int rc = abi_struct_read_at("tide_memory", given->memory, i, &memory, sizeof memory);
        if (rc == 0 && (memory.memory == NULL || memory.bytes == 0)) {
            rc = core_err_set(-EINVAL, "memory[%zu] has no address or no bytes", i);
        }
        if (rc != 0) {
            free(ranges);
            return rc;
        }
        ranges[i] = (struct iovec){.iov_base = memory.memory, .iov_len = memory.bytes};
    }
    *out = ranges;
    return 0;
}

static int create_cache(const struct tide_blocks_options *given, struct cache **out)
{
    struct tide_blocks_options options;
    struct aio_store_path paths[TIDE_STORES_MAX];
    struct iovec *memory = NULL;
    int rc = abi_struct_read("tide_blocks_options", given, &options, sizeof options);
    if (rc != 0) {
        return rc;
    }
    rc = read_stores(&options, paths);
    if (rc != 0) {
        return rc;
    }
    rc = read_memory(&options, &memory);
    if (rc != 0) {
        return rc;
    }
    const struct cache_options cache = {
        .host_bytes = options.host_bytes,
        .paths = paths,
        .path_count = (unsigned)options.store_count,
        .backend = options.io,
        .no_sums = options.no_checksums != 0,
        .device = options.device,
        .device_bytes = options.device_bytes,
        .drive = {.depth = options.depth},
        .memory = memory,
        .memory_count = (unsigned)options.memory_count,
    };
    rc = cache_create(&cache, out);
    free(memory);
    return rc;
}

int tide_blocks_create(struct tide_context *context, const struct tide_blocks_options *options,
                       struct tide_blocks **out)
{
    int rc = abi_pointer_check("`out`", out);
    if (rc != 0) {
        return rc;
    }
    struct tide_blocks *blocks = calloc(1, sizeof *blocks);
    if (blocks == NULL) {
        return core_err_set(-ENOMEM, "no memory for a block store");
    }
    const struct context_before before = context_enter(context);
    rc = create_cache(options, &blocks->cache);
    context_leave(&before);
    if (rc != 0) {
        free(blocks);
        return rc;
    }
    blocks->context = context;
    blocks->process = getpid();
    *out = blocks;
    return 0;
}

void tide_blocks_destroy(struct tide_blocks *blocks)
{
    if (blocks == NULL || blocks->process != getpid()) {
        return;
    }
    const struct context_before before = context_enter(blocks->context);
    (void)cache_destroy(blocks->cache);
    context_leave(&before);
    free(blocks);
}

/* ---- operations ---- */

/* Sets `before` if this process may use the store. */
static int enter(const struct tide_blocks *blocks, struct context_before *before)
{
    int rc = abi_pointer_check("the block store", blocks);
    if (rc != 0) {
        return rc;
    }
    if (blocks->process != getpid()) {
        return core_err_set(-ECHILD,
                            "process %ld was forked from process %ld, which created this block "
                            "store; only that one can use it",
                            (long)getpid(), (long)blocks->process);
    }
    *before = context_enter(blocks->context);
    return 0;
}

static int
begin(struct tide_blocks *blocks, const struct tide_block_io *given, struct cache_request *request,
      int (*call)(struct cache *cache, const struct cache_request *request, uint64_t *token),
      uint64_t *token)
{
    struct tide_block_io io = {0};
    if (token == NULL) {
        return core_err_set(-EINVAL, "block %s: `token` is NULL",
                            request->name != NULL ? request->name : "NULL");
    }
    int rc = given != NULL ? abi_struct_read("tide_block_io", given, &io, sizeof io) : 0;
    if (rc != 0) {
        return rc;
    }
    if (io.place > TIDE_HOST) {
        return core_err_set(-EINVAL,
                            "place of a block is %" PRIu64
                            "; expected TIDE_AUTO, TIDE_DEVICE or TIDE_HOST",
                            io.place);
    }
    request->on_device = io.place == TIDE_DEVICE;
    request->background = io.background != 0;
    request->through = io.through != 0;
    return call(blocks->cache, request, token);
}

int tide_blocks_put_begin(struct tide_blocks *blocks, const char *name, const void *data,
                          uint64_t bytes, const struct tide_block_io *io, uint64_t *token)
{
    struct cache_request request = {.name = name, .from = data, .bytes = bytes};
    struct context_before before;
    int rc = enter(blocks, &before);
    if (rc != 0) {
        return rc;
    }
    rc = begin(blocks, io, &request, cache_put, token);
    context_leave(&before);
    return rc;
}

int tide_blocks_get_begin(struct tide_blocks *blocks, const char *name, void *buffer,
                          uint64_t bytes, const struct tide_block_io *io, uint64_t *token)
{
    struct cache_request request = {.name = name, .to = buffer, .bytes = bytes};
    struct context_before before;
    int rc = enter(blocks, &before);
    if (rc != 0) {
        return rc;
    }
    rc = begin(blocks, io, &request, cache_get, token);
    context_leave(&before);
    return rc;
}

static void give(const struct cache_result *found, struct tide_block *out)
{
    const struct tide_block block = {.data = found->data, .bytes = found->bytes};
    if (found->data != NULL && out != NULL) {
        (void)abi_struct_write("tide_block", &block, sizeof block, out);
    }
}

static int result(struct tide_blocks *blocks, uint64_t token, struct tide_block *out,
                  int (*ask)(struct cache *cache, uint64_t token, struct cache_result *out))
{
    struct cache_result found = {.data = NULL};
    struct context_before before;
    int rc = enter(blocks, &before);
    if (rc != 0) {
        return rc;
    }
    rc = out != NULL ? abi_struct_check("tide_block", out) : 0;
    if (rc == 0) {
        rc = ask(blocks->cache, token, &found);
    }
    context_leave(&before);
    if (rc >= 0) {
        give(&found, out);
    }
    return rc;
}

int tide_blocks_poll(struct tide_blocks *blocks, uint64_t token, struct tide_block *out)
{
    return result(blocks, token, out, cache_poll);
}

int tide_blocks_wait(struct tide_blocks *blocks, uint64_t token, struct tide_block *out)
{
    return result(blocks, token, out, cache_wait);
}

int tide_blocks_put(struct tide_blocks *blocks, const char *name, const void *data, uint64_t bytes)
{
    struct context_before before;
    int rc = enter(blocks, &before);
    if (rc != 0) {
        return rc;
    }
    rc = cache_put_now(blocks->cache,
                       &(struct cache_request){.name = name, .from = data, .bytes = bytes});
    context_leave(&before);
    return rc;
}

int tide_blocks_get(struct tide_blocks *blocks, const char *name, void *buffer, uint64_t bytes,
                    struct tide_block *out)
{
    struct cache_result found = {.data = NULL};
    struct context_before before;
    int rc = enter(blocks, &before);
    if (rc != 0) {
        return rc;
    }
    rc = out != NULL || buffer == NULL ? abi_struct_check("tide_block", out) : 0;
    if (rc == 0) {
        rc = cache_get_now(blocks->cache,
                           &(struct cache_request){.name = name, .to = buffer, .bytes = bytes},
                           &found);
    }
    context_leave(&before);
    if (rc == 0) {
        give(&found, out);
    }
    return rc;
}

int tide_blocks_drop(struct tide_blocks *blocks, const char *name)
{
    struct context_before before;
    int rc = enter(blocks, &before);
    if (rc != 0) {
        return rc;
    }
    rc = cache_drop(blocks->cache, name);
    context_leave(&before);
    return rc;
}

int tide_blocks_release(struct tide_blocks *blocks, const char *name, int changed)
{
    struct context_before before;
    int rc = enter(blocks, &before);
    if (rc != 0) {
        return rc;
    }
    rc = cache_release(blocks->cache, name, changed != 0);
    context_leave(&before);
    return rc;
}

int tide_blocks_prefetch(struct tide_blocks *blocks, const char *name)
{
    struct context_before before;
    int rc = enter(blocks, &before);
    if (rc != 0) {
        return rc;
    }
    rc = cache_prefetch(blocks->cache, name);
    context_leave(&before);
    return rc;
}

int tide_blocks_iteration(struct tide_blocks *blocks)
{
    struct context_before before;
    int rc = enter(blocks, &before);
    if (rc != 0) {
        return rc;
    }
    rc = cache_iteration(blocks->cache);
    context_leave(&before);
    return rc;
}

/* ---- information ---- */

int tide_blocks_describe(struct tide_blocks *blocks, const char *name, struct tide_block_info *out)
{
    struct cache_look look = {.bytes = 0};
    struct context_before before;
    int rc = enter(blocks, &before);
    if (rc != 0) {
        return rc;
    }
    rc = cache_look(blocks->cache, name, &look);
    context_leave(&before);
    const struct tide_block_info info = {.bytes = look.bytes,
                                         .in_memory = look.in_memory,
                                         .in_store = look.in_store,
                                         .pins = look.pins,
                                         .on_device = look.on_device};
    return rc == 0 ? abi_struct_write("tide_block_info", &info, sizeof info, out) : rc;
}

int tide_blocks_stats(struct tide_blocks *blocks, struct tide_blocks_stats *out)
{
    struct cache_stats stats;
    struct context_before before;
    int rc = enter(blocks, &before);
    if (rc != 0) {
        return rc;
    }
    cache_stats_take(blocks->cache, &stats);
    context_leave(&before);
    const struct tide_blocks_stats known = {
        .host_bytes = stats.host_bytes,
        .host_used_bytes = stats.host_used_bytes,
        .host_peak_bytes = stats.host_peak_bytes,
        .store_bytes = stats.store_bytes,
        .store_used_bytes = stats.store_used_bytes,
        .gets = stats.gets,
        .hits = stats.hits,
        .read_bytes = stats.read_bytes,
        .written_bytes = stats.written_bytes,
        .evictions = stats.evictions,
        .prefetches = stats.prefetches,
        .order_changes = stats.order_changes,
        .device_bytes = stats.device_bytes,
        .device_used_bytes = stats.device_used_bytes,
    };
    return abi_struct_write("tide_blocks_stats", &known, sizeof known, out);
}
