/* budget.c: one atomic counter that does not pass its limit. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "core/base/budget.h"
#include "core/base/err.h"

void core_budget_init(struct core_budget *budget, const char *name, uint64_t limit_bytes)
{
    snprintf(budget->name, sizeof budget->name, "%s", name);
    budget->limit_bytes = limit_bytes;
    atomic_init(&budget->used_bytes, 0);
    atomic_init(&budget->peak_bytes, 0);
}

static void raise_peak(struct core_budget *budget, uint64_t used)
{
    uint64_t peak = atomic_load_explicit(&budget->peak_bytes, memory_order_relaxed);
    while (peak < used &&
           !atomic_compare_exchange_weak_explicit(&budget->peak_bytes, &peak, used,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

int core_budget_take(struct core_budget *budget, uint64_t bytes, const char *what)
{
    uint64_t used = atomic_load_explicit(&budget->used_bytes, memory_order_relaxed);
    do {
        if (bytes > budget->limit_bytes - used) {
            return core_err_set(-ENOMEM,
                                "%s does not fit in the %s budget: limit %" PRIu64
                                " bytes, used %" PRIu64 ", requested %" PRIu64 ", %" PRIu64
                                " missing",
                                what, budget->name, budget->limit_bytes, used, bytes,
                                bytes - (budget->limit_bytes - used));
        }
    } while (!atomic_compare_exchange_weak_explicit(&budget->used_bytes, &used, used + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    raise_peak(budget, used + bytes);
    return 0;
}

void core_budget_give(struct core_budget *budget, uint64_t bytes)
{
    uint64_t used = atomic_fetch_sub_explicit(&budget->used_bytes, bytes, memory_order_relaxed);
    assert(used >= bytes);
    (void)used;
}

uint64_t core_budget_peak(const struct core_budget *budget)
{
    return atomic_load_explicit(&budget->peak_bytes, memory_order_relaxed);
}
