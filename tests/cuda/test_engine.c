/* Tests that training steps on a card have the same bits for different placements, and the CPU's
 * losses up to rounding. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/dev/dev.h"
#include "core/json/json.h"
#include "kernels/table.h"
#include "offload/model/adapter.h"
#include "tests/harness/test.h"
#include "tests/kernels/rig.h"
#include "tests/run/case.h"

enum { STEPS = 2, FROZEN_WAYS = 2 /* number that frozen() tries under a sanitizer */ };

static const struct way {
    const char *name;
    enum plan_where weights, states;
    enum plan_acts acts;
    bool store;
    enum plan_order order;
    const char *io; /* NULL: mem */
} ways[] = {
    {"updated on the card", PLAN_WHERE_AUTO, PLAN_WHERE_DEVICE, PLAN_ACTS_KEEP, false, 0, NULL},
    {"states in STORE", PLAN_WHERE_AUTO, PLAN_WHERE_STORE, PLAN_ACTS_RECOMPUTE, true, 0, NULL},
    {"all in DEVICE, kept", PLAN_WHERE_DEVICE, PLAN_WHERE_AUTO, PLAN_ACTS_KEEP, false, 0, NULL},
    {"all in HOST, recomputed", PLAN_WHERE_HOST, PLAN_WHERE_HOST, PLAN_ACTS_RECOMPUTE, false, 0,
     NULL},
    {"all in STORE", PLAN_WHERE_STORE, PLAN_WHERE_STORE, PLAN_ACTS_KEEP, true, 0, NULL},
};
/* for all_of() */
static const struct way more_ways[] = {
    {"planner's choice", PLAN_WHERE_AUTO, PLAN_WHERE_AUTO, PLAN_ACTS_AUTO, false, 0, NULL},
    {"all in DEVICE, kept", PLAN_WHERE_DEVICE, PLAN_WHERE_AUTO, PLAN_ACTS_KEEP, false, 0, NULL},
    {"all in HOST, recomputed", PLAN_WHERE_HOST, PLAN_WHERE_HOST, PLAN_ACTS_RECOMPUTE, false,
     PLAN_ORDER_LAYER, NULL},
    {"all in HOST, kept, micro-batch by micro-batch", PLAN_WHERE_HOST, PLAN_WHERE_HOST,
     PLAN_ACTS_KEEP, false, PLAN_ORDER_MICRO, NULL},
    {"activations in HOST", PLAN_WHERE_HOST, PLAN_WHERE_HOST, PLAN_ACTS_HOST, false, 0, NULL},
    {"states in STORE", PLAN_WHERE_AUTO, PLAN_WHERE_STORE, PLAN_ACTS_RECOMPUTE, true, 0, NULL},
    {"all in STORE", PLAN_WHERE_STORE, PLAN_WHERE_STORE, PLAN_ACTS_KEEP, true, 0, "threads"},
    {"updated on the card", PLAN_WHERE_AUTO, PLAN_WHERE_DEVICE, PLAN_ACTS_KEEP, false,
     PLAN_ORDER_LAYER, NULL},
    {"updated on the card, micro-batch by micro-batch", PLAN_WHERE_DEVICE, PLAN_WHERE_DEVICE,
     PLAN_ACTS_RECOMPUTE, false, PLAN_ORDER_MICRO, NULL},
};

static struct run_options options_of(const struct way *way, const struct run_options *base)
{
    static char directory[512];
    static unsigned count;
    struct run_options options = *base;
    snprintf(directory, sizeof directory, "%.400s/store%u", test_directory(), count++);
    options.device = "cuda";
    options.budgets.device_is_host = false;
    options.wishes.weights = way->weights;
    options.wishes.states = way->states;
    options.wishes.acts = way->acts;
    options.wishes.order = way->order;
    if (way->store) {
        options.io = way->io != NULL ? way->io : "mem";
        options.stores[0] = (struct store_path){.directory = directory, .weight = 1};
        options.store_count = 1;
        options.budgets.store_bytes = UINT64_C(1) << 30;
    }
    return options;
}

