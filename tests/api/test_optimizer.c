/* test_optimizer.c: the optimizer as an application sees it. tests/run/test_optimizer.c compares
 * its bits. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/api/app.h"
#include "tests/api/example.h"
#include "tests/harness/child.h"
#include "tests/harness/test.h"

static void wrong_options(void)
{
    app_reset();
    app.options.parameter_count = 0;
    app_refuse(-EINVAL, "a parameter and a group");
    app.options.optimizer = 99;
    app_refuse(-EINVAL, "optimizer 99");
    app.options.states = TIDE_STORE;
    app_refuse(-EINVAL, "need a store");
    app.options.states = TIDE_DEVICE;
    app_refuse(-EINVAL, "expected TIDE_AUTO");
    app.options.clip = -1;
    app_refuse(-EINVAL, "clip is -1");
    app.options.clip = (double)INFINITY;
    app_refuse(-EINVAL, "clip is inf; expected 0 (no clipping) or more");
    app.options.moments = 9;
    app_refuse(-EINVAL, "moments 9 is unknown");
    app.options.group_count = 0;
    app_refuse(-EINVAL, "a parameter and a group");
    app.options.parameter_count = (size_t)UINT32_MAX + 1;
    app_refuse(-EINVAL, "a parameter and a group");
    app.options.struct_bytes = sizeof app.options - 4;
    app_refuse(-EINVAL, "tide_optim_options");
    app.group.struct_bytes = 0;
    app_refuse(-EINVAL, "group 0: struct_bytes");
    app.parameters[0].struct_bytes = 0;
    app_refuse(-EINVAL, "parameter 0: struct_bytes");
    app.parameters[1].gradients = 3;
    app_refuse(-EINVAL, "parameter 1: 3 is not a precision");
    app.parameters[1].weights = NULL;
    app_refuse(-EINVAL, "parameter 1 has no weights");
    app.parameters[1].weights = (char *)app.weights[1] + 1;
    app_refuse(-EINVAL, "are not aligned");
    app.parameters[2].elements = 0;
    app_refuse(-EINVAL, "parameter 2 has no elements");
    app.parameters[2].weights = app.weights[0];
    app_refuse(-EINVAL, "have weights in the same memory; tied weights are one parameter");
    app.parameters[1].weights = app.weights[0] + APP_ELEMENTS - 1;
    app_refuse(-EINVAL, "a and b have weights in the same memory");
    app.parameters[2].precision = 7;
    app_refuse(-EINVAL, "parameter 2: 7 is not a precision");
    app.parameters[0].group = 1;
    app_refuse(-EINVAL, "a is in group 1, which does not exist; the number of groups is 1");
    app.parameters[1].name = "a";
    app_refuse(-EINVAL, "\"a\"");
    app.group.beta1 = 1.5;
    app_refuse(-EINVAL, "beta");
    app.options.host_bytes = 1 << 20;
    app_refuse(-EFBIG, "the run cannot fit into host 1M, store 0M; any one of: host_bytes ");
    app.options.host_bytes = 1 << 20;
    app.options.states = TIDE_STORE;
    app.store.bytes = 4096;
    app.options.stores = &app.store;
    app.options.store_count = 1;
    app_refuse(-EFBIG, "host 1M, store 1M; sufficient: host_bytes ");
    check_contains(tide_last_error(), "M and bytes of stores ");
    check_true(strstr(tide_last_error(), "--") == NULL);
    app.options.device = "card";
    app_refuse(-EINVAL, "cuda");
    app.options.device = "cuda:77";
    check_true(tide_optim_create(NULL, &app.options, &(struct tide_optim *){NULL}) < 0);
    check_contains(tide_last_error(), "cuda");
    app.options.device = "cpu";
    app.options.stores = &app.store;
    app.options.store_count = 1;
    app.store.directory = "/proc/no";
    check_true(tide_optim_create(NULL, &app.options, &(struct tide_optim *){NULL}) < 0);
    tide_optim_destroy(NULL);
}

/* Calls without an object or an output parameter are refused. */
static void null_arguments(void)
{
    const char *path = test_directory();
    struct tide_optim_info info = {.struct_bytes = sizeof info};
    struct tide_optim_result result = {.struct_bytes = sizeof result};
    struct tide_optim_arrays arrays = {.struct_bytes = sizeof arrays, .elements = APP_ELEMENTS};
    uint64_t number = 0;
    app_reset();
    check_int(tide_optim_create(NULL, &app.options, NULL), ==, -EINVAL);
    check_contains(tide_last_error(), "`out` is NULL");
    const int without_optimizer[] = {
        tide_optim_submit(NULL, 0, app.gradients[0], 1, &number),
        tide_optim_step(NULL, &number),
        tide_optim_wait(NULL, 0),
        tide_optim_poll(NULL, 0),
        tide_optim_wait_parameter(NULL, 0),
        tide_optim_last(NULL, &result),
        tide_optim_set_stream(NULL, NULL),
        tide_optim_share(NULL, 0, &number, &number),
        tide_optim_set_group(NULL, 0, &app.group),
        tide_optim_set_loss_scale(NULL, 1),
        tide_optim_weights_changed(NULL, 0),
        tide_optim_get_states(NULL, 0, &arrays, &number),
        tide_optim_set_states(NULL, 0, &arrays, 0),
        tide_optim_save(NULL, path, 0),
        tide_optim_load(NULL, path, &number),
        tide_optim_load_shares(NULL, &path, 1, &number),
        tide_optim_describe(NULL, &info),
    };
    for (size_t i = 0; i < sizeof without_optimizer / sizeof without_optimizer[0]; i++) {
        check_int(without_optimizer[i], ==, -EINVAL);
    }
    check_contains(tide_last_error(), "the optimizer is NULL");
    struct tide_optim *optim = app_create();
    check_int(tide_optim_submit(optim, 0, app.gradients[0], 1, NULL), ==, -EINVAL);
    check_contains(tide_last_error(), "`token` is NULL");
    check_int(tide_optim_step(optim, NULL), ==, -EINVAL);
    check_int(tide_optim_share(optim, 0, NULL, &number), ==, -EINVAL);
    check_int(tide_optim_share(optim, 0, &number, NULL), ==, -EINVAL);
    check_int(tide_optim_get_states(optim, 0, &arrays, NULL), ==, -EINVAL);
    check_int(tide_optim_load(optim, path, NULL), ==, -EINVAL);
    check_contains(tide_last_error(), "`step` is NULL");
    check_int(tide_optim_load_shares(optim, NULL, 1, &number), ==, -EINVAL);
    check_contains(tide_last_error(), "`paths` is NULL");
    app_step(optim, 0);
    tide_optim_destroy(optim);
}

