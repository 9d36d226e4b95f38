/* test_resume.c: a resumed run has the bits of an uninterrupted run, even with other placements,
 * chunks and I/O back ends. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aio/backend.h"
#include "offload/model/adapter.h"
#include "tests/aio/fault.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

enum { STEPS = 4, SAVED = 2 };

/* Zero fields are the defaults. */
struct way {
    const char *name;
    enum plan_where weights, states, grads;
    enum plan_acts acts;
    enum plan_timing timing;
    uint64_t chunk_elements;
    const char *io;
    bool store;
};

static const struct way ways[] = {
    {.name = "in memory"},
    {.name = "all in STORE, threads",
     .weights = PLAN_WHERE_STORE,
     .states = PLAN_WHERE_STORE,
     .acts = PLAN_ACTS_RECOMPUTE,
     .io = "threads",
     .store = true},
    {.name = "all in STORE, chunks of 128 Ki",
     .weights = PLAN_WHERE_STORE,
     .states = PLAN_WHERE_STORE,
     .chunk_elements = 131072,
     .store = true},
    {.name = "states in STORE",
     .weights = PLAN_WHERE_HOST,
     .states = PLAN_WHERE_STORE,
     .io = "mem",
     .store = true},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

static struct run_options options_of(const struct way *way, const struct run_options *base)
{
    struct run_options options = *base;
    options.wishes.saves = true;
    options.wishes.weights = way->weights;
    options.wishes.states = way->states;
    options.wishes.grads = way->grads;
    options.wishes.acts = way->acts;
    options.wishes.timing = way->timing;
    options.wishes.chunk_elements = way->chunk_elements > 0 ? way->chunk_elements
                                                            : base->wishes.chunk_elements;
    options.io = way->io;
    if (way->store) {
        case_store(&options, way->io);
    }
    return options;
}

/* Saves after SAVED steps with `from`, and resumes with `to`. */
static void interrupt(const struct case_model *made, const struct run_options *base,
                      const struct way *from, const struct way *to, const char *what)
{
    char name[300];
    char path[700];
    struct case_outcome whole;
    struct case_outcome parts = {.steps = 0};
    struct store_shelf *shelf = case_shelf_open();
    const struct run_options before = options_of(from, base);
    const struct run_options after = options_of(to, base);
    const struct run_save_options save = {.shelf = shelf,
                                          .source = made->folder,
                                          .keep = 2,
                                          .application = "place",
                                          .application_bytes = 6};
    const struct case_part first = {.end = SAVED, .save = &save, .save_after = SAVED};
    const struct case_part second = {
        .first = SAVED,
        .end = STEPS,
        .resume = store_shelf_path(store_shelf_directory(shelf), SAVED, path, sizeof path)};
    snprintf(name, sizeof name, "%s: from %s to %s", what, from->name, to->name);
    case_run_engine(made, base, STEPS, &whole);
    case_run_part(made, &before, &first, &parts, name);
    case_run_part(made, &after, &second, &parts, name);
    case_check_equal(&whole, &parts, name);
    store_shelf_close(shelf);
}

/* The resumed run has the chunks of `base`, because hashes depend on chunks. A thread sanitizer
 * needs one family: threads treat families alike. */
static void hold(const struct run_options *base, unsigned count, const char *what)
{
    static const char *const families[] = {"llama", "gpt2", "qwen3 tied"};
    static unsigned calls;
    for (unsigned f = 0; f < count; f += TEST_STRIDE(3)) {
        struct case_model made;
        case_model_make(&made, families[f]);
        for (size_t w = calls++ % TEST_STRIDE(2); w < WAYS; w += TEST_STRIDE(2)) {
            char name[100];
            const struct way *to = &ways[(w + 1) % WAYS];
            to = to->chunk_elements > 0 ? &ways[0] : to;
            snprintf(name, sizeof name, "%s, %s", families[f], what);
            interrupt(&made, base, &ways[w], to, name);
        }
        case_model_free(&made);
    }
}

static void bf16(void)
{
    const struct run_options options = case_options();
    hold(&options, 3, "bf16");
}

/* No update is pending when the checkpoint is saved. */
static void inside(void)
{
    struct run_options options = case_options();
    options.clip = 0;
    hold(&options, 1, "updates inside backward");
}

static void fp32(void)
{
    struct run_options options = case_options();
    options.type = KERN_F32;
    hold(&options, 1, "fp32");
}

/* The high loss scale makes steps overflow and then falls; a resumed run continues with the saved
 * scale. */
static void fp16_scale_moves(void)
{
    struct case_model made;
    struct case_outcome whole;
    struct run_options options = case_options();
    options.type = KERN_FP16;
    options.may_skip = true;
    options.scale = (struct run_scale_options){
        .first = 4294967296.0 * 4096, .least = 1, .window = 2, .hysteresis = 1};
    case_model_make(&made, "llama");
    case_run_engine(&made, &options, STEPS, &whole);
    check_true(whole.skipped[0] && whole.skipped[1]);
    interrupt(&made, &options, &ways[0], &ways[1], "fp16");
    case_model_free(&made);
    hold(&options, 1, "fp16");
}

/* Narrow moments are rounded at random; the numbers depend only on seed, step and position. */
static void narrow_moments(void)
{
    struct run_options options = case_options();
    options.moments = CORE_UPDATE_BF16;
    hold(&options, 1, "bf16 moments");
}

/* A checkpoint that is saved while steps run changes no bits. */
static void under_the_next_step(void)
{
    static const char *const families[] = {"llama", "qwen3 tied"};
    const struct run_options base = case_options();
    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++) {
        struct case_model made;
        struct case_outcome whole;
        case_model_make(&made, families[f]);
        case_run_engine(&made, &base, STEPS, &whole);
        for (size_t w = f % TEST_STRIDE(2); w < WAYS; w += TEST_STRIDE(2)) {
            char path[700];
            struct case_outcome saving = {.steps = 0};
            struct case_outcome resumed = whole;
            struct store_shelf *shelf = case_shelf_open();
            const struct run_options options = options_of(&ways[w], &base);
            const struct run_save_options save = {.shelf = shelf, .keep = 2};
            const struct case_part first = {
                .end = STEPS, .save = &save, .save_after = SAVED, .later = true};
            const struct case_part second = {
                .first = SAVED,
                .end = STEPS,
                .resume = store_shelf_path(store_shelf_directory(shelf), SAVED, path, sizeof path)};
            case_run_part(&made, &options, &first, &saving, ways[w].name);
            case_run_part(&made, &base, &second, &resumed, ways[w].name);
            if (ways[w].chunk_elements == 0) {
                case_check_equal(&whole, &saving, ways[w].name);
            }
            case_check_equal(&whole, &resumed, ways[w].name);
            store_shelf_close(shelf);
        }
        case_model_free(&made);
    }
}

