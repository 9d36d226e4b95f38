/* test_costs.c: a block's fastest round is measured, and a plan counts the parts of a step as
 * often as they are computed. */
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "offload/model/adapter.h"
#include "offload/model/run.h"
#include "offload/run/measure.h"
#include "offload/run/prepare.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

static const struct model_lora_options lora = {.rank = 4, .alpha = 8, .seed = 3};

/* ---- measuring ---- */

enum { PASSES = 3, CALLS_MAX = 64, GAPS_MAX = 8 };

/* A script has the seconds of the measuring thread's passes. Reading the clock takes a
 * microsecond, so that a spin with a time limit ends. */
static _Thread_local const double *script;
static unsigned calls;
static int64_t scripted_ns;
static int32_t gaps[GAPS_MAX]; /* of the last pass that had any */
static size_t gap_count;

int64_t __real_core_clock_now_ns(void);
int64_t __wrap_core_clock_now_ns(void);

int64_t __wrap_core_clock_now_ns(void)
{
    return script != NULL ? scripted_ns += 1000 : __real_core_clock_now_ns();
}

int __real_model_run_all(struct dev_queue *queue, const struct model_steps *steps,
                         enum model_which which, const struct model_binding *binding);
int __wrap_model_run_all(struct dev_queue *queue, const struct model_steps *steps,
                         enum model_which which, const struct model_binding *binding);

int __wrap_model_run_all(struct dev_queue *queue, const struct model_steps *steps,
                         enum model_which which, const struct model_binding *binding)
{
    if (binding->base[MODEL_BASE_GAPS] != NULL) {
        memcpy(gaps, binding->base[MODEL_BASE_GAPS], gap_count * sizeof *gaps);
    }
    if (script != NULL) {
        scripted_ns += (int64_t)(script[calls % CALLS_MAX] * 1e9);
    }
    calls++;
    return __real_model_run_all(queue, steps, which, binding);
}

static void measure(const struct case_model *made, const struct run_options *options,
                    struct run_rates *out)
{
    struct run_shapes *shapes = NULL;
    bool whole = false;
    calls = 0;
    *out = (struct run_rates){0};
    check_int(run_shapes_create(made->model, options, &shapes), ==, 0);
    check_int(run_measure_blocks(shapes, options, out, &whole), ==, 0);
    check_true(whole);
    run_shapes_destroy(shapes);
}

static void check_near(double seconds, double expected)
{
    check_double(seconds, >=, expected);
    check_double(seconds, <, expected + 0.005); /* the readings take less */
}

/* The fastest round counts; slow blocks have fewer rounds. */
static void fastest_rounds(void)
{
    static const double long_rounds[CALLS_MAX] = {5, 6, 9, 4, 7, 8};
    static const double short_rounds[CALLS_MAX] = {0.03, 0.02, 0.02, 0.02, 0.01,
                                                   0.03, 0.02, 0.02, 0.01};
    const struct run_options options = case_options();
    struct case_model made;
    struct run_rates rates;
    case_model_make(&made, "llama");
    script = long_rounds;
    measure(&made, &options, &rates);
    check_near(rates.forward_seconds[MODEL_BLOCK_LAYER], 4);
    check_near(rates.recompute_seconds[MODEL_BLOCK_LAYER], 6);
    check_near(rates.backward_seconds[MODEL_BLOCK_LAYER], 8);
    check_uint(calls, ==, 2 * PASSES + 2 * 3 * PASSES); /* embedding and head take no time */
    script = short_rounds;
    measure(&made, &options, &rates);
    check_near(rates.forward_seconds[MODEL_BLOCK_LAYER], 0.02);
    check_near(rates.recompute_seconds[MODEL_BLOCK_LAYER], 0.01);
    check_near(rates.backward_seconds[MODEL_BLOCK_LAYER], 0.01);
    check_uint(calls, ==, 3 * 3 * PASSES);
    script = NULL;
    case_model_free(&made);
}

/* A pair is measured with two rows of equal length: common tokens, then both answers. */
static void gaps_of_pairs(void)
{
    static const struct {
        int64_t row_length, length;
        int32_t gap[2];
    } rows[] = {{12, 16, {8, 12}}, {16, 16, {16, 16}}, {8, 16, {0, 8}}, {6, 16, {0, 8}}};
    struct run_options options = case_options();
    struct case_model made;
    struct run_rates rates;
    options.pairs = 2;
    options.rows = 2 * options.pairs;
    options.beta = 0.5;
    gap_count = 4;
    case_model_make(&made, "llama");
    case_model_adapt(&made, &lora);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        options.row_length = rows[i].row_length;
        options.length = rows[i].length;
        memset(gaps, 0xff, sizeof gaps);
        measure(&made, &options, &rates);
        for (size_t at = 0; at < gap_count; at++) {
            check_int(gaps[at], ==, rows[i].gap[at % 2]);
        }
    }
    gap_count = 0;
    case_model_free(&made);
}

/* ---- adding up ---- */