static void card_or_skip(void)
{
    struct dev_device *device = NULL;
    const struct dev_options options = {.memory_bytes = 1 << 20};
    const int rc = dev_open(rig_machine(), &options, &device);
    kern_ops_detach(NULL); /* makes the linker take the ops of the first library */
    if (rc == -ENODEV || rc == -ENOTSUP) {
        test_skip("%s", core_err_message());
    }
    check_int(rc, ==, 0);
    dev_close(device);
}

/* Compares the ways of `list` with each other and with the CPU's plain step. */
static void hold_made(const struct case_model *made, const char *name,
                      const struct run_options *base, const char *what, const struct way *list,
                      size_t count)
{
    struct case_outcome plain;
    struct case_outcome first;
    case_run_plain(made, base, STEPS, &plain);
    for (size_t w = 0; w < count; w++) {
        struct case_outcome engine;
        (void)rig_machine();
        const struct run_options options = options_of(&list[w], base);
        case_run_engine(made, &options, STEPS, &engine);
        for (unsigned s = 0; s < STEPS; s++) {
            test_note("%s, %s, %s: step %u: loss %.6f, the CPU's %.6f; norm %.5f, %.5f", name, what,
                      list[w].name, s, engine.loss[s], plain.loss[s], engine.norm[s],
                      plain.norm[s]);
            check_double(fabs(engine.loss[s] - plain.loss[s]), <=, 0.01 * plain.loss[s]);
            check_double(fabs(engine.norm[s] - plain.norm[s]), <=, 0.05 * plain.norm[s]);
        }
        if (w == 0) {
            first = engine;
        }
        case_check_equal(&first, &engine, list[w].name);
    }
}

static void hold(const char *name, const struct run_options *base, const char *what,
                 const struct way *list, size_t count)
{
    struct case_model made;
    card_or_skip();
    case_model_make(&made, name);
    hold_made(&made, name, base, what, list, count);
    case_model_free(&made);
}

/* With parts of blocks frozen, results agree, although no kernel writes some gradients. */
static void frozen(void)
{
    static const char *const patterns[] = {"*.mlp.*", "*norm*"};
    const struct run_options base = case_options();
    struct case_model made;
    card_or_skip();
    case_model_make(&made, "llama");
    case_model_freeze(&made, patterns, sizeof patterns / sizeof patterns[0]);
    hold_made(&made, "llama", &base, "parts frozen", ways,
              TEST_COUNT(sizeof ways / sizeof ways[0], FROZEN_WAYS));
    case_model_free(&made);
}

/* Layers that come by sections give the bits of whole layers. */
static void sections(void)
{
    static const char *const frozen_layers[] = {"model.layers.*", "lm_head.weight",
                                                "model.norm.weight"};
    static const char *const trained_layers[] = {"lm_head.weight"};
    static const struct {
        const char *const *patterns;
        size_t count, first_way;
    } cases[] = {{frozen_layers, 3, TEST_COUNT(3, 4)}, {trained_layers, 1, 4}};
    struct run_options base = case_options();
    card_or_skip();
    base.tile_bytes = 16 << 10;
    for (size_t c = 0; c < TEST_COUNT(2, 1); c++) {
        struct case_model made;
        case_model_make(&made, "llama, whole");
        case_model_freeze(&made, cases[c].patterns, cases[c].count);
        for (size_t w = cases[c].first_way; w < 5; w++) {
            struct case_outcome whole;
            struct case_outcome engine;
            (void)rig_machine();
            struct run_options options = options_of(&ways[w], &base);
            case_run_engine(&made, &options, STEPS, &whole);
            case_squeeze(&made, &options, 1, NULL);
            (void)rig_machine();
            case_run_engine(&made, &options, STEPS, &engine);
            case_check_equal(&whole, &engine, ways[w].name);
        }
        case_model_free(&made);
    }
}

/* TIDE_DEVICE_MEMORY=separate keeps the bits; with it, a sanitizer detects accesses beyond a
 * buffer's end on an emulated card. */
