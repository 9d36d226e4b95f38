/* optimizer.c: uses libtide's optimizer in a program that computes its own gradients. The program
 * fits two arrays of numbers to a target; the optimizer's states, 8 bytes per element, are on a
 * drive.
 *
 *     cc -std=c17 optimizer.c $(pkg-config --cflags --libs tide) -o optimizer
 *     ./optimizer DIRECTORY
 *
 * DIRECTORY is on a fast drive, of which the program uses up to 64 MiB. */
#include <stdio.h>
#include <stdlib.h>
#include <tide/optimizer.h>

enum { PARAMETERS = 2, ELEMENTS = 1 << 20, STEPS = 50 };

static float weights[PARAMETERS][ELEMENTS];
static float gradients[PARAMETERS][ELEMENTS];

static void check(int rc)
{
    if (rc < 0) {
        fprintf(stderr, "optimizer: %s\n", tide_last_error());
        exit(1);
    }
}

static float target_of(int parameter, int i)
{
    return (float)(parameter + 1) * 0.5f + (float)(i % 7) * 0.01f;
}

/* Computes the gradient of one parameter, and returns its loss: half the mean squared distance to
 * the target. */
static double backward(int parameter)
{
    double loss = 0;
    for (int i = 0; i < ELEMENTS; i++) {
        const float distance = weights[parameter][i] - target_of(parameter, i);
        gradients[parameter][i] = distance / ELEMENTS;
        loss += 0.5 * (double)distance * (double)distance / ELEMENTS;
    }
    return loss;
}

static struct tide_optim *create(const char *directory)
{
    static const char *const names[PARAMETERS] = {"first", "second"};
    struct tide_optim_parameter parameters[PARAMETERS];
    struct tide_optim_group group;
    struct tide_optim_options options;
    struct tide_optim *optim = NULL;
    const struct tide_store_path store = {sizeof store, directory, 64 << 20};
    check(tide_optim_group_init(&group, sizeof group));
    check(tide_optim_options_init(&options, sizeof options));
    for (int p = 0; p < PARAMETERS; p++) {
        parameters[p] = (struct tide_optim_parameter){.struct_bytes = sizeof parameters[p],
                                                      .name = names[p],
                                                      .weights = weights[p],
                                                      .elements = ELEMENTS,
                                                      .precision = TIDE_FP32,
                                                      .gradients = TIDE_FP32};
    }
    group.lr = 0.05;
    options.parameters = parameters;
    options.parameter_count = PARAMETERS;
    options.groups = &group;
    options.group_count = 1;
    options.clip = 1;
    options.states = TIDE_STORE;
    options.host_bytes = 64 << 20;
    options.stores = &store;
    options.store_count = 1;
    check(tide_optim_create(NULL, &options, &optim));
    return optim;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", argv[0]);
        return 2;
    }
    struct tide_optim *optim = create(argv[1]);
    double first = 0;
    double last = 0;
    for (int step = 0; step < STEPS; step++) {
        uint64_t token;
        last = 0;
        for (int p = PARAMETERS - 1; p >= 0; p--) { /* in the order of a backward pass */
            check(tide_optim_wait_parameter(optim, (uint64_t)p));
            last += backward(p);
            check(tide_optim_submit(optim, (uint64_t)p, gradients[p], 1, &token));
        }
        check(tide_optim_step(optim, &token));
        first = step == 0 ? last : first;
    }
    check(tide_optim_wait_parameter(optim, TIDE_OPTIM_ALL));
    printf("loss %.4f at first, %.4f at last\n", first, last);
    tide_optim_destroy(optim);
    return last < first / 10 ? 0 : 1;
}
