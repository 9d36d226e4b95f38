/* cache.c: operations on blocks, the pass that continues those which had to wait, and the thread that runs it
 * when I/O ends. */
#include "offload/cache/cache.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/base/poison.h"
#include "core/base/thread.h"
#include "offload/cache/cache_internal.h"

enum { PATH_BYTES = 4096, PREFETCHES_MAX = 8 };

/* A directory of the store, and what has to be removed with it. */
struct store_directory {
    char path[PATH_BYTES];     /* ours, inside the caller's; empty: memory */
    char parent[PATH_BYTES];   /* the caller's, created by us; empty: it existed */
    struct aio_mem_disk *disk; /* owned; NULL: there is a directory, or the disk is the caller's */
};

static bool is_aligned(const void *memory, uint64_t bytes)
{
    return (uintptr_t)memory % CACHE_ALIGN_BYTES == 0 && bytes % CACHE_ALIGN_BYTES == 0;
}

/* ---- the end of an operation ---- */

static void operation_end(struct cache *cache, struct operation *operation, int rc)
{
    struct block *block = operation->block;
    if (rc != 0) {
        operation->rc = core_err_prefix(rc, "block %s", block->name);
        snprintf(operation->sentence, sizeof operation->sentence, "%s", core_err_sentence());
    }
    operation->phase = PHASE_DONE;
    *(operation->before != NULL ? &operation->before->next : &cache->oldest) = operation->next;
    *(operation->next != NULL ? &operation->next->before : &cache->newest) = operation->before;
    block->served++;
    table_settle(cache, block);
    core_bell_ring(&cache->done);
}

/* ---- transfers ---- */

static int push(struct cache *cache, unsigned queue, const struct transfer *transfer)
{
    int rc = transfers_push(&cache->queues[queue], transfer);
    if (rc == 0) {
        cache->transient++;
    }
    return rc;
}

/* Begins to read a block into memory. `due` as in slots_take. */
static int load(struct cache *cache, struct block *block, uint64_t due, struct operation *operation,
                unsigned queue)
{
    unsigned char *slot = NULL;
    int rc = slots_take(cache, block->bytes, due, &slot);
    if (rc != 0) {
        return rc;
    }
    const struct transfer transfer = {.kind = TRANSFER_LOAD,
                                      .block = block,
                                      .operation = operation,
                                      .extent = block->extent,
                                      .memory = slot};
    rc = push(cache, queue, &transfer);
    if (rc != 0) {
        slots_give(cache, slot, block->bytes);
        return rc;
    }
    block->slot = slot;
    block->loading = true;
    return 0;
}

/* ---- get ---- */

/* Pins the copy on the device, which is made if there is none. */
static int get_on_device(struct cache *cache, struct operation *operation)
{
    struct block *block = operation->block;
    if (block->copy == NULL) {
        int rc = device_copy(cache, block, &operation->copied);
        if (rc != 0) {
            return rc;
        }
        operation->phase = PHASE_COPIES_UP;
        cache->transient++;
        block->held++;
        slots_sort(cache, block);
    }
    block->copy_pins++;
    operation->result = (struct cache_result){.data = block->copy, .bytes = block->bytes};
    if (operation->phase == PHASE_WAITS) {
        operation_end(cache, operation, 0);
    }
    return 0;
}

static void copied_up(struct cache *cache, struct operation *operation, int rc)
{
    struct block *block = operation->block;
    cache->transient--;
    block->held--;
    if (rc != 0) {
        block->copy_pins = 0;
        device_drop(cache, block);
    }
    slots_sort(cache, block);
    operation_end(cache, operation, rc);
}

static void get_from_slot(struct cache *cache, struct operation *operation)
{
    struct block *block = operation->block;
    *(operation->to == NULL ? &block->pins : &block->held) += 1;
    slots_sort(cache, block);
    operation->result = (struct cache_result){
        .data = operation->to != NULL ? operation->to : block->slot, .bytes = block->bytes};
    if (operation->to == NULL) {
        operation_end(cache, operation, 0);
        return;
    }
    operation->phase = PHASE_COPIES;
    cache->transient++;
}