static void separate_memory(void)
{
    const struct run_options base = case_options();
    struct case_model made;
    card_or_skip();
    case_model_make(&made, "llama");
    for (size_t w = 1; w < TEST_COUNT(3, 2); w++) { /* states in STORE; all in DEVICE */
        const struct run_options options = options_of(&ways[w], &base);
        struct case_outcome one;
        struct case_outcome separate;
        (void)rig_machine();
        case_run_engine(&made, &options, STEPS, &one);
        check_int(setenv("TIDE_DEVICE_MEMORY", "separate", 1), ==, 0);
        (void)rig_machine();
        case_run_engine(&made, &options, STEPS, &separate);
        check_int(unsetenv("TIDE_DEVICE_MEMORY"), ==, 0);
        case_check_equal(&one, &separate, ways[w].name);
    }
    case_model_free(&made);
}

/* A timeline has the times of the card's ops, and does not change the results. */
static void ops_are_timed(void)
{
    const struct run_options base = case_options();
    struct case_model made;
    struct case_outcome plain;
    struct case_outcome traced = {0};
    struct core_json *doc = NULL;
    char path[600];
    card_or_skip();
    snprintf(path, sizeof path, "%s/timeline.json", test_directory());
    case_model_make(&made, "llama");
    const struct run_options options = options_of(&ways[2], &base);
    (void)rig_machine();
    case_run_engine(&made, &options, STEPS, &plain);
    (void)rig_machine();
    const struct case_part all = {.end = STEPS, .trace = path};
    case_run_part(&made, &options, &all, &traced, "a traced run");
    case_check_equal(&plain, &traced, "traced");
    check_int(core_json_load(path, NULL, &doc), ==, 0);
    const struct core_json_value *root = core_json_root(doc);
    const struct core_json_value *ops = core_json_find(core_json_find(root, "otherData"), "ops");
    const struct core_json_value *events = core_json_find(root, "traceEvents");
    double end_us = 0, sum_us = 0, total_us = 0;
    unsigned bars = 0, counted = 0;
    for (size_t i = 0; i < core_json_count(events); i++) {
        const struct core_json_value *event = core_json_at(events, i);
        const struct core_json_value *begin = core_json_find(event, "ts");
        if (begin != NULL && core_json_integer(core_json_find(event, "tid")) == PLAN_Q_COUNT) {
            const double took_us = core_json_real(core_json_find(event, "dur"));
            /* The card's clock is rounded. */
            check_double(core_json_real(begin), >=, end_us - 10);
            check_double(took_us, >=, 0);
            end_us = core_json_real(begin) + took_us;
            sum_us += took_us;
            bars++;
        }
    }
    for (size_t i = 0; i < core_json_count(ops); i++) {
        const struct core_json_value *op = core_json_at(ops, i);
        total_us += core_json_real(core_json_find(op, "us"));
        counted += (unsigned)core_json_integer(core_json_find(op, "count"));
    }
    check_uint(bars, >, 50);
    check_uint(counted, ==, bars);
    check_uint(core_json_count(ops), >, 8);
    check_double(sum_us, >, 0);
    check_double(fabs(total_us - sum_us), <, 1);
    core_json_destroy(doc);
    case_model_free(&made);
}

/* Frozen layers stored as nf4 give the same bits from every tier. */
static void stored(void)
{
    static const char *const patterns[] = {"model.layers.*"};
    struct run_options base = case_options();
    struct case_model made;
    card_or_skip();
    base.base = MODEL_STORAGE_NF4;
    case_model_make(&made, "llama");
    case_model_freeze(&made, patterns, sizeof patterns / sizeof patterns[0]);
    hold_made(&made, "llama", &base, "stored as nf4", &ways[2],
              TEST_COUNT(sizeof ways / sizeof ways[0] - 2, 1));
    case_model_free(&made);
}