/* Calls have the promised results, with states in memory and on a drive. */
static void steps(void)
{
    for (int away = 0; away < 2; away++) {
        app_reset();
        app.options.stores = &app.store;
        app.options.store_count = (size_t)away;
        app.options.states = away ? TIDE_STORE : TIDE_HOST;
        app.options.check_overflow = 1;
        struct tide_optim *optim = app_create();
        struct tide_optim_info info = {.struct_bytes = sizeof info};
        struct tide_optim_result result = {.struct_bytes = sizeof result};
        uint64_t token = 0;
        check_int(tide_optim_describe(optim, &info), ==, 0);
        check_uint(info.elements, ==, APP_COUNT * APP_ELEMENTS);
        check_uint(info.blocks, ==, 1);
        check_true((info.store_bytes > 0) == (away != 0));
        check_true(info.host_bytes <= app.options.host_bytes);
        check_int(tide_optim_step(optim, &token), ==, -ENODATA);
        app_submit_all(optim);
        check_int(tide_optim_set_loss_scale(optim, 2), ==, -EBUSY);
        check_int(tide_optim_set_stream(optim, NULL), ==, -EINVAL);
        check_contains(tide_last_error(), "needs the option `device`");
        check_int(tide_optim_step(optim, &token), ==, 0);
        check_int(tide_optim_last(optim, &result), ==, 0);
        check_double(fabs(result.grad_norm - sqrt(APP_COUNT * APP_ELEMENTS)), <=, 1e-9);
        check_uint(result.step, ==, 1);
        check_int(tide_optim_wait(optim, token), ==, 0);
        check_int(tide_optim_poll(optim, token), ==, 1);
        for (int p = 0; p < APP_COUNT; p++) {
            check_double((double)app.weights[p][p], ==, p - 0.5);
        }
        app.group.lr = 0.25;
        check_int(tide_optim_set_group(optim, 0, &app.group), ==, 0);
        check_int(tide_optim_set_group(optim, 1, &app.group), ==, -EINVAL);
        check_int(tide_optim_set_loss_scale(optim, 4), ==, 0);
        app.weights[1][7] = 10;
        check_int(tide_optim_weights_changed(optim, 1), ==, 0);
        check_int(tide_optim_submit(optim, 1, app.gradients[1], 1, &token), ==, 0);
        check_int(tide_optim_submit(optim, 1, app.gradients[1], 1, &token), ==, -EALREADY);
        check_int(tide_optim_submit(optim, APP_COUNT, app.gradients[1], 1, &token), ==, -EINVAL);
        check_int(tide_optim_wait_parameter(optim, APP_COUNT), ==, -EINVAL);
        check_contains(tide_last_error(), "parameter 3 does not exist; the optimizer has 3");
        check_int(tide_optim_set_group(optim, 0, NULL), ==, -EINVAL);
        check_contains(tide_last_error(), "tide_optim_group is NULL");
        check_int(tide_optim_last(optim, NULL), ==, -EINVAL);
        check_contains(tide_last_error(), "tide_optim_result is NULL");
        check_int(tide_optim_step(optim, &token), ==, 0);
        check_int(tide_optim_wait_parameter(optim, 1), ==, 0);
        check_double((double)app.weights[1][7], ==, 10 - 0.0625);
        check_double((double)app.weights[0][7], ==, -0.5);
        app.gradients[2][3] = NAN;
        check_int(tide_optim_submit(optim, 2, app.gradients[2], 1, &token), ==, 0);
        check_int(tide_optim_step(optim, &token), ==, 0);
        check_int(tide_optim_last(optim, &result), ==, 0);
        check_uint(result.skipped, ==, 1);
        check_int(tide_optim_wait_parameter(optim, TIDE_OPTIM_ALL), ==, 0);
        check_double((double)app.weights[2][3], ==, 1.5);
        tide_optim_destroy(optim);
    }
}

