/* test_model.c: a cache has the results of a plain table in memory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/sysfile.h"
#include "tests/cache/case.h"

enum { BLOCKS = 24, BLOCK_MAX = 300 << 10, FLIGHTS = 6 };

struct model {
    uint64_t bytes; /* 0: no such block */
    uint64_t version;
};

/* An operation in flight. */
struct flight {
    bool open, gets;
    uint64_t token;
    unsigned block;
    struct model expected;
    unsigned char *memory, *at;
};

struct world {
    struct cache *cache;
    uint64_t seed, versions;
    struct model blocks[BLOCKS];
    struct flight flights[FLIGHTS];
    struct cache_result pinned; /* NULL data: nothing is pinned */
    unsigned pinned_block;
};

static void ok(const struct world *world, int rc, const char *what)
{
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "%s: %d: %s (%" PRIu64 " puts)", what, rc, core_err_message(),
                  world->versions);
    }
}

static void land(struct world *world, struct flight *flight)
{
    struct cache_result result = {.data = NULL};
    if (!flight->open) {
        return;
    }
    flight->open = false;
    ok(world, cache_wait(world->cache, flight->token, &result), flight->gets ? "get" : "put");
    if (flight->gets) {
        check_uint(result.bytes, ==, flight->expected.bytes);
        check_true(result.data == flight->at);
        check_true(case_has(flight->at, result.bytes, flight->block, flight->expected.version));
    }
}

static struct flight *start(struct world *world, unsigned block, bool gets)
{
    struct flight *flight = &world->flights[case_random(&world->seed, FLIGHTS)];
    land(world, flight);
    flight->open = true;
    flight->gets = gets;
    flight->block = block;
    flight->at = flight->memory + (case_random(&world->seed, 2) != 0 ? 0 : 13);
    return flight;
}

static bool is_pinned(const struct world *world, unsigned block)
{
    return world->pinned.data != NULL && world->pinned_block == block;
}

static void put(struct world *world, unsigned block)
{
    static const uint64_t sizes[] = {4096, 64 << 10, 256 << 10};
    struct flight *flight = start(world, block, false);
    struct model *model = &world->blocks[block];
    model->bytes = case_random(&world->seed, 2) != 0 ? sizes[case_random(&world->seed, 3)]
                                                     : 1 + case_random(&world->seed, BLOCK_MAX);
    model->version = ++world->versions;
    flight->expected = *model;
    case_fill(flight->at, model->bytes, block, model->version);
    ok(world,
       cache_put(world->cache,
                 &(struct cache_request){.name = case_name(block),
                                         .from = flight->at,
                                         .bytes = model->bytes,
                                         .background = case_random(&world->seed, 3) == 0,
                                         .through = case_random(&world->seed, 3) == 0},
                 &flight->token),
       "put");
}

static void get(struct world *world, unsigned block)
{
    struct flight *flight = start(world, block, true);
    flight->expected = world->blocks[block];
    memset(flight->memory, 0, BLOCK_MAX + 13);
    ok(world,
       cache_get(world->cache,
                 &(struct cache_request){.name = case_name(block),
                                         .to = flight->at,
                                         .bytes = BLOCK_MAX,
                                         .background = case_random(&world->seed, 3) == 0},
                 &flight->token),
       "get");
}

static void pin(struct world *world, unsigned block)
{
    if (world->pinned.data != NULL) {
        struct model *model = &world->blocks[world->pinned_block];
        const bool changes = case_random(&world->seed, 2) != 0;
        check_true(case_has(world->pinned.data, model->bytes, world->pinned_block, model->version));
        if (changes) {
            /* Ends operations that could read half-written bytes. */
            for (unsigned i = 0; i < FLIGHTS; i++) {
                land(world, &world->flights[i]);
            }
            model->version = ++world->versions;
            case_fill(world->pinned.data, model->bytes, world->pinned_block, model->version);
        }
        ok(world, cache_release(world->cache, case_name(world->pinned_block), changes), "release");
        world->pinned.data = NULL;
        return;
    }
    ok(world, case_get(world->cache, block, NULL, 0, &world->pinned), "pin");
    world->pinned_block = block;
    check_uint(world->pinned.bytes, ==, world->blocks[block].bytes);
}

