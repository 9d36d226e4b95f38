/* test_master.c: weights, moments, losses and norms have the bits of the plain trainer, which
 * keeps everything in one memory and overlaps nothing. */
#include <stdio.h>

#include "tests/harness/test.h"
#include "tests/run/case.h"

enum { STEPS = 3 };

static const char *const families[] = {"gpt2", "llama", "llama tied", "qwen3", "qwen3 tied"};

/* The planner chooses what is zero; without `store` there is no store. */
struct way {
    const char *name;
    enum plan_where weights, states, grads;
    enum plan_acts acts;
    enum plan_order order;
    uint32_t weight_slots, state_slots;
    const char *io;
    bool store;
};

static const struct way ways[] = {
    {.name = "planner's choice without a store"},
    {.name = "all in DEVICE, kept", .weights = PLAN_WHERE_DEVICE, .acts = PLAN_ACTS_KEEP},
    {.name = "all in HOST, recomputed",
     .weights = PLAN_WHERE_HOST,
     .states = PLAN_WHERE_HOST,
     .acts = PLAN_ACTS_RECOMPUTE},
    {.name = "states in STORE",
     .states = PLAN_WHERE_STORE,
     .acts = PLAN_ACTS_RECOMPUTE,
     .store = true,
     .io = "mem"},
    {.name = "weights in STORE",
     .weights = PLAN_WHERE_STORE,
     .states = PLAN_WHERE_HOST,
     .acts = PLAN_ACTS_KEEP,
     .store = true,
     .io = "mem"},
    {.name = "all in STORE, 2 slots",
     .weights = PLAN_WHERE_STORE,
     .states = PLAN_WHERE_STORE,
     .acts = PLAN_ACTS_RECOMPUTE,
     .weight_slots = 2,
     .state_slots = 2,
     .store = true,
     .io = "mem"},
    {.name = "all in STORE, 8 slots",
     .weights = PLAN_WHERE_STORE,
     .states = PLAN_WHERE_STORE,
     .acts = PLAN_ACTS_KEEP,
     .weight_slots = 4,
     .state_slots = 8,
     .store = true,
     .io = "threads"},
    {.name = "all in STORE, activations in HOST",
     .weights = PLAN_WHERE_STORE,
     .states = PLAN_WHERE_STORE,
     .acts = PLAN_ACTS_HOST,
     .store = true,
     .io = "threads"},
    {.name = "all in STORE, activations too",
     .weights = PLAN_WHERE_STORE,
     .states = PLAN_WHERE_STORE,
     .acts = PLAN_ACTS_STORE,
     .store = true},
    {.name = "states and gradients in DEVICE",
     .weights = PLAN_WHERE_DEVICE,
     .states = PLAN_WHERE_DEVICE,
     .grads = PLAN_WHERE_DEVICE,
     .acts = PLAN_ACTS_KEEP},
    {.name = "gradients too in STORE",
     .weights = PLAN_WHERE_STORE,
     .states = PLAN_WHERE_STORE,
     .grads = PLAN_WHERE_STORE,
     .order = PLAN_ORDER_LAYER,
     .store = true,
     .io = "mem"},
    {.name = "layer by layer", .order = PLAN_ORDER_LAYER, .acts = PLAN_ACTS_RECOMPUTE},
    {.name = "micro-batch by micro-batch", .order = PLAN_ORDER_MICRO, .acts = PLAN_ACTS_KEEP},
    {.name = "all in STORE, micro-batch by micro-batch",
     .weights = PLAN_WHERE_STORE,
     .states = PLAN_WHERE_STORE,
     .order = PLAN_ORDER_MICRO,
     .store = true,
     .io = "mem"},
};

static struct run_options options_of(const struct way *way, const struct run_options *base)
{
    struct run_options options = *base;
    options.wishes.weights = way->weights;
    options.wishes.states = way->states;
    options.wishes.grads = way->grads;
    options.wishes.acts = way->acts;
    options.wishes.order = way->order;
    options.wishes.weight_slots = way->weight_slots;
    options.wishes.state_slots = way->state_slots;
    options.io = way->io;
    if (way->store) {
        case_store(&options, way->io);
    }
    return options;
}

enum { FAMILIES = sizeof families / sizeof families[0] };

static unsigned steps = STEPS;

/* of the models that hold_ways() makes; NULL: none */
static const struct model_lora_options *adapters;

/* Compares every `way_stride`-th way from `first_way` on, for every `stride`-th family. Under a
 * sanitizer, later calls take other ways and families. */
static void hold_ways(const struct run_options *base, const char *what, size_t stride,
                      size_t first_way, size_t way_stride)
{
    static size_t calls;
    size_t first_family = 0;
    if (TEST_SLOW) {
        way_stride *= (size_t)5 * TEST_STRIDE(2);
        first_way = calls % way_stride;
        first_family = calls % FAMILIES;
        stride = FAMILIES;
        calls++;
    }
    for (size_t f = first_family; f < FAMILIES; f += stride) {
        struct case_model made;
        struct case_outcome plain;
        case_model_make(&made, families[f]);
        if (adapters != NULL) {
            case_model_adapt(&made, adapters);
        }
        made.rows = base->pairs > 0 ? CASE_PAIRS : made.rows;
        case_run_plain(&made, base, steps, &plain);
        for (size_t w = first_way; w < sizeof ways / sizeof ways[0]; w += way_stride) {
            char name[200];
            struct case_outcome engine;
            const struct run_options options = options_of(&ways[w], base);
            const bool inside = base->wishes.timing == PLAN_TIMING_INSIDE ||
                                base->wishes.timing == PLAN_TIMING_SPLIT;
            if (inside && ways[w].grads == PLAN_WHERE_STORE) {
                continue; /* has no plan: no gradient is kept */
            }
            snprintf(name, sizeof name, "%s, %s, %s", families[f], what, ways[w].name);
            case_run_engine(&made, &options, steps, &engine);
            case_check_equal(&plain, &engine, name);
        }
        case_model_free(&made);
    }
}