static int get_step(struct cache *cache, struct operation *operation)
{
    struct block *block = operation->block;
    const unsigned queue = operation->background ? QUEUE_LATER : QUEUE_NOW;
    if (!table_holds(block)) {
        return core_err_set(-ENOENT, "there is no such block");
    }
    if (operation->to != NULL && operation->bytes < block->bytes) {
        return core_err_set(-EINVAL, "it has %" PRIu64 " bytes, the buffer has %" PRIu64,
                            block->bytes, operation->bytes);
    }
    if (operation->to == NULL && (operation->on_device ? block->pins : block->copy_pins) > 0) {
        return core_err_set(-EBUSY, "it is pinned %s, and can be pinned in one memory at a time",
                            operation->on_device ? "on the host" : "on the device");
    }
    if (operation->on_device && block->copy != NULL) {
        return get_on_device(cache, operation);
    }
    if (block->loading) {
        return -EAGAIN;
    }
    if (block->slot != NULL) {
        if (operation->on_device) {
            return get_on_device(cache, operation);
        }
        get_from_slot(cache, operation);
        return 0;
    }
    int rc = 0;
    if (operation->to != NULL && is_aligned(operation->to, block->bytes)) {
        const struct transfer transfer = {.kind = TRANSFER_READ,
                                          .block = block,
                                          .operation = operation,
                                          .extent = block->extent,
                                          .memory = operation->to};
        operation->result = (struct cache_result){.data = operation->to, .bytes = block->bytes};
        rc = push(cache, queue, &transfer);
    } else {
        rc = load(cache, block, 0, operation, queue);
    }
    if (rc == 0) {
        operation->phase = PHASE_TRANSFERS;
    }
    return rc;
}

/* ---- put ---- */

/* Begins to write the caller's memory to the store. If the store has no room for a second copy, one of the
 * same size is overwritten. */
static int put_through(struct cache *cache, struct operation *operation)
{
    struct block *block = operation->block;
    const bool same = block->extent != NULL &&
                      slots_round(block->bytes) == slots_round(operation->bytes);
    if (operation->extent == NULL) {
        int rc = aio_extent_alloc(cache->store, operation->bytes, ++cache->next_owner,
                                  &operation->extent);
        if (rc != 0 && (rc != -ENOSPC || !same)) {
            return rc;
        }
    }
    union {
        const unsigned char *in;
        unsigned char *out;
    } memory = {.in = operation->from}; /* a write only reads it */
    const struct transfer transfer = {.kind = TRANSFER_WRITE,
                                      .block = block,
                                      .operation = operation,
                                      .extent = operation->extent != NULL ? operation->extent
                                                                          : block->extent,
                                      .memory = memory.out};
    int rc = push(cache, operation->background ? QUEUE_WRITE : QUEUE_LATER, &transfer);
    if (rc == 0) {
        block->stored = block->stored && operation->extent != NULL;
        block->held++; /* its slot is not written to the extent meanwhile */
        device_drop(cache, block);
        slots_sort(cache, block);
        operation->phase = PHASE_TRANSFERS;
    }
    return rc;
}

static int put_step(struct cache *cache, struct operation *operation)
{
    struct block *block = operation->block;
    const bool direct = cache->store != NULL && is_aligned(operation->from, operation->bytes);
    const uint64_t bytes = slots_round(operation->bytes);
    int rc = 0;
    if (block->loading || block->cleaning) {
        return -EAGAIN;
    }
    if (block->pins + block->copy_pins > 0) {
        return core_err_set(-EBUSY, "it is pinned: release it before it is put again");
    }
    if (direct && (operation->through || bytes > cache->region.bytes)) {
        rc = put_through(cache, operation);
        if (rc != -ENOSPC || bytes > cache->region.bytes) {
            return rc;
        }
    }
    if (block->slot != NULL && slots_round(block->bytes) == bytes) {
        rc = 0;
        operation->slot = block->slot;
        block->stored = false;
        slots_unstick(cache, block);
    } else {
        const bool known = direct && block->due != BLOCK_NEVER;
        rc = slots_take(cache, bytes, known ? block->due : 0, &operation->slot);
        if (direct && rc != 0 && rc != -EAGAIN) { /* all others are needed sooner, or stay */
            const struct core_err kept = core_err_keep(rc);
            rc = put_through(cache, operation);
            return rc == -ENOSPC ? core_err_first(&kept, 0) : rc;
        }
        if (rc == 0 && block->cleaning) { /* the block itself was to be evicted */
            slots_give(cache, operation->slot, bytes);
            return -EAGAIN;
        }
    }
    if (rc == 0) {
        operation->phase = PHASE_COPIES;
        cache->transient++;
        block->held++;
        slots_sort(cache, block);
    }
    return rc;
}

