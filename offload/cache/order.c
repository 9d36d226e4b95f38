/* order.c: records the order in which an iteration reads blocks, and follows it in the next one.
 * Positions count uses: this iteration's are below `recorded.count`, the next one's follow. The
 * cache's lock is held, except in order_fini. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "offload/cache/cache_internal.h"

enum { ORDER_MAX = 1 << 20, ORDER_ROOM = 256, STRAYS_MAX = 4 };

/* Leaves the block out if the order is too long or memory is missing. */
static void record(struct order *order, struct block *block)
{
    if (order->count == ORDER_MAX) {
        return;
    }
    if (order->count == order->room) {
        const uint64_t room = order->room > 0 ? 2 * order->room : ORDER_ROOM;
        struct block **blocks = realloc(order->blocks, room * sizeof(struct block *));
        if (blocks == NULL) {
            return;
        }
        order->blocks = blocks;
        order->room = room;
    }
    order->blocks[order->count++] = block;
    block->mentions++;
}

static void report_change(struct cache *cache, const struct block *block)
{
    const bool ends = cache->at == cache->recorded.count;
    if (!cache->strayed) {
        cache->strayed = true;
        cache->stats.order_changes++;
        core_log(CORE_LOG_INFO,
                 "the order of blocks has changed: use %" PRIu64
                 " was %s and is %s now; the new order is recorded",
                 cache->at + 1,
                 ends ? "the iteration's end" : cache->recorded.blocks[cache->at]->name,
                 block != NULL ? block->name : "the iteration's end");
    }
}

/* If the block's next use was at this position, sets it to the use after that. */
static void pass(struct cache *cache, uint64_t position)
{
    struct block *block = cache->recorded.blocks[position];
    if (block->due == position) {
        block->due = cache->again[position];
        slots_sort(cache, block);
    }
}

void order_use(struct cache *cache, struct block *block)
{
    block->used = ++cache->clock;
    slots_sort(cache, block);
    if (!cache->marked) {
        return;
    }
    record(&cache->recording, block);
    if (cache->recorded.count == 0) {
        return;
    }
    const bool later = block->due >= cache->at && block->due < cache->recorded.count;
    if (!later || block->due != cache->at) {
        report_change(cache, block);
        cache->strays++;
    }
    if (later) { /* earlier uses are skipped */
        cache->strays = block->due == cache->at ? 0 : cache->strays;
        for (const uint64_t position = block->due; cache->at <= position; cache->at++) {
            pass(cache, cache->at);
        }
    }
}

struct block *order_next(struct cache *cache, uint64_t *due)
{
    const uint64_t count = cache->recorded.count;
    if (cache->strays >= STRAYS_MAX) {
        return NULL;
    }
    cache->ahead = cache->ahead > cache->at ? cache->ahead : cache->at;
    for (; cache->ahead < cache->at + count; cache->ahead++) {
        struct block *block = cache->recorded.blocks[cache->ahead % count];
        if (block->stored && block->slot == NULL && block->copy == NULL &&
            block->issued == block->served) {
            *due = cache->ahead;
            return block;
        }
    }
    return NULL;
}

/* Computes each block's first use, and the use after each use. */
static void set_positions(struct cache *cache)
{
    const struct order *order = &cache->recorded;
    for (uint64_t i = order->count; i-- > 0;) {
        cache->again[i] = order->blocks[i]->due;
        order->blocks[i]->due = i;
    }
    for (uint64_t i = 0; i < order->count; i++) {
        if (cache->again[i] == BLOCK_NEVER) {
            cache->again[i] = order->count + order->blocks[i]->due;
        }
    }
}

static void forget(struct cache *cache, struct order *order)
{
    for (uint64_t i = 0; i < order->count; i++) {
        order->blocks[i]->due = BLOCK_NEVER;
    }
    for (uint64_t i = 0; i < order->count; i++) {
        order->blocks[i]->mentions--;
        table_settle(cache, order->blocks[i]);
    }
    order->count = 0;
}

int order_turn(struct cache *cache)
{
    if (cache->recorded.count > 0 && cache->at != cache->recorded.count) {
        report_change(cache, NULL);
    }
    const struct order before = cache->recorded;
    const uint64_t into = cache->ahead > before.count ? cache->ahead - before.count : 0;
    uint64_t *again = cache->again;
    if (cache->recording.count > 0) {
        again = realloc(cache->again, cache->recording.count * sizeof *again);
        if (again == NULL) {
            return core_err_set(-ENOMEM, "out of memory for an order of %" PRIu64 " uses",
                                cache->recording.count);
        }
    }
    cache->again = again;
    cache->recorded = cache->recording;
    cache->recording = before;
    forget(cache, &cache->recording);
    set_positions(cache);
    slots_rebuild(cache);
    cache->marked = true;
    cache->at = 0;
    cache->ahead = cache->strayed ? 0 : into;
    cache->strayed = false;
    cache->strays = 0;
    return 0;
}

void order_fini(struct order *order)
{
    free(order->blocks);
    *order = (struct order){.blocks = NULL};
}
