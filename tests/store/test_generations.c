/* test_generations.c: a chunk has the data of its last confirmed write. */
#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "offload/store/chunk.h"
#include "offload/store/store.h"
#include "tests/aio/fault.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

static const int64_t patience_ns = INT64_C(60) * 1000000000;
enum { CHUNK_BYTES = 1 << 20 };

/* ---- one chunk ---- */

/* Only the addresses are used. */
static struct aio_extent *const one = (struct aio_extent *)(uintptr_t)16;
static struct aio_extent *const two = (struct aio_extent *)(uintptr_t)32;

/* A write takes effect when it is done; the next write goes to the other extent. */
static void done_writes_count(void)
{
    struct core_line line;
    struct store_chunk chunk = {.extents = {one, two}};
    core_line_init(&line, "writes", NULL);
    check_true(store_chunk_current(&chunk) == one && store_chunk_next(&chunk) == two);
    store_chunk_wrote(&chunk, (struct core_fence){&line, 1}, false);
    check_true(store_chunk_current(&chunk) == one);
    core_line_reach(&line, 1);
    check_true(store_chunk_current(&chunk) == two && store_chunk_next(&chunk) == one);
    store_chunk_wrote(&chunk, (struct core_fence){&line, 2}, false);
    core_line_fail(&line, -EIO, "a bad day");
    check_true(store_chunk_current(&chunk) == two && store_chunk_next(&chunk) == one);
}

/* A write ahead takes effect after completion and decision, in either order. */
static void decisions_count(void)
{
    for (int order = 0; order < 2; order++) {
        for (int stands = 0; stands < 2; stands++) {
            struct core_line line;
            struct store_chunk chunk = {.extents = {one, two}};
            core_line_init(&line, "writes", NULL);
            store_chunk_wrote(&chunk, (struct core_fence){&line, 1}, true);
            check_true(store_chunk_current(&chunk) == one);
            if (order == 0) {
                core_line_reach(&line, 1);
                check_true(store_chunk_current(&chunk) == one);
                store_chunk_decide(&chunk, stands);
            } else {
                store_chunk_decide(&chunk, stands);
                check_true(store_chunk_current(&chunk) == one);
                core_line_reach(&line, 1);
            }
            check_true(store_chunk_current(&chunk) == (stands ? two : one));
            check_true(store_chunk_next(&chunk) == (stands ? one : two));
            /* no write waits for this decision */
            store_chunk_decide(&chunk, !stands);
            check_true(store_chunk_current(&chunk) == (stands ? two : one));
        }
    }
}

/* A chunk with one extent is written in place. */
static void one_extent_stays(void)
{
    struct core_line line;
    struct store_chunk chunk = {.extents = {one, NULL}};
    core_line_init(&line, "writes", NULL);
    check_true(store_chunk_next(&chunk) == one);
    store_chunk_wrote(&chunk, (struct core_fence){&line, 1}, true);
    core_line_reach(&line, 1);
    store_chunk_decide(&chunk, true);
    check_true(store_chunk_current(&chunk) == one && store_chunk_next(&chunk) == one);
}

/* A borrowed extent is read until a write takes effect; then the chunk uses its own extents. */
static void what_is_borrowed_goes(void)
{
    struct aio_extent *const other = (struct aio_extent *)(uintptr_t)48;
    for (int twice = 0; twice < 2; twice++) {
        struct core_line line;
        struct store_chunk chunk = {
            .extents = {one, twice ? two : NULL}, .adopted = other, .borrows = true};
        core_line_init(&line, "writes", NULL);
        check_true(store_chunk_current(&chunk) == other && store_chunk_next(&chunk) == one);
        if (twice) {
            store_chunk_wrote(&chunk, (struct core_fence){&line, 1}, true);
            core_line_reach(&line, 1);
            store_chunk_decide(&chunk, false); /* a wrong guess */
            check_true(store_chunk_current(&chunk) == other && store_chunk_next(&chunk) == one);
        }
        store_chunk_wrote(&chunk, (struct core_fence){&line, 2}, !twice);
        check_true(store_chunk_current(&chunk) == other);
        core_line_reach(&line, 2);
        check_true(store_chunk_current(&chunk) == one && !chunk.borrows);
        check_true(store_chunk_next(&chunk) == (twice ? two : one));
        chunk.borrows = true;
        store_chunk_wrote(&chunk, (struct core_fence){&line, 3}, false);
        core_line_fail(&line, -EIO, "a bad day");
        check_true(store_chunk_current(&chunk) == other);
    }
}

/* ---- chunks in a store ---- */

struct bench {
    struct case_model made;
    struct run_prepared *prepared;
    struct store *store;
    struct aio_queue *queue;
    unsigned char *memory;
};

