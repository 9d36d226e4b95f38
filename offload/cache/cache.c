/* cache.c: creates and destroys a cache, and implements its calls. */
#include "offload/cache/cache.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/base/poison.h"
#include "core/base/thread.h"
#include "offload/cache/cache_internal.h"

/* ---- public functions ---- */

static int check_name(const char *name)
{
    const size_t bytes = name != NULL ? strnlen(name, CACHE_NAME_MAX + 1) : 0;
    return bytes > 0 && bytes <= CACHE_NAME_MAX
               ? 0
               : core_err_set(-EINVAL, "the name of a block must have 1 to %d bytes",
                              CACHE_NAME_MAX);
}

static bool is_free(const struct operation *operation)
{
    return operation->phase == PHASE_DONE && operation->awaited == 0;
}

/* Begins an operation with the next free token. The lock is held; it is released while bytes are
 * copied. */
static int operation_begin(struct cache *cache, const struct operation *given, struct block *block,
                           uint64_t *token)
{
    struct operation *operation = &cache->operations[cache->next_token % CACHE_TOKENS];
    for (unsigned i = 1; i < CACHE_TOKENS && !is_free(operation); i++) {
        operation = &cache->operations[++cache->next_token % CACHE_TOKENS];
    }
    if (!is_free(operation)) {
        return core_err_set(-EAGAIN, "%d operations are not done yet; wait for token %" PRIu64,
                            CACHE_TOKENS,
                            cache->oldest != NULL ? cache->oldest->token : operation->token);
    }
    *operation = *given;
    operation->token = cache->next_token++;
    operation->block = block;
    operation->turn = block->issued++;
    operation->before = cache->newest;
    *(cache->newest != NULL ? &cache->newest->next : &cache->oldest) = operation;
    cache->newest = operation;
    *token = operation->token;
    cache_pass(cache);
    if (operation->phase == PHASE_COPIES && !operation->copying) {
        operation_copy(cache, operation);
        cache_pass(cache);
    }
    cache_delegate(cache);
    return 0;
}

static int put_begin(struct cache *cache, const struct cache_request *request, uint32_t awaited,
                     uint64_t *token)
{
    int rc = check_name(request->name);
    if (rc == 0 && (request->from == NULL || request->bytes == 0 || request->bytes > INT64_MAX)) {
        rc = core_err_set(-EINVAL, "block %s: %" PRIu64 " bytes at %p cannot be put", request->name,
                          request->bytes, request->from);
    }
    if (rc != 0) {
        return rc;
    }
    const struct operation operation = {.kind = OPERATION_PUT,
                                        .from = request->from,
                                        .bytes = request->bytes,
                                        .awaited = awaited,
                                        .background = request->background,
                                        .through = request->through,
                                        .on_device = request->on_device};
    if (request->on_device && cache->device == NULL) {
        return core_err_set(-EINVAL,
                            "block %s cannot be put from the device: the store has no device",
                            request->name);
    }
    pthread_mutex_lock(&cache->lock);
    struct block *block = table_add(cache, request->name);
    rc = block != NULL ? operation_begin(cache, &operation, block, token) : -ENOMEM;
    if (rc != 0 && block != NULL) {
        table_settle(cache, block);
    }
    cache_unlock(cache);
    return rc;
}

/* Finds a block, even one that is being put for the first time. NULL: *rc is the error. The lock is
 * held. */
static struct block *find(struct cache *cache, const char *name, int *rc)
{
    *rc = check_name(name);
    if (*rc != 0) {
        return NULL;
    }
    struct block *block = table_find(cache, name);
    if (block == NULL || (!table_holds(block) && block->issued == block->served)) {
        *rc = core_err_set(-ENOENT, "block %s does not exist", name);
        return NULL;
    }
    return block;
}

