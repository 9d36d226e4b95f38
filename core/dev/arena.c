/* arena.c: first-fit allocation over a sorted list of live parts. With a source, the base is NULL,
 * and a part's offset is its address. */
#include "core/dev/arena.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/poison.h"
#include "core/base/size.h"

#define RED_ZONE_BYTES (CORE_POISON_ON ? DEV_ALIGN_BYTES : 0)

static void poison(const struct dev_arena *arena, size_t offset, size_t bytes)
{
    if (arena->host) {
        core_poison(arena->base + offset, bytes);
    }
}

static void unpoison(const struct dev_arena *arena, size_t offset, size_t bytes)
{
    if (arena->host) {
        core_unpoison(arena->base + offset, bytes);
    }
}

static size_t red_zone_bytes(const struct dev_arena *arena)
{
    return arena->host ? RED_ZONE_BYTES : 0;
}

size_t dev_arena_range_bytes(size_t budget_bytes, bool host)
{
    /* The smallest part takes DEV_ALIGN_BYTES of the budget and a red zone. */
    return host && RED_ZONE_BYTES > 0 ? 2 * budget_bytes : budget_bytes;
}

void dev_arena_init(struct dev_arena *arena, void *base, size_t budget_bytes, bool host)
{
    assert((uintptr_t)base % DEV_ALIGN_BYTES == 0);
    *arena = (struct dev_arena){
        .base = base,
        .budget_bytes = budget_bytes / DEV_ALIGN_BYTES * DEV_ALIGN_BYTES,
        .host = host,
    };
    arena->range_bytes = dev_arena_range_bytes(arena->budget_bytes, host);
    pthread_mutex_init(&arena->lock, NULL);
    poison(arena, 0, arena->range_bytes);
}

void dev_arena_init_source(struct dev_arena *arena, const struct dev_arena_source *source,
                           size_t budget_bytes)
{
    *arena = (struct dev_arena){
        .budget_bytes = budget_bytes / DEV_ALIGN_BYTES * DEV_ALIGN_BYTES,
        .source = *source,
    };
    pthread_mutex_init(&arena->lock, NULL);
}

static void *address_of(const struct dev_arena *arena, const struct dev_arena_part *part)
{
    return (void *)((uintptr_t)arena->base + part->offset);
}

void dev_arena_fini(struct dev_arena *arena)
{
    for (size_t i = 0; arena->source.alloc != NULL && i < arena->count; i++) {
        arena->source.free(arena->source.context, address_of(arena, &arena->parts[i]));
    }
    unpoison(arena, 0, arena->range_bytes);
    free(arena->parts);
    pthread_mutex_destroy(&arena->lock);
}

/* Sets [*begin, *end) to the gap before part `index`, or after the last one. */
static void gap_at(const struct dev_arena *arena, size_t index, size_t *begin, size_t *end)
{
    const struct dev_arena_part *parts = arena->parts;
    *begin = 0;
    if (index > 0) {
        *begin = parts[index - 1].offset + parts[index - 1].bytes + red_zone_bytes(arena);
    }
    *end = index < arena->count ? parts[index].offset : arena->range_bytes;
}

static size_t largest_bytes(const struct dev_arena *arena)
{
    size_t largest = arena->source.alloc != NULL ? SIZE_MAX : 0;
    for (size_t i = 0; i <= arena->count; i++) {
        size_t begin, end;
        gap_at(arena, i, &begin, &end);
        size_t bytes = end - begin < red_zone_bytes(arena) ? 0 : end - begin;
        bytes -= bytes > 0 ? red_zone_bytes(arena) : 0;
        largest = bytes > largest ? bytes : largest;
    }
    size_t left = arena->budget_bytes - arena->used_bytes;
    return largest < left ? largest : left;
}

static int grow(struct dev_arena *arena)
{
    if (arena->count < arena->capacity) {
        return 0;
    }
    size_t capacity = arena->capacity == 0 ? 32 : 2 * arena->capacity;
    struct dev_arena_part *parts = realloc(arena->parts, capacity * sizeof *parts);
    if (parts == NULL) {
        return core_err_set(-ENOMEM, "out of memory for the list of %zu allocations", capacity);
    }
    arena->parts = parts;
    arena->capacity = capacity;
    return 0;
}

/* Sets *offset to the first gap for `bytes` and a red zone. Returns the new part's index; `count +
 * 1`: none. */
static size_t find_gap(const struct dev_arena *arena, size_t bytes, size_t *offset)
{
    for (size_t i = 0; i <= arena->count; i++) {
        size_t begin, end;
        gap_at(arena, i, &begin, &end);
        if (end - begin >= bytes + red_zone_bytes(arena)) {
            *offset = begin;
            return i;
        }
    }
    return arena->count + 1;
}

