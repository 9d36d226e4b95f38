/* test_variants.c: runs with other optimizers, moments, rows and budgets have the bits of the
 * plain trainer, or of an engine with everything in DEVICE. */
#include <errno.h>
#include <stdio.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "offload/run/engine_internal.h"
#include "offload/run/rank_internal.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

enum { STEPS = 3 };

/* ---- placements ---- */

/* The planner chooses what a placement does not. */
static struct run_options placed(const struct run_options *base, int placement)
{
    struct run_options options = *base;
    case_store(&options, "mem");
    if (placement == 1) {
        options.wishes.weights = PLAN_WHERE_STORE;
        options.wishes.states = PLAN_WHERE_STORE;
        options.wishes.acts = PLAN_ACTS_RECOMPUTE;
    } else if (placement == 2) {
        options.wishes.weights = PLAN_WHERE_STORE;
        options.wishes.states = PLAN_WHERE_HOST;
        options.wishes.acts = PLAN_ACTS_STORE;
        options.wishes.weight_slots = 2;
    } else if (placement == 3) {
        options.wishes.weights = PLAN_WHERE_STORE;
        options.wishes.states = PLAN_WHERE_HOST;
        options.wishes.grads = PLAN_WHERE_STORE;
        options.wishes.order = PLAN_ORDER_LAYER;
        options.wishes.timing = PLAN_TIMING_DEFERRED;
    } else if (placement == 4) {
        options.wishes.weights = PLAN_WHERE_HOST;
        options.wishes.states = PLAN_WHERE_STORE;
        options.wishes.grads = PLAN_WHERE_DEVICE;
        options.wishes.order = PLAN_ORDER_MICRO;
        options.wishes.acts = PLAN_ACTS_KEEP;
        options.wishes.state_slots = 3;
    }
    return options;
}
enum { PLACEMENTS = 5 };

/* Under a sanitizer fewer placements run, and each call begins with another one. */
static void hold(const struct case_model *made, const struct run_options *base, bool with_plain,
                 const char *what)
{
    static int calls;
    const int step = TEST_RACES ? 3 : TEST_COUNT(1, 2);
    struct case_outcome right;
    if (with_plain) {
        case_run_plain(made, base, STEPS, &right);
    } else {
        struct run_options device = *base;
        device.wishes.weights = PLAN_WHERE_DEVICE;
        device.wishes.states = PLAN_WHERE_DEVICE;
        device.wishes.grads = PLAN_WHERE_DEVICE;
        device.wishes.acts = PLAN_ACTS_KEEP;
        case_run_engine(made, &device, STEPS, &right);
    }
    check_true(right.loss[STEPS - 1] != right.loss[0]);
    for (int p = calls++ % step; p < PLACEMENTS; p += step) {
        char name[200];
        struct case_outcome engine;
        const struct run_options options = placed(base, p);
        snprintf(name, sizeof name, "%s, placement %d", what, p);
        case_run_engine(made, &options, STEPS, &engine);
        case_check_equal(&right, &engine, name);
    }
}

/* ---- optimizers ---- */

static const struct {
    const char *name;
    enum core_update_rule rule;
} rules[] = {{"adamw", CORE_UPDATE_ADAMW},
             {"adam", CORE_UPDATE_ADAM},
             {"lion", CORE_UPDATE_LION},
             {"adagrad", CORE_UPDATE_ADAGRAD},
             {"sgd", CORE_UPDATE_SGD}};
enum { RULES = sizeof rules / sizeof rules[0] };

static void optimizers(void)
{
    static const enum kern_type types[] = {KERN_BF16, KERN_F32, KERN_FP16};
    struct case_model made;
    case_model_make(&made, "llama tied");
    for (size_t t = 0; t < 3; t++) {
        for (size_t r = TEST_COUNT(0, t); r < RULES; r += TEST_COUNT(1, 3)) {
            char name[100];
            struct run_options options = case_options();
            options.type = types[t];
            options.rule = rules[r].rule;
            options.scale.fixed = 256;
            options.may_skip = types[t] == KERN_FP16;
            snprintf(name, sizeof name, "%s, type %d", rules[r].name, (int)types[t]);
            hold(&made, &options, true, name);
        }
    }
    case_model_free(&made);
}

/* Narrow moments and fp32 gradients have the bits of a run in DEVICE. */
static void narrow_moments(void)
{
    static const enum core_update_type moments[] = {CORE_UPDATE_BF16, CORE_UPDATE_Q8};
    struct case_model made;
    case_model_make(&made, "qwen3 tied");
    for (size_t m = 0; m < 2; m++) {
        for (size_t r = TEST_COUNT(0, m); r < RULES; r += TEST_COUNT(1, TEST_RACES ? 3 : 2)) {
            char name[100];
            struct run_options options = case_options();
            options.rule = rules[r].rule;
            options.moments = moments[m];
            options.gradients_fp32 = r % 2 == 1;
            options.micro_batches = r % 2 == 0 ? 1 : 3;
            snprintf(name, sizeof name, "%s, moments %d", rules[r].name, (int)moments[m]);
            hold(&made, &options, false, name);
        }
    }
    case_model_free(&made);
}