static int get_begin(struct cache *cache, const struct cache_request *request, uint32_t awaited,
                     uint64_t *token)
{
    int rc = 0;
    const struct operation operation = {.kind = OPERATION_GET,
                                        .to = request->to,
                                        .bytes = request->bytes,
                                        .awaited = awaited,
                                        .background = request->background,
                                        .on_device = request->on_device};
    if (request->on_device && (cache->device == NULL || request->to != NULL)) {
        return core_err_set(-EINVAL, "block %s cannot be copied to the device: %s", request->name,
                            cache->device == NULL ? "the store has no device"
                                                  : "a buffer was given");
    }
    pthread_mutex_lock(&cache->lock);
    struct block *block = find(cache, request->name, &rc);
    if (block != NULL) {
        const bool hit = block->slot != NULL || (block->copy != NULL && request->on_device);
        order_use(cache, block);
        rc = operation_begin(cache, &operation, block, token);
        cache->stats.gets += rc == 0;
        cache->stats.hits += rc == 0 && hit;
    }
    cache_unlock(cache);
    return rc;
}

/* The lock is held. */
static int result_of(struct cache *cache, uint64_t token, struct cache_result *out)
{
    const struct operation *operation = &cache->operations[token % CACHE_TOKENS];
    if (token == 0 || operation->token != token) {
        return core_err_set(-ENOENT,
                            "token %" PRIu64 " is unknown"
                            "; the results of the newest %d are kept, up to token %" PRIu64,
                            token, CACHE_TOKENS, cache->next_token - 1);
    }
    if (operation->phase != PHASE_DONE) {
        return 0;
    }
    if (operation->rc != 0) {
        return core_err_adopt(operation->rc, operation->message);
    }
    if (out != NULL) {
        *out = operation->result;
    }
    return 1;
}

int cache_poll(struct cache *cache, uint64_t token, struct cache_result *out)
{
    pthread_mutex_lock(&cache->lock);
    const int rc = result_of(cache, token, out);
    cache_unlock(cache);
    return rc;
}

/* Waits for an operation whose `awaited` already counts this wait. */
static int await(struct cache *cache, uint64_t token, struct cache_result *out)
{
    for (;;) {
        const uint32_t seen = core_bell_look(&cache->done);
        pthread_mutex_lock(&cache->lock);
        const int rc = result_of(cache, token, out);
        if (rc != 0) {
            cache->operations[token % CACHE_TOKENS].awaited--;
        }
        cache_unlock(cache);
        if (rc != 0) {
            return rc > 0 ? 0 : rc;
        }
        core_bell_sleep(&cache->done, seen, -1);
    }
}

int cache_wait(struct cache *cache, uint64_t token, struct cache_result *out)
{
    pthread_mutex_lock(&cache->lock);
    const int rc = result_of(cache, token, out);
    if (rc == 0) {
        cache->operations[token % CACHE_TOKENS].awaited++;
    }
    cache_unlock(cache);
    return rc == 0 ? await(cache, token, out) : rc > 0 ? 0 : rc;
}

int cache_put(struct cache *cache, const struct cache_request *request, uint64_t *token)
{
    return put_begin(cache, request, 0, token);
}

int cache_get(struct cache *cache, const struct cache_request *request, uint64_t *token)
{
    return get_begin(cache, request, 0, token);
}

int cache_put_now(struct cache *cache, const struct cache_request *request)
{
    uint64_t token = 0;
    const int rc = put_begin(cache, request, 1, &token);
    return rc == 0 ? await(cache, token, NULL) : rc;
}

int cache_get_now(struct cache *cache, const struct cache_request *request,
                  struct cache_result *out)
{
    uint64_t token = 0;
    const int rc = get_begin(cache, request, 1, &token);
    return rc == 0 ? await(cache, token, out) : rc;
}

