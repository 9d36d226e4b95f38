/* test_growth.c: programs and libraries of different versions work together. Structs of the newer
 * program (GROWTH_NEWER_PROGRAM) or library (GROWTH_NEWER_LIBRARY) have grown. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <tide/blocks.h>
#include <tide/checkpoint.h>
#include <tide/doctor.h>
#include <tide/inspect.h>

#include "tests/api/layout.h"
#include "tests/api/world_files.h"
#include "tests/harness/test.h"

enum { GUARD_BYTES = 64, GUARD = 0xA5 };

/* Returns a struct with struct_bytes set, followed by a guard. */
static void *guard(size_t bytes)
{
    unsigned char *at = malloc(bytes + GUARD_BYTES);
    check_true(at != NULL);
    memset(at, GUARD, bytes + GUARD_BYTES);
    memcpy(at, &bytes, sizeof bytes);
    return at;
}

/* Checks the guard and struct_bytes, and frees the struct. */
static void release(void *at, size_t bytes, const char *name)
{
    const unsigned char *behind = (const unsigned char *)at + bytes;
    size_t now;
    memcpy(&now, at, sizeof now);
    check_uint(now, ==, bytes);
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (behind[i] != GUARD) {
            test_fail(__FILE__, __LINE__, "struct %s: byte %zu after it was written", name, i);
        }
    }
    free(at);
}

/* The library sets a newer program's fields to zero. */
#ifdef GROWTH_NEWER_PROGRAM
#define CHECK_NEWS(at) check_true((at)->grown == 0 && (at)->grown_more == 0)
#else
#define CHECK_NEWS(at) (void)(at)
#endif