static void operate(struct world *world)
{
    const unsigned block = (unsigned)case_random(&world->seed, BLOCKS);
    const bool here = world->blocks[block].bytes > 0;
    const uint64_t kind = case_random(&world->seed, 20);
    if (kind < 6 && !is_pinned(world, block)) {
        put(world, block);
    } else if (kind < 13 && here) {
        get(world, block);
    } else if (kind < 16 && here) {
        pin(world, block);
    } else if (kind < 17 && here && !is_pinned(world, block)) {
        ok(world, case_drop(world->cache, block), "drop");
        world->blocks[block].bytes = 0;
    } else if (kind < 19) {
        const int rc = cache_prefetch(world->cache, case_name(block));
        check_int(rc, ==, here ? 0 : -ENOENT);
    } else if (case_random(&world->seed, 4) == 0) {
        ok(world, cache_iteration(world->cache), "iteration");
    }
}

static void check_all(struct world *world)
{
    static unsigned char *memory;
    struct cache_stats stats;
    memory = memory != NULL ? memory : case_memory(BLOCK_MAX);
    for (unsigned i = 0; i < FLIGHTS; i++) {
        land(world, &world->flights[i]);
    }
    for (unsigned block = 0; block < BLOCKS; block++) {
        const struct model *model = &world->blocks[block];
        struct cache_result result;
        const int rc = case_get(world->cache, block, memory, BLOCK_MAX, &result);
        check_int(rc, ==, model->bytes > 0 ? 0 : -ENOENT);
        if (rc == 0) {
            check_uint(result.bytes, ==, model->bytes);
            check_true(case_has(memory, model->bytes, block, model->version));
        }
    }
    cache_stats_take(world->cache, &stats);
    check_uint(stats.host_peak_bytes, <=, stats.host_bytes);
}

static void run(uint64_t seed, const struct cache_case *given, unsigned operations)
{
    static struct world world;
    static unsigned char *memory[FLIGHTS];
    world = (struct world){.cache = case_open(given), .seed = seed};
    for (unsigned i = 0; i < FLIGHTS; i++) {
        memory[i] = memory[i] != NULL ? memory[i] : case_memory(BLOCK_MAX + 13);
        world.flights[i].memory = memory[i];
    }
    for (unsigned i = 0; i < operations; i++) {
        operate(&world);
        if (i % 500 == 499) {
            check_all(&world);
        }
    }
    check_all(&world);
    check_int(cache_destroy(world.cache), ==, 0);
}

static void sequences(void)
{
    for (unsigned i = 0; i < TEST_COUNT(16, 4); i++) {
        run(i,
            &(struct cache_case){.host_bytes = MIB, .store_bytes = 32 * MIB, .no_sums = i % 4 == 3},
            TEST_COUNT(3000, 700));
    }
}

/* Some completions are late or reordered, and some transfers are short. */
static void sequences_on_a_slow_drive(void)
{
    for (unsigned i = 0; i < TEST_COUNT(10, 2); i++) {
        struct aio_fault fault = {.seed = i,
                                  .rules_count = 3,
                                  .rules = {{.kind = AIO_FAULT_LATE, .one_in = 3},
                                            {.kind = AIO_FAULT_REORDER, .one_in = 5},
                                            {.kind = AIO_FAULT_SHORT, .one_in = 7}}};
        run(100 + i,
            &(struct cache_case){.host_bytes = MIB, .store_bytes = 32 * MIB, .fault = &fault},
            TEST_COUNT(1500, 500));
    }
}

static void sequences_in_a_directory(void)
{
    run(200,
        &(struct cache_case){
            .host_bytes = MIB, .store_bytes = 32 * MIB, .directory = test_path("store")},
        TEST_COUNT(3000, 700));
}

/* Without a store, blocks must fit into memory. */
static void memory_alone(void)
{
    unsigned char *memory = case_memory(MIB);
    struct cache *cache = case_open(&(struct cache_case){.host_bytes = MIB});
    case_fill(memory, 600 << 10, 0, 1);
    check_int(case_put(cache, 0, memory, 600 << 10, false), ==, 0);
    check_int(case_put(cache, 1, memory, 600 << 10, true), ==, -ENOMEM);
    check_contains(core_err_message(), "block 1: 614400 bytes of host memory are needed, 434176 of "
                                       "1048576 are free, and no store is given for the rest");
    check_int(case_get(cache, 1, NULL, 0, NULL), ==, -ENOENT);
    check_int(case_put(cache, 0, memory, 400 << 10, false), ==, 0);
    check_int(case_put(cache, 1, memory, 500 << 10, true), ==, 0);
    check_int(case_get(cache, 0, memory, MIB, NULL), ==, 0);
    check_int(cache_destroy(cache), ==, 0);
}