/* If a write fails while a step runs, the checkpoint fails, but not the run. */
static void fails_alone(void)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct run_engine *engine = NULL;
    struct store_shelf *shelf = case_shelf_open();
    struct aio_fault fault = {.inner = &aio_threads, .rules_count = 1};
    const struct run_options base = case_options();
    const struct run_options options = options_of(&ways[1], &base);
    fault.rules[0] = (struct aio_fault_rule){
        .kind = AIO_FAULT_ERROR, .from = 5, .count = AIO_FAULT_FOREVER, .argument = ENOSPC};
    case_model_make(&made, "llama");
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    const struct run_engine_options engine_options = {
        .prepared = prepared, .options = &options, .model = made.model, .files = made.files};
    check_int(run_engine_create(&engine_options, &engine), ==, 0);
    struct run_save_options save = {.shelf = shelf, .recipe = aio_fault_recipe(&fault)};
    for (unsigned s = 0; s < 3; s++) {
        int32_t ids[CASE_ROWS * CASE_LENGTH];
        const struct model_batch batch = case_batch(&made, s, 0, ids);
        struct run_step step;
        check_int(run_engine_step(engine, &batch, 1, 1e-3, &step), ==, 0);
        check_int(s == 0 ? run_engine_save(engine, &save, RUN_SAVE_LATER) : 0, ==, 0);
        check_true(run_engine_save_is_open(engine));
    }
    check_int(run_engine_save_wait(engine), ==, -ENOSPC);
    check_int(run_engine_save_wait(engine), ==, 0);
    save.recipe = NULL;
    check_int(run_engine_save(engine, &save, RUN_SAVE_NOW), ==, 0);
    run_engine_destroy(engine);
    run_prepared_destroy(prepared);
    case_model_free(&made);
    uint64_t *steps = NULL;
    size_t count = 0;
    check_int(store_shelf_list(store_shelf_directory(shelf), &steps, &count), ==, 0);
    check_uint(count, ==, 1);
    check_uint(steps[0], ==, 3);
    free(steps);
    store_shelf_close(shelf);
}