/* Checks that `call` succeeds, writes only within the struct `at`, and makes `right` true. */
#define FILL(type, call, right)                                                                    \
    do {                                                                                           \
        struct type *at = guard(sizeof *at);                                                       \
        const int got = (call);                                                                    \
        if (got != 0 || !(right)) {                                                                \
            test_fail(__FILE__, __LINE__, "%s: %d: %s", #type, got, tide_last_error());            \
        }                                                                                          \
        CHECK_NEWS(at);                                                                            \
        release(at, sizeof *at, #type);                                                            \
    } while (0)

/* ---- recorded layout and functions ---- */

/* Recorded fields have the same offsets and sizes, and recorded enumerators the same values. */
static void layout(void)
{
    size_t i = 0;
    for (; layout_recorded[i].name != NULL; i++) {
        const struct layout_row *old = &layout_recorded[i];
        const struct layout_row *now = &layout_current[i];
        if (old->value != now->value || old->bytes != now->bytes) {
            test_fail(__FILE__, __LINE__, "%s was %zu (%zu bytes) and is %zu (%zu bytes)",
                      old->name, old->value, old->bytes, now->value, now->bytes);
        }
    }
    check_uint(i, >=, 200);
}

static void functions(void)
{
#define FIELD(owner, field)
#define VALUE(name)
#define FUNCTION(name) (uintptr_t)(name),
    const uintptr_t all[] = {
#include RECORDED_NAMES
    };
#undef FUNCTION
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        check_true(all[i] != 0);
    }
    check_uint(sizeof all / sizeof all[0], >=, 40);
}

/* ---- a program that uses the library ---- */

static char model[WORLD_PATH_BYTES];
static char rates[WORLD_PATH_BYTES];
static int32_t ids[WORLD_ROWS * WORLD_LENGTH];
static const char *const folders[] = {"unused 0", "unused 1"};
static struct tide_store_path stores[2];
static struct tide_batch batches[2];

static void fill_options(struct tide_engine_options *options)
{
    world_files_init(model, rates, ids);
    check_int(tide_engine_options_init(options, sizeof *options), ==, 0);
    options->model = model;
    options->rates = rates;
    options->threads = 1;
    options->batch = WORLD_ROWS;
    options->length = WORLD_LENGTH;
    options->accum = 2;
    options->device_bytes = options->host_bytes = (uint64_t)TEST_COUNT(256, 1024) << 20;
    options->io = "mem";
    options->weights = options->states = TIDE_STORE;
    options->stores = stores;
    options->store_count = 2;
    for (int i = 0; i < 2; i++) {
        stores[i] = (struct tide_store_path){.struct_bytes = sizeof stores[i],
                                             .directory = folders[i],
                                             .bytes = UINT64_C(256) << 20};
        batches[i] = (struct tide_batch){.struct_bytes = sizeof batches[i],
                                         .rows = 1,
                                         .length = WORLD_LENGTH,
                                         .ids = ids + i * WORLD_LENGTH};
    }
}

/* The init function never writes beyond the program's size. */
static void init(void)
{
    for (size_t bytes = sizeof(size_t); bytes <= sizeof(struct tide_engine_options); bytes += 8) {
        struct tide_engine_options *options = guard(bytes);
        check_int(tide_engine_options_init(options, bytes), ==, 0);
        release(options, bytes, "tide_engine_options");
    }
    struct tide_engine_options *options = guard(sizeof *options);
    check_int(tide_engine_options_init(options, sizeof *options), ==, 0);
    check_double(options->clip, ==, 1);
    check_double(options->beta2, ==, 0.999);
    check_true(options->cache == NULL && options->store_count == 0);
    CHECK_NEWS(options);
    release(options, sizeof *options, "tide_engine_options");
    check_int(tide_engine_options_init(NULL, sizeof *options), ==, -EINVAL);
}

static void descriptions(void)
{
    world_files_init(model, rates, ids);
    FILL(tide_build, tide_build_info(at), strcmp(at->version, tide_version()) == 0);
    FILL(tide_backend, tide_backend_at(0, at), strcmp(at->task, "device") == 0);
    FILL(tide_library, tide_library_at(0, at), at->name != NULL && at->state != NULL);
    FILL(tide_device_info, tide_device_describe(NULL, "cpu", at), at->units >= 1);
    FILL(tide_device_rates, tide_device_measure(NULL, "cpu", 1 << 12, at), at->within > 0);
    FILL(tide_inspection, tide_inspect(NULL, model, NULL, at),
         at->verified && at->layers == 2 && at->vocab == WORLD_VOCAB && at->paths == 0);
}

static void plans(void)
{
    struct tide_engine_options *options = guard(sizeof *options);
    struct tide_plan *plan = NULL;
    fill_options(options);
    check_int(tide_plan_create(NULL, options, &plan), ==, 0);
    FILL(tide_plan_info, tide_plan_describe(plan, at),
         at->store_bytes > 0 && at->clipped_seconds > 0);
    FILL(tide_plan_part, tide_plan_part_at(plan, 0, at), at->bytes > 0);
    struct tide_plan_alternative *other = guard(sizeof *other);
    const int rc = tide_plan_alternative_at(plan, 0, other);
    check_true(rc == 0 || rc == -ENOENT);
    release(other, sizeof *other, "tide_plan_alternative");
    tide_plan_destroy(plan);
    release(options, sizeof *options, "tide_engine_options");
}

/* In a run, the library uses the program's sizes of structs. */
static void run(void)
{
    struct tide_engine_options *options = guard(sizeof *options);
    struct tide_engine *engine = NULL;
    fill_options(options);
    int rc = tide_engine_create(NULL, options, &engine);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "no engine: %s", tide_last_error());
    }
    FILL(tide_step, tide_engine_step(engine, batches, 2, 1e-3, at),
         at->step == 1 && at->loss > 0 && at->tokens == (uint64_t)2 * WORLD_LENGTH &&
             at->targets == (uint64_t)2 * (WORLD_LENGTH - 1) && at->guess_seconds >= 0);
    FILL(tide_engine_wait, tide_engine_wait_at(engine, TIDE_WAIT_OTHER, at),
         strcmp(at->name, "other") == 0 && at->compute_seconds >= 0);
    FILL(tide_evaluation, tide_engine_evaluate(engine, &batches[1], at),
         at->loss_sum > 0 && at->targets == WORLD_LENGTH - 1);
    FILL(tide_engine_memory, tide_engine_memory(engine, at), at->host_bytes > 0);
    struct tide_checkpoint_options *saving = guard(sizeof *saving);
    *saving = (struct tide_checkpoint_options){.struct_bytes = sizeof *saving,
                                               .directory = test_directory(),
                                               .application = "place",
                                               .application_bytes = 5};
    check_int(tide_engine_checkpoint(engine, saving), ==, 0);
    release(saving, sizeof *saving, "tide_checkpoint_options");
    batches[1].rows = 0;
    struct tide_step *step = guard(sizeof *step);
    check_int(tide_engine_step(engine, batches, 2, 1e-3, step), ==, -EINVAL);
    check_contains(tide_last_error(), "micro-batch 1");
    release(step, sizeof *step, "tide_step");
    tide_engine_destroy(engine);
    options->resume = test_directory();
    engine = NULL;
    check_int(tide_engine_create(NULL, options, &engine), ==, 0);
    FILL(tide_resumed, tide_engine_resumed(engine, at),
         at->step == 1 && at->application_bytes == 5 && memcmp(at->application, "place", 5) == 0);
    tide_engine_destroy(engine);
    stores[1].directory = "";
    check_int(tide_engine_create(NULL, options, &engine), ==, -EINVAL);
    check_contains(tide_last_error(), "store 1 has no directory");
    release(options, sizeof *options, "tide_engine_options");
}

