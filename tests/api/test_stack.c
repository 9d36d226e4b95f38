/* test_stack.c: calls of libtide need no more stack than docs/api.md states. Stacks are filled with
 * a pattern; overwritten bytes were used. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tide/blocks.h>
#include <tide/checkpoint.h>
#include <tide/doctor.h>
#include <tide/inspect.h>
#include <tide/tide.h>
#include <unistd.h>

#include "tests/api/world.h"

/* The thread's own use of the stack counts, too. */
enum { STACK_BYTES = 4 << 20, STATED_BYTES = 128 << 10, PATTERN = 0xa5 };

static struct world world;
static char folder[3][600];

/* ---- calls of an application ---- */

static void *plan(void *unused)
{
    struct tide_plan *made = NULL;
    struct tide_plan_info info = {.struct_bytes = sizeof info};
    char line[200];
    check_int(tide_plan_create(NULL, &world.options, &made), ==, 0);
    check_int(tide_plan_describe(made, &info), ==, 0);
    check_int(tide_plan_tape_line(made, 0, line, sizeof line), ==, 0);
    check_int(tide_plan_trace(made, folder[2]), ==, 0);
    tide_plan_destroy(made);
    return unused;
}

static void *plan_measured(void *unused)
{
    struct tide_engine_options options = world.options;
    struct tide_plan *made = NULL;
    options.rates = NULL;
    check_int(tide_plan_create(NULL, &options, &made), ==, 0);
    tide_plan_destroy(made);
    return unused;
}

static void *refuse(void *unused)
{
    struct tide_engine_options options = world.options;
    struct tide_plan *made = NULL;
    options.host_bytes = options.device_bytes = 1 << 20;
    check_true(tide_plan_create(NULL, &options, &made) < 0);
    return unused;
}

static void *train(void *unused)
{
    struct tide_engine *engine = world_engine(&world.options);
    struct tide_step step = {.struct_bytes = sizeof step};
    struct tide_evaluation evaluation = {.struct_bytes = sizeof evaluation};
    struct tide_checkpoint_options saving = {.struct_bytes = sizeof saving,
                                             .directory = folder[0],
                                             .keep = 1,
                                             .application = "row 17",
                                             .application_bytes = 7};
    int32_t next = 0;
    for (int s = 0; s < 3; s++) {
        check_int(tide_engine_step(engine, &world.batch, 1, 1e-3, &step), ==, 0);
        check_int(tide_engine_checkpoint(engine, &saving), ==, 0);
    }
    check_int(tide_engine_evaluate(engine, &world.batch, &evaluation), ==, 0);
    check_int(tide_engine_predict(engine, world.ids, WORLD_LENGTH, &next), ==, 0);
    check_int(tide_engine_save(engine, folder[1], 1), ==, 0);
    tide_engine_destroy(engine);
    return unused;
}

static void *resume(void *unused)
{
    struct tide_engine_options options = world.options;
    struct tide_step step = {.struct_bytes = sizeof step};
    options.resume = folder[0];
    struct tide_engine *engine = world_engine(&options);
    check_int(tide_engine_step(engine, &world.batch, 1, 1e-3, &step), ==, 0);
    check_uint(step.step, ==, 4);
    tide_engine_destroy(engine);
    return unused;
}

static void *export(void *unused)
{
    char path[700];
    snprintf(path, sizeof path, "%s/checkpoint-3", folder[0]);
    check_int(tide_checkpoint_export(NULL, path, folder[1], 1), ==, 0);
    return unused;
}

static void *inspect(void *unused)
{
    struct tide_inspection found = {.struct_bytes = sizeof found};
    char path[700];
    snprintf(path, sizeof path, "%s/checkpoint-3", folder[0]);
    check_int(tide_inspect(NULL, world.model, NULL, &found), ==, 0);
    check_int(tide_inspect(NULL, path, NULL, &found), ==, 0);
    check_int(tide_inspect(NULL, folder[0], NULL, &found), ==, 0);
    return unused;
}

