/* Proves arenas: blocks lie where the plan says, never overlap, and defects end. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/mem.h"
#include "core/base/rng.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"

/* Blocks laid out in order end where core_arena_after says; one byte more does not fit. */
static void arena_is_planned(void)
{
    const uint64_t sizes[] = {1, 64, 100, 4096, 3};
    const uint64_t aligns[] = {0, 0, 4096, 64, 8};
    uint64_t end = 0;
    for (size_t i = 0; i < 5; i++) {
        end = core_arena_after(end, sizes[i], aligns[i]);
    }
    check_true(CORE_ARENA_RED_BYTES != 0 || end == 4096 + 100 + 28 + 4096 + 3);
    unsigned char *memory = aligned_alloc(4096, 65536);
    check_true(memory != NULL);
    struct core_arena *arena = NULL;
    check_int(core_arena_create("HOST", memory, end, 5, &arena), ==, 0);
    void *block[5];
    for (size_t i = 0; i < 5; i++) {
        char name[8];
        snprintf(name, sizeof name, "b%zu", i);
        check_int(core_arena_cut(arena, name, sizes[i], aligns[i], &block[i]), ==, 0);
        check_int((uintptr_t)block[i] % (aligns[i] != 0 ? aligns[i] : 64), ==, 0);
        memset(block[i], (int)i, sizes[i]);
        const struct core_arena_block *at = core_arena_at(arena, (uint32_t)i);
        check_string(at->name, name);
        check_int(at->bytes, ==, sizes[i]);
        check_true(memory + at->offset == block[i]);
    }
    check_true(core_arena_at(arena, 5) == NULL);
    check_int(core_arena_used(arena), ==, 1 + 64 + 100 + 4096 + 3);
    void *more = NULL;
    check_int(core_arena_cut(arena, "more", 1, 0, &more), ==, -ENOMEM);
    check_contains(core_err_sentence(), "arena HOST already has its 5 blocks; more is one more");
    core_arena_free(arena, block[4]);
    check_int(core_arena_cut(arena, "more", 4096, 8, &more), ==, -ENOMEM);
    check_contains(core_err_sentence(), "block more does not fit in arena HOST");
    check_contains(core_err_sentence(), "asked 4096 aligned to 8");
    check_int(core_arena_cut(arena, "more", 3, 8, &more), ==, 0);
    check_true(more == block[4]);
    core_arena_reset(arena);
    check_int(core_arena_used(arena), ==, 0);
    check_int(core_arena_cut(arena, "whole", end - CORE_ARENA_RED_BYTES, 0, &more), ==, 0);
    core_arena_free(arena, NULL);
    core_arena_destroy(arena);
    core_arena_destroy(NULL);
    free(memory);
}

/* Random cuts and frees in any order: no two blocks overlap, none leaves the arena, and the table
 * stays in order. */
static void arena_never_overlaps(void)
{
    enum { BYTES = 1 << 20, LIVE = 64 };
    unsigned char *memory = aligned_alloc(64, BYTES);
    check_true(memory != NULL);
    struct core_arena *arena = NULL;
    check_int(core_arena_create("any", memory, BYTES, LIVE, &arena), ==, 0);
    unsigned char *live[LIVE] = {NULL};
    for (uint64_t step = 0; step < 20000; step++) {
        struct core_rng_words r = core_rng_philox(1, 2, step);
        unsigned at = r.word[0] % LIVE;
        if (live[at] != NULL) {
            check_int(*live[at], ==, at);
            core_arena_free(arena, live[at]);
            live[at] = NULL;
            continue;
        }
        void *block = NULL;
        uint64_t bytes = 1 + r.word[1] % (BYTES / 20);
        uint64_t align = UINT64_C(1) << r.word[2] % 13;
        if (core_arena_cut(arena, "x", bytes, align, &block) == 0) {
            check_int((uintptr_t)block % align, ==, 0);
            live[at] = block;
            *live[at] = (unsigned char)at;
        }
        uint64_t end = 0;
        const struct core_arena_block *one;
        for (uint32_t i = 0; step % 64 == 0 && (one = core_arena_at(arena, i)) != NULL; i++) {
            check_int(one->offset, >=, end);
            end = one->offset + one->bytes + CORE_ARENA_RED_BYTES;
            check_int(end, <=, BYTES);
        }
    }
    core_arena_destroy(arena);
    free(memory);
}

static void arena_refuses(void)
{
    static _Alignas(64) unsigned char memory[1024];
    struct core_arena *arena = NULL;
    void *block = NULL;
    check_int(core_arena_create("odd", memory + 1, 512, 4, &arena), ==, -EINVAL);
    check_int(core_arena_create("none", NULL, 512, 4, &arena), ==, -EINVAL);
    check_int(core_arena_create("empty", memory, 0, 4, &arena), ==, -EINVAL);
    check_true(arena == NULL);
    check_int(core_arena_create("a", memory, sizeof memory, 4, &arena), ==, 0);
    check_int(core_arena_cut(arena, "zero", 0, 0, &block), ==, -EINVAL);
    check_int(core_arena_cut(arena, "align", 8, 24, &block), ==, -EINVAL);
    check_int(core_arena_cut(arena, "big", UINT64_MAX - 8, 0, &block), ==, -ENOMEM);
    check_uint(core_arena_after(UINT64_MAX - 70, 64, 64), ==, UINT64_MAX);
    check_uint(core_arena_after(0, UINT64_MAX, 64), ==, UINT64_MAX);
    core_arena_destroy(arena);
}

static int write_behind(void *argument)
{
    struct core_arena *arena = argument;
    void *block = NULL;
    core_arena_cut(arena, "x", 64, 0, &block);
    volatile unsigned char *at = block;
    at[64] = 1;
    return 0;
}

static int free_twice(void *argument)
{
    struct core_arena *arena = argument;
    void *block = NULL;
    core_arena_cut(arena, "x", 64, 0, &block);
    core_arena_free(arena, block);
    core_arena_free(arena, block);
    return 0;
}

/* A write behind a block is caught where the sanitizer is built in; a double free always is. */
static void arena_catches_defects(void)
{
    static _Alignas(64) unsigned char memory[4096];
    struct core_arena *arena = NULL;
    check_int(core_arena_create("a", memory, sizeof memory, 4, &arena), ==, 0);
    check_int(test_child(free_twice, arena), ==, 256 + SIGABRT);
    if (CORE_POISON_ON) {
        check_int(test_child(write_behind, arena), !=, 0);
    }
    core_arena_destroy(arena);
}

TEST_MAIN({"arena_is_planned", arena_is_planned}, {"arena_never_overlaps", arena_never_overlaps},
          {"arena_refuses", arena_refuses}, {"arena_catches_defects", arena_catches_defects})