/* Drops all bytes of a block, in memory and in the store. */
static void block_clear(struct cache *cache, struct block *block)
{
    device_drop(cache, block);
    slots_drop(cache, block);
    aio_extent_free(cache->store, block->extent);
    block->extent = NULL;
    block->stored = false;
}

static void put_copied(struct cache *cache, struct operation *operation)
{
    struct block *block = operation->block;
    block->held--;
    device_drop(cache, block);
    if (operation->slot != block->slot) {
        slots_drop(cache, block);
        if (slots_round(block->bytes) != slots_round(operation->bytes)) {
            block_clear(cache, block);
        }
        block->slot = operation->slot;
    }
    block->stored = false;
    block->bytes = operation->bytes;
    block->used = ++cache->clock;
    slots_sort(cache, block);
}

static void put_written(struct cache *cache, struct operation *operation, int rc)
{
    struct block *block = operation->block;
    block->held--;
    if (rc != 0) {
        aio_extent_free(cache->store, operation->extent);
        slots_sort(cache, block);
        return;
    }
    slots_drop(cache, block);
    if (operation->extent != NULL) {
        aio_extent_free(cache->store, block->extent);
        block->extent = operation->extent;
    }
    block->bytes = operation->bytes;
    block->stored = true;
}

/* ---- drop ---- */

static int drop_step(struct cache *cache, struct operation *operation)
{
    struct block *block = operation->block;
    if (!table_holds(block)) {
        return core_err_set(-ENOENT, "there is no such block");
    }
    if (block->loading || block->cleaning) {
        return -EAGAIN;
    }
    if (block->pins + block->copy_pins > 0) {
        return core_err_set(-EBUSY, "it is pinned: release it before it is dropped");
    }
    block_clear(cache, block);
    operation_end(cache, operation, 0);
    return 0;
}

/* ---- the pass ---- */

/* Advances an operation as far as possible without releasing the lock. */
static void operation_step(struct cache *cache, struct operation *operation)
{
    int rc = -EAGAIN;
    if (operation->phase != PHASE_WAITS || operation->turn != operation->block->served) {
        return;
    }
    switch (operation->kind) {
    case OPERATION_PUT: rc = put_step(cache, operation); break;
    case OPERATION_GET: rc = get_step(cache, operation); break;
    case OPERATION_DROP: rc = drop_step(cache, operation); break;
    }
    if (rc != 0 && rc != -EAGAIN) {
        aio_extent_free(cache->store, operation->extent);
        operation_end(cache, operation, rc);
    }
}

static void transfer_end(struct cache *cache, const struct transfer *transfer, int rc)
{
    struct block *block = transfer->block;
    struct operation *operation = transfer->operation;
    const uint64_t bytes = aio_extent_bytes(transfer->extent);
    const bool reads = transfer->kind == TRANSFER_LOAD || transfer->kind == TRANSFER_READ;
    cache->transient--;
    *(reads ? &cache->stats.read_bytes : &cache->stats.written_bytes) += rc == 0 ? bytes : 0;
    switch (transfer->kind) {
    case TRANSFER_LOAD:
        block->loading = false;
        if (rc != 0) {
            slots_drop(cache, block);
        }
        slots_sort(cache, block);
        if (rc == 0 && operation != NULL) { /* at once, before the slot is evicted again */
            operation->phase = PHASE_WAITS;
            operation_step(cache, operation);
            return;
        }
        break;
    case TRANSFER_CLEAN:
        block->cleaning = false;
        cache->cleaning_bytes -= slots_round(block->bytes);
        if (rc != 0) {
            block->stored = false;
            block->stuck = true;
            cache->stuck_count++;
            cache->unclean = core_err_keep(core_err_prefix(rc, "block %s", block->name));
            core_log(CORE_LOG_WARN, "%s; it stays in memory", cache->unclean.sentence);
        }
        slots_sort(cache, block);
        break;
    case TRANSFER_READ: break;
    case TRANSFER_WRITE: put_written(cache, operation, rc); break;
    }
    if (operation != NULL) {
        operation_end(cache, operation, rc);
    } else {
        table_settle(cache, block);
    }
}

