/* test_optimizer.c: the optimizer as an application sees it: what is refused, which process may use
 * it, several threads that wait, and the program of docs. tests/run/test_optimizer.c compares its
 * bits. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tide/inspect.h>
#include <tide/optimizer.h>
#include <unistd.h>

#include "tests/harness/child.h"
#include "tests/harness/test.h"

enum { COUNT = 3, ELEMENTS = 1000 };

static float weights[COUNT][ELEMENTS];
static float gradients[COUNT][ELEMENTS];
static struct tide_optim_parameter parameters[COUNT];
static struct tide_optim_group group;
static struct tide_optim_options options;
static struct tide_store_path store;

/* Sets up three parameters, SGD with a rate of one half, and states in memory. */
static void reset(void)
{
    static const char *const names[COUNT] = {"a", "b", "c"};
    check_int(tide_optim_group_init(&group, sizeof group), ==, 0);
    check_int(tide_optim_options_init(&options, sizeof options), ==, 0);
    group.lr = 0.5;
    group.beta1 = 0;
    for (int p = 0; p < COUNT; p++) {
        parameters[p] = (struct tide_optim_parameter){.struct_bytes = sizeof parameters[p],
                                                      .name = names[p],
                                                      .weights = weights[p],
                                                      .elements = ELEMENTS,
                                                      .precision = TIDE_FP32,
                                                      .gradients = TIDE_FP32};
        for (int i = 0; i < ELEMENTS; i++) {
            weights[p][i] = (float)p;
            gradients[p][i] = 1;
        }
    }
    store = (struct tide_store_path){
        .struct_bytes = sizeof store, .directory = test_directory(), .bytes = 16 << 20};
    options.parameters = parameters;
    options.parameter_count = COUNT;
    options.groups = &group;
    options.group_count = 1;
    options.optimizer = TIDE_SGD;
    options.threads = 2;
    options.host_bytes = 64 << 20;
    options.cache = test_path("cache");
}

static struct tide_optim *create(void)
{
    struct tide_optim *optim = NULL;
    const int rc = tide_optim_create(NULL, &options, &optim);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "no optimizer: %d: %s", rc, tide_last_error());
    }
    return optim;
}

static void refuse(int code, const char *part)
{
    struct tide_optim *optim = NULL;
    const int rc = tide_optim_create(NULL, &options, &optim);
    if (rc != code || optim != NULL || strstr(tide_last_error(), part) == NULL) {
        test_fail(__FILE__, __LINE__, "%s: %d: %s", part, rc, tide_last_error());
    }
    reset();
}

/* Each wrong option is refused with its name, and nothing is left behind. */
static void wrong_options(void)
{
    reset();
    options.parameter_count = 0;
    refuse(-EINVAL, "a parameter and a group");
    options.optimizer = 99;
    refuse(-EINVAL, "optimizer 99");
    options.states = TIDE_STORE;
    refuse(-EINVAL, "need a store");
    options.states = TIDE_DEVICE;
    refuse(-EINVAL, "expected TIDE_AUTO");
    options.clip = -1;
    refuse(-EINVAL, "clip is -1");
    options.clip = (double)INFINITY;
    refuse(-EINVAL, "clip is inf; expected 0 (no clipping) or more");
    options.moments = 9;
    refuse(-EINVAL, "moments 9 is unknown");
    options.group_count = 0;
    refuse(-EINVAL, "a parameter and a group");
    options.parameter_count = (size_t)UINT32_MAX + 1;
    refuse(-EINVAL, "a parameter and a group");
    options.struct_bytes = sizeof options - 4;
    refuse(-EINVAL, "tide_optim_options");
    group.struct_bytes = 0;
    refuse(-EINVAL, "group 0: struct_bytes");
    parameters[0].struct_bytes = 0;
    refuse(-EINVAL, "parameter 0: struct_bytes");
    parameters[1].gradients = 3;
    refuse(-EINVAL, "parameter 1: 3 is not a precision");
    parameters[1].weights = NULL;
    refuse(-EINVAL, "parameter 1 has no weights");
    parameters[1].weights = (char *)weights[1] + 1;
    refuse(-EINVAL, "are not aligned");
    parameters[2].elements = 0;
    refuse(-EINVAL, "parameter 2 has no elements");
    parameters[2].weights = weights[0];
    refuse(-EINVAL, "have weights in the same memory; tied weights are one parameter");
    parameters[1].weights = weights[0] + ELEMENTS - 1;
    refuse(-EINVAL, "a and b have weights in the same memory");
    parameters[2].precision = 7;
    refuse(-EINVAL, "parameter 2: 7 is not a precision");
    parameters[0].group = 1;
    refuse(-EINVAL, "a is in group 1, which does not exist; the number of groups is 1");
    parameters[1].name = "a";
    refuse(-EINVAL, "\"a\"");
    group.beta1 = 1.5;
    refuse(-EINVAL, "beta");
    options.host_bytes = 1 << 20;
    refuse(-EFBIG, "host 1M");
    options.device = "card";
    refuse(-EINVAL, "cuda");
    options.device = "cuda:77"; /* no such card, no driver, or a build without CUDA */
    check_true(tide_optim_create(NULL, &options, &(struct tide_optim *){NULL}) < 0);
    check_contains(tide_last_error(), "cuda");
    options.device = "cpu";
    options.stores = &store;
    options.store_count = 1;
    store.directory = "/proc/no";
    check_true(tide_optim_create(NULL, &options, &(struct tide_optim *){NULL}) < 0);
    tide_optim_destroy(NULL);
}

