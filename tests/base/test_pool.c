/* Proves pool and ring: a slot has one owner and an item arrives once, in order, under threads too;
 * defects end. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/poison.h"
#include "core/base/pool.h"
#include "core/base/ring.h"
#include "core/base/team.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"

enum { COUNT = 5, SLOT_BYTES = 64, STRIDE_BYTES = 128 };

static _Alignas(64) unsigned char memory[COUNT * STRIDE_BYTES];

static struct core_pool *make_pool(void)
{
    struct core_pool *pool = NULL;
    struct core_pool_options options = {.name = "slots",
                                        .base = memory,
                                        .count = COUNT,
                                        .slot_bytes = SLOT_BYTES,
                                        .stride_bytes = STRIDE_BYTES};
    check_int(core_pool_create(&options, &pool), ==, 0);
    return pool;
}

/* All slots come out once, then -EAGAIN; given slots come back, the last one first. */
static void slots_come_once(void)
{
    struct core_pool *pool = make_pool();
    check_int(core_pool_count(pool), ==, COUNT);
    check_int(core_pool_slot_bytes(pool), ==, SLOT_BYTES);
    void *slot[COUNT];
    unsigned seen = 0;
    for (int i = 0; i < COUNT; i++) {
        check_int(core_pool_take(pool, &slot[i]), ==, 0);
        uint32_t index = core_pool_index(pool, slot[i]);
        check_true(core_pool_slot(pool, index) == slot[i]);
        check_true(slot[i] == memory + index * STRIDE_BYTES);
        memset(slot[i], i, SLOT_BYTES);
        seen |= 1u << index;
    }
    check_int(seen, ==, 31);
    check_int(core_pool_left(pool), ==, 0);
    void *none = memory;
    check_int(core_pool_take(pool, &none), ==, -EAGAIN);
    check_true(none == memory);
    core_pool_give(pool, slot[2]);
    core_pool_give(pool, slot[4]);
    check_int(core_pool_left(pool), ==, 2);
    void *again = NULL;
    check_int(core_pool_take(pool, &again), ==, 0);
    check_true(again == slot[4]);
    check_int(core_pool_take(pool, &again), ==, 0);
    check_true(again == slot[2]);
    for (int i = 0; i < COUNT; i++) {
        core_pool_give(pool, slot[i]);
    }
    core_pool_destroy(pool);
    core_pool_destroy(NULL);
}

struct crowd {
    struct core_pool *pool; /* borrowed */
    _Atomic int owner[COUNT];
    _Atomic int clashes;
    _Atomic int taken;
};

static void crowd_part(void *argument, unsigned index, unsigned count)
{
    struct crowd *crowd = argument;
    (void)count;
    for (int i = 0; i < 20000; i++) {
        void *slot = NULL;
        if (core_pool_take(crowd->pool, &slot) != 0) {
            continue;
        }
        uint32_t at = core_pool_index(crowd->pool, slot);
        crowd->clashes += atomic_exchange(&crowd->owner[at], (int)index + 1) != 0;
        uint64_t *plain = slot; /* no atomic: the sanitizer sees whether giving orders it */
        *plain += 1;
        crowd->taken++;
        crowd->owner[at] = 0;
        core_pool_give(crowd->pool, slot);
    }
}

/* Six threads at five slots: never two owners, nothing lost, and plain writes are ordered. */
static void threads_never_share(void)
{
    memset(memory, 0, sizeof memory);
    struct crowd crowd = {.pool = make_pool()};
    struct core_team *team = NULL;
    check_int(core_team_create(&(struct core_team_options){.count = 6}, &team), ==, 0);
    core_team_run(team, crowd_part, &crowd);
    core_team_destroy(team);
    check_int(crowd.clashes, ==, 0);
    check_int(core_pool_left(crowd.pool), ==, COUNT);
    core_pool_destroy(crowd.pool);
    uint64_t sum = 0;
    for (int i = 0; i < COUNT; i++) {
        uint64_t plain;
        memcpy(&plain, memory + i * STRIDE_BYTES, sizeof plain);
        sum += plain;
    }
    check_int(sum, ==, crowd.taken);
}

static int give_twice(void *argument)
{
    void *slot = NULL;
    core_pool_take(argument, &slot);
    core_pool_give(argument, slot);
    core_pool_give(argument, slot);
    return 0;
}

static int give_stranger(void *argument)
{
    core_pool_give(argument, memory + 8);
    return 0;
}

static int destroy_early(void *argument)
{
    void *slot = NULL;
    core_pool_take(argument, &slot);
    core_pool_destroy(argument);
    return 0;
}

static int use_after_give(void *argument)
{
    void *slot = NULL;
    core_pool_take(argument, &slot);
    core_pool_give(argument, slot);
    *(volatile unsigned char *)slot = 1;
    return 0;
}