/* An engine that is destroyed before its checkpoint is written leaves nothing of it. */
static void ends_before_it_is_written(void)
{
    struct case_model made;
    struct run_prepared *prepared = NULL;
    struct run_engine *engine = NULL;
    struct store_shelf *shelf = case_shelf_open();
    const struct run_options base = case_options();
    const struct run_options options = options_of(&ways[0], &base);
    const struct run_save_options save = {.shelf = shelf};
    char path[700];
    case_model_make(&made, "gpt2");
    check_int(run_prepared_create(made.model, &options, case_rates(), &prepared), ==, 0);
    const struct run_engine_options engine_options = {
        .prepared = prepared, .options = &options, .model = made.model, .files = made.files};
    check_int(run_engine_create(&engine_options, &engine), ==, 0);
    int32_t ids[CASE_ROWS * CASE_LENGTH];
    const struct model_batch batch = case_batch(&made, 0, 0, ids);
    struct run_step step;
    check_int(run_engine_step(engine, &batch, 1, 1e-3, &step), ==, 0);
    check_int(run_engine_save(engine, &save, RUN_SAVE_LATER), ==, 0);
    run_engine_destroy(engine);
    store_shelf_path(store_shelf_directory(shelf), 1, path, sizeof path);
    check_true(access(path, F_OK) != 0);
    snprintf(path, sizeof path, "%s/checkpoint-1.partial", store_shelf_directory(shelf));
    check_true(access(path, F_OK) != 0);
    run_prepared_destroy(prepared);
    case_model_free(&made);
    store_shelf_close(shelf);
}

/* A resumed run drops the elements that the uninterrupted run drops, and pairs keep their
 * reference. */
static void dropout(void)
{
    const struct model_lora_options lora = {.rank = 4, .alpha = 8, .dropout = 0.3, .seed = 3};
    struct run_options options = case_options();
    struct case_model made;
    case_model_make(&made, "llama");
    case_model_adapt(&made, &lora);
    interrupt(&made, &options, &ways[0], &ways[1], "dropout");
    made.rows = CASE_PAIRS;
    options.pairs = CASE_ROWS / 2;
    options.rows = 2 * options.pairs;
    options.row_length = CASE_LENGTH;
    options.length = 2 * CASE_LENGTH;
    options.beta = 0.5;
    interrupt(&made, &options, &ways[0], &ways[1], "pairs");
    case_model_free(&made);
}

TEST_MAIN({"bf16", bf16}, {"inside", inside}, {"fp32", fp32}, {"dropout", dropout},
          {"fp16_scale_moves", fp16_scale_moves}, {"narrow_moments", narrow_moments},
          {"under_the_next_step", under_the_next_step}, {"fails_alone", fails_alone},
          {"ends_before_it_is_written", ends_before_it_is_written})
