/* test_life.c: the API survives failed allocations and failed starts of threads. */
#include <stdio.h>
#include <tide/blocks.h>
#include <tide/checkpoint.h>
#include <tide/inspect.h>
#include <tide/optimizer.h>
#include <unistd.h>

#include "tests/api/world.h"
#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"

/* Made before allocations fail, because test_path() allocates. */
static struct {
    const char *blocks, *cache, *merged;
} paths;

static int context_life(void)
{
    struct tide_context *context = NULL;
    const struct tide_context_options options = {.struct_bytes = sizeof options};
    const int rc = tide_context_create(&options, &context);
    tide_context_destroy(context);
    return rc;
}

static int pinned_life(void)
{
    struct tide_pinned *pinned = NULL;
    const int rc = tide_pinned_alloc(NULL, "cpu", 1 << 16, &pinned);
    tide_pinned_free(pinned);
    return rc;
}

static void small_objects(void)
{
    check_int(context_life(), ==, 0);
    check_int(test_fail_nth(context_life), >=, 1);
    check_int(pinned_life(), ==, 0);
    check_int(test_fail_nth(pinned_life), >=, 2);
}

static int blocks_life(void)
{
    static unsigned char bytes[300 << 10];
    struct tide_memory memory = {
        .struct_bytes = sizeof memory, .memory = bytes, .bytes = sizeof bytes};
    const struct tide_store_path store = {
        .struct_bytes = sizeof store, .directory = paths.blocks, .bytes = 16 << 20};
    const struct tide_blocks_options options = {.struct_bytes = sizeof options,
                                                .host_bytes = 1 << 20,
                                                .stores = &store,
                                                .store_count = 1,
                                                .io = "threads",
                                                .memory = &memory,
                                                .memory_count = 1};
    struct tide_blocks *blocks = NULL;
    int rc = tide_blocks_create(NULL, &options, &blocks);
    for (int i = 0; rc == 0 && i < 6; i++) {
        const char name[] = {(char)('a' + i), '\0'};
        rc = tide_blocks_put(blocks, name, bytes, sizeof bytes);
    }
    if (rc == 0) {
        rc = tide_blocks_get(blocks, "a", bytes, sizeof bytes, NULL);
    }
    tide_blocks_destroy(blocks);
    return rc;
}

static void a_block_store(void)
{
    paths.blocks = test_path("blocks");
    check_int(blocks_life(), ==, 0);
    check_int(test_fail_nth(blocks_life), >=, 10);
    check_int(access(paths.blocks, F_OK), !=, 0);
}

static int optimizer_life(void)
{
    static float weights[1000];
    static float gradient[1000];
    struct tide_optim *optim = NULL;
    struct tide_optim_group group;
    struct tide_optim_options options;
    uint64_t token = 0;
    const struct tide_optim_parameter parameter = {.struct_bytes = sizeof parameter,
                                                   .name = "a",
                                                   .weights = weights,
                                                   .elements = 1000,
                                                   .precision = TIDE_FP32,
                                                   .gradients = TIDE_FP32};
    check_int(tide_optim_group_init(&group, sizeof group), ==, 0);
    check_int(tide_optim_options_init(&options, sizeof options), ==, 0);
    options.parameters = &parameter;
    options.parameter_count = 1;
    options.groups = &group;
    options.group_count = 1;
    options.threads = 2;
    options.host_bytes = 40 << 20;
    options.cache = paths.cache;
    options.clip = 1;
    int rc = tide_optim_create(NULL, &options, &optim);
    if (rc == 0) {
        rc = tide_optim_submit(optim, 0, gradient, 1, &token);
    }
    if (rc == 0) {
        rc = tide_optim_step(optim, &token);
    }
    if (rc == 0) {
        rc = tide_optim_wait(optim, token);
    }
    tide_optim_destroy(optim);
    return rc;
}

static void an_optimizer(void)
{
    paths.cache = test_path("cache");
    check_int(optimizer_life(), ==, 0);
    check_int(test_fail_nth(optimizer_life), >=, 20);
}

static char base[600];
static char adapter[600];

static int merge_life(void)
{
    return tide_adapter_merge(NULL, base, adapter, paths.merged, 1);
}