/* Adapters have the same bits for two placements, and the CPU's losses up to rounding. */
static void adapters(void)
{
    static const char *const head[] = {"lm_head"};
    static const struct {
        const char *name;
        struct model_lora_options lora;
        enum model_storage base;
        bool pairs;
    } cases[] = {
        {"nf4, DoRA", {.rank = 4, .alpha = 8, .dora = true, .seed = 3}, MODEL_STORAGE_NF4, false},
        {"bf16, dropout, a module saved",
         {.rank = 4, .alpha = 8, .dropout = 0.2, .saved = head, .saved_count = 1, .seed = 3},
         MODEL_STORAGE_PLAIN,
         false},
        {"int8, DoRA and dropout",
         {.rank = 3, .alpha = 6, .rslora = true, .dora = true, .dropout = 0.2, .seed = 3},
         MODEL_STORAGE_INT8,
         false},
        {"pairs", {.rank = 4, .alpha = 8, .seed = 3}, MODEL_STORAGE_PLAIN, true},
    };
    card_or_skip();
    for (size_t c = 0; c < TEST_COUNT(sizeof cases / sizeof cases[0], 1); c++) {
        struct run_options base = case_options();
        struct case_model made;
        struct case_outcome cpu;
        struct case_outcome first;
        base.base = cases[c].base;
        case_model_make(&made, "llama");
        case_model_adapt(&made, &cases[c].lora);
        if (cases[c].pairs) {
            base.pairs = CASE_ROWS / 2;
            base.rows = 2 * base.pairs;
            base.row_length = CASE_LENGTH;
            base.length = 2 * CASE_LENGTH;
            base.beta = 0.5;
            made.rows = CASE_PAIRS;
        }
        case_run_engine(&made, &base, STEPS, &cpu);
        /* states on the card, then all in STORE */
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w += 4) {
            struct case_outcome engine;
            (void)rig_machine();
            const struct run_options options = options_of(&ways[w], &base);
            case_run_engine(&made, &options, STEPS, &engine);
            for (unsigned s = 0; s < STEPS; s++) {
                test_note("%s, %s: step %u: loss %.6f, the CPU's %.6f; norm %.5f, %.5f",
                          cases[c].name, ways[w].name, s, engine.loss[s], cpu.loss[s],
                          engine.norm[s], cpu.norm[s]);
                check_double(fabs(engine.loss[s] - cpu.loss[s]), <=, 0.01 * cpu.loss[s]);
                check_double(fabs(engine.norm[s] - cpu.norm[s]), <=, 0.05 * cpu.norm[s]);
            }
            if (w == 0) {
                first = engine;
            }
            case_check_equal(&first, &engine, ways[w].name);
        }
        case_model_free(&made);
    }
}

/* A card that expands stored layers by sections gives the bits of whole layers. */
static void stored_sections(void)
{
    const struct model_lora_options lora = {.rank = 4, .alpha = 8, .seed = 3};
    struct run_options base = case_options();
    struct case_model made;
    card_or_skip();
    base.tile_bytes = 16 << 10;
    case_model_make(&made, "llama, whole");
    case_model_adapt(&made, &lora);
    for (size_t w = 3; w < TEST_COUNT(5, 4); w++) { /* from HOST, and from STORE through HOST */
        struct case_outcome whole;
        struct case_outcome sections;
        base.base = w == 3 ? MODEL_STORAGE_NF4 : MODEL_STORAGE_INT8;
        struct run_options options = options_of(&ways[w], &base);
        (void)rig_machine();
        case_run_engine(&made, &options, STEPS, &whole);
        case_squeeze(&made, &options, 1, NULL);
        (void)rig_machine();
        case_run_engine(&made, &options, STEPS, &sections);
        case_check_equal(&whole, &sections, ways[w].name);
    }
    case_model_free(&made);
}

/* Placement does not depend on the family: two ways are enough. */
static void family(const char *name)
{
    const struct run_options base = case_options();
    hold(name, &base, "bf16", ways, 2);
}

