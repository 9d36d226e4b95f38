/* test_optimizer_processes.c: processes that share, inherit or take over an optimizer. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/api/app.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"

static int no_sum(void *user, double *values, size_t count)
{
    (void)values;
    *(size_t *)user += count;
    return 0;
}

/* One of two processes has the whole of a small model. A step sums once over both processes. */
static void shares(void)
{
    uint64_t first = 0;
    uint64_t count = 0;
    uint64_t token = 0;
    size_t sums = 0;
    app_reset();
    app.options.world = 2;
    app_refuse(-EINVAL, "process 0 of 2 would have no parameters");
    app.options.world = 2;
    app.options.rank = 1;
    app.options.clip = 1;
    app_refuse(-EINVAL, "the norm over all processes");
    app.options.world = 2;
    app.options.rank = 1;
    app.options.sum = no_sum;
    app.options.user = &sums;
    struct tide_optim *optim = app_create();
    check_int(tide_optim_share(optim, 1, &first, &count), ==, 0);
    check_uint(first, ==, 0);
    check_uint(count, ==, APP_ELEMENTS);
    check_int(tide_optim_share(optim, APP_COUNT, &first, &count), ==, -EINVAL);
    app_submit_all(optim);
    check_int(tide_optim_step(optim, &token), ==, 0);
    check_int(tide_optim_wait(optim, token), ==, 0);
    struct tide_optim_result result = {.struct_bytes = sizeof result};
    check_int(tide_optim_last(optim, &result), ==, 0); /* updates need not wait for the norm */
    check_uint(sums, ==, 1);
    check_double((double)app.weights[1][0], ==, 0.5);
    tide_optim_destroy(optim);
}

enum {
    WORLD_MAX = 2,
    STEPS = 4,
    WIDE = 3 * 65536 + 77, /* elements of the first parameter, which processes share in parts */
    NARROW = 999
};

/* Memory that the processes share. */
struct common {
    pthread_barrier_t barrier;
    double sums[WORLD_MAX][8];
    float weights[WIDE + NARROW];
};
static struct common *common;
static const uint64_t elements_of[2] = {WIDE, NARROW};

struct world {
    uint32_t size, rank;
    uint32_t loads; /* processes that saved the loaded checkpoints; 0: none is loaded */
    int first, end; /* steps */
};

static int sum_in_memory(void *user, double *values, size_t count)
{
    const struct world *world = user;
    if (count > sizeof common->sums[0] / sizeof common->sums[0][0]) {
        return -EINVAL;
    }
    memcpy(common->sums[world->rank], values, count * sizeof *values);
    pthread_barrier_wait(&common->barrier);
    for (size_t i = 0; i < count; i++) {
        values[i] = 0;
        for (uint32_t r = 0; r < world->size; r++) {
            values[i] += common->sums[r][i];
        }
    }
    pthread_barrier_wait(&common->barrier);
    return 0;
}

/* Exchanges the shares of the weights. */
static void gather(const struct tide_optim *optim, float *own)
{
    uint64_t begin = 0;
    for (uint64_t p = 0; p < 2; begin += elements_of[p++]) {
        uint64_t first = 0;
        uint64_t count = 0;
        check_int(tide_optim_share(optim, p, &first, &count), ==, 0);
        memcpy(common->weights + begin + first, own + begin + first, count * sizeof *own);
    }
    pthread_barrier_wait(&common->barrier);
    memcpy(own, common->weights, sizeof common->weights);
    pthread_barrier_wait(&common->barrier);
}

static void load_world(struct tide_optim *optim, const struct world *world)
{
    char directories[WORLD_MAX][600];
    const char *paths[WORLD_MAX];
    uint64_t step = 0;
    for (uint32_t r = 0; r < world->loads; r++) {
        snprintf(directories[r], sizeof directories[r], "%s/shares %u", test_directory(), r);
        paths[r] = directories[r];
    }
    check_int(tide_optim_load_shares(optim, paths, 0, &step), ==, -EINVAL);
    check_int(tide_optim_load_shares(optim, paths, world->loads, &step), ==, 0);
    check_uint(step, ==, (uint64_t)world->first);
}

static void process(struct world *world)
{
    float *own = malloc(sizeof common->weights);
    float *gradient = malloc(sizeof common->weights);
    char directory[600];
    uint64_t token = 0;
    check_true(own != NULL && gradient != NULL);
    app_reset();
    snprintf(directory, sizeof directory, "%s/store of %u", test_directory(), world->rank);
    app.store.directory = directory;
    app.options.stores = &app.store;
    app.options.store_count = 1;
    app.options.states = world->rank == 0 ? TIDE_STORE : TIDE_HOST;
    app.options.optimizer = TIDE_ADAMW;
    app.options.clip = 0.5;
    app.options.threads = 1;
    app.options.parameter_count = 2;
    app.options.world = world->size;
    app.options.rank = world->rank;
    app.options.sum = sum_in_memory;
    app.options.user = world;
    for (uint64_t p = 0; p < 2; p++) {
        app.parameters[p].elements = elements_of[p];
        app.parameters[p].weights = own + p * WIDE;
    }
    for (int i = 0; i < WIDE + NARROW; i++) {
        own[i] = (float)(i % 31) - 15;
    }
    struct tide_optim *optim = app_create();
    if (world->loads > 0) {
        load_world(optim, world);
        gather(optim, own);
    }
    for (int s = world->first; s < world->end; s++) {
        for (int i = 0; i < WIDE + NARROW; i++) {
            gradient[i] = own[i] * 0.125F + (float)((i + s) % 7);
        }
        for (uint64_t p = 0; p < 2; p++) {
            check_int(tide_optim_submit(optim, p, gradient + p * WIDE, 1, &token), ==, 0);
        }
        check_int(tide_optim_step(optim, &token), ==, 0);
        check_int(tide_optim_wait(optim, token), ==, 0);
        gather(optim, own);
    }
    snprintf(directory, sizeof directory, "%s/shares %u", test_directory(), world->rank);
    check_int(world->end < STEPS ? tide_optim_save(optim, directory, 0) : 0, ==, 0);
    tide_optim_destroy(optim);
    free(own);
    free(gradient);
}

