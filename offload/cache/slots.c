/* slots.c: host memory of blocks: one region, allocated first fit, and a heap of blocks to
 * evict. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/poison.h"
#include "core/base/size.h"
#include "offload/cache/cache_internal.h"

enum { FAILURES_MAX = 16, HEAP_ROOM = 64 };

/* ---- the heap ---- */

/* Blocks without a known use are the farthest, longest unused ones first. */
uint64_t slots_distance(const struct block *block)
{
    return block->due != BLOCK_NEVER ? block->due
                                     : (UINT64_C(1) << 63) + ((UINT64_C(1) << 62) - block->used);
}

static void heap_place(struct cache *cache, size_t index, struct block *block)
{
    cache->heap[index] = block;
    block->heap = index + 1;
}

static void heap_sift(struct cache *cache, size_t index)
{
    struct block *block = cache->heap[index];
    const uint64_t far = slots_distance(block);
    while (index > 0 && slots_distance(cache->heap[(index - 1) / 2]) < far) {
        heap_place(cache, index, cache->heap[(index - 1) / 2]);
        index = (index - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * index + 1;
        if (child + 1 < cache->heap_count &&
            slots_distance(cache->heap[child + 1]) > slots_distance(cache->heap[child])) {
            child++;
        }
        if (child >= cache->heap_count || slots_distance(cache->heap[child]) <= far) {
            break;
        }
        heap_place(cache, index, cache->heap[child]);
        index = child;
    }
    heap_place(cache, index, block);
}

static void heap_remove(struct cache *cache, struct block *block)
{
    const size_t index = block->heap - 1;
    block->heap = 0;
    cache->heap_count--;
    if (index < cache->heap_count) {
        heap_place(cache, index, cache->heap[cache->heap_count]);
        heap_sift(cache, index);
    }
}

int slots_reserve(struct cache *cache)
{
    if (cache->block_count < cache->heap_room) {
        return 0;
    }
    const size_t room = cache->heap_room > 0 ? 2 * cache->heap_room : HEAP_ROOM;
    struct block **heap = realloc(cache->heap, room * sizeof(struct block *));
    if (heap == NULL) {
        return core_err_set(-ENOMEM, "out of memory for %zu blocks", room);
    }
    cache->heap = heap;
    cache->heap_room = room;
    return 0;
}

void slots_sort(struct cache *cache, struct block *block)
{
    const bool evictable = block->slot != NULL && block->pins + block->held == 0 &&
                           !block->loading && !block->cleaning && !block->stuck;
    if (!evictable) {
        if (block->heap != 0) {
            heap_remove(cache, block);
        }
        return;
    }
    if (block->heap == 0) {
        assert(cache->heap_count < cache->heap_room);
        heap_place(cache, cache->heap_count++, block);
    }
    heap_sift(cache, block->heap - 1);
}

void slots_rebuild(struct cache *cache)
{
    const size_t count = cache->heap_count;
    for (cache->heap_count = 0; cache->heap_count < count;) {
        heap_sift(cache, cache->heap_count++);
    }
}

/* ---- memory ---- */

uint64_t slots_round(uint64_t bytes)
{
    return core_round_up(bytes, CACHE_ALIGN_BYTES);
}

/* NULL sets *rc; -ENOSPC: no free range is long enough. */
static unsigned char *take_free(struct cache *cache, uint64_t bytes, int *rc)
{
    struct aio_range range;
    *rc = aio_space_take(cache->space, bytes, &range);
    if (*rc != 0) {
        return NULL;
    }
    if (range.bytes < bytes) {
        aio_space_give(cache->space, range);
        *rc = -ENOSPC;
        return NULL;
    }
    cache->host_used_bytes += bytes;
    if (cache->host_used_bytes > cache->host_peak_bytes) {
        cache->host_peak_bytes = cache->host_used_bytes;
    }
    core_unpoison(cache->region.base + range.offset, bytes);
    return cache->region.base + range.offset;
}

void slots_give(struct cache *cache, unsigned char *slot, uint64_t bytes)
{
    const struct aio_range range = {(uint64_t)(slot - cache->region.base), slots_round(bytes)};
    core_poison(slot, range.bytes);
    cache->host_used_bytes -= range.bytes;
    aio_space_give(cache->space, range);
}

void slots_unstick(struct cache *cache, struct block *block)
{
    cache->stuck_count -= block->stuck;
    block->stuck = false;
    slots_sort(cache, block);
}

void slots_drop(struct cache *cache, struct block *block)
{
    if (block->slot != NULL) {
        slots_give(cache, block->slot, block->bytes);
        block->slot = NULL;
        slots_unstick(cache, block);
    }
}

static int clean(struct cache *cache, struct block *block)
{
    if (cache->store == NULL) {
        return -ENOMEM;
    }
    if (block->extent == NULL) {
        int rc = aio_extent_alloc(cache->store, slots_round(block->bytes), ++cache->next_owner,
                                  &block->extent);
        if (rc != 0) {
            return rc;
        }
    }
    const struct transfer transfer = {
        .kind = TRANSFER_CLEAN, .block = block, .extent = block->extent, .memory = block->slot};
    int rc = transfers_push(&cache->queues[QUEUE_WRITE], &transfer);
    if (rc != 0) {
        return rc;
    }
    /* `stored` is cleared if the write fails or the application changes the slot. */
    block->cleaning = block->stored = true;
    cache->transient++;
    cache->cleaning_bytes += slots_round(block->bytes);
    slots_sort(cache, block);
    return 0;
}

static int no_memory(const struct cache *cache, uint64_t bytes, const struct core_err *cause)
{
    char why[CORE_ERR_MESSAGE_BYTES] = "the rest is pinned or needed sooner";
    const uint64_t unused = cache->region.bytes - cache->host_used_bytes;
    if (cause->code != 0) {
        snprintf(why, sizeof why, "no more can be written to the store: %.480s", cause->message);
    } else if (cache->store == NULL) {
        snprintf(why, sizeof why, "no store is given for the rest");
    }
    return core_err_set(cause->code != 0 ? cause->code : -ENOMEM,
                        "%" PRIu64 " bytes of host memory are needed, %" PRIu64 " of %" PRIu64
                        " are free%s, and %s",
                        bytes, unused, cache->region.bytes,
                        unused >= bytes ? " in pieces that are too short" : "", why);
}

/* Stuck blocks are written again, because the drive may have recovered. */
static void unstick_all(struct cache *cache)
{
    for (size_t i = 0; cache->stuck_count > 0 && i < cache->bucket_count; i++) {
        for (struct block *block = cache->buckets[i]; block != NULL; block = block->next) {
            slots_unstick(cache, block);
        }
    }
}

int slots_take(struct cache *cache, uint64_t bytes, uint64_t due, unsigned char **out)
{
    struct block *failed[FAILURES_MAX];
    unsigned failures = 0;
    struct core_err cause = cache->stuck_count > 0 ? cache->unclean : core_err_keep(0);
    int rc = 0;
    bytes = slots_round(bytes);
    if (bytes > cache->region.bytes) {
        return core_err_set(-ENOMEM,
                            "%" PRIu64 " bytes of host memory are needed, the budget is %" PRIu64,
                            bytes, cache->region.bytes);
    }
    if (cache->starved) {
        return -EAGAIN;
    }
    for (;;) {
        unsigned char *slot = take_free(cache, bytes, &rc);
        if (slot != NULL) {
            *out = slot;
            break;
        }
        struct block *victim = cache->heap_count > 0 ? cache->heap[0] : NULL;
        if (rc != -ENOSPC || cache->cleaning_bytes >= bytes || victim == NULL ||
            slots_distance(victim) < due || failures == FAILURES_MAX) {
            break;
        }
        if (victim->stored) {
            slots_drop(cache, victim);
            cache->stats.evictions++;
            continue;
        }
        rc = clean(cache, victim);
        if (rc == -EAGAIN) {
            break;
        }
        if (rc != 0) { /* another block may be in the store, or be smaller */
            cause = cache->store != NULL ? core_err_keep(rc) : cause;
            failed[failures++] = victim;
            heap_remove(cache, victim);
        }
    }
    for (unsigned i = 0; i < failures; i++) {
        slots_sort(cache, failed[i]);
    }
    if (rc == 0) {
        return 0;
    }
    if (rc == -EAGAIN || cache->transient > 0) {
        cache->starved = true;
        return -EAGAIN;
    }
    rc = no_memory(cache, bytes, &cause);
    unstick_all(cache);
    return rc;
}
