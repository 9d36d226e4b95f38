/* test_life.c: if a request to the system fails, a run ends with a message and frees everything;
 * long runs leak nothing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "offload/run/runtime.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

static struct case_model made;
static struct run_options options;
static struct run_prepared *prepared;

static void begin(const char *io)
{
    static char directory[600];
    case_model_make(&made, "llama tied");
    snprintf(directory, sizeof directory, "%s/store", test_directory());
    options = case_options();
    options.threads = 1;
    case_store(&options, io);
    options.wishes.weights = options.wishes.states = PLAN_WHERE_STORE;
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
}

static void end(void)
{
    struct stat info;
    char path[700];
    run_prepared_destroy(prepared);
    prepared = NULL;
    case_model_free(&made);
    snprintf(path, sizeof path, "%s/store", test_directory());
    check_int(stat(path, &info), ==, -1);
}

/* ---- failing requests ---- */

static int engine_life(void)
{
    const struct run_engine_options engine_options = {
        .prepared = prepared, .options = &options, .model = made.model, .files = made.files};
    struct run_engine *engine = NULL;
    struct run_step step;
    struct kern_loss loss;
    int32_t ids[CASE_ROWS * CASE_LENGTH];
    const struct model_batch batch = case_batch(&made, 0, 0, ids);
    int rc = run_engine_create(&engine_options, &engine);
    for (int s = 0; rc == 0 && s < 2; s++) {
        rc = run_engine_step(engine, &batch, 1, 1e-3, &step);
    }
    rc = rc != 0 ? rc : run_engine_evaluate(engine, &batch, &loss);
    run_engine_destroy(engine);
    return rc;
}

static void engines(void)
{
    begin("mem");
    check_int(engine_life(), ==, 0); /* fills caches that remain */
    const unsigned requests = test_fail_every(engine_life, TEST_STRIDE(3));
    test_note("%u requests", requests);
    check_int(requests, >=, 100);
    end();
}

static void ranks(void)
{
    begin("mem");
    options.world = 2;
    options.stage = 2;
    options.wishes.acts = PLAN_ACTS_RECOMPUTE;
    options.wishes.order = PLAN_ORDER_LAYER;
    options.wishes.weight_slots = options.wishes.state_slots = 2;
    run_prepared_destroy(prepared);
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    check_int(engine_life(), ==, 0);
    const unsigned requests = test_fail_every(engine_life, TEST_STRIDE(6));
    test_note("%u requests", requests);
    check_int(requests, >=, 300);
    end();
}

static int plan_life(void)
{
    struct run_prepared *one = NULL;
    int rc = run_prepared_create(made.model, &options, case_rates(), &one);
    run_prepared_destroy(one);
    return rc;
}

static void plans(void)
{
    begin("mem");
    options.wishes.acts = PLAN_ACTS_RECOMPUTE;
    options.wishes.order = PLAN_ORDER_LAYER;
    options.wishes.weight_slots = options.wishes.state_slots = 2;
    const unsigned requests = test_fail_every(plan_life, TEST_STRIDE(3));
    test_note("%u requests", requests);
    check_int(requests, >=, 50);
    end();
}

/* ---- leaks ---- */

struct census {
    uint64_t rss_bytes;
    size_t files;
    size_t threads;
};

static struct census take_census(void)
{
    return (struct census){.rss_bytes = run_runtime_used_bytes(),
                           .files = test_entries("/proc/self/fd"),
                           .threads = test_entries("/proc/self/task")};
}

/* Later steps need no more files, threads, store or memory (up to 1 MiB). */
static void a_thousand_steps(void)
{
    enum { STEPS = TEST_COUNT(1000, 120), SETTLED = 50 };
    struct census settled = {0};
    struct run_step step;
    struct kern_loss loss;
    struct stat files[2];
    char path[700];
    int32_t ids[CASE_ROWS * CASE_LENGTH];
    begin("threads");
    const struct run_engine_options engine_options = {
        .prepared = prepared, .options = &options, .model = made.model, .files = made.files};
    struct run_engine *engine = NULL;
    check_int(run_engine_create(&engine_options, &engine), ==, 0);
    snprintf(path, sizeof path, "%s/store/tide-rank-0/tide-extents", test_directory());
    for (unsigned s = 1; s <= STEPS; s++) {
        const struct model_batch batch = case_batch(&made, s % 7, 0, ids);
        check_int(run_engine_step(engine, &batch, 1, 1e-4, &step), ==, 0);
        if (s % 40 == 0) {
            check_int(run_engine_evaluate(engine, &batch, &loss), ==, 0);
        }
        if (s == SETTLED) {
            settled = take_census();
            check_int(stat(path, &files[0]), ==, 0);
        }
    }
    const struct census last = take_census();
    check_int(stat(path, &files[1]), ==, 0);
    test_note("RSS %.1f MB after %d steps, %.1f MB after %d; %zu files, %zu threads",
              (double)settled.rss_bytes / 1e6, SETTLED, (double)last.rss_bytes / 1e6, STEPS,
              last.files, last.threads);
    check_uint(last.files, ==, settled.files);
    check_uint(last.threads, ==, settled.threads);
    check_int(files[1].st_size, ==, files[0].st_size);
    check_int(files[1].st_blocks, ==, files[0].st_blocks);
    if (!TEST_SLOW) {
        check_uint(last.rss_bytes, <=, settled.rss_bytes + (1 << 20));
    }
    run_engine_destroy(engine);
    end();
}

/* Later engines leave no file, thread or memory (up to 4 MiB). */
static void engine_after_engine(void)
{
    enum { ENGINES = TEST_COUNT(40, 12), SETTLED = 8 };
    struct census settled = {0};
    begin("threads");
    for (int i = 1; i <= ENGINES; i++) {
        check_int(engine_life(), ==, 0);
        if (i == SETTLED) {
            settled = take_census();
        }
    }
    const struct census last = take_census();
    test_note("RSS %.1f MB after %d engines, %.1f MB after %d", (double)settled.rss_bytes / 1e6,
              SETTLED, (double)last.rss_bytes / 1e6, ENGINES);
    check_uint(last.files, ==, settled.files);
    check_uint(last.threads, ==, settled.threads);
    if (!TEST_SLOW) {
        check_uint(last.rss_bytes, <=, settled.rss_bytes + (4 << 20));
    }
    end();
}

TEST_MAIN({"engines", engines}, {"ranks", ranks}, {"plans", plans},
          {"a_thousand_steps", a_thousand_steps}, {"engine_after_engine", engine_after_engine})