static void fp32_gradients(void)
{
    static const enum kern_type types[] = {KERN_BF16, KERN_FP16};
    struct case_model made;
    case_model_make(&made, "gpt2");
    for (size_t t = 0; t < 2; t++) {
        for (uint32_t micro_batches = 1; micro_batches <= 3; micro_batches += 2) {
            char name[100];
            struct run_options options = case_options();
            options.type = types[t];
            options.gradients_fp32 = true;
            options.micro_batches = micro_batches;
            options.scale.fixed = 64;
            options.may_skip = types[t] == KERN_FP16;
            options.clip = micro_batches == 1 ? 0 : options.clip;
            snprintf(name, sizeof name, "fp32 gradients, type %d, %u", (int)types[t],
                     micro_batches);
            hold(&made, &options, false, name);
        }
    }
    case_model_free(&made);
}

/* ---- frozen parameters ---- */

/* Runs with frozen blocks and parts have the plain trainer's bits. Under TSan fewer cases run:
 * test_frozen.c has the same threads. */
static void frozen(void)
{
    static const char *const embedding[] = {"model.embed_tokens.weight"};
    static const char *const block[] = {"model.layers.1.*"};
    static const char *const parts[] = {"*.mlp.*", "*norm*"};
    static const char *const all_but_head[] = {"model.layers.*", "model.embed*"};
    static const struct {
        const char *name, *family;
        const char *const *patterns;
        size_t count;
    } ways[] = {
        {"the embedding", "llama", embedding, 1},
        {"the shared table", "llama tied", embedding, 1},
        {"a layer", "llama", block, 1},
        {"a layer of a tied model", "qwen3 tied", block, 1},
        {"parts of all layers", "llama", parts, 2},
        {"parts of a tied model", "llama tied", parts, 2},
        {"all but the head", "llama", all_but_head, 2},
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i += TEST_STRIDE(2)) {
        struct case_model made;
        struct run_options options = case_options();
        case_model_make(&made, ways[i].family);
        case_model_freeze(&made, ways[i].patterns, ways[i].count);
        check_true(made.model->trained_parameters < made.model->parameters);
        options.micro_batches = 1 + i % 2;
        hold(&made, &options, true, ways[i].name);
        case_model_free(&made);
    }
}

/* ---- rows ---- */

/* Short rows, packed rows and missing micro-batches have the plain trainer's bits. */
static void rows(void)
{
    static const char *const families[] = {"gpt2", "llama", "qwen3 tied"};
    static const char *const names[] = {
        [CASE_SHORT] = "short rows", [CASE_PACKED] = "packed rows", [CASE_FEWER] = "fewer"};
    for (size_t f = 0; f < 3; f++) {
        struct case_model made;
        case_model_make(&made, families[f]);
        for (int kind = CASE_SHORT; kind <= CASE_FEWER; kind++) {
            char name[100];
            struct run_options options = case_options();
            made.rows = (enum case_rows)kind;
            options.micro_batches = kind == CASE_FEWER ? 3 : 2;
            snprintf(name, sizeof name, "%s, %s", families[f], names[kind]);
            hold(&made, &options, true, name);
        }
        made.rows = CASE_FEWER;
        struct run_options options = case_options();
        options.micro_batches = 2;
        options.type = f == 1 ? KERN_F32 : KERN_BF16;
        hold(&made, &options, true, "one micro-batch of two");
        case_model_free(&made);
    }
}

struct lone {
    double losses[STEPS];
    double norms[STEPS];
    uint64_t launches; /* of rank 0's last step */
};

/* Ranks have room for `micro_batches` each. Steps have one micro-batch, the last step `last`. */
static void run_lone(const struct case_model *made, uint32_t world, uint32_t micro_batches,
                     unsigned last, struct lone *out)
{
    struct run_prepared *prepared = NULL;
    struct run_engine *engine = NULL;
    struct run_options options = case_options();
    options.world = world;
    options.stage = world > 1 ? 1 : 0;
    options.micro_batches = micro_batches;
    check_int(run_prepared_create(made->model, &options, case_rates(), &prepared), ==, 0);
    const struct run_engine_options engine_options = {
        .prepared = prepared, .options = &options, .model = made->model, .files = made->files};
    check_int(run_engine_create(&engine_options, &engine), ==, 0);
    const struct dev_queue *queue = engine->workers[0].rank->compute_queue;
    for (unsigned s = 0; s < STEPS; s++) {
        static int32_t ids[4][CASE_ROWS * CASE_LENGTH];
        struct model_batch batches[4];
        struct run_step step;
        const unsigned count = s + 1 == STEPS ? last : 1;
        for (unsigned i = 0; i < count; i++) {
            batches[i] = case_batch(made, s, i, ids[i]);
        }
        const uint64_t before = dev_queue_tail(queue).value;
        check_int(run_engine_step(engine, batches, count, 1e-3, &step), ==, 0);
        out->launches = dev_queue_tail(queue).value - before;
        out->losses[s] = step.loss;
        out->norms[s] = step.norm;
    }
    run_engine_destroy(engine);
    run_prepared_destroy(prepared);
}