/* A merge after a failure is complete. */
static void a_merge(void)
{
    char weights[700];
    snprintf(base, sizeof base, "%s/model/fixtures/llama", test_root());
    snprintf(adapter, sizeof adapter, "%s/model/lora/llama_dora/start", test_root());
    paths.merged = test_path("merged");
    check_int(merge_life(), ==, 0);
    check_int(test_fail_nth(merge_life), >=, 30);
    snprintf(weights, sizeof weights, "%s/model.safetensors", paths.merged);
    check_int(access(weights, R_OK), ==, 0);
    snprintf(weights, sizeof weights, "%s.partial", paths.merged);
    check_int(access(weights, F_OK), !=, 0);
}

static struct world world;
static char checkpoints[600];
static char newest[700];

static int plan_life(void)
{
    struct tide_plan *plan = NULL;
    const int rc = tide_plan_create(NULL, &world.options, &plan);
    tide_plan_destroy(plan);
    return rc;
}

/* Creates an engine, takes a step and saves a checkpoint. */
static int engine_life(void)
{
    struct tide_engine *engine = NULL;
    struct tide_step step = {.struct_bytes = sizeof step};
    const struct tide_checkpoint_options saving = {
        .struct_bytes = sizeof saving, .directory = checkpoints, .keep = 1, .replace = 1};
    int rc = tide_engine_create(NULL, &world.options, &engine);
    if (rc == 0) {
        rc = tide_engine_step(engine, &world.batch, 1, 1e-3, &step);
    }
    if (rc == 0) {
        rc = tide_engine_checkpoint(engine, &saving);
    }
    tide_engine_destroy(engine);
    return rc;
}

static int inspect_life(void)
{
    struct tide_inspection found = {.struct_bytes = sizeof found};
    const int rc = tide_inspect(NULL, newest, NULL, &found);
    check_true(rc != 0 || found.verified);
    return rc;
}

static int export_life(void)
{
    return tide_checkpoint_export(NULL, newest, paths.merged, 1);
}

static int device_life(void)
{
    struct tide_device_info info = {.struct_bytes = sizeof info};
    struct tide_device_rates rates = {.struct_bytes = sizeof rates};
    const int rc = tide_device_describe(NULL, "cpu", &info);
    return rc == 0 ? tide_device_measure(NULL, "cpu", 1 << 12, &rates) : rc;
}

static void find_newest(void)
{
    uint64_t step = 0;
    for (uint64_t s = 1; s < 1000; s++) {
        snprintf(newest, sizeof newest, "%s/checkpoint-%llu", checkpoints, (unsigned long long)s);
        step = access(newest, F_OK) == 0 ? s : step;
    }
    check_uint(step, >, 0);
    snprintf(newest, sizeof newest, "%s/checkpoint-%llu", checkpoints, (unsigned long long)step);
}

/* Of most objects, only every n-th request fails, to save time. */
static void a_run(void)
{
    world_init(&world);
    snprintf(checkpoints, sizeof checkpoints, "%s", test_path("checkpoints"));
    paths.merged = test_path("exported");
    world.options.lora_rank = 4;
    world.options.io = "threads";
    check_int(plan_life(), ==, 0);
    check_int(test_fail_every(plan_life, TEST_COUNT(3, 31)), >=, 100);
    check_int(engine_life(), ==, 0);
    check_int(test_fail_every(engine_life, TEST_COUNT(41, 151)), >=, 100);
    world.options.resume = checkpoints;
    check_int(engine_life(), ==, 0);
    check_int(test_fail_every(engine_life, TEST_COUNT(41, 151)), >=, 100);
    find_newest();
    check_int(inspect_life(), ==, 0);
    check_int(test_fail_every(inspect_life, TEST_COUNT(3, 31)), >=, 100);
    check_int(export_life(), ==, 0);
    check_int(test_fail_every(export_life, TEST_COUNT(2, 31)), >=, 100);
    check_int(test_fail_nth(device_life), >=, 2);
}

TEST_MAIN({"small_objects", small_objects}, {"a_block_store", a_block_store},
          {"an_optimizer", an_optimizer}, {"a_merge", a_merge}, {"a_run", a_run})
