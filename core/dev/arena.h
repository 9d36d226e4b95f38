/* arena.h: allocates parts of an address range, which may be GPU memory, under a hard budget. With
 * a source, parts are separate allocations, to find overruns. In host memory, AddressSanitizer sees
 * everything outside the live parts as poisoned, with a red zone after a part. Any thread; the lock
 * is acceptable because nothing is allocated during a step. */
#ifndef CORE_DEV_ARENA_H
#define CORE_DEV_ARENA_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/dev/dev.h"

struct dev_arena_part {
    size_t offset; /* in the range; with a source, the address */
    size_t bytes;  /* size, rounded up to DEV_ALIGN_BYTES */
};

/* Allocates parts separately. */
struct dev_arena_source {
    int (*alloc)(void *context, size_t bytes, void **out); /* *out is aligned to DEV_ALIGN_BYTES */
    void (*free)(void *context, void *memory);
    void *context;
};

struct dev_arena {
    pthread_mutex_t lock;
    /* borrowed from the device; NULL: there is a source. This and the next four members are
     * constant */
    unsigned char *base;
    size_t range_bytes;
    size_t budget_bytes;
    bool host;                      /* the range is host memory */
    struct dev_arena_source source; /* `alloc` NULL: parts are in the range */
    size_t used_bytes;
    size_t peak_bytes;
    struct dev_arena_part *parts; /* owned, [capacity], sorted by offset */
    size_t count;
    size_t capacity;
};

/* Returns the bytes of the range for a budget and its red zones. */
size_t dev_arena_range_bytes(size_t budget_bytes, bool host);

void dev_arena_init(struct dev_arena *arena, void *base, size_t budget_bytes, bool host);
/* Every part will be an allocation of the source, of the requested size. */
void dev_arena_init_source(struct dev_arena *arena, const struct dev_arena_source *source,
                           size_t budget_bytes);
/* Frees live parts of a source. */
void dev_arena_fini(struct dev_arena *arena);

/* On failure, the caller prefixes the device's name to the message. */
int dev_arena_alloc(struct dev_arena *arena, size_t bytes, void **out);
void dev_arena_free(struct dev_arena *arena, void *memory);
void dev_arena_report(struct dev_arena *arena, struct dev_memory *out);
/* Returns whether [memory, memory + bytes) is inside the range, or inside one allocation of a
 * source. Without a source it takes no lock. */
bool dev_arena_holds(struct dev_arena *arena, const void *memory, size_t bytes);

#endif
