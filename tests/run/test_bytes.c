/* test_bytes.c: a step moves no more bytes between STORE and memory than update and backward
 * need, and the drive counts what steps report. */
#include <stdio.h>

#include "offload/run/engine_internal.h"
#include "offload/run/rank_internal.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

struct moved {
    uint64_t read; /* counted by the drive after the last update */
    uint64_t written;
    uint64_t told; /* reported by steps, the drain and withdrawn reads */
    struct plan_traffic last_step;
};

static struct moved run(const struct case_model *made, const struct run_options *options,
                        unsigned steps)
{
    struct run_prepared *prepared = NULL;
    struct run_engine *engine = NULL;
    struct moved moved = {0};
    struct store_stats stats;
    check_int(run_prepared_create(made->model, options, case_rates(), &prepared), ==, 0);
    const struct run_engine_options engine_options = {
        .prepared = prepared, .options = options, .model = made->model, .files = made->files};
    check_int(run_engine_create(&engine_options, &engine), ==, 0);
    for (unsigned s = 0; s < steps; s++) {
        int32_t ids[CASE_ROWS * CASE_LENGTH];
        const struct model_batch batch = case_batch(made, s, 0, ids);
        struct run_step step;
        check_int(run_engine_step(engine, &batch, 1, 1e-3, &step), ==, 0);
        moved.last_step = step.traffic;
        moved.told += step.traffic.store_read_bytes + step.traffic.store_write_bytes;
    }
    check_int(run_engine_drain(engine), ==, 0);
    const struct plan_traffic rest = run_rank_traffic_take(engine->workers[0].rank);
    moved.told += rest.store_read_bytes + rest.store_write_bytes;
    store_stats_take(engine->workers[0].rank->store, &stats);
    moved.read = stats.read_bytes;
    moved.written = stats.write_bytes;
    run_engine_destroy(engine);
    run_prepared_destroy(prepared);
    return moved;
}

/* The drive counts up to 1 % more, because the last part of a chunk moves in whole pages. */
static void check_bytes(const struct case_model *made, const struct run_options *options,
                        double reads, double writes, const char *what)
{
    enum { FEW = 2, MANY = 4 };
    const double each = (double)made->model->trained_parameters;
    const struct moved few = run(made, options, FEW);
    const struct moved many = run(made, options, MANY);
    const double read = (double)many.last_step.store_read_bytes / each;
    const double written = (double)many.last_step.store_write_bytes / each;
    const double counted = (double)(many.read + many.written - few.read - few.written);
    const double told = (double)(many.told - few.told);
    test_note("%s: %.3f + %.3f B a parameter; counted over told %.4f", what, read, written,
              counted / told);
    check_true(read > 0 && read <= reads * 1.005);
    check_true(written >= writes && written <= writes * 1.005);
    check_true(counted >= told && counted <= told * 1.01);
}

/* The update reads and writes 12 B per parameter, and backward reads weights again (2 B).
 * Weights in HOST save 4 B of reads and 2 B of writes; gradients in STORE cost 2 B of each. */
static void bytes_of_a_step(void)
{
    struct case_model made;
    struct run_options options = case_options();
    case_model_make(&made, "deep");
    case_store(&options, "mem");
    options.wishes.weights = PLAN_WHERE_STORE;
    options.wishes.states = PLAN_WHERE_STORE;
    options.wishes.grads = PLAN_WHERE_HOST;
    options.wishes.acts = PLAN_ACTS_RECOMPUTE;
    options.wishes.weight_slots = 3;
    options.wishes.timing = PLAN_TIMING_DEFERRED;
    check_bytes(&made, &options, 14, 12, "gradients in HOST");
    if (TEST_SLOW) {
        case_model_free(&made);
        return;
    }
    options.clip = 0;
    options.wishes.timing = PLAN_TIMING_INSIDE;
    check_bytes(&made, &options, 14, 12, "the same, updated inside backward");
    options.clip = 1;
    options.wishes.timing = PLAN_TIMING_DEFERRED;
    options.wishes.weights = PLAN_WHERE_HOST;
    check_bytes(&made, &options, 10, 10, "weights and gradients in HOST");
    options.wishes.weights = PLAN_WHERE_STORE;
    options.wishes.grads = PLAN_WHERE_STORE;
    options.wishes.order = PLAN_ORDER_LAYER;
    check_bytes(&made, &options, 16, 14, "gradients in STORE");
    case_model_free(&made);
}

TEST_MAIN({"bytes_of_a_step", bytes_of_a_step})
