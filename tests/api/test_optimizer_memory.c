/* test_optimizer_memory.c: an optimizer needs at most its budget and 16 MiB besides the program's
 * arrays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tide/optimizer.h>

#include "tests/harness/child.h"
#include "tests/harness/test.h"

enum { STEPS = 3 };
static const uint64_t mib = UINT64_C(1) << 20;

static uint64_t status_bytes(const char *key)
{
    char line[256];
    uint64_t kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    check_true(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            kib = strtoull(line + strlen(key), NULL, 10);
        }
    }
    fclose(file);
    return kib * 1024;
}

struct shape {
    uint64_t count;
    uint64_t elements; /* of each parameter */
    uint64_t host_mib;
    double clip;
    const char *cache;
};

static int run(void *argument)
{
    const struct shape *shape = argument;
    struct tide_optim_parameter *parameters = calloc(shape->count, sizeof *parameters);
    char(*names)[32] = calloc(shape->count, sizeof *names);
    uint16_t *weights = malloc(shape->count * shape->elements * 2);
    uint16_t *gradients = malloc(shape->count * shape->elements * 2);
    const struct tide_store_path store = {.struct_bytes = sizeof store,
                                          .directory = test_directory()};
    struct tide_optim_group group;
    struct tide_optim_options options;
    struct tide_optim *optim = NULL;
    uint64_t token = 0;
    check_int(tide_optim_group_init(&group, sizeof group), ==, 0);
    check_int(tide_optim_options_init(&options, sizeof options), ==, 0);
    memset(weights, 0x3c, shape->count * shape->elements * 2);
    memset(gradients, 0x30, shape->count * shape->elements * 2);
    for (uint64_t p = 0; p < shape->count; p++) {
        snprintf(names[p], sizeof names[p], "parameter %d", (int)p);
        parameters[p] = (struct tide_optim_parameter){.struct_bytes = sizeof parameters[p],
                                                      .name = names[p],
                                                      .weights = weights + p * shape->elements,
                                                      .elements = shape->elements,
                                                      .precision = TIDE_BF16,
                                                      .gradients = TIDE_BF16};
    }
    const uint64_t before = status_bytes("VmRSS:");
    options.parameters = parameters;
    options.parameter_count = shape->count;
    options.groups = &group;
    options.group_count = 1;
    options.stores = &store;
    options.store_count = 1;
    options.clip = shape->clip;
    options.threads = 2;
    options.cache = shape->cache;
    options.host_bytes = shape->host_mib * mib;
    if (tide_optim_create(NULL, &options, &optim) != 0) {
        test_fail(__FILE__, __LINE__, "no optimizer: %s", tide_last_error());
    }
    const uint64_t created = status_bytes("VmHWM:");
    for (int s = 0; s < STEPS; s++) {
        for (uint64_t p = shape->count; p-- > 0;) {
            check_int(tide_optim_submit(optim, p, gradients + p * shape->elements, 1, &token), ==,
                      0);
        }
        check_int(tide_optim_step(optim, &token), ==, 0);
    }
    check_int(tide_optim_wait(optim, token), ==, 0);
    const uint64_t most = status_bytes("VmHWM:");
    test_note("%d parameters of %d elements: budget %d MiB, most at create %.1f, with steps %.1f",
              (int)shape->count, (int)shape->elements, (int)shape->host_mib,
              (double)(created - before) / (double)mib, (double)(most - before) / (double)mib);
    check_uint(most - before, <=, (shape->host_mib + 16) * mib);
    tide_optim_destroy(optim);
    free(parameters);
    free(names);
    free(weights);
    free(gradients);
    return 0;
}

/* Shapes run in separate processes, because a process keeps its memory peak. */
static void the_budget_holds(void)
{
    static struct shape shapes[] = {
        {4, 6 << 20, 40, 1, NULL}, {1000, 24 << 10, 48, 0, NULL}, {100000, 250, 140, 0, NULL}};
    if (TEST_SLOW) {
        test_skip("a sanitizer has memory of its own");
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        shapes[i].cache = i == 0 ? NULL : test_path("cache");
        check_int(test_child(run, &shapes[i]), ==, 0);
    }
}

TEST_MAIN({"the_budget_holds", the_budget_holds})
