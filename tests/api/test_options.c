/* test_options.c: which options plans and engines accept and refuse, with messages. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tide/checkpoint.h>
#include <tide/world.h>
#include <unistd.h>

#include "tests/api/world.h"
#include "tests/harness/child.h"
#include "tests/harness/mount.h"

static struct world world;

/* Plan and engine refuse the options alike. */
static void refuse(const struct tide_engine_options *options, int code, const char *word)
{
    struct tide_plan *plan = NULL;
    struct tide_engine *engine = NULL;
    int rc = tide_plan_create(NULL, options, &plan);
    if (rc != code || plan != NULL || strstr(tide_last_error(), word) == NULL) {
        test_fail(__FILE__, __LINE__, "%s: plan: %d: %s", word, rc, tide_last_error());
    }
    rc = tide_engine_create(NULL, options, &engine);
    if (rc != code || engine != NULL || strstr(tide_last_error(), word) == NULL) {
        test_fail(__FILE__, __LINE__, "%s: engine: %d: %s", word, rc, tide_last_error());
    }
    check_true(!world_exists(world.store));
}

/* Sizes of older and newer structs are accepted, unless a new field is set. */
static void struct_sizes(void)
{
    world_init(&world);
    struct tide_engine_options options = world.options;
    options.struct_bytes = 0;
    refuse(&options, -EINVAL, "struct_bytes");
    options.struct_bytes = SIZE_MAX;
    refuse(&options, -EINVAL, "struct_bytes");
    refuse(NULL, -EINVAL, "tide_engine_options");
    struct {
        struct tide_engine_options known;
        uint64_t news;
    } newer = {.known = world.options};
    newer.known.struct_bytes = sizeof newer;
    struct tide_plan *plan = NULL;
    check_int(tide_plan_create(NULL, &newer.known, &plan), ==, 0);
    tide_plan_destroy(plan);
    newer.news = 1;
    refuse(&newer.known, -E2BIG, "older than the program");
    /* The struct of an older program ends before `trace`. */
    options = world.options;
    options.struct_bytes = offsetof(struct tide_engine_options, trace);
    options.trace = (const char *)1;
    plan = NULL;
    check_int(tide_plan_create(NULL, &options, &plan), ==, 0);
    tide_plan_destroy(plan);
    tide_plan_destroy(NULL);
    tide_engine_destroy(NULL);
}

static void numbers_out_of_range(void)
{
    world_init(&world);
    const struct tide_engine_options good = world.options;
    struct tide_engine_options bad;
#define REFUSE(field, value) (bad = good, bad.field = (value), refuse(&bad, -EINVAL, #field))
    REFUSE(precision, 3);
    REFUSE(optimizer, 5);
    REFUSE(moments, 3);
    REFUSE(weights, 4);
    REFUSE(states, 4);
    REFUSE(grads, 4);
    REFUSE(acts, 5);
    REFUSE(order, 3);
    REFUSE(timing, 5);
    REFUSE(zero_stage, 4);
    REFUSE(gather, 2);
    REFUSE(reduce, 3);
    REFUSE(batch, 0);
    REFUSE(batch, UINT32_MAX);
    REFUSE(length, 0);
    REFUSE(length, UINT32_MAX);
    REFUSE(accum, UINT32_MAX);
    REFUSE(ranks, 65);
    bad = good;
    bad.ranks = 2;
    bad.device = "cuda:0";
    struct tide_engine *engine = NULL; /* a plan needs no cards */
    check_int(tide_engine_create(NULL, &bad, &engine), ==, -EINVAL);
    check_contains(tide_last_error(), "device \"cuda:0\" lists 1 card for 2 ranks");
    REFUSE(threads, UINT32_MAX);
    REFUSE(nodes, 2);
    REFUSE(straggler, -1);
    REFUSE(clip, -1);
    REFUSE(clip, (double)NAN);
    REFUSE(clip, (double)INFINITY);
    REFUSE(decay, -0.1);
    REFUSE(decay, (double)NAN);
    REFUSE(eps, -1e-8);
    REFUSE(eps, (double)NAN);
    REFUSE(beta1, 1);
    REFUSE(beta1, 0.9999999999); /* 1 in fp32 */
    REFUSE(beta1, -0.1);
    REFUSE(beta1, (double)NAN);
    REFUSE(beta2, 1);
    REFUSE(beta2, 0.9999999999); /* 1 in fp32 */
    REFUSE(beta2, (double)NAN);
    REFUSE(loss_scale, -1);
    REFUSE(loss_scale, (double)NAN);
    REFUSE(initial_loss_scale, -1);
    REFUSE(initial_loss_scale, (double)NAN);
    REFUSE(min_loss_scale, -1);
    REFUSE(min_loss_scale, (double)INFINITY);
    REFUSE(store_count, TIDE_STORES_MAX + 1);
    REFUSE(weight_slots, 1000000);
    REFUSE(state_slots, 1000000);
    struct tide_plan *plan = NULL;
    bad = good;
    bad.state_slots = 64; /* the planner's maximum */
    check_int(tide_plan_create(NULL, &bad, &plan), ==, 0);
    tide_plan_destroy(plan);
    REFUSE(chunk_elements, 65537);
    REFUSE(chunk_elements, UINT64_C(1) << 62);
#undef REFUSE
    bad = good;
    bad.initial_loss_scale = 2;
    bad.min_loss_scale = 4;
    refuse(&bad, -EINVAL, "min_loss_scale");
}

