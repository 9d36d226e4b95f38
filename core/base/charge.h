/* charge.h: heap memory that is charged to a budget (budget.h) from its allocation until it is
 * freed. A block is charged to the budget that the allocating thread has bound, so the functions
 * that allocate need no parameter for it; a block that grows stays charged to its budget. Meant for
 * memory whose size follows from input, such as rows of training data. A thread without a budget
 * allocates as with malloc. Any thread; a block may be freed by another thread than the one that
 * allocated it. */
#ifndef CORE_BASE_CHARGE_H
#define CORE_BASE_CHARGE_H

#include <stddef.h>
#include <stdint.h>

struct core_budget;

/* Binds a budget to this thread (NULL: none) and returns the one that was bound before, for the
 * caller to bind again. The budget must outlive all blocks that are charged to it. Clears the
 * record of refusals. */
struct core_budget *core_charge_bind(struct core_budget *budget);
struct core_budget *core_charge_bound(void);

/* Returns how many bytes a budget refused last on this thread (for a block that should grow: the
 * growth); 0: none since core_charge_bind(). This distinguishes a budget's -ENOMEM from the
 * machine's. */
uint64_t core_charge_refused(void);

/* Like malloc, calloc, realloc, strndup and free. The functions that allocate return NULL if the
 * budget or the machine has no more memory; the caller writes the message. Only core_charge_free
 * may free the blocks. */
void *core_charge_alloc(size_t bytes);
void *core_charge_zeroed(size_t count, size_t size);
void *core_charge_grow(void *block, size_t bytes);
char *core_charge_text(const char *text, size_t bytes);
void core_charge_free(void *block);

/* Charge and release bytes of memory that the caller allocates by other means. Do nothing if
 * `budget` is NULL. core_charge_take returns 0, or -ENOMEM if they do not fit; the caller writes
 * the message. */
int core_charge_take(struct core_budget *budget, uint64_t bytes);
void core_charge_give(struct core_budget *budget, uint64_t bytes);

#endif