static void submit_all(struct tide_optim *optim)
{
    uint64_t token;
    for (int p = COUNT - 1; p >= 0; p--) {
        check_int(tide_optim_submit(optim, (uint64_t)p, gradients[p], 1, &token), ==, 0);
    }
}

/* Tests every call, with states in memory and on a drive. */
static void steps(void)
{
    for (int away = 0; away < 2; away++) {
        reset();
        options.stores = &store;
        options.store_count = (size_t)away;
        options.states = away ? TIDE_STORE : TIDE_HOST;
        options.check_overflow = 1;
        struct tide_optim *optim = create();
        struct tide_optim_info info = {.struct_bytes = sizeof info};
        struct tide_optim_result result = {.struct_bytes = sizeof result};
        uint64_t token = 0;
        check_int(tide_optim_describe(optim, &info), ==, 0);
        check_uint(info.elements, ==, COUNT * ELEMENTS);
        check_uint(info.blocks, ==, 1);
        check_true((info.store_bytes > 0) == (away != 0));
        check_true(info.host_bytes <= options.host_bytes);
        check_int(tide_optim_step(optim, &token), ==, -ENODATA);
        submit_all(optim);
        check_int(tide_optim_set_loss_scale(optim, 2), ==, -EBUSY);
        check_int(tide_optim_set_stream(optim, NULL), ==, -EINVAL);
        check_contains(tide_last_error(), "needs the option `device`");
        check_int(tide_optim_step(optim, &token), ==, 0);
        check_int(tide_optim_last(optim, &result), ==, 0);
        check_double(fabs(result.grad_norm - sqrt(COUNT * ELEMENTS)), <=, 1e-9);
        check_uint(result.step, ==, 1);
        check_int(tide_optim_wait(optim, token), ==, 0);
        check_int(tide_optim_poll(optim, token), ==, 1);
        for (int p = 0; p < COUNT; p++) {
            check_double((double)weights[p][p], ==, p - 0.5);
        }
        group.lr = 0.25;
        check_int(tide_optim_set_group(optim, 0, &group), ==, 0);
        check_int(tide_optim_set_group(optim, 1, &group), ==, -EINVAL);
        check_int(tide_optim_set_loss_scale(optim, 4), ==, 0);
        weights[1][7] = 10;
        check_int(tide_optim_weights_changed(optim, 1), ==, 0);
        check_int(tide_optim_submit(optim, 1, gradients[1], 1, &token), ==, 0);
        check_int(tide_optim_submit(optim, 1, gradients[1], 1, &token), ==, -EALREADY);
        check_int(tide_optim_submit(optim, COUNT, gradients[1], 1, &token), ==, -EINVAL);
        check_int(tide_optim_wait_parameter(optim, COUNT), ==, -EINVAL);
        check_contains(tide_last_error(), "parameter 3 does not exist; the optimizer has 3");
        check_int(tide_optim_set_group(optim, 0, NULL), ==, -EINVAL);
        check_contains(tide_last_error(), "tide_optim_group is NULL");
        check_int(tide_optim_last(optim, NULL), ==, -EINVAL);
        check_contains(tide_last_error(), "tide_optim_result is NULL");
        check_int(tide_optim_step(optim, &token), ==, 0);
        check_int(tide_optim_wait_parameter(optim, 1), ==, 0);
        check_double((double)weights[1][7], ==, 10 - 0.0625);
        check_double((double)weights[0][7], ==, -0.5);
        gradients[2][3] = NAN;
        check_int(tide_optim_submit(optim, 2, gradients[2], 1, &token), ==, 0);
        check_int(tide_optim_step(optim, &token), ==, 0);
        check_int(tide_optim_last(optim, &result), ==, 0);
        check_uint(result.skipped, ==, 1);
        check_int(tide_optim_wait_parameter(optim, TIDE_OPTIM_ALL), ==, 0);
        check_double((double)weights[2][3], ==, 1.5);
        tide_optim_destroy(optim);
    }
}