static void names(void)
{
    world_init(&world);
    const struct tide_engine_options good = world.options;
    struct tide_engine_options bad = good;
    bad.model = NULL;
    refuse(&bad, -EINVAL, "no model folder");
    bad.model = "/nowhere/at/all";
    refuse(&bad, -ENOENT, "/nowhere/at/all");
    bad = good;
    bad.device = "abacus";
    refuse(&bad, -EINVAL, "abacus");
    bad = good;
    bad.io = "smoke";
    refuse(&bad, -EINVAL, "smoke");
    bad = good;
    bad.rates = "/nowhere/rates.json";
    refuse(&bad, -ENOENT, "/nowhere/rates.json");
    bad = good;
    struct tide_store_path path = world.path;
    bad.stores = &path;
    path.directory = NULL;
    refuse(&bad, -EINVAL, "store 0 has no directory");
    path.directory = "";
    refuse(&bad, -EINVAL, "store 0 has no directory");
    path.struct_bytes = 0;
    refuse(&bad, -EINVAL, "store 0: struct_bytes");
    struct tide_store_path two[2] = {world.path, world.path};
    two[1].struct_bytes += 8;
    bad.stores = two;
    bad.store_count = 2;
    refuse(&bad, -EINVAL, "store 1: struct_bytes");
    bad.store_count = 1;
    bad.stores = NULL;
    refuse(&bad, -EINVAL, "store 0: struct tide_store_path is NULL");
    bad = good;
    bad.frozen_count = 1;
    refuse(&bad, -EINVAL, "frozen");
    const char *const all[] = {"*"};
    bad.frozen = all;
    refuse(&bad, -EINVAL, "nothing to train");
    const char *const embedding[] = {"*embed*"};
    bad.frozen = embedding;
    bad.base = TIDE_BASE_NF4;
    refuse(&bad, -EINVAL, "no part of a layer");
    bad.base = TIDE_BASE_NF4 + 1;
    refuse(&bad, -EINVAL, "base is 4; expected 0 to 3");
    bad = good;
    bad.length = 129;
    refuse(&bad, -EINVAL, "longer than the 128 positions");
    bad.length = 1 << 25;
    refuse(&bad, -EINVAL, "length is 33554432; expected 1 to 16777216");
    bad = good;
    bad.beta2 = 1;
    refuse(&bad, -EINVAL, "beta2 is 1; expected 0 to below 1");
    bad = good;
    bad.store_count = 0;
    refuse(&bad, -EINVAL, "store");
}

/* ---- directories ---- */