int cache_drop(struct cache *cache, const char *name)
{
    uint64_t token = 0;
    int rc = 0;
    const struct operation operation = {.kind = OPERATION_DROP, .awaited = 1};
    pthread_mutex_lock(&cache->lock);
    struct block *block = find(cache, name, &rc);
    if (block != NULL) {
        rc = operation_begin(cache, &operation, block, &token);
    }
    cache_unlock(cache);
    return rc == 0 ? await(cache, token, NULL) : rc;
}

/* Puts the bytes of a block's copy on the device, if the copy is pinned. */
static int put_copy(struct cache *cache, const char *name)
{
    struct cache_request request = {.name = name, .on_device = true};
    int rc = 0;
    pthread_mutex_lock(&cache->lock);
    const struct block *block = find(cache, name, &rc);
    if (block != NULL && block->copy_pins > 0) {
        request.from = block->copy;
        request.bytes = block->bytes;
    }
    cache_unlock(cache);
    return request.from != NULL ? cache_put_now(cache, &request) : rc;
}

int cache_release(struct cache *cache, const char *name, bool changed)
{
    int rc = changed ? put_copy(cache, name) : 0;
    if (rc != 0) {
        return rc;
    }
    pthread_mutex_lock(&cache->lock);
    struct block *block = find(cache, name, &rc);
    if (block != NULL && block->pins + block->copy_pins == 0) {
        rc = core_err_set(-EINVAL, "block %s is not pinned", name);
    } else if (block != NULL && block->pins == 0) {
        block->copy_pins--;
    } else if (block != NULL) {
        block->pins--;
        block->stored = block->stored && !changed;
        if (changed) {
            device_drop(cache, block);
        }
        slots_unstick(cache, block);
        cache_pass(cache);
        cache_delegate(cache);
    }
    cache_unlock(cache);
    return rc;
}

int cache_prefetch(struct cache *cache, const char *name)
{
    int rc = 0;
    pthread_mutex_lock(&cache->lock);
    struct block *block = find(cache, name, &rc);
    if (block != NULL && block->stored && block->slot == NULL && block->issued == block->served) {
        block->used = ++cache->clock;
        (void)operation_load(cache, block, 0, NULL, QUEUE_LATER);
    }
    cache_unlock(cache);
    return rc;
}

int cache_iteration(struct cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    const int rc = order_turn(cache);
    cache_pass(cache);
    cache_delegate(cache);
    cache_unlock(cache);
    return rc;
}

int cache_look(struct cache *cache, const char *name, struct cache_look *out)
{
    int rc = 0;
    pthread_mutex_lock(&cache->lock);
    struct block *block = find(cache, name, &rc);
    if (block != NULL) {
        *out = (struct cache_look){.bytes = block->bytes,
                                   .pins = block->pins + block->copy_pins,
                                   .on_device = block->copy != NULL,
                                   .in_memory = block->slot != NULL && !block->loading,
                                   .in_store = block->stored && !block->cleaning};
    }
    cache_unlock(cache);
    return rc;
}

void cache_stats_take(struct cache *cache, struct cache_stats *out)
{
    pthread_mutex_lock(&cache->lock);
    *out = cache->stats;
    out->host_bytes = cache->region.bytes;
    out->host_used_bytes = cache->host_used_bytes;
    out->host_peak_bytes = cache->host_peak_bytes;
    if (cache->device != NULL) {
        struct dev_memory memory;
        dev_memory_report(cache->device, &memory);
        out->device_bytes = memory.budget_bytes;
        out->device_used_bytes = memory.used_bytes;
    }
    if (cache->store != NULL) {
        out->store_bytes = aio_store_bytes(cache->store);
        out->store_used_bytes = out->store_bytes - aio_store_free_bytes(cache->store);
    }
    cache_unlock(cache);
}

/* ---- create and destroy ---- */