enum {
    THIRD = 6
}; /* the token of the third step: each step has a token for its only block, and one of its own */

static void *wait_for(void *argument)
{
    struct tide_optim *optim = argument;
    return (void *)(intptr_t)tide_optim_wait(optim, THIRD);
}

/* Threads wait for the token of a step that is closed later. */
static void threads_wait(void)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    uint64_t token = 0;
    reset();
    struct tide_optim *optim = create();
    for (int t = 0; t < THREADS; t++) {
        check_int(pthread_create(&threads[t], NULL, wait_for, optim), ==, 0);
    }
    for (int s = 0; s < 3; s++) {
        submit_all(optim);
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

static void check_precision(const char *directory, const char *precision)
{
    struct tide_inspection found = {.struct_bytes = sizeof found};
    char path[700];
    snprintf(path, sizeof path, "%s/checkpoint-1", directory);
    check_int(tide_inspect(NULL, path, NULL, &found), ==, 0);
    check_string(found.problem, "");
    check_uint(found.verified, ==, 1);
    check_string(found.precision, precision);
}

/* An optimizer with other budgets loads a checkpoint with its weights, which have two types. It
 * refuses what does not fit. */
static void save_and_load(void)
{
    char directory[600];
    uint64_t token = 0;
    uint64_t step = 0;
    snprintf(directory, sizeof directory, "%s/saved", test_directory());
    reset();
    options.optimizer = TIDE_ADAMW;
    parameters[0].precision = TIDE_BF16;
    struct tide_optim *optim = create();
    submit_all(optim);
    check_int(tide_optim_save(optim, directory, 1), ==, -EBUSY);
    check_int(tide_optim_load(optim, directory, &step), ==, -EBUSY);
    check_int(tide_optim_step(optim, &token), ==, 0);
    check_int(tide_optim_save(optim, NULL, 1), ==, -EINVAL);
    check_int(tide_optim_save(optim, "/proc/no/such", 1), <, 0);
    check_int(tide_optim_save(optim, directory, 1), ==, 0);
    check_precision(directory, "bf16+fp32");
    const float saved = weights[1][5];
    tide_optim_destroy(optim);
    reset();
    options.optimizer = TIDE_ADAMW;
    parameters[0].precision = TIDE_BF16;
    options.stores = &store;
    options.store_count = 1;
    options.states = TIDE_STORE;
    optim = create();
    check_int(tide_optim_load(optim, "/proc", &step), ==, -ENOENT);
    check_int(tide_optim_load(optim, directory, &step), ==, 0);
    check_uint(step, ==, 1);
    check_memory(&weights[1][5], &saved, sizeof saved);
    tide_optim_destroy(optim);
    reset();
    parameters[0].precision = TIDE_BF16;
    optim = create(); /* SGD */
    check_int(tide_optim_load(optim, directory, &step), ==, -EINVAL);
    check_contains(tide_last_error(), "optimizer is adamw in the checkpoint");
    tide_optim_destroy(optim);
}

static void spoil(const char *path)
{
    char byte = 0;
    FILE *file = fopen(path, "r+b");
    check_true(file != NULL && fseek(file, -1, SEEK_END) == 0 && fread(&byte, 1, 1, file) == 1);
    byte = (char)~byte;
    check_true(fseek(file, -1, SEEK_END) == 0 && fwrite(&byte, 1, 1, file) == 1 &&
               fclose(file) == 0);
}

/* If the newest checkpoint is damaged, the one before it is loaded, with its step and weights; if
 * none is whole, that is an error with the file. */
static void damaged_checkpoints(void)
{
    char directory[600];
    char path[700];
    uint64_t token = 0;
    uint64_t step = 0;
    snprintf(directory, sizeof directory, "%s/older", test_directory());
    reset();
    struct tide_optim *optim = create();
    float saved = 0;
    for (int i = 1; i <= 2; i++) {
        submit_all(optim);
        check_int(tide_optim_step(optim, &token), ==, 0);
        check_int(tide_optim_wait(optim, token), ==, 0);
        check_int(tide_optim_save(optim, directory, 2), ==, 0);
        saved = i == 1 ? weights[1][5] : saved;
    }
    check_true(weights[1][5] != saved);
    snprintf(path, sizeof path, "%s/checkpoint-2/weights.safetensors", directory);
    spoil(path);
    check_int(tide_optim_load(optim, directory, &step), ==, 0);
    check_uint(step, ==, 1);
    check_memory(&weights[1][5], &saved, sizeof saved);
    snprintf(path, sizeof path, "%s/checkpoint-1/weights.safetensors", directory);
    spoil(path);
    check_int(tide_optim_load(optim, directory, &step), ==, -EBADMSG);
    check_contains(tide_last_error(), "checkpoint-1/weights.safetensors");
    tide_optim_destroy(optim);
}

/* The states of a parameter are copied to and from the program's arrays; wrong arrays are
 * refused. */
static void states(void)
{
    static float master[ELEMENTS], m[ELEMENTS], v[ELEMENTS];
    struct tide_optim_arrays arrays = {
        .struct_bytes = sizeof arrays, .elements = ELEMENTS, .master = master, .m = m, .v = v};
    uint64_t token = 0;
    uint64_t updates = 0;
    reset();
    options.optimizer = TIDE_ADAMW;
    group.beta1 = 0.5;
    parameters[1].precision = TIDE_BF16;
    struct tide_optim *optim = create();
    submit_all(optim);
    check_int(tide_optim_get_states(optim, 1, &arrays, &updates), ==, -EBUSY);
    check_int(tide_optim_get_states(optim, 1, NULL, &updates), ==, -EINVAL);
    check_int(tide_optim_set_states(optim, 1, NULL, 1), ==, -EINVAL);
    check_contains(tide_last_error(), "tide_optim_arrays is NULL");
    check_int(tide_optim_save(optim, "", 1), ==, -EINVAL);
    check_int(tide_optim_load(optim, NULL, &updates), ==, -EINVAL);
    check_contains(tide_last_error(), "no directory of checkpoints was given");
    check_int(tide_optim_step(optim, &token), ==, 0);
    check_int(tide_optim_get_states(optim, 1, &arrays, &updates), ==, 0);
    check_uint(updates, ==, 1);
    check_double((double)m[7], ==, 0.5);
    check_true(v[7] > 0.0009F && v[7] < 0.0011F);
    master[3] = 2.5F;
    check_int(tide_optim_set_states(optim, 1, &arrays, 4), ==, 0);
    check_uint(((const uint16_t *)(const void *)weights[1])[3], ==, 0x4020);
    arrays.m = NULL;
    m[7] = 9;
    check_int(tide_optim_get_states(optim, 1, &arrays, &updates), ==, 0);
    check_uint(updates, ==, 4);
    check_double((double)m[7], ==, 9);
    check_double((double)master[3], ==, 2.5);
    check_int(tide_optim_get_states(optim, COUNT, &arrays, &updates), ==, -EINVAL);
    arrays.elements--;
    check_int(tide_optim_set_states(optim, 1, &arrays, 4), ==, -EINVAL);
    check_contains(tide_last_error(), "1000 elements; the arrays have 999");
    tide_optim_destroy(optim);
    reset();
    optim = create(); /* SGD */
    arrays.elements = ELEMENTS;
    check_int(tide_optim_get_states(optim, 1, &arrays, &updates), ==, -ENOTSUP);
    check_contains(tide_last_error(), "no moment v");
    tide_optim_destroy(optim);
}

/* ---- weights that the program writes ---- */

static uint16_t bf16_of(float x) /* exact for values whose low half is zero */
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    check_uint(bits & 0xffff, ==, 0);
    return (uint16_t)(bits >> 16);
}