/* A path that cannot be a directory is refused. */
static void not_a_directory(void)
{
    char below[600];
    char longest[5000];
    world_init(&world);
    struct tide_engine_options options = world.options;
    struct tide_engine *engine = NULL;
    options.io = "threads";
    struct tide_store_path path = world.path;
    options.stores = &path;
    path.directory = test_file("file", "x", 1);
    check_int(tide_engine_create(NULL, &options, &engine), ==, -ENOTDIR);
    check_contains(tide_last_error(), "/file");
    snprintf(below, sizeof below, "%s/store", path.directory);
    path.directory = below;
    check_int(tide_engine_create(NULL, &options, &engine), ==, -ENOTDIR);
    check_contains(tide_last_error(), "/file/store");
    memset(longest, 'x', sizeof longest - 1);
    longest[0] = '/';
    longest[sizeof longest - 1] = '\0';
    path.directory = longest;
    check_int(tide_engine_create(NULL, &options, &engine), ==, -ENAMETOOLONG);
    check_true(engine == NULL);
}

static int write_nowhere(void *argument)
{
    (void)argument;
    struct tide_engine_options options = world.options;
    struct tide_engine *engine = NULL;
    if (chmod(test_directory(), 0755) != 0 || test_child_drop_root() != 0) {
        return 77;
    }
    options.io = "threads";
    int rc = tide_engine_create(NULL, &options, &engine);
    return rc == -EACCES && strstr(tide_last_error(), world.store) != NULL ? 0 : 1;
}

static void an_unwritable_directory(void)
{
    world_init(&world);
    int rc = test_child(write_nowhere, NULL);
    if (rc == 77) {
        test_skip("this user cannot become another one");
    }
    check_int(rc, ==, 0);
    check_true(!world_exists(world.store));
}

/* A directory serves one run at a time, and then the next run. */
static void a_store_of_two(void)
{
    world_init(&world);
    struct tide_engine_options options = world.options;
    options.io = "threads";
    struct tide_engine *second = NULL;
    struct tide_engine *first = world_engine(&options);
    const struct tide_step before = world_steps(&world, first, 1);
    check_int(tide_engine_create(NULL, &options, &second), ==, -EBUSY);
    check_contains(tide_last_error(), world.store);
    check_true(second == NULL);
    const struct tide_step after = world_steps(&world, first, 1);
    check_true(after.loss < before.loss);
    tide_engine_destroy(first);
    check_true(!world_exists(world.store));
    second = world_engine(&options);
    check_double(world_steps(&world, second, 1).loss, ==, before.loss);
    tide_engine_destroy(second);
    check_true(!world_exists(world.store));
}

/* ---- budgets ---- */

static uint64_t number_behind(const char *message, const char *word)
{
    const char *at = strstr(message, word);
    check_true(at != NULL);
    return strtoull(at + strlen(word), NULL, 10);
}

/* A sanitizer's heap grows between two measurements. */
static const uint64_t heap_spare_bytes = TEST_SLOW ? 64 << 20 : 0;

