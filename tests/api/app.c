/* app.c: see app.h. */
#include "tests/api/app.h"

#include <string.h>

#include "tests/harness/test.h"

struct app app;

void app_reset(void)
{
    static const char *const names[APP_COUNT] = {"a", "b", "c"};
    check_int(tide_optim_group_init(&app.group, sizeof app.group), ==, 0);
    check_int(tide_optim_options_init(&app.options, sizeof app.options), ==, 0);
    app.group.lr = 0.5;
    app.group.beta1 = 0;
    for (int p = 0; p < APP_COUNT; p++) {
        app.parameters[p] = (struct tide_optim_parameter){.struct_bytes = sizeof app.parameters[p],
                                                          .name = names[p],
                                                          .weights = app.weights[p],
                                                          .elements = APP_ELEMENTS,
                                                          .precision = TIDE_FP32,
                                                          .gradients = TIDE_FP32};
        for (int i = 0; i < APP_ELEMENTS; i++) {
            app.weights[p][i] = (float)p;
            app.gradients[p][i] = 1;
        }
    }
    app.store = (struct tide_store_path){
        .struct_bytes = sizeof app.store, .directory = test_directory(), .bytes = 16 << 20};
    app.options.parameters = app.parameters;
    app.options.parameter_count = APP_COUNT;
    app.options.groups = &app.group;
    app.options.group_count = 1;
    app.options.optimizer = TIDE_SGD;
    app.options.threads = 2;
    app.options.host_bytes = 64 << 20;
    app.options.cache = test_path("cache");
}

struct tide_optim *app_create(void)
{
    struct tide_optim *optim = NULL;
    const int rc = tide_optim_create(NULL, &app.options, &optim);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "no optimizer: %d: %s", rc, tide_last_error());
    }
    return optim;
}

void app_refuse(int code, const char *part)
{
    struct tide_optim *optim = NULL;
    const int rc = tide_optim_create(NULL, &app.options, &optim);
    if (rc != code || optim != NULL || strstr(tide_last_error(), part) == NULL) {
        test_fail(__FILE__, __LINE__, "%s: %d: %s", part, rc, tide_last_error());
    }
    app_reset();
}

void app_submit_all(struct tide_optim *optim)
{
    uint64_t token;
    for (int p = APP_COUNT - 1; p >= 0; p--) {
        check_int(tide_optim_submit(optim, (uint64_t)p, app.gradients[p], 1, &token), ==, 0);
    }
}

void app_step(struct tide_optim *optim, int step)
{
    uint64_t token = 0;
    for (int p = 0; p < APP_COUNT; p++) {
        for (int i = 0; i < APP_ELEMENTS; i++) {
            app.gradients[p][i] = (float)((i * 7 + step * 3 + p) % 11 - 5) / 8;
        }
    }
    app_submit_all(optim);
    check_int(tide_optim_step(optim, &token), ==, 0);
    check_int(tide_optim_wait_parameter(optim, TIDE_OPTIM_ALL), ==, 0);
}