static uint16_t fp16_of(float x) /* exact for positive values with few digits */
{
    int exponent = 0;
    const float fraction = frexpf(x, &exponent);
    return (uint16_t)(((exponent + 14) << 10) + (int)(fraction * 2048) - 1024);
}

static void step_with(struct tide_optim *optim, int step)
{
    uint64_t token = 0;
    for (int p = 0; p < COUNT; p++) {
        for (int i = 0; i < ELEMENTS; i++) {
            gradients[p][i] = (float)((i * 7 + step * 3 + p) % 11 - 5) / 8;
        }
    }
    submit_all(optim);
    check_int(tide_optim_step(optim, &token), ==, 0);
    check_int(tide_optim_wait_parameter(optim, TIDE_OPTIM_ALL), ==, 0);
}

/* Creates an optimizer of three parameters: 0 has bf16 weights, 1 fp16, 2 fp32. */
static struct tide_optim *create_mixed(int away)
{
    reset();
    options.optimizer = TIDE_ADAMW;
    options.stores = &store;
    options.store_count = (size_t)away;
    options.states = away ? TIDE_STORE : TIDE_HOST;
    group.lr = 1e-3;
    group.beta1 = 0.9;
    parameters[0].precision = TIDE_BF16;
    parameters[1].precision = TIDE_FP16;
    return create();
}