/* Returns the last part that begins at or before `memory`; `count`: none. */
static size_t find_part(const struct dev_arena *arena, const void *memory)
{
    uintptr_t address = (uintptr_t)memory;
    uintptr_t base = (uintptr_t)arena->base;
    size_t low = 0;
    size_t high = arena->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (base + arena->parts[middle].offset <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 ? low - 1 : arena->count;
}

/* Sets *rc and *offset to the source's result and address. Returns the new part's index; `count +
 * 1`: an error. */
static size_t take_part(const struct dev_arena *arena, size_t bytes, size_t *offset, int *rc)
{
    void *memory = NULL;
    *rc = arena->source.alloc(arena->source.context, bytes, &memory);
    if (*rc != 0) {
        return arena->count + 1;
    }
    assert((uintptr_t)memory % DEV_ALIGN_BYTES == 0);
    *offset = (uintptr_t)memory;
    const size_t before = find_part(arena, memory);
    return before < arena->count ? before + 1 : 0;
}

static int alloc_locked(struct dev_arena *arena, size_t bytes, void **out)
{
    size_t left = arena->budget_bytes - arena->used_bytes;
    size_t rounded = bytes > left ? bytes : core_round_up(bytes, DEV_ALIGN_BYTES);
    size_t offset = 0;
    int rc = grow(arena);
    if (rc != 0) {
        return rc;
    }
    const bool apart = arena->source.alloc != NULL;
    size_t index = rounded > left ? SIZE_MAX
                   : apart        ? take_part(arena, bytes, &offset, &rc)
                                  : find_gap(arena, rounded, &offset);
    if (rc != 0) {
        return rc;
    }
    if (index > arena->count) {
        return core_err_set(-ENOMEM,
                            "%zu bytes do not fit: %zu of the budget of %zu bytes are in use by "
                            "%zu allocations, the largest gap is %zu bytes",
                            bytes, arena->used_bytes, arena->budget_bytes, arena->count,
                            largest_bytes(arena));
    }
    struct dev_arena_part *at = &arena->parts[index];
    memmove(at + 1, at, (arena->count - index) * sizeof *at);
    *at = (struct dev_arena_part){.offset = offset, .bytes = rounded};
    arena->count++;
    arena->used_bytes += rounded;
    if (arena->used_bytes > arena->peak_bytes) {
        arena->peak_bytes = arena->used_bytes;
    }
    unpoison(arena, offset, bytes);
    *out = address_of(arena, at);
    return 0;
}

int dev_arena_alloc(struct dev_arena *arena, size_t bytes, void **out)
{
    if (bytes == 0) {
        return core_err_set(-EINVAL, "0 bytes cannot be allocated");
    }
    pthread_mutex_lock(&arena->lock);
    int rc = alloc_locked(arena, bytes, out);
    pthread_mutex_unlock(&arena->lock);
    return rc;
}

void dev_arena_free(struct dev_arena *arena, void *memory)
{
    if (memory == NULL) {
        return;
    }
    pthread_mutex_lock(&arena->lock);
    size_t index = find_part(arena, memory);
    assert(index < arena->count && address_of(arena, &arena->parts[index]) == memory);
    struct dev_arena_part *part = &arena->parts[index];
    if (arena->source.alloc != NULL) {
        arena->source.free(arena->source.context, memory);
    }
    poison(arena, part->offset, part->bytes);
    arena->used_bytes -= part->bytes;
    arena->count--;
    memmove(part, part + 1, (arena->count - index) * sizeof *part);
    pthread_mutex_unlock(&arena->lock);
}

void dev_arena_report(struct dev_arena *arena, struct dev_memory *out)
{
    pthread_mutex_lock(&arena->lock);
    *out = (struct dev_memory){
        .budget_bytes = arena->budget_bytes,
        .used_bytes = arena->used_bytes,
        .peak_bytes = arena->peak_bytes,
        .largest_bytes = largest_bytes(arena),
        .count = (unsigned)arena->count,
    };
    pthread_mutex_unlock(&arena->lock);
}

bool dev_arena_holds(struct dev_arena *arena, const void *memory, size_t bytes)
{
    if (arena->source.alloc != NULL) {
        pthread_mutex_lock(&arena->lock);
        const size_t index = find_part(arena, memory);
        const struct dev_arena_part *part = index < arena->count ? &arena->parts[index] : NULL;
        const bool holds = part != NULL && (uintptr_t)memory - part->offset <= part->bytes &&
                           bytes <= part->bytes - ((uintptr_t)memory - part->offset);
        pthread_mutex_unlock(&arena->lock);
        return holds;
    }
    uintptr_t into = (uintptr_t)memory - (uintptr_t)arena->base;
    return into <= arena->range_bytes && bytes <= arena->range_bytes - into;
}
