/* arena.h: hands out parts of one address range under a hard budget.
 * Keeps its books outside the range, so that the range may be memory of a card. Any thread; locked,
 * because nothing is allocated while a step runs. Where the range is host memory, AddressSanitizer sees
 * everything outside the live parts as poisoned, with a red zone after each part. */
#ifndef CORE_DEV_ARENA_H
#define CORE_DEV_ARENA_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/dev/dev.h"

struct dev_arena_part {
    size_t offset;
    size_t bytes; /* rounded up */
};

struct dev_arena {
    pthread_mutex_t lock;
    unsigned char *base; /* borrowed from the device; fixed, as are the next three */
    size_t range_bytes;
    size_t budget_bytes;
    bool host; /* the range is host memory */
    size_t used_bytes;
    size_t peak_bytes;
    struct dev_arena_part *parts; /* owned, [capacity], sorted by offset */
    size_t count;
    size_t capacity;
};

/* How much address range a budget needs: more than itself where red zones are laid. */
size_t dev_arena_range_bytes(size_t budget_bytes, bool host);

void dev_arena_init(struct dev_arena *arena, void *base, size_t budget_bytes, bool host);
void dev_arena_fini(struct dev_arena *arena);

/* -ENOMEM with the numbers; the device puts its name before them. */
int dev_arena_alloc(struct dev_arena *arena, size_t bytes, void **out);
void dev_arena_free(struct dev_arena *arena, void *memory);
void dev_arena_report(struct dev_arena *arena, struct dev_memory *out);
/* Whether [memory, memory + bytes) lies inside the range. Takes no lock. */
bool dev_arena_holds(const struct dev_arena *arena, const void *memory, size_t bytes);

#endif