/* A program averages weights (EMA), writes the averages to the weights between steps, and reports
 * that. Updates continue from the averages, and the moments stay. Another optimizer that gets these
 * states continues in the same way. The values are exact in all three types, so the new masters are
 * known. */
static void averaged_weights(void)
{
    static float average[COUNT][ELEMENTS];
    static float moments[COUNT][2][ELEMENTS];
    static char expected[COUNT][sizeof weights[0]];
    for (int away = 0; away < 2; away++) {
        struct tide_optim *optim = create_mixed(away);
        for (int s = 0; s < 3; s++) {
            step_with(optim, s);
        }
        for (int p = 0; p < COUNT; p++) {
            struct tide_optim_arrays states = {.struct_bytes = sizeof states,
                                               .elements = ELEMENTS,
                                               .m = moments[p][0],
                                               .v = moments[p][1]};
            uint64_t updates = 0;
            check_int(tide_optim_get_states(optim, (uint64_t)p, &states, &updates), ==, 0);
            check_uint(updates, ==, 3);
            for (int i = 0; i < ELEMENTS; i++) {
                average[p][i] = (float)(i % 32 + p) * 0.25F + 1;
                uint16_t *half = (uint16_t *)(void *)weights[p] + i;
                if (p == 0) {
                    *half = bf16_of(average[p][i]);
                } else if (p == 1) {
                    *half = fp16_of(average[p][i]);
                } else {
                    weights[p][i] = average[p][i];
                }
            }
            check_int(tide_optim_weights_changed(optim, (uint64_t)p), ==, 0);
        }
        step_with(optim, 3);
        step_with(optim, 4);
        memcpy(expected, weights, sizeof weights);
        tide_optim_destroy(optim);
        optim = create_mixed(1 - away);
        for (int p = 0; p < COUNT; p++) {
            const struct tide_optim_arrays states = {.struct_bytes = sizeof states,
                                                     .elements = ELEMENTS,
                                                     .master = average[p],
                                                     .m = moments[p][0],
                                                     .v = moments[p][1]};
            check_int(tide_optim_set_states(optim, (uint64_t)p, &states, 3), ==, 0);
        }
        step_with(optim, 3);
        step_with(optim, 4);
        for (int p = 0; p < COUNT; p++) {
            check_memory(weights[p], expected[p], ELEMENTS * (p == 2 ? 4 : 2));
        }
        tide_optim_destroy(optim);
    }
}

/* Weights that two layers use are one parameter. Its two gradients in a step have the effect of
 * their sum, also after the program has written the weights. */
