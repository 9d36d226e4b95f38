/* charge.h: heap memory that is charged to the budget (budget.h) bound to the allocating thread.
 * For memory whose size follows from input. Without a budget, allocates as malloc does. Any thread;
 * any thread may free a block. */
#ifndef CORE_BASE_CHARGE_H
#define CORE_BASE_CHARGE_H

#include <stddef.h>
#include <stdint.h>

struct core_budget;

/* Binds a budget to this thread (NULL: none), and returns the previous one for the caller to
 * bind again. The budget must outlive the blocks that are charged to it. Resets
 * core_charge_refused(). */
struct core_budget *core_charge_bind(struct core_budget *budget);
struct core_budget *core_charge_bound(void);

/* Returns the bytes that a budget last refused on this thread; 0: none since core_charge_bind().
 * Distinguishes a budget's -ENOMEM from the machine's. */
uint64_t core_charge_refused(void);

/* Like malloc, calloc, realloc, strndup and free. NULL: no memory, without a message; or the budget
 * is full, with its message. Only core_charge_free may free the blocks. */
void *core_charge_alloc(size_t bytes);
void *core_charge_zeroed(size_t count, size_t size);
void *core_charge_grow(void *block, size_t bytes);
char *core_charge_text(const char *text, size_t bytes);
void core_charge_free(void *block);

/* Charge and release memory that the caller allocates. Do nothing if `budget` is NULL. */
int core_charge_take(struct core_budget *budget, uint64_t bytes);
void core_charge_give(struct core_budget *budget, uint64_t bytes);

#endif
