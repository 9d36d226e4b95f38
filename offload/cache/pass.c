/* pass.c: the pass, which ends transfers, continues waiting operations and reads ahead; and the
 * cache's thread, which runs the pass when `work` rings. */
#include <pthread.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "offload/cache/cache_internal.h"

enum { PREFETCHES_MAX = 8 };

static void prefetch(struct cache *cache)
{
    struct block *block = NULL;
    uint64_t due = 0;
    const struct transfers *queue = &cache->queues[QUEUE_LATER];
    while (cache->recorded.count > 0 && !cache->starved &&
           queue->last - queue->first < PREFETCHES_MAX &&
           (block = order_next(cache, &due)) != NULL) {
        if (operation_load(cache, block, due, NULL, QUEUE_LATER) != 0) {
            return;
        }
        cache->ahead = due + 1;
        cache->stats.prefetches++;
    }
}

void cache_pass(struct cache *cache)
{
    struct transfer ended;
    int rc = 0;
    for (unsigned i = 0; i < QUEUE_COUNT && cache->store != NULL; i++) {
        while (transfers_retire(&cache->queues[i], &ended, &rc) != 0) {
            operation_end_transfer(cache, &ended, rc);
        }
    }
    cache->starved = false;
    for (struct operation *operation = cache->oldest, *next; operation != NULL; operation = next) {
        next = operation->next;
        const bool copies = operation->phase == PHASE_COPIES_UP ||
                            operation->phase == PHASE_COPIES_DOWN;
        const int copied = copies ? core_fence_poll(operation->copied) : 0;
        if (copied != 0) {
            operation_copied(cache, operation, copied < 0 ? copied : 0);
        }
        operation_step(cache, operation);
    }
    prefetch(cache);
}

/* ---- the cache's thread ---- */

/* Returns a queue to repair, or NULL. */
static struct transfers *broken_queue(struct cache *cache)
{
    for (unsigned i = 0; i < QUEUE_COUNT; i++) {
        if (cache->queues[i].broken) {
            return &cache->queues[i];
        }
    }
    return NULL;
}

/* Returns the oldest operation with bytes that no thread copies yet, or NULL. */
static struct operation *copy_left(struct cache *cache)
{
    struct operation *operation = cache->oldest;
    while (operation != NULL && (operation->phase != PHASE_COPIES || operation->copying)) {
        operation = operation->next;
    }
    return operation;
}

void cache_delegate(struct cache *cache)
{
    if (broken_queue(cache) != NULL || copy_left(cache) != NULL) {
        core_bell_ring(&cache->work);
    }
}

/* Returns whether work was done without the lock; there may then be more. */
static bool cache_work(struct cache *cache)
{
    struct transfers *broken = broken_queue(cache);
    if (broken != NULL) {
        struct core_err result;
        cache_unlock(cache);
        struct aio_queue *opened = transfers_repair(broken, &result);
        pthread_mutex_lock(&cache->lock);
        transfers_repaired(broken, opened, &result);
        return true;
    }
    struct operation *operation = copy_left(cache);
    if (operation != NULL) {
        operation_copy(cache, operation);
    }
    return operation != NULL;
}

void *cache_main(void *argument)
{
    struct cache *cache = argument;
    core_log_bind(cache->log);
    pthread_setname_np(pthread_self(), "tide-blocks");
    pthread_mutex_lock(&cache->lock);
    while (!cache->ending) {
        const uint32_t seen = core_bell_look(&cache->work);
        cache_pass(cache);
        if (!cache_work(cache)) {
            cache_unlock(cache);
            core_bell_sleep(&cache->work, seen, -1);
            pthread_mutex_lock(&cache->lock);
        }
    }
    cache_unlock(cache);
    return NULL;
}