/* A block store uses the program's sizes of structs. */
static void blocks(void)
{
    static char bytes[8192] = "block";
    struct tide_blocks *store = NULL;
    struct tide_pinned *pinned = NULL;
    check_int(tide_pinned_alloc(NULL, "cpu", 8192, &pinned), ==, 0);
    struct tide_memory memory[2];
    for (int i = 0; i < 2; i++) {
        stores[i] = (struct tide_store_path){
            .struct_bytes = sizeof stores[i], .directory = folders[i], .bytes = 1 << 20};
        memory[i] = (struct tide_memory){.struct_bytes = sizeof memory[i],
                                         .memory = (char *)tide_pinned_memory(pinned) + i * 4096,
                                         .bytes = 4096};
    }
    struct tide_blocks_options *options = guard(sizeof *options);
    *options = (struct tide_blocks_options){.struct_bytes = sizeof *options,
                                            .host_bytes = 1 << 16,
                                            .stores = stores,
                                            .store_count = 1,
                                            .io = "mem",
                                            .memory = memory,
                                            .memory_count = 2};
    check_int(tide_blocks_create(NULL, options, &store), ==, 0);
    release(options, sizeof *options, "tide_blocks_options");
    struct tide_block_io *io = guard(sizeof *io);
    *io = (struct tide_block_io){.struct_bytes = sizeof *io, .through = 1};
    uint64_t token = 0;
    check_int(tide_blocks_put_begin(store, "a", bytes, sizeof bytes, io, &token), ==, 0);
    release(io, sizeof *io, "tide_block_io");
    check_int(tide_blocks_wait(store, token, NULL), ==, 0);
    FILL(tide_block, tide_blocks_get(store, "a", NULL, 0, at),
         at->bytes == sizeof bytes && memcmp(at->data, "block", 5) == 0);
    FILL(tide_block_info, tide_blocks_describe(store, "a", at),
         at->pins == 1 && at->in_memory == 1);
    FILL(tide_blocks_stats, tide_blocks_stats(store, at),
         at->host_bytes == 1 << 16 && at->gets == 1 && at->order_changes == 0);
    tide_blocks_destroy(store);
    tide_pinned_free(pinned);
}

/* ---- callbacks ---- */

/* A struct that is passed to a callback has the library's size. */
static void check_handed(size_t bytes, size_t known)
{
#if defined GROWTH_NEWER_PROGRAM && !defined GROWTH_NEWER_LIBRARY
    check_uint(bytes, <, known);
#elif !defined GROWTH_NEWER_PROGRAM && defined GROWTH_NEWER_LIBRARY
    check_uint(bytes, >, known);
#else
    check_uint(bytes, >=, known);
#endif
}

static int see_progress(void *user, const struct tide_progress *progress)
{
    check_handed(progress->struct_bytes, sizeof *progress);
    check_true(progress->total == 1 && strcmp(progress->phase, "measure copies") == 0);
    ++*(unsigned *)user;
    return 0;
}

static void see_tensor(void *user, const struct tide_tensor *tensor)
{
    check_handed(tensor->struct_bytes, sizeof *tensor);
    check_true(tensor->dimensions >= 1 && tensor->shape[0] > 0 && tensor->bytes > 0);
    ++*(unsigned *)user;
}