static void tied_weights(void)
{
    static char expected[sizeof weights[0]];
    for (int halves = 0; halves < 2; halves++) {
        reset();
        options.optimizer = TIDE_ADAMW;
        options.accumulate = 1;
        parameters[0].precision = TIDE_BF16;
        struct tide_optim *optim = create();
        uint64_t token = 0;
        for (int s = 0; s < 4; s++) {
            for (int i = 0; i < ELEMENTS; i++) {
                gradients[0][i] = (float)((i + s) % 13 - 6);
                gradients[1][i] = halves ? gradients[0][i] / 4 : gradients[0][i];
                gradients[2][i] = gradients[0][i] - gradients[1][i];
            }
            if (halves) {
                check_int(tide_optim_submit(optim, 0, gradients[1], 0, &token), ==, 0);
                check_int(tide_optim_submit(optim, 0, gradients[2], 1, &token), ==, 0);
            } else {
                check_int(tide_optim_submit(optim, 0, gradients[0], 1, &token), ==, 0);
            }
            check_int(tide_optim_step(optim, &token), ==, 0);
            check_int(tide_optim_wait(optim, token), ==, 0);
            for (int i = 0; s == 1 && i < ELEMENTS; i++) {
                ((uint16_t *)(void *)weights[0])[i] = bf16_of((float)(i % 64));
            }
            check_int(s == 1 ? tide_optim_weights_changed(optim, 0) : 0, ==, 0);
        }
        if (halves) {
            check_memory(weights[0], expected, ELEMENTS * sizeof(uint16_t));
        }
        memcpy(expected, weights[0], sizeof expected);
        tide_optim_destroy(optim);
    }
}

/* ---- gradients that change while they are borrowed ---- */

/* With check_gradients a gradient that is written to, or whose memory is given back to the system,
 * before its token is reached is an error with its name, whether the sum or the update reads it
 * first. */
static void borrowed_gradients(void)
{
    for (int way = 0; way < 6; way++) {
        uint64_t token = 0;
        reset();
        options.check_gradients = way < 5;
        /* Without clipping, the update begins with the step's last gradient. */
        options.clip = way % 2 != 0 ? 1 : 0;
        struct tide_optim *optim = create();
        step_with(optim, 0);
        check_int(tide_optim_submit(optim, 0, gradients[0], 1, &token), ==, 0);
        void *pages = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                           0);
        check_true(pages != MAP_FAILED);
        check_int(tide_optim_submit(optim, 1, pages, 1, &token), ==, 0);
        if (way == 2 || way == 3) {
            check_int(munmap(pages, 1 << 16), ==, 0);
        } else if (way != 4) {
            memset((char *)pages + 77, 1, 1);
        }
        check_int(tide_optim_submit(optim, 2, gradients[2], 1, &token), ==, 0);
        check_int(tide_optim_step(optim, &token), ==, 0);
        check_int(tide_optim_wait(optim, token), ==, way < 4 ? -EFAULT : 0);
        if (way < 4) {
            check_contains(tide_last_error(), "the gradient of b at ");
            check_contains(tide_last_error(), "freed ");
            check_int(tide_optim_submit(optim, 0, gradients[0], 1, &token), ==, -EFAULT);
        }
        tide_optim_destroy(optim);
    }
}

/* ---- machines without io_uring ---- */

/* What some steps of AdamW end with. */
struct ended {
    float weights[COUNT][ELEMENTS];
    float states[COUNT][2][ELEMENTS];
};

static void steps_of_adamw(bool on_drive, struct ended *ended)
{
    uint64_t token = 0;
    reset();
    options.optimizer = TIDE_ADAMW;
    group.lr = 0.01;
    group.beta1 = 0.9;
    options.stores = on_drive ? &store : NULL;
    options.store_count = on_drive;
    options.states = on_drive ? TIDE_STORE : TIDE_HOST;
    struct tide_optim *optim = create();
    for (int s = 0; s < 3; s++) {
        for (int p = 0; p < COUNT; p++) {
            for (int i = 0; i < ELEMENTS; i++) {
                gradients[p][i] = (float)((i * 7 + p * 13 + s * 29) % 101 - 50) / 64;
            }
        }
        submit_all(optim);
        check_int(tide_optim_step(optim, &token), ==, 0);
        check_int(tide_optim_wait(optim, token), ==, 0);
    }
    for (int p = 0; p < COUNT; p++) {
        const struct tide_optim_arrays arrays = {.struct_bytes = sizeof arrays,
                                                 .elements = ELEMENTS,
                                                 .m = ended->states[p][0],
                                                 .v = ended->states[p][1]};
        uint64_t updates = 0;
        check_int(tide_optim_get_states(optim, (uint64_t)p, &arrays, &updates), ==, 0);
        check_uint(updates, ==, 3);
    }
    memcpy(ended->weights, weights, sizeof weights);
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
    reset();
    options.stores = &store;
    options.store_count = 1;
    options.states = TIDE_STORE;
    options.io = "uring";
    const int rc = tide_optim_create(NULL, &options, &optim);
    test_uring_is_refused(*code, rc, tide_last_error());
    steps_of_adamw(true, &without);
    check_memory(&without, &in_memory, sizeof without);
    check_memory(&without, &with_uring, sizeof without);
    return 0;
}

