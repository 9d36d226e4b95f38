/* ring.c: two counters that only grow, one written by each side.
 * Each side keeps its last look at the other's counter and looks again only when that says full or
 * empty, so that the line of memory between them moves once for many items. */
#include "core/base/ring.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"

struct core_ring {
    uint32_t mask;
    uint32_t item_bytes;
    _Alignas(64) _Atomic uint32_t put; /* written by the producer, released to the consumer */
    uint32_t get_seen;                 /* the producer's last look at `get` */
    _Alignas(64) _Atomic uint32_t get; /* written by the consumer, released to the producer */
    uint32_t put_seen;                 /* the consumer's last look at `put` */
    _Alignas(64) unsigned char items[];
};

int core_ring_create(uint32_t depth, uint32_t item_bytes, struct core_ring **out)
{
    if (depth == 0 || depth > UINT32_C(1) << 30 || item_bytes == 0 ||
        item_bytes > CORE_RING_ITEM_BYTES_MAX) {
        return core_err_set(-EINVAL, "a ring of %u items of %u bytes is not possible", depth,
                            item_bytes);
    }
    uint32_t slots = 1;
    while (slots < depth) {
        slots *= 2;
    }
    size_t bytes = sizeof(struct core_ring) + (size_t)slots * item_bytes;
    struct core_ring *ring = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (ring == NULL) {
        return core_err_set(-ENOMEM, "no memory for a ring of %u items of %u bytes", slots,
                            item_bytes);
    }
    ring->mask = slots - 1;
    ring->item_bytes = item_bytes;
    ring->get_seen = 0;
    ring->put_seen = 0;
    atomic_init(&ring->put, 0);
    atomic_init(&ring->get, 0);
    *out = ring;
    return 0;
}

void core_ring_destroy(struct core_ring *ring)
{
    free(ring);
}

int core_ring_put(struct core_ring *ring, const void *item)
{
    uint32_t put = atomic_load_explicit(&ring->put, memory_order_relaxed);
    if (put - ring->get_seen > ring->mask) {
        ring->get_seen = atomic_load_explicit(&ring->get, memory_order_acquire);
        if (put - ring->get_seen > ring->mask) {
            return -EAGAIN;
        }
    }
    memcpy(ring->items + (size_t)(put & ring->mask) * ring->item_bytes, item, ring->item_bytes);
    atomic_store_explicit(&ring->put, put + 1, memory_order_release);
    return 0;
}

int core_ring_get(struct core_ring *ring, void *item)
{
    uint32_t get = atomic_load_explicit(&ring->get, memory_order_relaxed);
    if (get == ring->put_seen) {
        ring->put_seen = atomic_load_explicit(&ring->put, memory_order_acquire);
        if (get == ring->put_seen) {
            return -EAGAIN;
        }
    }
    memcpy(item, ring->items + (size_t)(get & ring->mask) * ring->item_bytes, ring->item_bytes);
    atomic_store_explicit(&ring->get, get + 1, memory_order_release);
    return 0;
}

uint32_t core_ring_count(const struct core_ring *ring)
{
    uint32_t get = atomic_load_explicit(&ring->get, memory_order_acquire);
    return atomic_load_explicit(&ring->put, memory_order_acquire) - get;
}

uint32_t core_ring_depth(const struct core_ring *ring)
{
    return ring->mask + 1;
}