static void callbacks(void)
{
    unsigned calls[2] = {0, 0};
    struct tide_context *context = NULL;
    const struct tide_context_options options = {
        .struct_bytes = sizeof options, .progress = see_progress, .user = &calls[0]};
    const struct tide_inspect_options inspecting = {
        .struct_bytes = sizeof inspecting, .tensor = see_tensor, .user = &calls[1]};
    world_files_init(model, rates, ids);
    check_int(tide_context_create(&options, &context), ==, 0);
    FILL(tide_device_rates, tide_device_measure(context, "cpu", 1 << 12, at), at->up > 0);
    FILL(tide_inspection, tide_inspect(context, model, &inspecting, at), at->tensors > 0);
    check_uint(calls[0], ==, 2);
    check_uint(calls[1], >, 4);
    tide_context_destroy(context);
}

/* ---- options that an older library does not know ---- */

#ifdef GROWTH_NEWER_PROGRAM
/* An older library refuses the new option; a newer one knows it. */
static void expect_news(int rc, const char *name)
{
#ifdef GROWTH_NEWER_LIBRARY
    if (rc == -E2BIG) {
        test_fail(__FILE__, __LINE__, "%s: refused", name);
    }
#else
    if (rc != -E2BIG || strstr(tide_last_error(), name) == NULL) {
        test_fail(__FILE__, __LINE__, "%s: %d: %s", name, rc, tide_last_error());
    }
#endif
}

static void news(void)
{
    struct tide_engine_options options;
    struct tide_plan *plan = NULL;
    struct tide_context *context = NULL;
    fill_options(&options);
    options.grown = 1;
    expect_news(tide_plan_create(NULL, &options, &plan), "tide_engine_options");
    tide_plan_destroy(plan);
    plan = NULL;
    fill_options(&options);
    stores[1].grown_more = 1;
    expect_news(tide_plan_create(NULL, &options, &plan), "tide_store_path");
    tide_plan_destroy(plan);
    const struct tide_context_options talking = {.struct_bytes = sizeof talking, .grown = 1};
    expect_news(tide_context_create(&talking, &context), "tide_context_options");
    tide_context_destroy(context);
    const struct tide_inspect_options inspecting = {.struct_bytes = sizeof inspecting, .grown = 1};
    struct tide_inspection found = {.struct_bytes = sizeof found};
    expect_news(tide_inspect(NULL, model, &inspecting, &found), "tide_inspect_options");
    const struct tide_doctor_options asking = {
        .struct_bytes = sizeof asking,
        .store_count = 1, /* refused later, without `stores` */
        .grown = 1};
    expect_news(tide_doctor(NULL, &asking), "tide_doctor_options");
}

static void news_in_a_run(void)
{
    struct tide_engine_options options;
    struct tide_engine *engine = NULL;
    struct tide_step step = {.struct_bytes = sizeof step};
    fill_options(&options);
    check_int(tide_engine_create(NULL, &options, &engine), ==, 0);
    batches[1].grown = 1;
    expect_news(tide_engine_step(engine, batches, 2, 1e-3, &step), "tide_batch");
    const struct tide_checkpoint_options saving = {.struct_bytes = sizeof saving, .grown = 1};
    expect_news(tide_engine_checkpoint(engine, &saving), "tide_checkpoint_options");
    tide_engine_destroy(engine);
}

static void news_in_blocks(void)
{
    struct tide_blocks *store = NULL;
    struct tide_memory memory = {.struct_bytes = sizeof memory, .grown = 1};
    struct tide_blocks_options options = {
        .struct_bytes = sizeof options, .host_bytes = 1 << 16, .grown = 1};
    expect_news(tide_blocks_create(NULL, &options, &store), "tide_blocks_options");
    tide_blocks_destroy(store);
    store = NULL;
    options.grown = 0;
    options.memory = &memory;
    options.memory_count = 1;
    expect_news(tide_blocks_create(NULL, &options, &store), "tide_memory");
    options.memory_count = 0;
    check_int(tide_blocks_create(NULL, &options, &store), ==, 0);
    const struct tide_block_io io = {.struct_bytes = sizeof io, .grown = 1};
    uint64_t token = 0;
    expect_news(tide_blocks_put_begin(store, "a", "b", 1, &io, &token), "tide_block_io");
    tide_blocks_destroy(store);
}

#define NEWS_CASES                                                                                 \
    {"news", news}, {"news_in_blocks", news_in_blocks}, {"news_in_a_run", news_in_a_run},
#else
#define NEWS_CASES
#endif

TEST_MAIN(NEWS_CASES{"layout", layout}, {"functions", functions}, {"init", init},
          {"descriptions", descriptions}, {"plans", plans}, {"run", run}, {"blocks", blocks},
          {"callbacks", callbacks})
