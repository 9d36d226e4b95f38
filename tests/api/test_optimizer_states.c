/* test_optimizer_states.c: an application saves, loads and writes the states of its optimizer. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tide/inspect.h>
#include <unistd.h>

#include "tests/api/app.h"
#include "tests/harness/test.h"

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

/* A checkpoint loads into an optimizer of equal kind and parameters; others refuse the
 * checkpoint. */
static void save_and_load(void)
{
    char directory[600];
    uint64_t token = 0;
    uint64_t step = 0;
    snprintf(directory, sizeof directory, "%s/saved", test_directory());
    app_reset();
    app.options.optimizer = TIDE_ADAMW;
    app.parameters[0].precision = TIDE_BF16;
    struct tide_optim *optim = app_create();
    app_submit_all(optim);
    check_int(tide_optim_save(optim, directory, 1), ==, -EBUSY);
    check_int(tide_optim_load(optim, directory, &step), ==, -EBUSY);
    check_int(tide_optim_step(optim, &token), ==, 0);
    check_int(tide_optim_save(optim, NULL, 1), ==, -EINVAL);
    check_int(tide_optim_save(optim, "/proc/no/such", 1), <, 0);
    check_int(tide_optim_save(optim, directory, 1), ==, 0);
    check_precision(directory, "bf16+fp32");
    const float saved = app.weights[1][5];
    tide_optim_destroy(optim);
    app_reset();
    app.options.optimizer = TIDE_ADAMW;
    app.parameters[0].precision = TIDE_BF16;
    app.options.stores = &app.store;
    app.options.store_count = 1;
    app.options.states = TIDE_STORE;
    optim = app_create();
    check_int(tide_optim_load(optim, "/proc", &step), ==, -ENOENT);
    check_int(tide_optim_load(optim, directory, &step), ==, 0);
    check_uint(step, ==, 1);
    check_memory(&app.weights[1][5], &saved, sizeof saved);
    tide_optim_destroy(optim);
    app_reset();
    app.parameters[0].precision = TIDE_BF16;
    optim = app_create(); /* SGD */
    check_int(tide_optim_load(optim, directory, &step), ==, -EINVAL);
    check_contains(tide_last_error(), "optimizer is adamw in the checkpoint");
    tide_optim_destroy(optim);
    app_reset();
    app.options.optimizer = TIDE_ADAMW;
    app.parameters[0].precision = TIDE_BF16;
    app.parameters[1].elements--;
    optim = app_create();
    check_int(tide_optim_load(optim, directory, &step), ==, -EINVAL);
    check_contains(tide_last_error(), "parameters of other names, elements or precisions");
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

/* Checkpoints with a missing file, a file cut short and a wrong byte are passed over. */
static void damaged_checkpoints(void)
{
    char directory[600];
    char path[700];
    uint64_t token = 0;
    uint64_t step = 0;
    snprintf(directory, sizeof directory, "%s/older", test_directory());
    app_reset();
    struct tide_optim *optim = app_create();
    float saved = 0;
    for (int i = 1; i <= 4; i++) {
        app_submit_all(optim);
        check_int(tide_optim_step(optim, &token), ==, 0);
        check_int(tide_optim_wait(optim, token), ==, 0);
        check_int(tide_optim_save(optim, directory, 4), ==, 0);
        saved = i == 1 ? app.weights[1][5] : saved;
    }
    check_true(app.weights[1][5] != saved);
    snprintf(path, sizeof path, "%s/checkpoint-4/weights.safetensors", directory);
    check_int(unlink(path), ==, 0);
    snprintf(path, sizeof path, "%s/checkpoint-3/weights.safetensors", directory);
    check_int(truncate(path, 100), ==, 0);
    snprintf(path, sizeof path, "%s/checkpoint-2/weights.safetensors", directory);
    spoil(path);
    check_int(tide_optim_load(optim, directory, &step), ==, 0);
    check_uint(step, ==, 1);
    check_memory(&app.weights[1][5], &saved, sizeof saved);
    snprintf(path, sizeof path, "%s/checkpoint-1/weights.safetensors", directory);
    spoil(path);
    check_int(tide_optim_load(optim, directory, &step), ==, -EBADMSG);
    check_contains(tide_last_error(), "checkpoint-1/weights.safetensors");
    tide_optim_destroy(optim);
}

/* A parameter's states are copied to and from the program's arrays. */
static void states(void)
{
    static float master[APP_ELEMENTS], m[APP_ELEMENTS], v[APP_ELEMENTS];
    struct tide_optim_arrays arrays = {
        .struct_bytes = sizeof arrays, .elements = APP_ELEMENTS, .master = master, .m = m, .v = v};
    uint64_t token = 0;
    uint64_t updates = 0;
    app_reset();
    app.options.optimizer = TIDE_ADAMW;
    app.group.beta1 = 0.5;
    app.parameters[1].precision = TIDE_BF16;
    struct tide_optim *optim = app_create();
    app_submit_all(optim);
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
    check_uint(((const uint16_t *)(const void *)app.weights[1])[3], ==, 0x4020);
    arrays.m = NULL;
    m[7] = 9;
    check_int(tide_optim_get_states(optim, 1, &arrays, &updates), ==, 0);
    check_uint(updates, ==, 4);
    check_double((double)m[7], ==, 9);
    check_double((double)master[3], ==, 2.5);
    check_int(tide_optim_get_states(optim, APP_COUNT, &arrays, &updates), ==, -EINVAL);
    arrays.elements--;
    check_int(tide_optim_set_states(optim, 1, &arrays, 4), ==, -EINVAL);
    check_contains(tide_last_error(), "1000 elements; the arrays have 999");
    tide_optim_destroy(optim);
    app_reset();
    optim = app_create(); /* SGD */
    arrays.elements = APP_ELEMENTS;
    check_int(tide_optim_get_states(optim, 1, &arrays, &updates), ==, -ENOTSUP);
    check_contains(tide_last_error(), "no moment v");
    tide_optim_destroy(optim);
}

static uint16_t bf16_of(float x) /* the low half of x must be zero */
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    check_uint(bits & 0xffff, ==, 0);
    return (uint16_t)(bits >> 16);
}

