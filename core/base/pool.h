/* pool.h: a fixed set of equal slots, taken and given by any thread.
 * The slots are the caller's memory, cut once; the pool owns only its table. Taking and giving are
 * a few atomic operations, never wait and never allocate; the slot given last is taken first,
 * because it is warm. Under AddressSanitizer a slot that is not taken is poisoned. */
#ifndef CORE_BASE_POOL_H
#define CORE_BASE_POOL_H

#include <stdint.h>

struct core_pool;

struct core_pool_options {
    const char *name;      /* for sentences; NULL: "pool" */
    void *base;            /* borrowed, count * stride_bytes long; outlives the pool */
    uint32_t count;        /* slots, 1 to 2^31 */
    uint64_t slot_bytes;   /* what a taker may use */
    uint64_t stride_bytes; /* from a slot to the next; 0: slot_bytes. Both multiples of 8. */
};

int core_pool_create(const struct core_pool_options *options, struct core_pool **out);
/* NULL is fine. Slots that are still taken stay the taker's until then and are a defect (assert). */
void core_pool_destroy(struct core_pool *pool);

/* Never blocks: -EAGAIN, without a sentence, when all slots are taken; *out is untouched then. */
int core_pool_take(struct core_pool *pool, void **out);
/* What the giver wrote is seen by the next taker. Giving what is not a slot of this pool, or twice,
 * is a defect (assert). */
void core_pool_give(struct core_pool *pool, void *slot);

uint32_t core_pool_count(const struct core_pool *pool);
uint64_t core_pool_slot_bytes(const struct core_pool *pool);
/* Slots that are not taken: exact while nobody takes or gives, a recent value otherwise. */
uint32_t core_pool_left(const struct core_pool *pool);
/* A slot's number, 0 to count - 1, and back. */
uint32_t core_pool_index(const struct core_pool *pool, const void *slot);
void *core_pool_slot(const struct core_pool *pool, uint32_t index);

#endif
