/* mem_arena.c: a sorted table of blocks; what lies between two of them is free.
 * Looking for a gap is linear and happens at create time only. Under
 * AddressSanitizer everything that is not a block is poisoned. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/base/poison.h"

struct core_arena {
    char name[CORE_ARENA_NAME_BYTES];
    unsigned char *base; /* borrowed from the caller of create */
    uint64_t bytes;
    uint32_t blocks_max;
    uint32_t count;
    struct core_arena_block blocks[]; /* [blocks_max], the first `count` in order of offset */
};

int core_arena_create(const char *name, void *base, uint64_t bytes, uint32_t blocks_max,
                      struct core_arena **out)
{
    if (base == NULL || bytes == 0 || (uintptr_t)base % CORE_ARENA_ALIGN != 0) {
        return core_err_set(
            -EINVAL, "arena %s needs memory aligned to %d bytes; it got %" PRIu64 " bytes at %p",
            name, CORE_ARENA_ALIGN, bytes, base);
    }
    struct core_arena *arena = malloc(sizeof *arena +
                                      (size_t)blocks_max * sizeof(struct core_arena_block));
    if (arena == NULL) {
        return core_err_set(-ENOMEM, "no memory for the table of %u blocks of arena %s", blocks_max,
                            name);
    }
    *arena = (struct core_arena){.base = base, .bytes = bytes, .blocks_max = blocks_max};
    snprintf(arena->name, sizeof arena->name, "%s", name);
    core_poison(base, bytes);
    *out = arena;
    return 0;
}

void core_arena_destroy(struct core_arena *arena)
{
    if (arena != NULL) {
        core_unpoison(arena->base, arena->bytes);
        free(arena);
    }
}

/* The first multiple of `align` from `end` on; UINT64_MAX where there is none. */
static uint64_t align_up(uint64_t end, uint64_t align)
{
    return end > UINT64_MAX - (align - 1) ? UINT64_MAX : (end + align - 1) & ~(align - 1);
}

uint64_t core_arena_after(uint64_t end, uint64_t bytes, uint64_t align)
{
    uint64_t start = align_up(end, align != 0 ? align : CORE_ARENA_ALIGN);
    uint64_t last;
    if (start == UINT64_MAX || __builtin_add_overflow(start, bytes, &last) ||
        __builtin_add_overflow(last, CORE_ARENA_RED_BYTES, &last)) {
        return UINT64_MAX;
    }
    return last;
}

struct gap {
    uint64_t end;   /* of the block in front, red zone included */
    uint64_t limit; /* the start of the one behind, or the arena's end */
};

/* The gap in front of block `index`, or behind the last one. */
static struct gap gap_at(const struct core_arena *arena, uint32_t index)
{
    const struct core_arena_block *front = index > 0 ? &arena->blocks[index - 1] : NULL;
    return (struct gap){
        .end = front != NULL ? front->offset + front->bytes + CORE_ARENA_RED_BYTES : 0,
        .limit = index < arena->count ? arena->blocks[index].offset : arena->bytes,
    };
}

/* Whether a block fits into a gap, and where it starts then. */
static bool fits(const struct core_arena *arena, struct gap gap, uint64_t bytes, uint64_t align,
                 uint64_t *start)
{
    uintptr_t base = (uintptr_t)arena->base;
    *start = align_up(base + gap.end, align) - base;
    uint64_t last = core_arena_after(*start, bytes, 1);
    return *start >= gap.end && last <= gap.limit && last > *start;
}

/* The index at which a block goes in, and its offset: behind the last one, as planned, else in the
 * first gap that is enough; -ENOMEM where there is none. */
static int find_place(const struct core_arena *arena, uint64_t bytes, uint64_t align,
                      uint64_t *offset)
{
    if (fits(arena, gap_at(arena, arena->count), bytes, align, offset)) {
        return (int)arena->count;
    }
    for (uint32_t i = 0; i < arena->count; i++) {
        if (fits(arena, gap_at(arena, i), bytes, align, offset)) {
            return (int)i;
        }
    }
    return -ENOMEM;
}

int core_arena_cut(struct core_arena *arena, const char *name, uint64_t bytes, uint64_t align,
                   void **out)
{
    align = align != 0 ? align : CORE_ARENA_ALIGN;
    if (bytes == 0 || (align & (align - 1)) != 0) {
        return core_err_set(
            -EINVAL, "block %s of arena %s cannot have %" PRIu64 " bytes aligned to %" PRIu64, name,
            arena->name, bytes, align);
    }
    if (arena->count == arena->blocks_max) {
        return core_err_set(-ENOMEM, "arena %s already has its %u blocks; %s is one more",
                            arena->name, arena->blocks_max, name);
    }
    uint64_t offset = 0;
    int index = find_place(arena, bytes, align, &offset);
    if (index < 0) {
        return core_err_set(-ENOMEM,
                            "block %s does not fit in arena %s: %" PRIu64 " bytes, used %" PRIu64
                            " in %u blocks, asked %" PRIu64 " aligned to %" PRIu64,
                            name, arena->name, arena->bytes, core_arena_used(arena), arena->count,
                            bytes, align);
    }
    struct core_arena_block *block = &arena->blocks[index];
    memmove(block + 1, block, (arena->count - (uint32_t)index) * sizeof *block);
    snprintf(block->name, sizeof block->name, "%s", name);
    block->offset = offset;
    block->bytes = bytes;
    arena->count++;
    core_unpoison(arena->base + offset, bytes);
    *out = arena->base + offset;
    return 0;
}

void core_arena_free(struct core_arena *arena, void *start)
{
    if (start == NULL) {
        return;
    }
    uint32_t index = 0;
    while (index < arena->count && arena->base + arena->blocks[index].offset != start) {
        index++;
    }
    assert(index < arena->count);
    struct core_arena_block *block = &arena->blocks[index];
    core_poison(start, block->bytes);
    memmove(block, block + 1, (arena->count - index - 1) * sizeof *block);
    arena->count--;
}

void core_arena_reset(struct core_arena *arena)
{
    arena->count = 0;
    core_poison(arena->base, arena->bytes);
}

const struct core_arena_block *core_arena_at(const struct core_arena *arena, uint32_t index)
{
    return index < arena->count ? &arena->blocks[index] : NULL;
}

uint64_t core_arena_used(const struct core_arena *arena)
{
    uint64_t used = 0;
    for (uint32_t i = 0; i < arena->count; i++) {
        used += arena->blocks[i].bytes;
    }
    return used;
}