static void prefetch(struct cache *cache)
{
    struct block *block = NULL;
    uint64_t due = 0;
    const struct transfers *queue = &cache->queues[QUEUE_LATER];
    while (cache->recorded.count > 0 && !cache->starved &&
           queue->last - queue->first < PREFETCHES_MAX &&
           (block = order_next(cache, &due)) != NULL) {
        if (load(cache, block, due, NULL, QUEUE_LATER) != 0) {
            return;
        }
        cache->ahead = due + 1;
        cache->stats.prefetches++;
    }
}

/* Ends transfers, continues operations and reads ahead. The lock is held. */
static void cache_pass(struct cache *cache)
{
    struct transfer ended;
    int rc = 0;
    for (unsigned i = 0; i < QUEUE_COUNT && cache->store != NULL; i++) {
        while (transfers_retire(&cache->queues[i], &ended, &rc) != 0) {
            transfer_end(cache, &ended, rc);
        }
    }
    cache->starved = false;
    for (struct operation *operation = cache->oldest, *next; operation != NULL; operation = next) {
        next = operation->next;
        const int copied = operation->phase == PHASE_COPIES_UP ? core_fence_poll(operation->copied)
                                                               : 0;
        if (copied != 0) {
            copied_up(cache, operation, copied < 0 ? copied : 0);
        }
        operation_step(cache, operation);
    }
    prefetch(cache);
}

/* Copies for one operation without the lock, which is held before and after. */
static void copy(struct cache *cache, struct operation *operation)
{
    struct block *block = operation->block;
    const bool puts = operation->kind == OPERATION_PUT;
    unsigned char *to = puts ? operation->slot : operation->to;
    const unsigned char *from = puts ? operation->from : block->slot;
    const uint64_t bytes = puts ? operation->bytes : block->bytes;
    operation->copying = true;
    pthread_mutex_unlock(&cache->lock);
    memcpy(to, from, bytes);
    if (puts) {
        memset(to + bytes, 0, slots_round(bytes) - bytes);
    }
    pthread_mutex_lock(&cache->lock);
    cache->transient--;
    if (puts) {
        put_copied(cache, operation);
    } else {
        block->held--;
        slots_sort(cache, block);
    }
    operation_end(cache, operation, 0);
}

/* ---- the cache's thread ---- */

/* Returns true if something was done without the lock, so that there may be more to do. */
static bool cache_work(struct cache *cache)
{
    for (unsigned i = 0; i < QUEUE_COUNT; i++) {
        struct transfers *queue = &cache->queues[i];
        if (queue->broken) {
            struct core_err result;
            pthread_mutex_unlock(&cache->lock);
            struct aio_queue *opened = transfers_repair(queue, &result);
            pthread_mutex_lock(&cache->lock);
            transfers_repaired(queue, opened, &result);
            return true;
        }
    }
    for (struct operation *operation = cache->oldest; operation != NULL;
         operation = operation->next) {
        if (operation->phase == PHASE_COPIES && !operation->copying) {
            copy(cache, operation);
            return true;
        }
    }
    return false;
}

static void *cache_main(void *argument)
{
    struct cache *cache = argument;
    core_log_bind(cache->log);
    pthread_setname_np(pthread_self(), "tide-blocks");
    pthread_mutex_lock(&cache->lock);
    while (!cache->ending) {
        const uint32_t seen = core_bell_look(&cache->work);
        cache_pass(cache);
        if (!cache_work(cache)) {
            pthread_mutex_unlock(&cache->lock);
            core_bell_sleep(&cache->work, seen, -1);
            pthread_mutex_lock(&cache->lock);
        }
    }
    pthread_mutex_unlock(&cache->lock);
    return NULL;
}