/* If a container forbids io_uring (EPERM), the kernel has none and no libaio either (ENOSYS), or
 * the library was built without liburing, states on a drive work, with the bits of those in memory
 * and of those that io_uring moved. Only who requests io_uring gets an error, which says why. */
static void without_uring(void)
{
    test_without_uring(steps_without_uring);
}

static int no_sum(void *user, double *values, size_t count)
{
    (void)values;
    *(size_t *)user += count;
    return 0;
}

/* One of two processes has all of a small model. A sum over both processes is requested once in a
 * step. */
static void shares(void)
{
    uint64_t first = 0;
    uint64_t count = 0;
    uint64_t token = 0;
    size_t sums = 0;
    reset();
    options.world = 2;
    refuse(-EINVAL, "process 0 of 2 would have no parameters");
    options.world = 2;
    options.rank = 1;
    options.clip = 1;
    refuse(-EINVAL, "the norm over all processes");
    options.world = 2;
    options.rank = 1;
    options.sum = no_sum;
    options.user = &sums;
    struct tide_optim *optim = create();
    check_int(tide_optim_share(optim, 1, &first, &count), ==, 0);
    check_uint(first, ==, 0);
    check_uint(count, ==, ELEMENTS);
    check_int(tide_optim_share(optim, COUNT, &first, &count), ==, -EINVAL);
    submit_all(optim);
    check_int(tide_optim_step(optim, &token), ==, 0);
    check_int(tide_optim_wait(optim, token), ==, 0);
    struct tide_optim_result result = {.struct_bytes = sizeof result};
    check_int(tide_optim_last(optim, &result), ==, 0); /* updates need not wait for the norm */
    check_uint(sums, ==, 1);
    check_double((double)weights[1][0], ==, 0.5);
    tide_optim_destroy(optim);
}

/* ---- processes ---- */

enum {
    WORLD_MAX = 2,
    STEPS = 4,
    WIDE = 3 * 65536 + 77, /* elements of the first of two parameters: their block has four cuts */
    NARROW = 999
};

/* Memory that the processes of a run share. */
struct common {
    pthread_barrier_t barrier;
    double sums[WORLD_MAX][8];
    float weights[WIDE + NARROW];
};
static struct common *common;
static const uint64_t elements_of[2] = {WIDE, NARROW};

/* A run of one or several processes. */
struct world {
    uint32_t size, rank;
    uint32_t loads; /* number of processes that saved the checkpoints with which the run begins; 0:
                     * it begins without */
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

/* Publishes this process's share of the weights, and takes those of the others. */
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
    reset();
    snprintf(directory, sizeof directory, "%s/store of %u", test_directory(), world->rank);
    store.directory = directory;
    options.stores = &store;
    options.store_count = 1;
    options.states = world->rank == 0 ? TIDE_STORE : TIDE_HOST;
    options.optimizer = TIDE_ADAMW;
    options.clip = 0.5;
    options.threads = 1;
    options.parameter_count = 2;
    options.world = world->size;
    options.rank = world->rank;
    options.sum = sum_in_memory;
    options.user = world;
    for (uint64_t p = 0; p < 2; p++) {
        parameters[p].elements = elements_of[p];
        parameters[p].weights = own + p * WIDE;
    }
    for (int i = 0; i < WIDE + NARROW; i++) {
        own[i] = (float)(i % 31) - 15;
    }
    struct tide_optim *optim = create();
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

/* Begins all processes of a world before it waits for any. */
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
            kill(children[r], SIGKILL); /* process r may wait for the one that failed */
        }
        failed = failed || status != 0;
    }
    check_true(!failed);
    pthread_barrier_destroy(&common->barrier);
}