/* A refusal for lack of memory names budgets that suffice. */
static void budgets_that_do(void)
{
    static const struct {
        const char *name;
        uint32_t precision, accum, acts, grads;
        double clip;
        bool store;
    } ways[] = {
        {"bf16 with a store", TIDE_BF16, 1, TIDE_ACTS_AUTO, TIDE_AUTO, 1, true},
        {"bf16 without one", TIDE_BF16, 1, TIDE_ACTS_AUTO, TIDE_AUTO, 1, false},
        {"three micro-batches", TIDE_BF16, 3, TIDE_ACTS_AUTO, TIDE_AUTO, 0, true},
        {"fp32, kept", TIDE_FP32, 2, TIDE_ACTS_KEEP, TIDE_AUTO, 1, true},
        {"fp16, all in the store", TIDE_FP16, 1, TIDE_ACTS_STORE, TIDE_STORE, 1, true},
    };
    world_init(&world);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        struct tide_engine_options options = world.options;
        struct tide_store_path path = world.path;
        char message[1024];
        options.stores = &path;
        options.precision = ways[i].precision;
        options.accum = ways[i].accum;
        options.acts = ways[i].acts;
        options.grads = ways[i].grads;
        options.clip = ways[i].clip;
        options.weights = options.states = TIDE_AUTO;
        options.store_count = ways[i].store;
        options.device_bytes = 4096;
        options.host_bytes = 4096;
        refuse(&options, -EFBIG, "cannot fit");
        snprintf(message, sizeof message, "%s", tide_last_error());
        const char *would = strstr(message, "; the least memory");
        check_true(would != NULL);
        options.device_bytes = number_behind(would, "--device-memory ") << 20;
        options.host_bytes = (number_behind(would, "--host-memory ") << 20) + heap_spare_bytes;
        if (ways[i].store) {
            path.bytes = number_behind(would, "--store DIR:") << 20;
        }
        struct tide_plan *plan = NULL;
        int rc = tide_plan_create(NULL, &options, &plan);
        if (rc != 0) {
            test_fail(__FILE__, __LINE__, "%s: \"%s\" was refused too: %s", ways[i].name, message,
                      tide_last_error());
        }
        tide_plan_destroy(plan);
        struct tide_engine *engine = world_engine(&options);
        check_true(isfinite(world_steps(&world, engine, 2).loss));
        tide_engine_destroy(engine);
    }
}

/* An engine accepts what a plan accepts, although the process has allocated memory since. */
static void plan_and_engine_agree(void)
{
    enum { TAKEN_BYTES = 64 << 20 };
    world_init(&world);
    struct tide_engine_options options = world.options;
    struct tide_plan_info info = {.struct_bytes = sizeof info};
    struct tide_plan *plan = NULL;
    options.device_bytes = UINT64_C(64) << 20;
    options.host_bytes = UINT64_C(1) << 30;
    check_int(tide_plan_create(NULL, &options, &plan), ==, 0);
    check_int(tide_plan_describe(plan, &info), ==, 0);
    tide_plan_destroy(plan);
    options.host_bytes = info.host_bytes;
    char *taken = malloc(TAKEN_BYTES);
    check_true(taken != NULL);
    memset(taken, 1, TAKEN_BYTES);
    struct tide_engine *engine = world_engine(&options);
    check_int(taken[TAKEN_BYTES - 1], ==, 1);
    check_true(isfinite(world_steps(&world, engine, 1).loss));
    tide_engine_destroy(engine);
    free(taken);
}

/* One command does a group of micro-batches, so the plan hardly grows with their number. */
static void many_micro_batches(void)
{
    uint32_t commands[2] = {0, 0};
    world_init(&world);
    for (int i = 0; i < 2; i++) {
        struct tide_engine_options options = world.options;
        struct tide_plan_info info = {.struct_bytes = sizeof info};
        struct tide_plan *plan = NULL;
        options.accum = i == 0 ? 64 : 16384;
        check_int(tide_plan_create(NULL, &options, &plan), ==, 0);
        check_int(tide_plan_describe(plan, &info), ==, 0);
        commands[i] = (uint32_t)info.commands;
        tide_plan_destroy(plan);
    }
    check_uint(commands[1], <=, 2 * commands[0]);
}

/* A limit below a page of the drive is refused. */
static void a_limit_below_a_page_is_no_store(void)
{
    world_init(&world);
    struct tide_engine_options options = world.options;
    struct tide_plan *plan = NULL;
    struct tide_store_path store = {.struct_bytes = sizeof store, .directory = world.store};
    options.stores = &store;
    options.io = "threads";
    store.bytes = 4095;
    check_int(tide_plan_create(NULL, &options, &plan), ==, -EINVAL);
    check_contains(tide_last_error(), "limit of 4095 bytes is less than the smallest write");
}

