/* test_life.c: proves that objects of the API survive any allocation or thread that fails: the
 * error is reported, nothing leaks, and the next attempt succeeds. The test is linked statically,
 * because only statically linked code can be made to fail. */
#include <stdio.h>
#include <tide/blocks.h>
#include <tide/checkpoint.h>
#include <tide/optimizer.h>
#include <unistd.h>

#include "tests/harness/fail_alloc.h"
#include "tests/harness/test.h"

/* These files are in the test's directory and are made before allocations fail. */
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

/* ---- a block store ---- */

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

/* ---- an optimizer ---- */

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

/* ---- adapters ---- */

static char base[600];
static char adapter[600];

static int merge_life(void)
{
    return tide_adapter_merge(NULL, base, adapter, paths.merged, 1);
}

/* A folder that is merged again after a failure is complete. */
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

TEST_MAIN({"small_objects", small_objects}, {"a_block_store", a_block_store},
          {"an_optimizer", an_optimizer}, {"a_merge", a_merge})