/* Processes with separate memory have the bits of one process, also after they loaded what another
 * number of processes saved. */
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

/* In a forked child every call is refused, and destroy leaves the parent's optimizer alone. */
static void a_child_is_refused(void)
{
    uint64_t token = 0;
    reset();
    options.stores = &store;
    options.store_count = 1;
    options.states = TIDE_STORE;
    struct tide_optim *optim = create();
    submit_all(optim);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        const char *saved = test_path("of a child");
        struct tide_optim_result result = {.struct_bytes = sizeof result};
        struct tide_optim_info info = {.struct_bytes = sizeof info};
        bool refused = tide_optim_submit(optim, 0, gradients[0], 1, &token) == -ECHILD &&
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
    check_double((double)weights[2][0], ==, 1.5);
    tide_optim_destroy(optim);
}

static int create_and_keep(void *argument)
{
    struct tide_optim *optim = NULL;
    (void)argument;
    return tide_optim_create(NULL, &options, &optim);
}

/* The store of a killed process can be used at once, even if a child of the process lives. */
static void a_killed_parent(void)
{
    struct test_orphan orphan;
    reset();
    options.stores = &store;
    options.store_count = 1;
    options.states = TIDE_STORE;
    test_orphan_begin(create_and_keep, NULL, &orphan);
    struct tide_optim *optim = NULL;
    check_int(tide_optim_create(NULL, &options, &optim), ==, -EBUSY);
    test_orphan_kill(&orphan);
    optim = create();
    test_orphan_end(&orphan);
    uint64_t token = 0;
    submit_all(optim);
    check_int(tide_optim_step(optim, &token), ==, 0);
    check_int(tide_optim_wait(optim, token), ==, 0);
    check_double((double)weights[2][0], ==, 1.5);
    tide_optim_destroy(optim);
}

static int run_example(const char *tool, const char *words, char *text, size_t bytes)
{
    char line[1024];
    const char *root = getenv("TIDE_BUILD_ROOT");
    if (root == NULL) {
        test_skip("TIDE_BUILD_ROOT is not set: run it through meson test");
    }
    snprintf(line, sizeof line, "%s '%s/tests/api/docs_optimizer' %s 2>&1", tool, root, words);
    FILE *pipe = popen(line, "r");
    check_true(pipe != NULL);
    text[fread(text, 1, bytes - 1, pipe)] = '\0';
    const int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The program of the documentation learns, and reports errors. */
static void example(void)
{
    char words[600];
    char text[4096];
    snprintf(words, sizeof words, "'%s'", test_directory());
    check_int(run_example("", words, text, sizeof text), ==, 0);
    check_contains(text, " at last\n");
    check_int(run_example("", "", text, sizeof text), ==, 2);
    check_int(run_example("", "/proc/no", text, sizeof text), ==, 1);
    check_contains(text, "/proc");
}

/* Valgrind proves that the example program reads no uninitialised memory and frees all memory. This
 * takes a minute. */
static void valgrind(void)
{
    char words[600];
    char text[8192];
    if (TEST_SLOW || !test_full() || system("valgrind --version >/dev/null 2>&1") != 0) {
        test_skip("only in the long form, with valgrind, without sanitizers");
    }
    snprintf(words, sizeof words, "'%s'", test_directory());
    check_int(
        run_example("valgrind -q --error-exitcode=9 --leak-check=full", words, text, sizeof text),
        ==, 0);
    check_contains(text, " at last\n");
}

TEST_MAIN({"wrong_options", wrong_options}, {"steps", steps}, {"threads_wait", threads_wait},
          {"a_child_is_refused", a_child_is_refused}, {"a_killed_parent", a_killed_parent},
          {"save_and_load", save_and_load}, {"damaged_checkpoints", damaged_checkpoints},
          {"states", states}, {"averaged_weights", averaged_weights},
          {"tied_weights", tied_weights}, {"borrowed_gradients", borrowed_gradients},
          {"without_uring", without_uring}, {"shares", shares}, {"processes", processes},
          {"example", example}, {"valgrind", valgrind})