/* Without a limit, a drive with too little free space is refused; memory used as a drive is not. */
static void no_space_is_no_store(void)
{
    const char *folder = test_mounts_begin() ? test_mount_memory("small", "size=1000m") : NULL;
    if (folder == NULL) {
        test_skip("no file system of its own can be mounted here");
    }
    world_init(&world);
    struct tide_engine_options options = world.options;
    struct tide_plan *plan = NULL;
    struct tide_store_path store = {.struct_bytes = sizeof store, .directory = folder};
    options.stores = &store;
    options.io = "threads";
    check_int(tide_plan_create(NULL, &options, &plan), ==, -EFBIG);
    check_contains(tide_last_error(), "MiB free, and tide leaves 1024 MiB free for others");
    store.bytes = UINT64_C(512) << 20;
    check_int(tide_plan_create(NULL, &options, &plan), ==, 0);
    tide_plan_destroy(plan);
    store.bytes = 0;
    options.io = "mem";
    check_int(tide_plan_create(NULL, &options, &plan), ==, 0);
    tide_plan_destroy(plan);
}

/* A directory without a limit beside a limited one: the message names the other's limit. */
static void limits_leave_no_space(void)
{
    const char *folder = test_mounts_begin() ? test_mount_memory("both", "size=1500m") : NULL;
    char inner[512];
    if (folder == NULL) {
        test_skip("no file system of its own can be mounted here");
    }
    snprintf(inner, sizeof inner, "%s/inner", folder);
    check_int(mkdir(inner, 0700), ==, 0);
    world_init(&world);
    struct tide_engine_options options = world.options;
    struct tide_plan *plan = NULL;
    const struct tide_store_path stores[] = {
        {.struct_bytes = sizeof stores[0], .directory = folder, .bytes = UINT64_C(512) << 20},
        {.struct_bytes = sizeof stores[0], .directory = inner}};
    options.stores = stores;
    options.store_count = 2;
    options.io = "threads";
    check_int(tide_plan_create(NULL, &options, &plan), ==, -EFBIG);
    check_contains(tide_last_error(), "/inner: its file system has 1");
    check_contains(tide_last_error(),
                   "the limits of other directories there are 512 MiB, and tide");
}

static const uint64_t left_bytes = UINT64_C(1) << 30; /* tide leaves this much space to others */

/* Returns the bytes in the store that the plan of world.options needs. */
static uint64_t planned_bytes(void)
{
    struct tide_plan_info info = {.struct_bytes = sizeof info};
    struct tide_plan *plan = NULL;
    world_init(&world);
    check_int(tide_plan_create(NULL, &world.options, &plan), ==, 0);
    check_int(tide_plan_describe(plan, &info), ==, 0);
    tide_plan_destroy(plan);
    check_uint(info.store_bytes, >, 1 << 20);
    return info.store_bytes;
}

static const char *warning = "limits of all directories";
static unsigned warnings_heard;

static void hear(void *user, uint32_t level, const char *line)
{
    (void)user;
    warnings_heard += level == TIDE_LOG_WARN && strstr(line, warning) != NULL;
}

static void expect_warnings(const struct tide_engine_options *options, unsigned count)
{
    const struct tide_context_options listening = {
        .struct_bytes = sizeof listening, .log_level = TIDE_LOG_WARN, .log = hear};
    struct tide_context *context = NULL;
    struct tide_plan *plan = NULL;
    warnings_heard = 0;
    check_int(tide_context_create(&listening, &context), ==, 0);
    check_int(tide_plan_create(context, options, &plan), ==, 0);
    tide_plan_destroy(plan);
    tide_context_destroy(context);
    check_uint(warnings_heard, ==, count);
}

static struct tide_store_path pair[2];

/* Makes `pair` two paths without limits on a new file system, of which tide may use `bytes`. */
static void mount_pair(const char *name, uint64_t bytes)
{
    static char paths[2][WORLD_PATH_BYTES];
    char size[40];
    snprintf(size, sizeof size, "size=%" PRIu64, left_bytes + bytes);
    const char *folder = test_mounts_begin() ? test_mount_memory(name, size) : NULL;
    if (folder == NULL) {
        test_skip("no file system of its own can be mounted here");
    }
    for (int i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%d", folder, i);
        pair[i] = (struct tide_store_path){.struct_bytes = sizeof pair[i], .directory = paths[i]};
    }
}