/* Returns rates at which blocks take so long that drives and commands do not matter. */
static struct run_rates slow_blocks(void)
{
    struct run_rates rates = *case_rates();
    rates.machine.read_bytes = rates.machine.write_bytes = rates.machine.mixed_bytes = 1e15;
    rates.machine.command_seconds = 1e-9;
    rates.machine.hash_bytes = 0;
    rates.forward_seconds[MODEL_BLOCK_EMBEDDING] = 1;
    rates.forward_seconds[MODEL_BLOCK_LAYER] = 1e2;
    rates.recompute_seconds[MODEL_BLOCK_LAYER] = 1e4;
    rates.backward_seconds[MODEL_BLOCK_LAYER] = 1e6;
    rates.forward_seconds[MODEL_BLOCK_HEAD] = 1e7; /* of an evaluation */
    rates.backward_seconds[MODEL_BLOCK_HEAD] = 1e8;
    return rates;
}

static double planned_seconds(const struct case_model *made, const struct run_options *options,
                              const struct run_rates *rates)
{
    struct run_prepared *prepared = NULL;
    check_int(run_prepared_create(made->model, options, rates, &prepared), ==, 0);
    const double seconds = plan_predicted(prepared->plan)->step_seconds;
    run_prepared_destroy(prepared);
    return seconds;
}

/* A layer is computed once forward and once backward per micro-batch, recomputed unless its
 * activations are kept, and expanded if it is stored as nf4. */
static void seconds_add_up(void)
{
    static const struct {
        enum plan_acts acts;
        enum model_storage base;
        uint32_t micro_batches;
    } rows[] = {{PLAN_ACTS_KEEP, MODEL_STORAGE_PLAIN, 1},
                {PLAN_ACTS_RECOMPUTE, MODEL_STORAGE_PLAIN, 1},
                {PLAN_ACTS_RECOMPUTE, MODEL_STORAGE_NF4, 1},
                {PLAN_ACTS_RECOMPUTE, MODEL_STORAGE_NF4, 3}};
    struct case_model made;
    case_model_make(&made, "deep");
    case_model_adapt(&made, &lora);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const bool again = rows[i].acts == PLAN_ACTS_RECOMPUTE;
        struct run_options options = case_options();
        struct run_rates rates = slow_blocks();
        struct run_shapes *shapes = NULL;
        uint64_t stored = 0; /* of blocks that are expanded */
        options.base = rows[i].base;
        options.micro_batches = rows[i].micro_batches;
        options.wishes.acts = rows[i].acts;
        options.wishes.weights = PLAN_WHERE_STORE;
        options.wishes.order = PLAN_ORDER_LAYER;
        options.wishes.weight_slots = 2;
        case_store(&options, "mem");
        check_int(run_shapes_create(made.model, &options, &shapes), ==, 0);
        for (uint32_t b = 0; b < shapes->block_count; b++) {
            stored += shapes->blocks[b].stored_elements > 0 ? shapes->blocks[b].elements : 0;
        }
        run_shapes_destroy(shapes);
        check_true((stored > 0) == (rows[i].base == MODEL_STORAGE_NF4));
        rates.machine.expand_elements = stored > 0 ? (double)stored / 1e-1 : 0;
        const double layers = made.model->compute_count - 2;
        const double micros = rows[i].micro_batches;
        const double expected = micros * (1 + layers * (1e2 + (again ? 1e4 : 0) + 1e6) + 1e8);
        const double got = planned_seconds(&made, &options, &rates);
        /* The two slots still have the last layers when backward begins. */
        check_double(got, >=, expected + (stored > 0 ? 1e-1 : 0) - 1e-3);
        check_double(got, <=, expected + (stored > 0 ? 2e-1 : 0) + 1e-3);
    }
    case_model_free(&made);
}

/* Recomputation has fewer operations than forward. Backward of a head computes the logits twice,
 * and the gradients of its input and of its trained table. */
static void operations_add_up(void)
{
    struct run_options options = case_options();
    struct case_model made;
    struct run_shapes *shapes = NULL;
    case_model_make(&made, "deep");
    check_int(run_shapes_create(made.model, &options, &shapes), ==, 0);
    const unsigned last = made.model->compute_count - 1;
    const struct plan_block_shape layer = shapes->blocks[1];
    check_double(shapes->blocks[last].backward_flops, ==, 4 * shapes->blocks[last].forward_flops);
    check_double(layer.recompute_flops, >, 0.5 * layer.forward_flops);
    check_double(layer.recompute_flops, <, layer.forward_flops);
    run_shapes_destroy(shapes);
    struct run_rates rates = *case_rates();
    rates.machine.flops = 1;
    options.wishes.acts = PLAN_ACTS_KEEP;
    const double kept = planned_seconds(&made, &options, &rates);
    options.wishes.acts = PLAN_ACTS_RECOMPUTE;
    const double again = planned_seconds(&made, &options, &rates);
    check_double(again - kept, >=, 0.999 * (last - 1) * layer.recompute_flops);
    check_double(again - kept, <=, 1.001 * (last - 1) * layer.recompute_flops);
    case_model_free(&made);
    case_model_make(&made, "deep");
    case_model_adapt(&made, &lora);
    check_int(run_shapes_create(made.model, &options, &shapes), ==, 0);
    check_double(shapes->blocks[last].backward_flops, ==, 3 * shapes->blocks[last].forward_flops);
    run_shapes_destroy(shapes);
    case_model_free(&made);
}

TEST_MAIN({"fastest_rounds", fastest_rounds}, {"gaps_of_pairs", gaps_of_pairs},
          {"seconds_add_up", seconds_add_up}, {"operations_add_up", operations_add_up})