static void bench_begin(struct bench *bench, struct aio_fault *fault)
{
    struct run_options options = case_options();
    case_model_make(&bench->made, "llama");
    options.stores[0] = (struct store_path){
        .directory = "unused", .weight = 1, .recipe = aio_fault_recipe(fault)};
    options.store_count = 1;
    options.budgets.store_bytes = UINT64_C(1) << 30;
    options.wishes = (struct plan_wishes){.weights = PLAN_WHERE_STORE,
                                          .states = PLAN_WHERE_STORE,
                                          .timing = PLAN_TIMING_SPECULATIVE,
                                          .chunk_elements = 65536};
    check_int(run_prepared_create(bench->made.model, &options, case_rates(), &bench->prepared), ==,
              0);
    const struct store_options store = {
        .paths = options.stores, .path_count = 1, .backend = "mem", .run = 5};
    const struct aio_queue_options queue = {.name = "test", .urgency = AIO_STATES};
    bench->memory = aligned_alloc(4096, CHUNK_BYTES);
    check_true(bench->memory != NULL);
    check_int(store_open(&store, &bench->prepared->input, bench->prepared->plan, &bench->store), ==,
              0);
    check_int(store_queue_open(bench->store, &queue, &bench->queue), ==, 0);
}

static void bench_end(struct bench *bench)
{
    (void)aio_queue_close(bench->queue);
    (void)store_close(bench->store);
    run_prepared_destroy(bench->prepared);
    case_model_free(&bench->made);
    free(bench->memory);
}

static int write_all(struct bench *bench, const struct store_place *place, unsigned char value,
                     bool ahead)
{
    struct core_fence done;
    memset(bench->memory, value, CHUNK_BYTES);
    int rc = (ahead ? store_write_ahead : store_write)(bench->store, bench->queue, place,
                                                       bench->memory, &done);
    return rc != 0 ? rc : core_fence_wait(done, patience_ns);
}

static int read_value(struct bench *bench, const struct store_place *place)
{
    struct core_fence done;
    memset(bench->memory, 255, CHUNK_BYTES);
    check_int(store_read(bench->store, bench->queue, place, bench->memory, &done), ==, 0);
    check_int(core_fence_wait(done, patience_ns), ==, 0);
    return bench->memory[100];
}

static const struct store_place weights = {STORE_WEIGHTS, 1, 0};
static const struct store_place states = {STORE_STATES, 2, 1};

/* A decision applies to a number of writes ahead, including later ones. */
static void a_store_decides(void)
{
    struct bench bench;
    bench_begin(&bench, NULL);
    check_int(write_all(&bench, &weights, 1, false), ==, 0);
    check_int(write_all(&bench, &states, 2, false), ==, 0);
    check_int(write_all(&bench, &weights, 3, true), ==, 0);
    check_int(read_value(&bench, &weights), ==, 1);
    store_decide(bench.store, 2, false);
    check_int(write_all(&bench, &states, 4, true), ==, 0); /* the second of two writes */
    check_int(read_value(&bench, &weights), ==, 1);
    check_int(read_value(&bench, &states), ==, 2);
    check_int(write_all(&bench, &weights, 5, true), ==, 0);
    check_int(read_value(&bench, &weights), ==, 1);
    store_decide(bench.store, 2, true);
    check_int(read_value(&bench, &weights), ==, 5);
    check_int(write_all(&bench, &states, 6, true), ==, 0);
    check_int(read_value(&bench, &states), ==, 6);
    check_int(write_all(&bench, &states, 7, false), ==, 0);
    check_int(read_value(&bench, &states), ==, 7);
    bench_end(&bench);
}

/* A failed write leaves the earlier data. */
static void failed_writes_leave_the_old(void)
{
    for (int ahead = 0; ahead < 2; ahead++) {
        struct aio_fault fault = {.rules_count = 0};
        struct bench bench;
        struct aio_queue *other = NULL;
        const struct aio_queue_options queue = {.name = "other", .urgency = AIO_STATES};
        bench_begin(&bench, &fault);
        check_int(store_queue_open(bench.store, &queue, &other), ==, 0);
        check_int(write_all(&bench, &states, 9, false), ==, 0);
        check_int(write_all(&bench, &states, 10, ahead != 0), ==, 0);
        store_decide(bench.store, (uint64_t)ahead, true);
        check_int(read_value(&bench, &states), ==, 10);
        fault.rules[0] = (struct aio_fault_rule){.kind = AIO_FAULT_ERROR,
                                                 .from = fault.ops + 1,
                                                 .count = AIO_FAULT_FOREVER,
                                                 .argument = ENOSPC,
                                                 .writes_only = true};
        fault.rules_count = 1;
        check_int(write_all(&bench, &states, 11, ahead != 0), ==, -ENOSPC);
        store_decide(bench.store, (uint64_t)ahead, true);
        struct aio_queue *failed = bench.queue;
        bench.queue = other;
        check_int(read_value(&bench, &states), ==, 10);
        check_int(read_value(&bench, &states), ==, 10);
        (void)aio_queue_close(failed);
        bench_end(&bench);
    }
}

TEST_MAIN({"done_writes_count", done_writes_count}, {"decisions_count", decisions_count},
          {"one_extent_stays", one_extent_stays}, {"what_is_borrowed_goes", what_is_borrowed_goes},
          {"a_store_decides", a_store_decides},
          {"failed_writes_leave_the_old", failed_writes_leave_the_old})
