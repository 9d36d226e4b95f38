/* ring.h: items of a fixed size from one thread to one other, in order.
 * One producer calls core_ring_put, one consumer core_ring_get; neither waits, locks or allocates.
 * What the producer wrote before putting is seen by the consumer after getting. Who has to sleep
 * uses a bell beside it. */
#ifndef CORE_BASE_RING_H
#define CORE_BASE_RING_H

#include <stdint.h>

struct core_ring;

enum { CORE_RING_ITEM_BYTES_MAX = 4096 };

/* `depth` items, rounded up to a power of two, 1 to 2^30; `item_bytes` 1 to the maximum. */
int core_ring_create(uint32_t depth, uint32_t item_bytes, struct core_ring **out);
/* NULL is fine; items still inside are dropped. */
void core_ring_destroy(struct core_ring *ring);

/* Copies the item in. -EAGAIN, without a sentence, when `depth` items wait. Producer only. */
int core_ring_put(struct core_ring *ring, const void *item);
/* Copies the oldest item out. -EAGAIN, without a sentence, when none waits. Consumer only. */
int core_ring_get(struct core_ring *ring, void *item);

/* Items that wait: exact for a side while the other rests. */
uint32_t core_ring_count(const struct core_ring *ring);
uint32_t core_ring_depth(const struct core_ring *ring);

#endif