static int create_memory(struct cache *cache, const struct cache_options *options)
{
    const struct core_region_options region = {
        .name = "blocks", .bytes = options->host_bytes / CACHE_ALIGN_BYTES * CACHE_ALIGN_BYTES};
    if (region.bytes == 0) {
        return core_err_set(-EINVAL, "host_bytes is %" PRIu64 "; at least %d are needed",
                            options->host_bytes, CACHE_ALIGN_BYTES);
    }
    int rc = core_region_alloc(&region, &cache->region);
    if (rc != 0) {
        return rc;
    }
    core_poison(cache->region.base, cache->region.bytes);
    cache->operations = calloc(CACHE_TOKENS, sizeof *cache->operations);
    if (cache->operations == NULL) {
        return core_err_set(-ENOMEM, "out of memory for %d operations", CACHE_TOKENS);
    }
    for (unsigned i = 0; i < CACHE_TOKENS; i++) {
        cache->operations[i].phase = PHASE_DONE;
    }
    return aio_space_create(0, cache->region.bytes, &cache->space);
}

static int check_options(const struct cache_options *options)
{
    assert(options->path_count <= AIO_PATHS_MAX);
    for (unsigned i = 0; i < options->path_count; i++) {
        if (options->paths[i].bytes < CACHE_STORE_BYTES) {
            return core_err_set(-EINVAL,
                                "store %u has a limit of %" PRIu64
                                " bytes; a block store reserves its space at once and needs at "
                                "least %d",
                                i, options->paths[i].bytes, CACHE_STORE_BYTES);
        }
    }
    return 0;
}

int cache_create(const struct cache_options *options, struct cache **out)
{
    int rc = check_options(options);
    if (rc != 0) {
        return rc;
    }
    struct cache *cache = calloc(1, sizeof *cache);
    if (cache == NULL) {
        return core_err_set(-ENOMEM, "out of memory for a block store");
    }
    pthread_mutex_init(&cache->lock, NULL);
    core_bell_init(&cache->work);
    core_bell_init(&cache->done);
    cache->log = core_log_bound();
    cache->next_token = 1;
    rc = create_memory(cache, options);
    if (rc != 0) {
        goto fail;
    }
    if (options->path_count > 0) {
        rc = drives_open(cache, options);
        if (rc != 0) {
            goto fail;
        }
    }
    if (options->device_bytes > 0) {
        rc = device_open(cache, options->device != NULL ? options->device : "cpu",
                         options->device_bytes);
        if (rc != 0) {
            goto fail;
        }
    }
    rc = core_thread_start(&cache->thread, cache_main, cache);
    if (rc != 0) {
        rc = core_err_set(-rc, "cannot start the thread of a block store: %s", strerror(rc));
        goto fail;
    }
    cache->started = true;
    *out = cache;
    return 0;
fail:;
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, cache_destroy(cache));
}

int cache_destroy(struct cache *cache)
{
    int rc = 0;
    if (cache == NULL) {
        return 0;
    }
    if (cache->started) {
        pthread_mutex_lock(&cache->lock);
        cache->ending = true;
        pthread_mutex_unlock(&cache->lock);
        core_bell_ring(&cache->work);
        pthread_join(cache->thread, NULL);
    }
    for (unsigned i = 0; i < QUEUE_COUNT; i++) {
        const int closed = transfers_close(&cache->queues[i]);
        if (rc == 0) {
            rc = closed;
        }
    }
    if (rc != 0) {
        return rc; /* leaked: a drive may still access the memory */
    }
    /* Unfinished operations may own extents. */
    for (struct operation *operation = cache->oldest; operation != NULL;
         operation = operation->next) {
        aio_extent_free(NULL, operation->extent);
    }
    device_close(cache);
    rc = drives_close(cache);
    table_fini(cache);
    order_fini(&cache->recorded);
    order_fini(&cache->recording);
    free(cache->again);
    free(cache->heap);
    free(cache->operations);
    aio_space_destroy(cache->space);
    core_unpoison(cache->region.base, cache->region.mapped_bytes);
    core_region_free(&cache->region);
    pthread_mutex_destroy(&cache->lock);
    free(cache);
    return rc;
}