/* Paths on one file system share its free space. Limits whose sum exceeds the free space give a
 * warning. */
static void one_file_system_counts_once(void)
{
    const uint64_t needed = planned_bytes();
    struct tide_engine_options options = world.options;
    struct tide_plan *plan = NULL;
    options.stores = pair;
    options.store_count = 2;
    options.io = "threads";
    mount_pair("less", needed * 3 / 4); /* twice this space would suffice */
    check_int(tide_plan_create(NULL, &options, &plan), ==, -EFBIG);
    mount_pair("more", needed * 3 / 2);
    expect_warnings(&options, 0);
    pair[0].bytes = needed; /* leaves some for the other path */
    expect_warnings(&options, 0);
    pair[0].bytes = needed * 2; /* leaves none */
    check_int(tide_plan_create(NULL, &options, &plan), ==, -EFBIG);
    check_contains(tide_last_error(), pair[1].directory);
    pair[0].bytes = pair[1].bytes = left_bytes / 2 + needed / 2;
    expect_warnings(&options, 0);
    pair[0].bytes = pair[1].bytes = left_bytes / 2 + needed;
    expect_warnings(&options, 1);
}

/* Calls and options without a meaning are refused. */
static void what_has_no_meaning(void)
{
    const char *patterns[] = {"*q_proj"};
    struct tide_plan_what_if part = {.struct_bytes = sizeof part};
    struct tide_plan *plan = NULL;
    struct tide_engine *engine = NULL;
    char line[100];
    world_init(&world);
    struct tide_engine_options options = world.options;
    check_int(tide_plan_create(NULL, &options, &plan), ==, 0);
    check_int(tide_plan_rates(NULL, "rates.json"), ==, -EINVAL);
    check_int(tide_plan_rates(plan, NULL), ==, -EINVAL);
    check_contains(tide_last_error(), "a plan and a path");
    check_int(tide_plan_trace(plan, NULL), ==, -EINVAL);
    check_contains(tide_last_error(), "a plan and a path");
    check_int(tide_plan_tape_line(plan, 0, line, 0), ==, -EINVAL);
    check_int(tide_plan_forget(NULL), ==, -EINVAL);
    check_int(tide_plan_what_if_at(NULL, 0, &part), ==, -EINVAL);
    check_contains(tide_last_error(), "the plan is NULL");
    tide_plan_destroy(plan);
    const struct tide_context_options loud = {.struct_bytes = sizeof loud,
                                              .log_level = TIDE_LOG_DEBUG + 1};
    struct tide_context *context = NULL;
    check_int(tide_context_create(&loud, &context), ==, -EINVAL);
    check_contains(tide_last_error(), "log_level");
    check_true(context == NULL);
    options.machine = "machine.json";
    check_int(tide_engine_create(NULL, &options, &engine), ==, -EINVAL);
    check_contains(tide_last_error(), "an engine runs on this machine");
    options = world.options;
    options.lora_alpha = 8;
    refuse(&options, -EINVAL, "options of adapters need lora_rank");
    options.lora_rank = 2;
    options.frozen = patterns;
    options.frozen_count = 1;
    refuse(&options, -EINVAL, "frozen (--freeze) has no use with adapters (--lora)");
}

static int plan_of(const struct tide_engine_options *options)
{
    struct tide_plan *plan = NULL;
    const int rc = tide_plan_create(NULL, options, &plan);
    tide_plan_destroy(plan);
    return rc;
}

/* A plan needs no weights, and their absence is no error. */
static void a_plan_without_weights(void)
{
    char command[4 * WORLD_PATH_BYTES];
    char folder[WORLD_PATH_BYTES];
    world_init(&world);
    snprintf(folder, sizeof folder, "%s", test_path("config"));
    snprintf(command, sizeof command, "mkdir '%s' && cp '%s/config.json' '%s'", folder, world.model,
             folder);
    check_int(system(command), ==, 0);
    struct tide_engine_options options = world.options;
    options.model = folder;
    check_int(plan_of(&options), ==, 0);
    check_true(strstr(tide_last_error(), folder) == NULL);
}