/* ---- calls ---- */

static int check_name(const char *name)
{
    const size_t bytes = name != NULL ? strnlen(name, CACHE_NAME_MAX + 1) : 0;
    return bytes > 0 && bytes <= CACHE_NAME_MAX
               ? 0
               : core_err_set(-EINVAL, "the name of a block must have 1 to %d bytes",
                              CACHE_NAME_MAX);
}

/* Gives the operation a token and advances it. The lock is held. */
static int operation_begin(struct cache *cache, const struct operation *given, struct block *block,
                           uint64_t *token)
{
    struct operation *operation = &cache->operations[cache->next_token % CACHE_TOKENS];
    if (operation->phase != PHASE_DONE) {
        return core_err_set(-EAGAIN, "%d operations are not done yet; wait for token %" PRIu64,
                            CACHE_TOKENS, operation->token);
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
        copy(cache, operation);
        cache_pass(cache);
    }
    core_bell_ring(&cache->work);
    return 0;
}

int cache_put(struct cache *cache, const struct cache_request *request, uint64_t *token)
{
    int rc = check_name(request->name);
    if (rc == 0 && (request->from == NULL || request->bytes == 0)) {
        rc = core_err_set(-EINVAL, "block %s: %" PRIu64 " bytes at %p cannot be put", request->name,
                          request->bytes, request->from);
    }
    if (rc != 0) {
        return rc;
    }
    const struct operation operation = {.kind = OPERATION_PUT,
                                        .from = request->from,
                                        .bytes = request->bytes,
                                        .background = request->background,
                                        .through = request->through};
    pthread_mutex_lock(&cache->lock);
    struct block *block = table_add(cache, request->name);
    rc = block != NULL ? operation_begin(cache, &operation, block, token) : -ENOMEM;
    if (rc != 0 && block != NULL) {
        table_settle(cache, block);
    }
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

/* Finds a block, also while it is being put for the first time. Returns NULL and sets *rc, with a sentence, if
 * there is none. The lock is held. */
static struct block *find(struct cache *cache, const char *name, int *rc)
{
    *rc = check_name(name);
    if (*rc != 0) {
        return NULL;
    }
    struct block *block = table_find(cache, name);
    if (block == NULL || (!table_holds(block) && block->issued == block->served)) {
        *rc = core_err_set(-ENOENT, "there is no block %s", name);
        return NULL;
    }
    return block;
}

int cache_get(struct cache *cache, const struct cache_request *request, uint64_t *token)
{
    int rc = 0;
    const struct operation operation = {.kind = OPERATION_GET,
                                        .to = request->to,
                                        .bytes = request->bytes,
                                        .background = request->background,
                                        .on_device = request->on_device};
    if (request->on_device && (cache->device == NULL || request->to != NULL)) {
        return core_err_set(-EINVAL, "block %s cannot be got on the device: %s", request->name,
                            cache->device == NULL ? "there is none" : "there is a buffer");
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
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

int cache_drop(struct cache *cache, const char *name, uint64_t *token)
{
    int rc = 0;
    const struct operation operation = {.kind = OPERATION_DROP};
    pthread_mutex_lock(&cache->lock);
    struct block *block = find(cache, name, &rc);
    if (block != NULL) {
        rc = operation_begin(cache, &operation, block, token);
    }
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

/* The lock is held. */
static int result_of(struct cache *cache, uint64_t token, struct cache_result *out)
{
    const struct operation *operation = &cache->operations[token % CACHE_TOKENS];
    if (token == 0 || operation->token != token) {
        return core_err_set(-ENOENT,
                            "there is no token %" PRIu64
                            "; the results of the newest %d are kept, up to token %" PRIu64,
                            token, CACHE_TOKENS, cache->next_token - 1);
    }
    if (operation->phase != PHASE_DONE) {
        return 0;
    }
    if (operation->rc != 0) {
        return core_err_adopt(operation->rc, operation->sentence);
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
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

int cache_wait(struct cache *cache, uint64_t token, struct cache_result *out)
{
    for (;;) {
        const uint32_t seen = core_bell_look(&cache->done);
        const int rc = cache_poll(cache, token, out);
        if (rc != 0) {
            return rc > 0 ? 0 : rc;
        }
        core_bell_sleep(&cache->done, seen, -1);
    }
}

int cache_release(struct cache *cache, const char *name, bool changed)
{
    int rc = 0;
    pthread_mutex_lock(&cache->lock);
    struct block *block = find(cache, name, &rc);
    if (block != NULL && block->pins + block->copy_pins == 0) {
        rc = core_err_set(-EINVAL, "block %s is not pinned", name);
    } else if (block != NULL && block->pins == 0) {
        block->copy_pins--;
        rc = changed ? core_err_set(-EINVAL, "block %s was changed on the device; put it", name)
                     : 0;
    } else if (block != NULL) {
        block->pins--;
        block->stored = block->stored && !changed;
        if (changed) {
            device_drop(cache, block);
        }
        slots_unstick(cache, block);
        cache_pass(cache);
        core_bell_ring(&cache->work);
    }
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

int cache_prefetch(struct cache *cache, const char *name)
{
    int rc = 0;
    pthread_mutex_lock(&cache->lock);
    struct block *block = find(cache, name, &rc);
    if (block != NULL && block->stored && block->slot == NULL && block->issued == block->served) {
        block->used = ++cache->clock;
        (void)load(cache, block, 0, NULL, QUEUE_LATER);
    }
    pthread_mutex_unlock(&cache->lock);
    return rc;
}

int cache_iteration(struct cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    const int rc = order_turn(cache);
    cache_pass(cache);
    pthread_mutex_unlock(&cache->lock);
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
    pthread_mutex_unlock(&cache->lock);
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
    pthread_mutex_unlock(&cache->lock);
}

/* ---- create and destroy ---- */

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
    if (strlen(parent) + sizeof "/tide-blocks" > PATH_BYTES) {
        return core_err_set(-ENAMETOOLONG, "the path of the store's directory %s is too long",
                            parent);
    }
    if (mkdir(parent, 0700) == 0) {
        snprintf(ours->parent, sizeof ours->parent, "%s", parent);
    } else if (errno != EEXIST) {
        return core_err_set(-errno, "the store's directory %s cannot be created: %s", parent,
                            strerror(errno));
    }
    snprintf(ours->path, sizeof ours->path, "%.4000s/tide-blocks", parent);
    path->directory = ours->path;
    return 0;
}

static int open_store(struct cache *cache, const struct cache_options *options)
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
    return rc;
}

/* Memory of slots and of the caller that requests will name. */
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
    if (options->path_count > AIO_PATHS_MAX) {
        return core_err_set(-EINVAL, "a store has %u paths; at most %d are possible",
                            options->path_count, AIO_PATHS_MAX);
    }
    for (unsigned i = 0; i < options->path_count; i++) {
        if (options->paths[i].bytes < CACHE_STORE_BYTES) {
            return core_err_set(-EINVAL,
                                "path %u of the store has a limit of %" PRIu64
                                " bytes; its space is reserved at once, at least 1 MiB",
                                i, options->paths[i].bytes);
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
        rc = open_store(cache, options);
        if (rc != 0) {
            goto fail;
        }
        rc = register_memory(cache, options);
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

static void remove_directories(struct cache *cache)
{
    for (unsigned i = 0; i < cache->directory_count; i++) {
        const struct store_directory *ours = &cache->directories[i];
        aio_mem_destroy(ours->disk);
        if (ours->path[0] != '\0') {
            (void)rmdir(ours->path); /* of a dead process, taken over and now empty */
        }
        if (ours->parent[0] != '\0') {
            (void)rmdir(ours->parent); /* it stays if others have put files into it */
        }
    }
    free(cache->directories);
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
        return rc; /* leaked on purpose: a drive may still access the memory */
    }
    /* Operations that were not done have extents of their own. */
    for (struct operation *operation = cache->oldest; operation != NULL;
         operation = operation->next) {
        aio_extent_free(NULL, operation->extent);
    }
    device_close(cache);
    rc = aio_store_close(cache->store);
    remove_directories(cache);
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