/* Missing micro-batches are not computed, and change no bit. A rank that has none computes
 * padding. */
static void missing_micro_batches(void)
{
    struct case_model made;
    case_model_make(&made, "llama tied");
    for (uint32_t world = 1; world <= 2; world++) {
        struct lone one, four, all;
        run_lone(&made, world, 1, 1, &one);
        run_lone(&made, world, 4, 1, &four);
        run_lone(&made, world, 4, 4, &all);
        check_int(memcmp(one.losses, four.losses, sizeof one.losses), ==, 0);
        check_int(memcmp(one.norms, four.norms, sizeof one.norms), ==, 0);
        check_uint(four.launches, <, one.launches * 3 / 2);
        check_uint(four.launches, <, all.launches / 2);
    }
    case_model_free(&made);
}

/* ---- budgets ---- */

static bool fits(const struct case_model *made, const struct run_options *options)
{
    struct run_prepared *prepared = NULL;
    int rc = run_prepared_create(made->model, options, case_rates(), &prepared);
    if (rc != 0 && rc != -EFBIG) {
        test_fail(__FILE__, __LINE__, "a plan ended with %d: %s", rc, core_err_message());
    }
    run_prepared_destroy(prepared);
    return rc == 0;
}

/* Finds the smallest budget that has a plan, to 4 KiB. */
static uint64_t least(const struct case_model *made, struct run_options *options, uint64_t *budget)
{
    uint64_t low = 0;
    uint64_t high = *budget;
    check_true(fits(made, options));
    while (high - low > 4096) {
        *budget = low + (high - low) / 2;
        if (fits(made, options)) {
            high = *budget;
        } else {
            low = *budget;
        }
    }
    *budget = high;
    check_true(fits(made, options));
    return high;
}

/* From the smallest DEVICE and HOST to ample ones, plans stay within their budgets, and runs
 * have the plain trainer's bits. */
static void budgets(void)
{
    static const char *const families[] = {"llama", "llama tied", "gpt2"};
    for (size_t f = 0; f < TEST_COUNT(3, 1); f++) {
        struct case_model made;
        struct case_outcome plain;
        struct run_options base = case_options();
        case_model_make(&made, families[f]);
        base.micro_batches = f == 1 ? 2 : 1;
        base.wishes.chunk_elements = 65536;
        case_run_plain(&made, &base, STEPS, &plain);
        struct run_options options = placed(&base, 0);
        options.budgets.device_bytes = options.budgets.host_bytes = 64 << 20;
        const uint64_t device = least(&made, &options, &options.budgets.device_bytes);
        const uint64_t host = least(&made, &options, &options.budgets.host_bytes);
        for (int step = 0; step <= 6; step += TEST_COUNT(1, 2)) {
            char name[200];
            struct case_outcome engine;
            options.budgets.device_bytes = device + device * (uint64_t)(step * step) / 4;
            options.budgets.host_bytes = host + host * (uint64_t)(step * step) / 6;
            snprintf(name, sizeof name, "%s, device %.0f KB, host %.0f KB", families[f],
                     (double)options.budgets.device_bytes / 1e3,
                     (double)options.budgets.host_bytes / 1e3);
            struct run_prepared *prepared = NULL;
            check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
            check_uint(run_prepared_bytes(prepared, PLAN_DEVICE), <=, options.budgets.device_bytes);
            check_uint(run_prepared_bytes(prepared, PLAN_HOST), <=, options.budgets.host_bytes);
            run_prepared_destroy(prepared);
            case_run_engine(&made, &options, STEPS, &engine);
            case_check_equal(&plain, &engine, name);
        }
        case_model_free(&made);
    }
}

/* A model whose weights, states and gradients are fifty times as large as the DEVICE budget has the
 * plain trainer's bits. */
static void fifty_times_the_device(void)
{
    enum { WHOLLY_BYTES = 2 + 2 + 4 + 4 + 2 };
    struct case_model made;
    struct case_outcome plain;
    struct case_outcome engine;
    struct run_options options = case_options();
    case_model_make(&made, "deep");
    case_run_plain(&made, &options, STEPS, &plain);
    options = placed(&options, 1);
    options.wishes.weight_slots = 2;
    options.budgets.device_bytes = made.model->trained_parameters * WHOLLY_BYTES / 50;
    case_run_engine(&made, &options, STEPS, &engine);
    case_check_equal(&plain, &engine, "deep");
    test_note("%.1f M parameters trained with a DEVICE budget of %.2f MB, which holds %.3f M",
              (double)made.model->trained_parameters / 1e6,
              (double)options.budgets.device_bytes / 1e6,
              (double)options.budgets.device_bytes / WHOLLY_BYTES / 1e6);
    case_model_free(&made);
}

TEST_MAIN({"optimizers", optimizers}, {"narrow_moments", narrow_moments},
          {"fp32_gradients", fp32_gradients}, {"frozen", frozen}, {"rows", rows},
          {"missing_micro_batches", missing_micro_batches}, {"budgets", budgets},
          {"fifty_times_the_device", fifty_times_the_device})