/* A plan for a machine in a file needs no budgets, and refuses options that the machine does not
 * allow. */
static void other_machines(void)
{
    char machine[WORLD_PATH_BYTES];
    world_init(&world);
    struct tide_engine_options options = world.options;
    options.machine = machine;
    options.rates = NULL;
    snprintf(machine, sizeof machine, "%s/../tools/machines/epyc-96.json", test_root());
    check_int(plan_of(&options), ==, -EINVAL);
    check_contains(tide_last_error(), "`machine` excludes `rates` and `stores`");
    options.stores = NULL;
    options.store_count = 0;
    options.rates = world.rates;
    check_int(plan_of(&options), ==, -EINVAL);
    check_contains(tide_last_error(), "`machine` excludes `rates` and `stores`");
    options.rates = NULL;
    options.io = NULL;
    for (int given = 0; given < 4; given++) {
        options.device_bytes = (given & 1) != 0 ? world.options.device_bytes : 0;
        options.host_bytes = (given & 2) != 0 ? world.options.host_bytes : 0;
        check_int(plan_of(&options), ==, 0);
    }
    options.nodes = 2;
    options.ranks = 3;
    check_int(plan_of(&options), ==, -EINVAL);
    check_contains(tide_last_error(), "3 ranks cannot be spread evenly over 2 nodes");
    options.nodes = 1;
    options.ranks = 4;
    options.zero_stage = 3;
    options.gather_within = 8;
    check_int(plan_of(&options), ==, -EINVAL);
    check_contains(tide_last_error(), "4 ranks cannot be divided into groups of 8");
    snprintf(machine, sizeof machine, "%s/../tools/machines/dgx-h100.json", test_root());
    options.gather_within = 2;
    check_int(plan_of(&options), ==, -ENOTSUP);
    check_contains(tide_last_error(), "within groups of ranks needs the CPU device");
    snprintf(machine, sizeof machine, "%s/none.json", test_directory());
    check_int(plan_of(&options), ==, -ENOENT);
    check_contains(tide_last_error(), "none.json");
}

/* Budgets beyond the machine are used, with a warning. */
static void budgets_beyond_the_machine(void)
{
    world_init(&world);
    struct tide_engine_options options = world.options;
    const char *before = warning;
    warning = "the budgets of DEVICE and HOST, 1125899906842624 and 1125899906842624 bytes, exceed";
    options.device_bytes = options.host_bytes = UINT64_C(1) << 50;
    expect_warnings(&options, 1);
    options.device_bytes = options.host_bytes = UINT64_C(1) << 28;
    warning = "the budgets of DEVICE and HOST";
    expect_warnings(&options, 0);
    warning = before;
}

static void refuse_world(const struct tide_world_options *options, const char *message)
{
    struct tide_world *opened = NULL;
    check_int(tide_world_open(options, &opened), ==, -EINVAL);
    check_contains(tide_last_error(), message);
    check_true(opened == NULL);
}

/* Options of a world are checked even in a process that was started alone. */
static void options_of_a_world(void)
{
    enum { COUNT = 1024 };
    static char mib[1 << 20];
    static const char *arguments[COUNT] = {"train", NULL};
    struct tide_world_options options = {.struct_bytes = sizeof options,
                                         .silence_seconds = 1000000001};
    struct tide_world *none = NULL;
    refuse_world(&options, "silence_seconds is 1000000001; expected 0 to 1000000000");
    options.silence_seconds = UINT64_MAX;
    refuse_world(&options, "silence_seconds is 18446744073709551615");
    options.silence_seconds = 0;
    options.argument_count = 2;
    refuse_world(&options, "argument_count is 2, but arguments is NULL");
    options.arguments = arguments;
    refuse_world(&options, "arguments[1] is NULL");
    options.argument_count = COUNT;
    memset(mib, 'a', sizeof mib - 1);
    for (size_t i = 0; i < COUNT; i++) {
        arguments[i] = mib;
    }
    refuse_world(&options, "the arguments have 1073741824 bytes; expected less than 1073741824");
    options.argument_count = COUNT - 1;
    options.silence_seconds = 1000000000;
    check_int(tide_world_open(&options, &none), ==, 0);
    check_true(none == NULL);
}