enum {
    THIRD = 6
}; /* the token of the third step: a step has a token for its block and one of its own */

static void *wait_for(void *argument)
{
    struct tide_optim *optim = argument;
    return (void *)(intptr_t)tide_optim_wait(optim, THIRD);
}

/* Several threads can wait for a step that is closed later. */
static void threads_wait(void)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    uint64_t token = 0;
    app_reset();
    struct tide_optim *optim = app_create();
    for (int t = 0; t < THREADS; t++) {
        check_int(pthread_create(&threads[t], NULL, wait_for, optim), ==, 0);
    }
    for (int s = 0; s < 3; s++) {
        app_submit_all(optim);
        check_int(tide_optim_step(optim, &token), ==, 0);
    }
    check_uint(token, ==, THIRD);
    for (int t = 0; t < THREADS; t++) {
        void *rc = NULL;
        check_int(pthread_join(threads[t], &rc), ==, 0);
        check_true(rc == NULL);
    }
    tide_optim_destroy(optim);
}

/* With check_gradients, a borrowed gradient that was written or freed is an error. */
static void borrowed_gradients(void)
{
    for (int way = 0; way < 6; way++) {
        struct tide_optim_info info = {.struct_bytes = sizeof info};
        uint64_t token = 0;
        app_reset();
        app.options.check_gradients = way < 5;
        /* Without clipping, the update begins with the step's last gradient. */
        app.options.clip = way % 2 != 0 ? 1 : 0;
        struct tide_optim *optim = app_create();
        app_step(optim, 0);
        check_int(tide_optim_submit(optim, 0, app.gradients[0], 1, &token), ==, 0);
        void *pages = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                           0);
        check_true(pages != MAP_FAILED);
        check_int(tide_optim_submit(optim, 1, pages, 1, &token), ==, 0);
        if (way == 2 || way == 3) {
            check_int(munmap(pages, 1 << 16), ==, 0);
        } else if (way != 4) {
            memset((char *)pages + 77, 1, 1);
        }
        check_int(tide_optim_submit(optim, 2, app.gradients[2], 1, &token), ==, 0);
        const bool early = way == 0 || way == 2;
        if (early) { /* the error comes before the step is closed */
            check_int(tide_optim_wait(optim, token), ==, -EFAULT);
        }
        const int rc = tide_optim_step(optim, &token);
        check_true((rc == 0 && !early) || (rc == -EFAULT && way < 4));
        check_int(tide_optim_wait(optim, token), ==, way < 4 ? -EFAULT : 0);
        if (way < 4) {
            check_contains(tide_last_error(), "the gradient of b at ");
            check_contains(tide_last_error(), "freed ");
            check_int(tide_optim_step(optim, &token), ==, -EFAULT);
            check_int(tide_optim_set_group(optim, 0, &app.group), ==, -EFAULT);
            check_int(tide_optim_set_loss_scale(optim, 1), ==, -EFAULT);
            check_int(tide_optim_describe(optim, &info), ==, 0);
            check_int(tide_optim_submit(optim, 0, app.gradients[0], 1, &token), ==, -EFAULT);
        }
        tide_optim_destroy(optim);
    }
}

