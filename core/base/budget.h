/* budget.h: a hard limit on bytes. Any thread. */
#ifndef CORE_BASE_BUDGET_H
#define CORE_BASE_BUDGET_H

#include <stdatomic.h>
#include <stdint.h>

#define CORE_BUDGET_NONE UINT64_MAX /* no limit: the budget only counts */
enum { CORE_BUDGET_NAME_BYTES = 32 };

struct core_budget {
    char name[CORE_BUDGET_NAME_BYTES];
    uint64_t limit_bytes;
    _Atomic uint64_t used_bytes; /* never above limit_bytes; relaxed */
    _Atomic uint64_t peak_bytes; /* the highest value of used_bytes */
};

void core_budget_init(struct core_budget *budget, const char *name, uint64_t limit_bytes);

/* Charges `bytes`. Returns -ENOMEM, with a message that names `what`, if they do not fit. */
int core_budget_take(struct core_budget *budget, uint64_t bytes, const char *what);
void core_budget_give(struct core_budget *budget, uint64_t bytes);

uint64_t core_budget_peak(const struct core_budget *budget);

#endif