/* Calls without an object or an output parameter are refused. */
static void calls_without_an_object(void)
{
    struct tide_step step = {.struct_bytes = sizeof step};
    struct tide_evaluation loss = {.struct_bytes = sizeof loss};
    struct tide_engine_wait wait = {.struct_bytes = sizeof wait};
    struct tide_engine_drive drive = {.struct_bytes = sizeof drive};
    struct tide_engine_memory memory = {.struct_bytes = sizeof memory};
    struct tide_checkpoint_options saving = {.struct_bytes = sizeof saving, .directory = "none"};
    struct tide_resumed resumed = {.struct_bytes = sizeof resumed};
    struct tide_world_info info = {.struct_bytes = sizeof info};
    int32_t id = 0;
    int code = 0;
    world_init(&world);
    const int without_engine[] = {
        tide_engine_step(NULL, &world.batch, 1, 1e-3, &step),
        tide_engine_wait_at(NULL, 0, &wait),
        tide_engine_drive_at(NULL, 0, &drive),
        tide_engine_betas(NULL, 0.9, 0.999),
        tide_engine_evaluate(NULL, &world.batch, &loss),
        tide_engine_predict(NULL, &id, 1, &id),
        tide_engine_save(NULL, "none", 0),
        tide_engine_save_reserve(NULL, "none", 0),
        tide_engine_trace(NULL),
        tide_engine_memory(NULL, &memory),
        tide_engine_checkpoint_ahead(NULL, &saving),
        tide_engine_checkpoint(NULL, &saving),
        tide_engine_checkpoint_wait(NULL),
        tide_engine_resumed(NULL, &resumed),
    };
    for (size_t i = 0; i < sizeof without_engine / sizeof without_engine[0]; i++) {
        check_int(without_engine[i], ==, -EINVAL);
    }
    check_contains(tide_last_error(), "the engine is NULL");
    check_true(tide_engine_plan(NULL) == NULL);
    check_int(tide_world_describe(NULL, &info), ==, -EINVAL);
    check_contains(tide_last_error(), "the world is NULL");
    check_int(tide_world_follow(NULL, NULL, &code), ==, -EINVAL);
    check_int(tide_world_stopping(NULL), ==, 0);
    check_int(tide_world_open(NULL, NULL), ==, -EINVAL);
    check_int(tide_plan_create(NULL, &world.options, NULL), ==, -EINVAL);
    check_int(tide_engine_create(NULL, &world.options, NULL), ==, -EINVAL);
    check_int(tide_context_create(NULL, NULL), ==, -EINVAL);
    check_contains(tide_last_error(), "`out` is NULL");
    check_true(!world_exists(world.store));
}

TEST_MAIN({"a_plan_without_weights", a_plan_without_weights},
          {"calls_without_an_object", calls_without_an_object},
          {"options_of_a_world", options_of_a_world},
          {"budgets_beyond_the_machine", budgets_beyond_the_machine},
          {"what_has_no_meaning", what_has_no_meaning}, {"other_machines", other_machines},
          {"plan_and_engine_agree", plan_and_engine_agree},
          {"a_limit_below_a_page_is_no_store", a_limit_below_a_page_is_no_store},
          {"no_space_is_no_store", no_space_is_no_store},
          {"limits_leave_no_space", limits_leave_no_space},
          {"one_file_system_counts_once", one_file_system_counts_once},
          {"many_micro_batches", many_micro_batches}, {"struct_sizes", struct_sizes},
          {"numbers_out_of_range", numbers_out_of_range}, {"names", names},
          {"not_a_directory", not_a_directory},
          {"an_unwritable_directory", an_unwritable_directory}, {"a_store_of_two", a_store_of_two},
          {"budgets_that_do", budgets_that_do})
