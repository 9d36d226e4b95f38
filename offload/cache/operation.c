/* operation.c: the steps of an operation. The cache's lock is held, except while operation_copy
 * copies. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "offload/cache/cache_internal.h"

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
        snprintf(operation->message, sizeof operation->message, "%s", core_err_message());
    }
    operation->phase = PHASE_DONE;
    *(operation->before != NULL ? &operation->before->next : &cache->oldest) = operation->next;
    *(operation->next != NULL ? &operation->next->before : &cache->newest) = operation->before;
    block->served++;
    table_settle(cache, block);
    cache->ended = true;
}

void cache_unlock(struct cache *cache)
{
    const bool ended = cache->ended;
    cache->ended = false;
    pthread_mutex_unlock(&cache->lock);
    if (ended) {
        core_bell_ring(&cache->done);
    }
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

int operation_load(struct cache *cache, struct block *block, uint64_t due,
                   struct operation *operation, unsigned queue)
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

/* Pins the copy on the device, or begins to make it. */
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
    block->held--;
    if (rc != 0) {
        block->copy_pins = 0;
        device_drop(cache, block);
    }
    slots_sort(cache, block);
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
        return core_err_set(-ENOENT, "the block does not exist");
    }
    if (operation->to != NULL && operation->bytes < block->bytes) {
        return core_err_set(-EINVAL, "the block has %" PRIu64 " bytes, the buffer has %" PRIu64,
                            block->bytes, operation->bytes);
    }
    if (operation->to == NULL && (operation->on_device ? block->pins : block->copy_pins) > 0) {
        return core_err_set(-EBUSY,
                            "the block is pinned %s; it can be pinned in one memory at a time",
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
        rc = operation_load(cache, block, 0, operation, queue);
    }
    if (rc == 0) {
        operation->phase = PHASE_TRANSFERS;
    }
    return rc;
}

/* ---- put ---- */

/* Without room for another extent, overwrites a block's extent of the right size. */
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
    } memory = {.in = operation->from}; /* a write does not change the memory */
    const struct transfer transfer = {.kind = TRANSFER_WRITE,
                                      .block = block,
                                      .operation = operation,
                                      .extent = operation->extent != NULL ? operation->extent
                                                                          : block->extent,
                                      .memory = memory.out};
    int rc = push(cache, operation->background ? QUEUE_WRITE : QUEUE_LATER, &transfer);
    if (rc == 0) {
        block->stored = block->stored && operation->extent != NULL;
        block->held++; /* so that the slot is not written to the extent meanwhile */
        device_drop(cache, block);
        slots_sort(cache, block);
        operation->phase = PHASE_TRANSFERS;
    }
    return rc;
}

static int put_step(struct cache *cache, struct operation *operation)
{
    struct block *block = operation->block;
    const bool direct = cache->store != NULL && !operation->on_device &&
                        is_aligned(operation->from, operation->bytes);
    const bool is_copy = operation->on_device && operation->from == block->copy;
    const uint64_t bytes = slots_round(operation->bytes);
    int rc = 0;
    if (block->loading || block->cleaning) {
        return -EAGAIN;
    }
    if (block->pins > 0 || (block->copy_pins > 0 && !is_copy)) {
        return core_err_set(-EBUSY, "the block is pinned: release it before it is put again");
    }
    if (is_copy && operation->bytes != block->bytes) {
        return core_err_set(
            -EINVAL, "the copy of the block on the device has %" PRIu64 " bytes, not %" PRIu64,
            block->bytes, operation->bytes);
    }
    if (direct && (operation->through || bytes > cache->region.bytes)) {
        rc = put_through(cache, operation);
        if (rc != -ENOSPC || bytes > cache->region.bytes) {
            return rc;
        }
    }
    if (!operation->on_device && block->slot != NULL && slots_round(block->bytes) == bytes) {
        rc = 0;
        operation->slot = block->slot;
        block->stored = false;
        slots_unstick(cache, block);
    } else {
        const bool known = direct && block->due != BLOCK_NEVER;
        rc = slots_take(cache, bytes, known ? block->due : 0, &operation->slot);
        if (direct && rc != 0 && rc != -EAGAIN) { /* other blocks are needed sooner or cannot be
                                                   * evicted */
            const struct core_err kept = core_err_keep(rc);
            rc = put_through(cache, operation);
            return rc == -ENOSPC ? core_err_first(&kept, 0) : rc;
        }
        if (rc == 0 && block->cleaning) { /* the block itself is being evicted */
            slots_give(cache, operation->slot, bytes);
            return -EAGAIN;
        }
    }
    /* A copy from the device may fail, so it goes to another slot, and the old bytes stay. */
    if (rc == 0 && operation->on_device) {
        rc = device_fetch(cache, operation, &operation->copied);
        if (rc != 0) {
            slots_give(cache, operation->slot, bytes);
        }
    }
    if (rc == 0) {
        operation->phase = operation->on_device ? PHASE_COPIES_DOWN : PHASE_COPIES;
        cache->transient++;
        block->held++;
        slots_sort(cache, block);
    }
    return rc;
}

/* Drops a block's bytes everywhere. */
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
    if (!operation->on_device || operation->from != block->copy) {
        device_drop(cache, block);
    }
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

static void copied_down(struct cache *cache, struct operation *operation, int rc)
{
    const uint64_t bytes = operation->bytes;
    if (rc == 0) {
        memset(operation->slot + bytes, 0, slots_round(bytes) - bytes);
        put_copied(cache, operation);
        return;
    }
    operation->block->held--;
    slots_give(cache, operation->slot, bytes);
    slots_sort(cache, operation->block);
}

void operation_copied(struct cache *cache, struct operation *operation, int rc)
{
    cache->transient--;
    if (operation->phase == PHASE_COPIES_UP) {
        copied_up(cache, operation, rc);
    } else {
        copied_down(cache, operation, rc);
    }
    operation_end(cache, operation, rc);
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
        return core_err_set(-ENOENT, "the block does not exist");
    }
    if (block->loading || block->cleaning) {
        return -EAGAIN;
    }
    if (block->pins + block->copy_pins > 0) {
        return core_err_set(-EBUSY, "the block is pinned: release it before it is dropped");
    }
    block_clear(cache, block);
    operation_end(cache, operation, 0);
    return 0;
}

/* ---- steps, transfers and copies of all kinds ---- */

void operation_step(struct cache *cache, struct operation *operation)
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

void operation_end_transfer(struct cache *cache, const struct transfer *transfer, int rc)
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
        if (rc == 0 && operation != NULL) { /* before the slot is evicted again */
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
            core_log(CORE_LOG_WARN, "%s; it stays in memory", cache->unclean.message);
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

void operation_copy(struct cache *cache, struct operation *operation)
{
    struct block *block = operation->block;
    const bool puts = operation->kind == OPERATION_PUT;
    unsigned char *to = puts ? operation->slot : operation->to;
    const unsigned char *from = puts ? operation->from : block->slot;
    const uint64_t bytes = puts ? operation->bytes : block->bytes;
    operation->copying = true;
    cache_unlock(cache);
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
