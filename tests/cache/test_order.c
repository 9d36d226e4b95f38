/* test_order.c: a recorded order of uses decides what is read ahead and evicted. The cases count
 * reads, and measure no times. */
#include <errno.h>
#include <unistd.h>

#include "core/base/err.h"
#include "tests/cache/case.h"
#include "tests/harness/heard.h"

enum { BLOCKS = 10, BYTES = 64 << 10 };

static struct cache *open_with_blocks(uint64_t slots, unsigned char *memory)
{
    struct cache *cache = case_open(
        &(struct cache_case){.host_bytes = slots * BYTES, .store_bytes = 8 * MIB});
    for (unsigned i = 0; i < BLOCKS; i++) {
        case_fill(memory, BYTES, i, 1);
        check_int(case_put(cache, i, memory, BYTES, true), ==, 0);
    }
    return cache;
}

static void use(struct cache *cache, unsigned block)
{
    struct cache_result result;
    check_int(case_get(cache, block, NULL, 0, &result), ==, 0);
    check_true(case_has(result.data, BYTES, block, 1));
    check_int(cache_release(cache, case_name(block), false), ==, 0);
}

static struct cache_stats stats_of(struct cache *cache)
{
    struct cache_stats stats;
    cache_stats_take(cache, &stats);
    return stats;
}

static bool is_in_memory(struct cache *cache, unsigned block)
{
    struct cache_look look;
    check_int(cache_look(cache, case_name(block), &look), ==, 0);
    return look.in_memory;
}

/* Waits until the block is in memory. */
static void await(struct cache *cache, unsigned block)
{
    while (!is_in_memory(cache, block)) {
        usleep(100);
    }
}

/* Without a known order, the least recently used block is evicted. */
static void least_recently_used(void)
{
    struct cache *cache = open_with_blocks(3, case_memory(BYTES));
    use(cache, 0);
    use(cache, 1);
    use(cache, 2);
    use(cache, 0);
    use(cache, 3);
    check_true(is_in_memory(cache, 0) && !is_in_memory(cache, 1) && is_in_memory(cache, 2));
    check_uint(stats_of(cache).evictions, ==, 1);
    check_int(cache_destroy(cache), ==, 0);
}

static void reads_ahead(void)
{
    struct cache *cache = open_with_blocks(4, case_memory(BYTES));
    for (unsigned iteration = 0; iteration < 5; iteration++) {
        check_int(cache_iteration(cache), ==, 0);
        const struct cache_stats before = stats_of(cache);
        for (unsigned i = 0; i < BLOCKS; i++) {
            if (iteration > 0) {
                await(cache, i);
            }
            use(cache, i);
        }
        const struct cache_stats after = stats_of(cache);
        check_uint(after.gets - before.gets, ==, BLOCKS);
        check_uint(after.hits - before.hits, ==, iteration > 0 ? BLOCKS : 0);
    }
    check_uint(stats_of(cache).prefetches, >=, 4 * (BLOCKS - 4));
    check_uint(stats_of(cache).read_bytes, <=, (5 * BLOCKS + 4) * BYTES);
    check_uint(stats_of(cache).order_changes, ==, 0);
    check_int(cache_destroy(cache), ==, 0);
}

/* Passes alternate in direction, so the last blocks of one pass are the first of the next and stay
 * in memory. */
static void evicts_the_farthest_use(void)
{
    enum { SLOTS = 4 };
    struct cache *cache = open_with_blocks(SLOTS, case_memory(BYTES));
    for (unsigned iteration = 0; iteration < 4; iteration++) {
        check_int(cache_iteration(cache), ==, 0);
        for (unsigned i = 0; i < 2 * BLOCKS; i++) {
            const unsigned block = i < BLOCKS ? i : 2 * BLOCKS - 1 - i;
            if (iteration > 0) {
                await(cache, block);
            }
            use(cache, block);
        }
    }
    /* A pass finds SLOTS - 1 blocks of the previous pass in memory. */
    check_uint(stats_of(cache).read_bytes, <=, (8 * (BLOCKS - SLOTS + 1) + SLOTS) * BYTES);
    check_uint(stats_of(cache).order_changes, ==, 0);
    check_int(cache_destroy(cache), ==, 0);
}

/* A changed order is reported once, and expected from the next iteration on. */
static void a_change_is_reported(void)
{
    test_listen(CORE_LOG_INFO);
    struct cache *cache = open_with_blocks(4, case_memory(BYTES));
    for (unsigned iteration = 0; iteration < 6; iteration++) {
        check_int(cache_iteration(cache), ==, 0);
        for (unsigned i = 0; i < BLOCKS; i++) {
            use(cache, iteration < 2 ? i : (i * 3) % BLOCKS);
        }
    }
    check_uint(stats_of(cache).order_changes, ==, 1);
    check_uint(
        test_heard_lines("the order of blocks has changed: use 2 was block 1 and is block 3 now"),
        ==, 1);
    check_int(cache_iteration(cache), ==, 0);
    use(cache, 0);
    check_int(cache_iteration(cache), ==, 0); /* the iteration ended early */
    check_uint(stats_of(cache).order_changes, ==, 2);
    check_uint(test_heard_lines("use 2 was block 3 and is the iteration's end now"), ==, 1);
    use(cache, 0);
    use(cache, 5);
    check_uint(stats_of(cache).order_changes, ==, 3);
    check_uint(test_heard_lines("use 2 was the iteration's end and is block 5 now"), ==, 1);
    test_listen_end();
    check_int(cache_destroy(cache), ==, 0);
}

/* If blocks live for an iteration, the cache keeps their order, but not their bytes. */
static void blocks_of_one_iteration(void)
{
    unsigned char *memory = case_memory(BYTES);
    struct cache *cache = case_open(
        &(struct cache_case){.host_bytes = 3 * BYTES, .store_bytes = 8 * MIB});
    for (unsigned iteration = 0; iteration < 6; iteration++) {
        check_int(cache_iteration(cache), ==, 0);
        for (unsigned i = 0; i < BLOCKS; i++) {
            case_fill(memory, BYTES, i, iteration);
            check_int(case_put(cache, i, memory, BYTES, false), ==, 0);
        }
        for (unsigned i = BLOCKS; i-- > 0;) {
            struct cache_result result;
            check_int(case_get(cache, i, NULL, 0, &result), ==, 0);
            check_true(case_has(result.data, BYTES, i, iteration));
            check_int(cache_release(cache, case_name(i), false), ==, 0);
            check_int(case_drop(cache, i), ==, 0);
            check_int(case_get(cache, i, memory, BYTES, NULL), ==, -ENOENT);
        }
    }
    const struct cache_stats stats = stats_of(cache);
    check_uint(stats.order_changes, ==, 0);
    check_uint(stats.store_used_bytes, ==, 0);
    check_uint(stats.host_used_bytes, ==, 0);
    /* The blocks that are put last need no write. */
    check_uint(stats.written_bytes, <=, 6 * (BLOCKS - 2) * BYTES);
    check_int(cache_destroy(cache), ==, 0);
}

TEST_MAIN({"least_recently_used", least_recently_used}, {"reads_ahead", reads_ahead},
          {"evicts_the_farthest_use", evicts_the_farthest_use},
          {"a_change_is_reported", a_change_is_reported},
          {"blocks_of_one_iteration", blocks_of_one_iteration})