/* With a full store, a new block is refused and no block is lost. */
static void full(void)
{
    enum { BYTES = 256 << 10, ALL = (4 + 2) * MIB / BYTES };
    unsigned char *memory = case_memory(BYTES);
    struct cache *cache = case_open(
        &(struct cache_case){.host_bytes = 2 * MIB, .store_bytes = 4 * MIB});
    for (unsigned i = 0; i < ALL; i++) {
        case_fill(memory, BYTES, i, 1);
        check_int(case_put(cache, i, memory, BYTES, false), ==, 0);
    }
    check_int(case_put(cache, ALL, memory, BYTES, false), ==, -ENOSPC);
    check_contains(core_err_message(), "block 24: 262144 bytes of host memory are needed, 0 of "
                                       "2097152 are free, and no more can be written to the store");
    check_contains(core_err_message(), "262144 bytes are needed, 0 of 4194304 are free");
    check_int(case_put(cache, ALL, memory, BYTES, true), ==, -ENOSPC);
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < ALL; i++) {
            check_int(case_get(cache, i, memory, BYTES, NULL), ==, 0);
            check_true(case_has(memory, BYTES, i, 1 + round));
            case_fill(memory, BYTES, i, 2 + round);
            check_int(case_put(cache, i, memory, BYTES, i % 2 == 0), ==, 0);
        }
    }
    check_int(case_put(cache, 0, memory, BYTES + 1, false), ==, -ENOSPC);
    check_int(case_drop(cache, 3), ==, 0);
    check_int(case_put(cache, ALL, memory, BYTES, false), ==, 0);
    check_int(cache_destroy(cache), ==, 0);
}

static void refusals(void)
{
    static char long_name[CACHE_NAME_MAX + 2];
    unsigned char *memory = case_memory(MIB);
    struct cache *cache = case_open(
        &(struct cache_case){.host_bytes = MIB, .store_bytes = 4 * MIB});
    struct cache_result result;
    struct cache_look look;
    uint64_t token = 0;
    memset(long_name, 'n', CACHE_NAME_MAX + 1);
    check_int(
        cache_put(cache, &(struct cache_request){.name = "", .from = memory, .bytes = 1}, &token),
        ==, -EINVAL);
    check_int(cache_put(cache,
                        &(struct cache_request){.name = long_name, .from = memory, .bytes = 1},
                        &token),
              ==, -EINVAL);
    check_contains(core_err_message(), "1 to 255 bytes");
    check_int(case_put(cache, 1, memory, 0, false), ==, -EINVAL);
    check_int(case_put(cache, 1, NULL, 1, false), ==, -EINVAL);
    check_int(case_put(cache, 1, memory, UINT64_MAX, false), ==, -EINVAL);
    check_int(case_get(cache, 1, memory, MIB, NULL), ==, -ENOENT);
    check_contains(core_err_message(), "block block 1 does not exist");
    check_int(cache_release(cache, "block 1", false), ==, -ENOENT);
    case_fill(memory, 5000, 1, 1);
    check_int(case_put(cache, 1, memory, 5000, false), ==, 0);
    check_int(case_get(cache, 1, memory, 4999, NULL), ==, -EINVAL);
    check_contains(core_err_message(), "block 1: the block has 5000 bytes, the buffer has 4999");
    check_int(cache_release(cache, "block 1", false), ==, -EINVAL);
    check_contains(core_err_message(), "block 1 is not pinned");
    check_int(case_get(cache, 1, NULL, 0, &result), ==, 0);
    check_int(case_get(cache, 1, NULL, 0, &result), ==, 0);
    check_int(case_put(cache, 1, memory, 5000, false), ==, -EBUSY);
    check_int(case_drop(cache, 1), ==, -EBUSY);
    check_int(cache_look(cache, "block 1", &look), ==, 0);
    check_true(look.pins == 2 && look.in_memory && !look.in_store && look.bytes == 5000);
    check_int(case_put(cache, 2, memory + 1, MIB - 4096, false), ==, -ENOMEM);
    check_contains(core_err_message(),
                   "block 2: 1044480 bytes of host memory are needed, 1040384 of "
                   "1048576 are free, and the rest is pinned or needed sooner");
    check_int(cache_release(cache, "block 1", false), ==, 0);
    check_int(cache_release(cache, "block 1", false), ==, 0);
    check_int(cache_poll(cache, 0, NULL), ==, -ENOENT);
    check_int(cache_poll(cache, 1000000, NULL), ==, -ENOENT);
    check_int(case_put(cache, 2, memory + 1, 2 * MIB, false), ==, -ENOMEM);
    check_contains(core_err_message(), "2097152 bytes of host memory are needed, the budget is");
    check_true(case_has(result.data, 5000, 1, 1));
    check_int(cache_destroy(cache), ==, 0);
    check_int(cache_create(&(struct cache_options){.host_bytes = 4095}, &cache), ==, -EINVAL);
    struct aio_store_path path = {.directory = test_path("none"), .bytes = MIB - 1};
    check_int(
        cache_create(&(struct cache_options){.host_bytes = MIB, .paths = &path, .path_count = 1},
                     &cache),
        ==, -EINVAL);
    check_contains(core_err_message(), "store 0 has a limit of 1048575 bytes");
    check_int(cache_destroy(NULL), ==, 0);
}