static uint16_t fp16_of(float x) /* x must be positive, normal and exact in fp16 */
{
    int exponent = 0;
    const float fraction = frexpf(x, &exponent);
    return (uint16_t)(((exponent + 14) << 10) + (int)(fraction * 2048) - 1024);
}

static struct tide_optim *create_mixed(int away)
{
    app_reset();
    app.options.optimizer = TIDE_ADAMW;
    app.options.stores = &app.store;
    app.options.store_count = (size_t)away;
    app.options.states = away ? TIDE_STORE : TIDE_HOST;
    app.group.lr = 1e-3;
    app.group.beta1 = 0.9;
    app.parameters[0].precision = TIDE_BF16;
    app.parameters[1].precision = TIDE_FP16;
    return app_create();
}

/* Updates continue from weights that the program has written, and moments stay. The values are
 * exact in all three types, so the masters are known. */
static void averaged_weights(void)
{
    static float average[APP_COUNT][APP_ELEMENTS];
    static float moments[APP_COUNT][2][APP_ELEMENTS];
    static char expected[APP_COUNT][sizeof app.weights[0]];
    for (int away = 0; away < 2; away++) {
        struct tide_optim *optim = create_mixed(away);
        for (int s = 0; s < 3; s++) {
            app_step(optim, s);
        }
        for (int p = 0; p < APP_COUNT; p++) {
            struct tide_optim_arrays states = {.struct_bytes = sizeof states,
                                               .elements = APP_ELEMENTS,
                                               .m = moments[p][0],
                                               .v = moments[p][1]};
            uint64_t updates = 0;
            check_int(tide_optim_get_states(optim, (uint64_t)p, &states, &updates), ==, 0);
            check_uint(updates, ==, 3);
            for (int i = 0; i < APP_ELEMENTS; i++) {
                average[p][i] = (float)(i % 32 + p) * 0.25F + 1;
                uint16_t *half = (uint16_t *)(void *)app.weights[p] + i;
                if (p == 0) {
                    *half = bf16_of(average[p][i]);
                } else if (p == 1) {
                    *half = fp16_of(average[p][i]);
                } else {
                    app.weights[p][i] = average[p][i];
                }
            }
            check_int(tide_optim_weights_changed(optim, (uint64_t)p), ==, 0);
        }
        app_step(optim, 3);
        app_step(optim, 4);
        memcpy(expected, app.weights, sizeof app.weights);
        tide_optim_destroy(optim);
        optim = create_mixed(1 - away);
        for (int p = 0; p < APP_COUNT; p++) {
            const struct tide_optim_arrays states = {.struct_bytes = sizeof states,
                                                     .elements = APP_ELEMENTS,
                                                     .master = average[p],
                                                     .m = moments[p][0],
                                                     .v = moments[p][1]};
            check_int(tide_optim_set_states(optim, (uint64_t)p, &states, 3), ==, 0);
        }
        app_step(optim, 3);
        app_step(optim, 4);
        for (int p = 0; p < APP_COUNT; p++) {
            check_memory(app.weights[p], expected[p], APP_ELEMENTS * (p == 2 ? 4 : 2));
        }
        tide_optim_destroy(optim);
    }
}

/* Two gradients of a parameter have the effect of their sum. */
static void tied_weights(void)
{
    static char expected[sizeof app.weights[0]];
    for (int halves = 0; halves < 2; halves++) {
        app_reset();
        app.options.optimizer = TIDE_ADAMW;
        app.options.accumulate = 1;
        app.parameters[0].precision = TIDE_BF16;
        struct tide_optim *optim = app_create();
        uint64_t token = 0;
        for (int s = 0; s < 4; s++) {
            for (int i = 0; i < APP_ELEMENTS; i++) {
                app.gradients[0][i] = (float)((i + s) % 13 - 6);
                app.gradients[1][i] = halves ? app.gradients[0][i] / 4 : app.gradients[0][i];
                app.gradients[2][i] = app.gradients[0][i] - app.gradients[1][i];
            }
            if (halves) {
                check_int(tide_optim_submit(optim, 0, app.gradients[1], 0, &token), ==, 0);
                check_int(tide_optim_submit(optim, 0, app.gradients[2], 1, &token), ==, 0);
            } else {
                check_int(tide_optim_submit(optim, 0, app.gradients[0], 1, &token), ==, 0);
            }
            check_int(tide_optim_step(optim, &token), ==, 0);
            check_int(tide_optim_wait(optim, token), ==, 0);
            for (int i = 0; s == 1 && i < APP_ELEMENTS; i++) {
                ((uint16_t *)(void *)app.weights[0])[i] = bf16_of((float)(i % 64));
            }
            check_int(s == 1 ? tide_optim_weights_changed(optim, 0) : 0, ==, 0);
        }
        if (halves) {
            check_memory(app.weights[0], expected, APP_ELEMENTS * sizeof(uint16_t));
        }
        memcpy(expected, app.weights[0], sizeof expected);
        tide_optim_destroy(optim);
    }
}

TEST_MAIN({"save_and_load", save_and_load}, {"damaged_checkpoints", damaged_checkpoints},
          {"states", states}, {"averaged_weights", averaged_weights},
          {"tied_weights", tied_weights})
