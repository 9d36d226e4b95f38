/* charge.h: heap memory that is charged to a budget (mem.h) from its allocation until it is freed: to the
 * one that the allocating thread has bound, so that code below need not know it. For memory whose size
 * follows from input, such as rows of training data. A thread without a budget allocates as with malloc.
 * Any thread; a block may be freed by another one. */
#ifndef CORE_BASE_CHARGE_H
#define CORE_BASE_CHARGE_H

#include <stddef.h>
#include <stdint.h>

struct core_budget;

/* Binds a budget to this thread (NULL: none) and returns the one before, to be bound again. It must
 * outlive all blocks that are charged to it. Forgets earlier refusals. */
struct core_budget *core_charge_bind(struct core_budget *budget);
struct core_budget *core_charge_bound(void);

/* Bytes that the bound budget has refused last; 0: none since it was bound. Tells a budget's -ENOMEM from
 * the machine's. */
uint64_t core_charge_refused(void);

/* As malloc, calloc, realloc, strndup and free. NULL where the budget or the machine has no more, without a
 * sentence. Blocks are freed by core_charge_free alone. */
void *core_charge_alloc(size_t bytes);
void *core_charge_zeroed(size_t count, size_t size);
void *core_charge_grow(void *block, size_t bytes);
char *core_charge_text(const char *text, size_t bytes);
void core_charge_free(void *block);

/* The same for memory that others allocate: its bytes are charged and given back by hand. -ENOMEM without
 * a sentence. Does nothing where `budget` is NULL. */
int core_charge_take(struct core_budget *budget, uint64_t bytes);
void core_charge_give(struct core_budget *budget, uint64_t bytes);

#endif