/* A run resumed with its states on another tier has the bits of an uninterrupted one. */
static void checkpoints(void)
{
    static const struct way home = {
        "HOST", PLAN_WHERE_HOST, PLAN_WHERE_HOST, PLAN_ACTS_KEEP, false, 0, NULL};
    static const struct way card = {
        "the card", PLAN_WHERE_AUTO, PLAN_WHERE_DEVICE, PLAN_ACTS_KEEP, false, 0, NULL};
    struct case_model made;
    struct run_options base = case_options();
    struct case_outcome whole;
    if (TEST_SLOW) {
        test_skip("steps alone are enough under a sanitizer");
    }
    card_or_skip();
    base.wishes.saves = true;
    case_model_make(&made, "llama");
    const struct run_options at_home = options_of(&home, &base);
    const struct run_options on_card = options_of(&card, &base);
    case_run_engine(&made, &at_home, STEPS, &whole);
    for (int way = 0; way < 2; way++) {
        struct case_outcome parts = {0};
        char path[700];
        struct store_shelf *shelf = case_shelf_open();
        const struct run_save_options save = {.shelf = shelf,
                                              .source = made.folder,
                                              .keep = 2,
                                              .application = "place",
                                              .application_bytes = 6};
        const struct case_part first = {
            .end = STEPS, .save = &save, .save_after = 1, .later = way == 0};
        (void)rig_machine();
        case_run_part(&made, way == 0 ? &on_card : &at_home, &first, &parts, "a run that saves");
        const struct case_part second = {
            .first = 1,
            .end = STEPS,
            .resume = store_shelf_path(store_shelf_directory(shelf), 1, path, sizeof path)};
        (void)rig_machine();
        case_run_part(&made, way == 0 ? &at_home : &on_card, &second, &parts, "one that goes on");
        case_check_equal(&whole, &parts, way == 0 ? "away from the card" : "onto the card");
        store_shelf_close(shelf);
    }
    case_model_free(&made);
}

/* Under a sanitizer, frozen() runs the first ways. */
static void llama(void)
{
    const struct run_options base = case_options();
    const size_t first = TEST_COUNT(0, FROZEN_WAYS);
    hold("llama", &base, "bf16", ways + first, sizeof ways / sizeof ways[0] - first);
}

static void gpt2(void)
{
    if (TEST_SLOW) {
        test_skip("one family is enough under a sanitizer");
    }
    family("gpt2");
}

static void qwen3_tied(void)
{
    if (TEST_SLOW) {
        test_skip("one family is enough under a sanitizer");
    }
    family("qwen3 tied");
}

/* Takes minutes on an emulated card. */
static void all_of(const struct run_options *base, const char *what)
{
    static const char *const names[] = {"llama", "gpt2", "qwen3 tied", "llama tied"};
    if (rig_machine_is_visible() && getenv("TIDE_TEST_FULL") == NULL) {
        test_skip("takes minutes on an emulated card: set TIDE_TEST_FULL=1");
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        hold(names[i], base, what, more_ways, sizeof more_ways / sizeof more_ways[0]);
    }
}

static void micro_batches(void)
{
    struct run_options base = case_options();
    base.micro_batches = 3;
    all_of(&base, "three micro-batches");
}

static void unclipped(void)
{
    struct run_options base = case_options();
    base.clip = 0;
    base.wishes.timing = PLAN_TIMING_INSIDE;
    all_of(&base, "not clipped, updates inside");
}

static void fp32(void)
{
    struct run_options base = case_options();
    base.type = KERN_F32;
    base.micro_batches = 2;
    all_of(&base, "fp32");
}

static void fp16(void)
{
    struct run_options base = case_options();
    base.type = KERN_FP16;
    base.scale.fixed = 1024;
    base.may_skip = true;
    all_of(&base, "fp16");
}

static void tiled(void)
{
    struct run_options base = case_options();
    base.tile_bytes = 16384;
    all_of(&base, "tiled");
}

TEST_MAIN({"llama", llama}, {"gpt2", gpt2}, {"qwen3_tied", qwen3_tied}, {"frozen", frozen},
          {"sections", sections}, {"separate_memory", separate_memory},
          {"ops_are_timed", ops_are_timed}, {"stored", stored}, {"adapters", adapters},
          {"stored_sections", stored_sections}, {"checkpoints", checkpoints},
          {"micro_batches", micro_batches}, {"unclipped", unclipped}, {"fp32", fp32},
          {"fp16", fp16}, {"tiled", tiled})
