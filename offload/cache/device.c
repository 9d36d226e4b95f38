/* device.c: copies of blocks in device memory, made from their slots. A put of other bytes drops a
 * copy; if memory is needed, the unpinned copy with the farthest next use is dropped. The cache's
 * lock is held, except in device_open and device_close. */
#include <errno.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "offload/cache/cache_internal.h"

int device_open(struct cache *cache, const char *name, uint64_t bytes)
{
    cache->device_bytes = bytes;
    int rc = dev_open(name, &(struct dev_options){.memory_bytes = bytes}, &cache->device);
    if (rc != 0) {
        return rc;
    }
    cache->registered = dev_host_register(cache->device, cache->region.base,
                                          cache->region.mapped_bytes) == 0;
    if (!cache->registered) {
        core_log(CORE_LOG_WARN, "%s; copies of blocks to the device are slow", core_err_message());
    }
    const struct dev_queue_options up = {.kind = DEV_QUEUE_UP, .bell = &cache->work};
    const struct dev_queue_options down = {.kind = DEV_QUEUE_DOWN, .bell = &cache->work};
    rc = dev_queue_create(cache->device, &up, &cache->up);
    return rc == 0 ? dev_queue_create(cache->device, &down, &cache->down) : rc;
}

void device_close(struct cache *cache)
{
    dev_queue_destroy(cache->up);
    dev_queue_destroy(cache->down);
    for (size_t i = 0; i < cache->copies_count; i++) {
        dev_memory_free(cache->device, cache->copies[i]->copy);
    }
    if (cache->registered) {
        dev_host_unregister(cache->device, cache->region.base);
    }
    dev_close(cache->device);
    free(cache->copies);
}

void device_drop(struct cache *cache, struct block *block)
{
    if (block->copy == NULL) {
        return;
    }
    size_t index = 0;
    while (cache->copies[index] != block) {
        index++;
    }
    cache->copies[index] = cache->copies[--cache->copies_count];
    dev_memory_free(cache->device, block->copy);
    block->copy = NULL;
}

/* Returns the block of the unpinned copy with the farthest next use; NULL: none. */
static struct block *least_useful(const struct cache *cache)
{
    struct block *found = NULL;
    for (size_t i = 0; i < cache->copies_count; i++) {
        struct block *block = cache->copies[i];
        if (block->copy_pins == 0 &&
            (found == NULL || slots_distance(block) > slots_distance(found))) {
            found = block;
        }
    }
    return found;
}

static int take_memory(struct cache *cache, uint64_t bytes, void **out)
{
    for (;;) {
        int rc = dev_memory_alloc(cache->device, bytes, out);
        struct block *block = rc == -ENOMEM && bytes <= cache->device_bytes ? least_useful(cache)
                                                                            : NULL;
        if (block == NULL) {
            return rc;
        }
        device_drop(cache, block);
    }
}

static int reserve_copy(struct cache *cache)
{
    if (cache->copies_count < cache->copies_room) {
        return 0;
    }
    const size_t room = cache->copies_room > 0 ? 2 * cache->copies_room : 16;
    struct block **copies = realloc(cache->copies, room * sizeof(struct block *));
    if (copies == NULL) {
        return core_err_set(-ENOMEM, "out of memory for %zu blocks on the device", room);
    }
    cache->copies = copies;
    cache->copies_room = room;
    return 0;
}

int device_copy(struct cache *cache, struct block *block, struct core_fence *fence)
{
    void *copy = NULL;
    int rc = reserve_copy(cache);
    if (rc != 0) {
        return rc;
    }
    rc = take_memory(cache, block->bytes, &copy);
    if (rc != 0) {
        return rc;
    }
    const struct dev_copy up = {
        .direction = DEV_COPY_UP, .to = copy, .from = block->slot, .bytes = block->bytes};
    rc = dev_queue_copy(cache->up, &up, fence);
    if (rc != 0) {
        dev_memory_free(cache->device, copy);
        return rc;
    }
    block->copy = copy;
    cache->copies[cache->copies_count++] = block;
    return 0;
}

int device_fetch(struct cache *cache, const struct operation *operation, struct core_fence *fence)
{
    const struct dev_copy down = {.direction = DEV_COPY_DOWN,
                                  .to = operation->slot,
                                  .from = operation->from,
                                  .bytes = operation->bytes};
    return dev_queue_copy(cache->down, &down, fence);
}
