/* charge.c: a header before each block records the block's budget and size. */
#include "core/base/charge.h"

#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/budget.h"
#include "core/base/err.h"

/* An estimate of the bytes that malloc itself adds to a block. */
enum { MALLOC_BYTES = 16 };

struct header {
    alignas(max_align_t) struct core_budget *budget; /* borrowed; NULL: none */
    size_t bytes; /* charged: the block, header and MALLOC_BYTES */
};

static _Thread_local struct core_budget *bound; /* borrowed */
static _Thread_local uint64_t refused;

struct core_budget *core_charge_bind(struct core_budget *budget)
{
    struct core_budget *before = bound;
    bound = budget;
    refused = 0;
    return before;
}

struct core_budget *core_charge_bound(void)
{
    return bound;
}

uint64_t core_charge_refused(void)
{
    return refused;
}

int core_charge_take(struct core_budget *budget, uint64_t bytes)
{
    if (budget == NULL) {
        return 0;
    }
    const int rc = core_budget_take(budget, bytes, "a row");
    refused = rc != 0 ? bytes : refused;
    return rc;
}

void core_charge_give(struct core_budget *budget, uint64_t bytes)
{
    if (budget != NULL) {
        core_budget_give(budget, bytes);
    }
}

void *core_charge_alloc(size_t bytes)
{
    return core_charge_grow(NULL, bytes);
}

void *core_charge_zeroed(size_t count, size_t size)
{
    size_t bytes;
    void *block = !__builtin_mul_overflow(count, size, &bytes) ? core_charge_grow(NULL, bytes)
                                                               : NULL;
    return block != NULL ? memset(block, 0, bytes) : NULL;
}

void *core_charge_grow(void *block, size_t bytes)
{
    struct header *old = block != NULL ? (struct header *)block - 1 : NULL;
    struct core_budget *budget = old != NULL ? old->budget : bound;
    const size_t before = old != NULL ? old->bytes : 0;
    size_t charged;
    if (__builtin_add_overflow(bytes, sizeof(struct header) + MALLOC_BYTES, &charged)) {
        return NULL;
    }
    if (charged > before && core_charge_take(budget, charged - before) != 0) {
        return NULL;
    }
    struct header *made = realloc(old, sizeof *made + bytes);
    if (made == NULL) {
        core_charge_give(budget, charged > before ? charged - before : 0);
        return NULL;
    }
    core_charge_give(budget, charged < before ? before - charged : 0);
    *made = (struct header){.budget = budget, .bytes = charged};
    return made + 1;
}

char *core_charge_text(const char *text, size_t bytes)
{
    const size_t length = strnlen(text, bytes);
    char *copy = core_charge_alloc(length + 1);
    if (copy != NULL) {
        memcpy(copy, text, length);
        copy[length] = '\0';
    }
    return copy;
}

void core_charge_free(void *block)
{
    if (block != NULL) {
        struct header *header = (struct header *)block - 1;
        core_charge_give(header->budget, header->bytes);
        free(header);
    }
}