/* The results of some steps of AdamW. */
struct ended {
    float weights[APP_COUNT][APP_ELEMENTS];
    float states[APP_COUNT][2][APP_ELEMENTS];
};

static void steps_of_adamw(bool on_drive, struct ended *ended)
{
    uint64_t token = 0;
    app_reset();
    app.options.optimizer = TIDE_ADAMW;
    app.group.lr = 0.01;
    app.group.beta1 = 0.9;
    app.options.stores = on_drive ? &app.store : NULL;
    app.options.store_count = on_drive;
    app.options.states = on_drive ? TIDE_STORE : TIDE_HOST;
    struct tide_optim *optim = app_create();
    for (int s = 0; s < 3; s++) {
        for (int p = 0; p < APP_COUNT; p++) {
            for (int i = 0; i < APP_ELEMENTS; i++) {
                app.gradients[p][i] = (float)((i * 7 + p * 13 + s * 29) % 101 - 50) / 64;
            }
        }
        app_submit_all(optim);
        check_int(tide_optim_step(optim, &token), ==, 0);
        check_int(tide_optim_wait(optim, token), ==, 0);
    }
    for (int p = 0; p < APP_COUNT; p++) {
        const struct tide_optim_arrays arrays = {.struct_bytes = sizeof arrays,
                                                 .elements = APP_ELEMENTS,
                                                 .m = ended->states[p][0],
                                                 .v = ended->states[p][1]};
        uint64_t updates = 0;
        check_int(tide_optim_get_states(optim, (uint64_t)p, &arrays, &updates), ==, 0);
        check_uint(updates, ==, 3);
    }
    memcpy(ended->weights, app.weights, sizeof app.weights);
    tide_optim_destroy(optim);
}

static int steps_without_uring(void *argument)
{
    static struct ended in_memory;
    static struct ended with_uring; /* if the machine has it */
    static struct ended without;
    const int *code = argument;
    struct tide_optim *optim = NULL;
    steps_of_adamw(false, &in_memory);
    steps_of_adamw(true, &with_uring);
    check_int(test_child_refuse_uring(*code, *code == ENOSYS), ==, 0);
    app_reset();
    app.options.stores = &app.store;
    app.options.store_count = 1;
    app.options.states = TIDE_STORE;
    app.options.io = "uring";
    const int rc = tide_optim_create(NULL, &app.options, &optim);
    test_uring_is_refused(*code, rc, tide_last_error());
    steps_of_adamw(true, &without);
    check_memory(&without, &in_memory, sizeof without);
    check_memory(&without, &with_uring, sizeof without);
    return 0;
}

/* Without io_uring, states on a drive have the bits of those in memory, and a request for io_uring
 * is refused with the reason. */
static void without_uring(void)
{
    test_without_uring(steps_without_uring);
}

static void example(void)
{
    char words[600];
    char text[4096];
    snprintf(words, sizeof words, "'%s'", test_directory());
    check_int(example_run("docs_optimizer", "", words, text, sizeof text), ==, 0);
    check_contains(text, " at last\n");
    check_int(example_run("docs_optimizer", "", "", text, sizeof text), ==, 2);
    check_int(example_run("docs_optimizer", "", "/proc/no", text, sizeof text), ==, 1);
    check_contains(text, "/proc");
}

/* Valgrind finds no error and no leak in the example program. */
static void valgrind(void)
{
    char words[600];
    char text[8192];
    if (TEST_SLOW || !test_full() || system("valgrind --version >/dev/null 2>&1") != 0) {
        test_skip("only in the long form, with valgrind, without sanitizers");
    }
    snprintf(words, sizeof words, "'%s'", test_directory());
    check_int(example_run("docs_optimizer", "valgrind -q --error-exitcode=9 --leak-check=full",
                          words, text, sizeof text),
              ==, 0);
    check_contains(text, " at last\n");
}

TEST_MAIN({"wrong_options", wrong_options}, {"null_arguments", null_arguments}, {"steps", steps},
          {"threads_wait", threads_wait}, {"borrowed_gradients", borrowed_gradients},
          {"without_uring", without_uring}, {"example", example}, {"valgrind", valgrind})