/* A token is valid for CACHE_TOKENS operations. */
static void tokens(void)
{
    unsigned char *memory = case_memory(4096);
    struct cache *cache = case_open(&(struct cache_case){.host_bytes = MIB});
    struct cache_result result = {.data = NULL};
    uint64_t first = 0;
    uint64_t token = 0;
    case_fill(memory, 4096, 1, 1);
    check_int(case_put(cache, 1, memory, 4096, false), ==, 0);
    const struct cache_request request = {.name = "block 1", .to = memory, .bytes = 4096};
    check_int(cache_get(cache, &request, &first), ==, 0);
    for (unsigned i = 0; i < CACHE_TOKENS - 1; i++) {
        check_int(cache_get(cache, &request, &token), ==, 0);
    }
    check_int(cache_poll(cache, first, &result), ==, 1);
    check_true(result.data == memory && result.bytes == 4096);
    check_int(cache_get(cache, &request, &token), ==, 0);
    check_int(cache_poll(cache, first, &result), ==, -ENOENT);
    check_contains(core_err_message(), "the results of the newest 1024 are kept");
    check_int(cache_destroy(cache), ==, 0);
}

static uint64_t resident_bytes(void)
{
    char text[8192];
    uint64_t bytes = 0;
    check_int(core_sysfile_text(text, sizeof text, "", "/proc/self/status"), >, 0);
    check_int(core_sysfile_field(strstr(text, "VmRSS:"), "VmRSS:", &bytes), ==, 0);
    return bytes;
}

/* Many names take little memory besides the budget. */
static void many_names(void)
{
    enum { NAMES = 30000, BYTES = 4096, BUDGET = 32 * MIB, AHEAD = 64 };
    unsigned char *memory = case_memory(AHEAD * BYTES);
    uint64_t tokens[AHEAD] = {0};
    if (TEST_SLOW) {
        test_skip("a sanitizer has memory of its own");
    }
    const uint64_t before = resident_bytes();
    struct cache *cache = case_open(&(struct cache_case){
        .host_bytes = BUDGET, .store_bytes = NAMES * BYTES, .directory = test_path("names")});
    for (unsigned i = 0; i < NAMES; i++) {
        char name[64];
        unsigned char *from = memory + i % AHEAD * BYTES;
        uint64_t *token = &tokens[i % AHEAD];
        check_true(*token == 0 || cache_wait(cache, *token, NULL) == 0);
        snprintf(name, sizeof name, "model.layers.%u.self_attention.weight", i);
        memcpy(from, name, sizeof name);
        check_int(cache_put(cache,
                            &(struct cache_request){
                                .name = name, .from = from, .bytes = BYTES, .through = i % 2 == 0},
                            token),
                  ==, 0);
    }
    for (unsigned i = 0; i < AHEAD; i++) {
        check_int(cache_wait(cache, tokens[i], NULL), ==, 0);
    }
    const uint64_t after = resident_bytes();
    test_note("%.1f MiB over the budget", ((double)after - (double)before - BUDGET) / MIB);
    check_uint(after - before, <=, BUDGET + 16 * MIB);
    struct cache_result result;
    uint64_t token = 0;
    const struct cache_request first = {.name = "model.layers.1.self_attention.weight"};
    check_int(cache_get(cache, &first, &token), ==, 0);
    check_int(cache_wait(cache, token, &result), ==, 0);
    check_string(result.data, first.name);
    check_int(cache_destroy(cache), ==, 0);
}

TEST_MAIN({"sequences", sequences}, {"sequences_on_a_slow_drive", sequences_on_a_slow_drive},
          {"sequences_in_a_directory", sequences_in_a_directory}, {"many_names", many_names},
          {"memory_alone", memory_alone}, {"full", full}, {"refusals", refusals},
          {"tokens", tokens})