static void run_world(uint32_t size, uint32_t loads, int first, int end)
{
    pid_t children[WORLD_MAX];
    pthread_barrierattr_t shared;
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    check_int(pthread_barrier_init(&common->barrier, &shared, size), ==, 0);
    fflush(stdout);
    for (uint32_t r = 0; r < size; r++) {
        struct world world = {size, r, loads, first, end};
        children[r] = fork();
        check_int(children[r], >=, 0);
        if (children[r] == 0) {
            process(&world);
            test_child_end(0);
        }
    }
    bool failed = false;
    for (uint32_t left = size; left > 0; left--) {
        int status = 0;
        check_true(wait(&status) > 0);
        for (uint32_t r = 0; status != 0 && !failed && r < size; r++) {
            kill(children[r], SIGKILL); /* process r may wait for the failed process */
        }
        failed = failed || status != 0;
    }
    check_true(!failed);
    pthread_barrier_destroy(&common->barrier);
}

/* Several processes have the bits of one process, even with a checkpoint of another number of
 * processes. */
static void processes(void)
{
    static float straight[WIDE + NARROW];
    common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    check_true(common != MAP_FAILED);
    run_world(1, 0, 0, STEPS);
    memcpy(straight, common->weights, sizeof straight);
    run_world(2, 0, 0, 2);
    run_world(1, 2, 2, 3);
    run_world(2, 1, 3, STEPS);
    check_memory(common->weights, straight, sizeof straight);
    munmap(common, sizeof *common);
}

/* A forked child's calls are refused and do not harm the parent's optimizer. */
static void a_child_is_refused(void)
{
    uint64_t token = 0;
    app_reset();
    app.options.stores = &app.store;
    app.options.store_count = 1;
    app.options.states = TIDE_STORE;
    struct tide_optim *optim = app_create();
    app_submit_all(optim);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const char *saved = test_path("of a child");
        struct tide_optim_result result = {.struct_bytes = sizeof result};
        struct tide_optim_info info = {.struct_bytes = sizeof info};
        bool refused = tide_optim_submit(optim, 0, app.gradients[0], 1, &token) == -ECHILD &&
                       tide_optim_step(optim, &token) == -ECHILD &&
                       tide_optim_wait(optim, 1) == -ECHILD &&
                       tide_optim_poll(optim, 1) == -ECHILD &&
                       tide_optim_wait_parameter(optim, 0) == -ECHILD &&
                       tide_optim_last(optim, &result) == -ECHILD &&
                       tide_optim_weights_changed(optim, 0) == -ECHILD &&
                       tide_optim_get_states(optim, 0, NULL, &token) == -ECHILD &&
                       tide_optim_share(optim, 0, &token, &token) == -ECHILD &&
                       tide_optim_set_states(optim, 0, NULL, 1) == -ECHILD &&
                       tide_optim_set_stream(optim, NULL) == -ECHILD &&
                       tide_optim_set_group(optim, 0, NULL) == -ECHILD &&
                       tide_optim_set_loss_scale(optim, 1) == -ECHILD &&
                       tide_optim_save(optim, saved, 0) == -ECHILD &&
                       tide_optim_load(optim, saved, &token) == -ECHILD &&
                       tide_optim_describe(optim, &info) == -ECHILD && access(saved, F_OK) != 0 &&
                       strstr(tide_last_error(), "was forked from") != NULL;
        tide_optim_destroy(optim);
        test_child_end(refused ? 0 : 1);
    }
    int status = 0;
    check_int(waitpid(child, &status, 0), ==, child);
    check_int(status, ==, 0);
    check_int(tide_optim_step(optim, &token), ==, 0);
    check_int(tide_optim_wait(optim, token), ==, 0);
    check_double((double)app.weights[2][0], ==, 1.5);
    tide_optim_destroy(optim);
}

static int create_and_keep(void *argument)
{
    struct tide_optim *optim = NULL;
    (void)argument;
    return tide_optim_create(NULL, &app.options, &optim);
}

/* The store of a killed process is free, even if a child of the process lives. */
static void a_killed_parent(void)
{
    struct test_orphan orphan;
    app_reset();
    app.options.stores = &app.store;
    app.options.store_count = 1;
    app.options.states = TIDE_STORE;
    test_orphan_begin(create_and_keep, NULL, &orphan);
    struct tide_optim *optim = NULL;
    check_int(tide_optim_create(NULL, &app.options, &optim), ==, -EBUSY);
    test_orphan_kill(&orphan);
    optim = app_create();
    test_orphan_end(&orphan);
    uint64_t token = 0;
    app_submit_all(optim);
    check_int(tide_optim_step(optim, &token), ==, 0);
    check_int(tide_optim_wait(optim, token), ==, 0);
    check_double((double)app.weights[2][0], ==, 1.5);
    tide_optim_destroy(optim);
}

TEST_MAIN({"shares", shares}, {"processes", processes}, {"a_child_is_refused", a_child_is_refused},
          {"a_killed_parent", a_killed_parent})