static void take_finding(void *user, const struct tide_finding *finding)
{
    ++*(unsigned *)user;
    (void)finding;
}

static void *doctor(void *unused)
{
    const char *stores[] = {test_directory()};
    unsigned findings = 0;
    const struct tide_doctor_options options = {.struct_bytes = sizeof options,
                                                .stores = stores,
                                                .store_count = 1,
                                                .finding = take_finding,
                                                .user = &findings};
    check_int(tide_doctor(NULL, &options), >=, 0);
    check_uint(findings, >, 5);
    return unused;
}

static void *device(void *unused)
{
    struct tide_device_info info = {.struct_bytes = sizeof info};
    struct tide_device_rates rates = {.struct_bytes = sizeof rates};
    check_int(tide_device_describe(NULL, "cpu", &info), ==, 0);
    check_int(tide_device_measure(NULL, "cpu", 1 << 22, &rates), ==, 0);
    return unused;
}

static void *keep_blocks(void *unused)
{
    static char bytes[100000];
    const struct tide_store_path store = {
        .struct_bytes = sizeof store, .directory = folder[0], .bytes = 1 << 20};
    const struct tide_blocks_options options = {
        .struct_bytes = sizeof options, .host_bytes = 200000, .stores = &store, .store_count = 1};
    struct tide_blocks *blocks = NULL;
    struct tide_block block = {.struct_bytes = sizeof block};
    check_int(tide_blocks_create(NULL, &options, &blocks), ==, 0);
    for (int i = 0; i < 20; i++) {
        const char name[2] = {(char)('a' + i % 10), '\0'};
        check_int(tide_blocks_iteration(blocks), ==, 0);
        check_int(tide_blocks_put(blocks, name, bytes, sizeof bytes - 30000), ==, 0);
        check_int(tide_blocks_get(blocks, name, NULL, 0, &block), ==, 0);
        check_int(tide_blocks_release(blocks, name, 1), ==, 0);
    }
    tide_blocks_destroy(blocks);
    return unused;
}

/* ---- measuring ---- */

static size_t used_by(void *(*call)(void *))
{
    pthread_attr_t attributes;
    pthread_t thread;
    unsigned char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check_true(stack != MAP_FAILED);
    memset(stack, PATTERN, STACK_BYTES);
    check_int(pthread_attr_init(&attributes), ==, 0);
    check_int(pthread_attr_setstack(&attributes, stack, STACK_BYTES), ==, 0);
    check_int(pthread_create(&thread, &attributes, call, NULL), ==, 0);
    check_int(pthread_join(thread, NULL), ==, 0);
    pthread_attr_destroy(&attributes);
    size_t left = 0;
    while (left < STACK_BYTES && stack[left] == PATTERN) {
        left++;
    }
    munmap(stack, STACK_BYTES);
    return STACK_BYTES - left;
}

static void stated_stack_is_enough(void)
{
    static const struct {
        const char *name;
        void *(*call)(void *);
    } calls[] = {{"plan", plan},       {"plan_measured", plan_measured},
                 {"refuse", refuse},   {"train", train},
                 {"resume", resume},   {"export", export},
                 {"inspect", inspect}, {"doctor", doctor},
                 {"device", device},   {"keep_blocks", keep_blocks}};
    if (TEST_SLOW) {
        test_skip("sanitizers make frames larger");
    }
    world_init(&world);
    for (int i = 0; i < 3; i++) {
        snprintf(folder[i], sizeof folder[i], "%s/stack %d", test_directory(), i);
    }
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        const size_t used = used_by(calls[i].call);
        test_note("%s: %zu KiB", calls[i].name, used >> 10);
        if (used > STATED_BYTES) {
            test_fail(__FILE__, __LINE__, "%s used %zu bytes of the stack; docs/api.md states %d",
                      calls[i].name, used, STATED_BYTES);
        }
    }
}

TEST_MAIN({"stated_stack_is_enough", stated_stack_is_enough})