/* Giving twice, giving a stranger and leaving with a slot end the process at the place. */
static void defects_end(void)
{
    struct core_pool *pool = make_pool();
    check_int(test_child(give_twice, pool), ==, 256 + SIGABRT);
    check_int(test_child(give_stranger, pool), ==, 256 + SIGABRT);
    check_int(test_child(destroy_early, pool), ==, 256 + SIGABRT);
    if (CORE_POISON_ON) {
        check_int(test_child(use_after_give, pool), !=, 0);
    }
    core_pool_destroy(pool);
}

static void bad_options_are_refused(void)
{
    struct core_pool *pool = NULL;
    const struct core_pool_options bad[] = {
        {.name = "bad", .base = memory, .count = 0, .slot_bytes = 64},
        {.name = "bad", .base = NULL, .count = 1, .slot_bytes = 64},
        {.name = "bad", .base = memory, .count = 1, .slot_bytes = 0},
        {.name = "bad", .base = memory, .count = 1, .slot_bytes = 12},
        {.name = "bad", .base = memory, .count = 1, .slot_bytes = 64, .stride_bytes = 32},
        {.name = "bad", .base = memory, .count = 1u << 31, .slot_bytes = UINT64_C(1) << 40},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_int(core_pool_create(&bad[i], &pool), ==, -EINVAL);
        check_contains(core_err_sentence(), "pool bad cannot have");
    }
    check_true(pool == NULL);
}

/* Full at its depth, empty at nothing, and items of every odd size come out as they went in. */
static void ring_is_bounded(void)
{
    const uint32_t sizes[] = {1, 3, 8, 100, CORE_RING_ITEM_BYTES_MAX};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        struct core_ring *ring = NULL;
        static unsigned char item[CORE_RING_ITEM_BYTES_MAX];
        static unsigned char back[CORE_RING_ITEM_BYTES_MAX];
        check_int(core_ring_create(5, sizes[s], &ring), ==, 0);
        check_int(core_ring_depth(ring), ==, 8);
        check_int(core_ring_get(ring, back), ==, -EAGAIN);
        for (int round = 0; round < 20; round++) {
            for (int i = 0; i < 8; i++) {
                memset(item, round + i, sizes[s]);
                check_int(core_ring_put(ring, item), ==, 0);
            }
            check_int(core_ring_put(ring, item), ==, -EAGAIN);
            check_int(core_ring_count(ring), ==, 8);
            for (int i = 0; i < 8; i++) {
                memset(item, round + i, sizes[s]);
                check_int(core_ring_get(ring, back), ==, 0);
                check_memory(item, back, sizes[s]);
            }
        }
        check_int(core_ring_count(ring), ==, 0);
        core_ring_destroy(ring);
    }
    struct core_ring *ring = NULL;
    check_int(core_ring_create(0, 8, &ring), ==, -EINVAL);
    check_int(core_ring_create(8, 0, &ring), ==, -EINVAL);
    check_int(core_ring_create(8, CORE_RING_ITEM_BYTES_MAX + 1, &ring), ==, -EINVAL);
    check_int(core_ring_create(UINT32_MAX, 8, &ring), ==, -EINVAL);
    check_contains(core_err_sentence(), "4294967295 items of 8 bytes");
    check_true(ring == NULL);
    core_ring_destroy(NULL);
}

struct pipe {
    struct core_ring *ring; /* borrowed */
    uint64_t plain;         /* ordered by the ring alone */
    uint64_t wrong;
};

enum { PIPE_ITEMS = 100000 };

static void pipe_part(void *argument, unsigned index, unsigned count)
{
    struct pipe *pipe = argument;
    (void)count;
    for (uint64_t i = 0; i < PIPE_ITEMS; i++) {
        uint64_t item[3] = {i, ~i, i * i};
        if (index == 0) {
            if (i == 0) {
                pipe->plain = 77;
            }
            while (core_ring_put(pipe->ring, item) != 0) {
                sched_yield();
            }
            continue;
        }
        uint64_t got[3];
        while (core_ring_get(pipe->ring, got) != 0) {
            sched_yield();
        }
        pipe->wrong += memcmp(got, item, sizeof item) != 0 || (i == 0 && pipe->plain != 77);
    }
}

/* A hundred thousand items between two threads arrive once and in order, with what was written. */
static void ring_keeps_order(void)
{
    struct pipe pipe = {0};
    check_int(core_ring_create(16, 24, &pipe.ring), ==, 0);
    struct core_team *team = NULL;
    check_int(core_team_create(&(struct core_team_options){.count = 2}, &team), ==, 0);
    core_team_run(team, pipe_part, &pipe);
    core_team_destroy(team);
    check_int(pipe.wrong, ==, 0);
    check_int(core_ring_count(pipe.ring), ==, 0);
    core_ring_destroy(pipe.ring);
}

TEST_MAIN({"slots_come_once", slots_come_once}, {"threads_never_share", threads_never_share},
          {"defects_end", defects_end}, {"bad_options_are_refused", bad_options_are_refused},
          {"ring_is_bounded", ring_is_bounded}, {"ring_keeps_order", ring_keeps_order})
