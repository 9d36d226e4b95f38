/* pool.c: a stack of slot numbers with a counter against ABA.
 * `top` holds the number of the first free slot plus one (0: none) and a count of changes; `next`
 * of a free slot is the one below it, of a taken slot TAKEN. A taker may read a `next` that has
 * just become stale; the count in `top` makes its exchange fail then. */
#include "core/base/pool.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/poison.h"

#define TAKEN     UINT32_MAX
#define COUNT_MAX (UINT32_C(1) << 31)

struct core_pool {
    unsigned char *base; /* borrowed from the caller of create */
    uint64_t slot_bytes;
    uint64_t stride_bytes;
    uint32_t count;
    _Alignas(64) _Atomic uint64_t top; /* changes << 32 | number + 1 */
    _Alignas(64) _Atomic uint32_t next[];
};

int core_pool_create(const struct core_pool_options *options, struct core_pool **out)
{
    const char *name = options->name != NULL ? options->name : "pool";
    uint64_t stride = options->stride_bytes != 0 ? options->stride_bytes : options->slot_bytes;
    uint64_t span;
    if (options->base == NULL || options->count == 0 || options->count > COUNT_MAX ||
        options->slot_bytes == 0 || stride < options->slot_bytes || stride % 8 != 0 ||
        options->slot_bytes % 8 != 0 || __builtin_mul_overflow(stride, options->count, &span)) {
        return core_err_set(
            -EINVAL, "pool %s cannot have %u slots of %" PRIu64 " bytes, %" PRIu64 " apart, at %p",
            name, options->count, options->slot_bytes, stride, options->base);
    }
    size_t bytes = sizeof(struct core_pool) + options->count * sizeof(_Atomic uint32_t);
    struct core_pool *pool = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (pool == NULL) {
        return core_err_set(-ENOMEM, "no memory for the table of %u slots of pool %s",
                            options->count, name);
    }
    pool->base = options->base;
    pool->slot_bytes = options->slot_bytes;
    pool->stride_bytes = stride;
    pool->count = options->count;
    for (uint32_t i = 0; i < pool->count; i++) {
        atomic_init(&pool->next[i], i + 1 < pool->count ? i + 2 : 0);
    }
    atomic_init(&pool->top, 1);
    core_poison(pool->base, span);
    *out = pool;
    return 0;
}

void core_pool_destroy(struct core_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    assert(core_pool_left(pool) == pool->count);
    core_unpoison(pool->base, pool->stride_bytes * pool->count);
    free(pool);
}

int core_pool_take(struct core_pool *pool, void **out)
{
    uint64_t top = atomic_load_explicit(&pool->top, memory_order_acquire);
    uint32_t index;
    uint64_t below;
    do {
        if ((uint32_t)top == 0) {
            return -EAGAIN;
        }
        index = (uint32_t)top - 1;
        below = atomic_load_explicit(&pool->next[index], memory_order_relaxed);
    } while (!atomic_compare_exchange_weak_explicit(&pool->top, &top,
                                                    ((top >> 32) + 1) << 32 | (uint32_t)below,
                                                    memory_order_acquire, memory_order_acquire));
    atomic_store_explicit(&pool->next[index], TAKEN, memory_order_relaxed);
    void *slot = pool->base + index * pool->stride_bytes;
    core_unpoison(slot, pool->slot_bytes);
    *out = slot;
    return 0;
}

void core_pool_give(struct core_pool *pool, void *slot)
{
    uint32_t index = core_pool_index(pool, slot);
    core_poison(slot, pool->slot_bytes);
    uint64_t top = atomic_load_explicit(&pool->top, memory_order_relaxed);
    /* Of two givers of one slot, one sees that it is not taken any more. */
    uint32_t was = atomic_exchange_explicit(&pool->next[index], (uint32_t)top,
                                            memory_order_relaxed);
    assert(was == TAKEN);
    (void)was;
    /* Release: pairs with the taker's acquire of `top`. */
    while (!atomic_compare_exchange_weak_explicit(&pool->top, &top,
                                                  ((top >> 32) + 1) << 32 | (index + 1),
                                                  memory_order_release, memory_order_relaxed)) {
        atomic_store_explicit(&pool->next[index], (uint32_t)top, memory_order_relaxed);
    }
}

uint32_t core_pool_count(const struct core_pool *pool)
{
    return pool->count;
}

uint64_t core_pool_slot_bytes(const struct core_pool *pool)
{
    return pool->slot_bytes;
}

uint32_t core_pool_left(const struct core_pool *pool)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < pool->count; i++) {
        left += atomic_load_explicit(&pool->next[i], memory_order_relaxed) != TAKEN;
    }
    return left;
}

uint32_t core_pool_index(const struct core_pool *pool, const void *slot)
{
    uint64_t offset = (uint64_t)((const unsigned char *)slot - pool->base);
    uint64_t index = offset / pool->stride_bytes;
    assert((const unsigned char *)slot >= pool->base && index < pool->count &&
           offset % pool->stride_bytes == 0);
    return (uint32_t)index;
}

void *core_pool_slot(const struct core_pool *pool, uint32_t index)
{
    assert(index < pool->count);
    return pool->base + index * pool->stride_bytes;
}