static void hold(const struct run_options *base, const char *what, size_t stride)
{
    hold_ways(base, what, stride, 0, 1);
}

static void bf16_deferred(void)
{
    const struct run_options options = case_options();
    hold(&options, "bf16 clipped", 1);
}

/* The timing of updates does not change bits. */
static void bf16_inside(void)
{
    static const enum plan_timing timings[] = {PLAN_TIMING_AUTO, PLAN_TIMING_DEFERRED,
                                               PLAN_TIMING_INSIDE, PLAN_TIMING_SPLIT};
    struct run_options options = case_options();
    options.clip = 0;
    options.wishes.may_split = true;
    for (size_t i = 0; i < sizeof timings / sizeof timings[0]; i++) {
        options.wishes.timing = timings[i];
        hold(&options, "bf16 not clipped", i == 0 ? 1 : 2);
    }
}

/* Gradients of micro-batches are added in fp32 and rounded once. */
static void micro_batches(void)
{
    struct run_options options = case_options();
    options.micro_batches = 3;
    hold(&options, "three micro-batches", 1);
    options.clip = 0;
    hold(&options, "three micro-batches, not clipped", 2);
}

/* One command computes a group of micro-batches. Steps take long, so these runs are shorter. */
static void groups(void)
{
    if (TEST_RACES) {
        test_skip("many more steps of the threads that have fewer micro-batches");
    }
    struct run_options options = case_options();
    options.micro_batches = RUN_OPTIONS_GROUPS + 3;
    steps = 2;
    hold_ways(&options, "groups of micro-batches", FAMILIES, 0, TEST_COUNT(2, 4));
    options.type = KERN_F32;
    hold_ways(&options, "groups of micro-batches, fp32", FAMILIES, 1, TEST_COUNT(2, 4));
    steps = STEPS;
}

static void fp32(void)
{
    struct run_options options = case_options();
    options.type = KERN_F32;
    options.micro_batches = 2;
    hold(&options, "fp32", 1);
}

/* The loss scale causes no overflow. */
static void fp16(void)
{
    struct run_options options = case_options();
    options.type = KERN_FP16;
    options.scale.fixed = 1024;
    options.may_skip = true;
    hold(&options, "fp16", 1);
}

static void tiled(void)
{
    struct run_options options = case_options();
    options.tile_bytes = 16384;
    hold(&options, "tiled", 1);
}

static const struct model_lora_options plain = {.rank = 4, .alpha = 8, .seed = 3};
static const struct model_lora_options drops = {.rank = 4, .alpha = 8, .dropout = 0.2, .seed = 3};
static const struct model_lora_options magnitudes = {
    .rank = 4, .alpha = 8, .dora = true, .seed = 3};
static const struct model_lora_options both = {
    .rank = 4, .alpha = 8, .dora = true, .dropout = 0.2, .seed = 3};

/* Layers with adapters borrow their part of the frozen base from a data block. */
static void lora(void)
{
    struct run_options options = case_options();
    adapters = &plain;
    hold_ways(&options, "adapters", 2, 0, 2);
    adapters = &magnitudes;
    hold_ways(&options, "adapters with magnitudes", 2, 1, 2);
    adapters = &both;
    hold_ways(&options, "adapters with magnitudes and dropout", 2, 0, 3);
    adapters = &drops;
    options.micro_batches = 2;
    options.tile_bytes = 16384;
    options.type = KERN_F32;
    hold_ways(&options, "adapters with dropout, fp32, two micro-batches, tiled", 3, 1, 3);
    adapters = NULL;
}

/* The reference's half of a pair has neither adapters nor gradients, and is not recomputed. */
static void pairs(void)
{
    struct run_options options = case_options();
    options.pairs = CASE_ROWS / 2;
    options.rows = 2 * options.pairs;
    options.row_length = CASE_LENGTH;
    options.length = 2 * CASE_LENGTH;
    options.beta = 0.5;
    adapters = &plain;
    hold_ways(&options, "pairs", 2, 0, 3);
    adapters = &magnitudes;
    hold_ways(&options, "pairs, magnitudes", FAMILIES, 1, 4);
    options.micro_batches = 2;
    options.tile_bytes = 16384;
    adapters = &both;
    hold_ways(&options, "pairs, magnitudes and dropout, two micro-batches, tiled", FAMILIES, 2, 4);
    adapters = &drops;
    options.type = KERN_F32;
    hold_ways(&options, "pairs with dropout, fp32, two micro-batches, tiled", 3, 2, 4);
    adapters = NULL;
}

TEST_MAIN({"bf16_deferred", bf16_deferred}, {"bf16_inside", bf16_inside},
          {"micro_batches", micro_batches}, {"groups", groups}, {"fp32", fp32}, {"fp16", fp16},
          {"tiled", tiled}, {"lora", lora}, {"pairs", pairs})
