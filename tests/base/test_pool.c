/* Proves the pool: every slot is given out once at a time, under threads too, and defects end. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/poison.h"
#include "core/base/pool.h"
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

TEST_MAIN({"slots_come_once", slots_come_once}, {"threads_never_share", threads_never_share},
          {"defects_end", defects_end}, {"bad_options_are_refused", bad_options_are_refused})
