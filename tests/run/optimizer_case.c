/* optimizer_case.c: see optimizer_case.h. */
#include "tests/run/optimizer_case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"

/* Under a sanitizer long parameters are shorter, but some still have several chunks. */
struct form forms[PARAMETERS] = {
    {3, CORE_UPDATE_BF16, CORE_UPDATE_BF16},
    {1000, CORE_UPDATE_BF16, CORE_UPDATE_BF16},
    {SHARED + TEST_COUNT(99999, 9999), CORE_UPDATE_BF16, CORE_UPDATE_BF16},
    {257, CORE_UPDATE_F32, CORE_UPDATE_F32},
    {65536 * TEST_COUNT(2, 1) + 5, CORE_UPDATE_F32, CORE_UPDATE_F32},
    {TEST_COUNT(70001, 20001), CORE_UPDATE_BF16, CORE_UPDATE_BF16},
    {1, CORE_UPDATE_FP16, CORE_UPDATE_FP16},
    {TEST_COUNT(65535, 16383), CORE_UPDATE_FP16, CORE_UPDATE_FP16},
    {4096, CORE_UPDATE_BF16, CORE_UPDATE_F32},
    {TEST_COUNT(300077, 75077), CORE_UPDATE_F32, CORE_UPDATE_F32},
    {512, CORE_UPDATE_BF16, CORE_UPDATE_BF16},
    {99, CORE_UPDATE_F32, CORE_UPDATE_BF16},
};

const struct adam_group groups[GROUPS] = {
    {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .bias_correction = true},
    {.lr = 3e-3, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-6, .decay = 0, .bias_correction = true}};

void make_arrays(struct arrays *arrays)
{
    for (unsigned p = 0; p < PARAMETERS; p++) {
        arrays->weights[p] = malloc(forms[p].elements * bytes_of(forms[p].weights));
        arrays->gradients[p] = malloc(forms[p].elements * bytes_of(forms[p].gradients));
        for (uint64_t i = 0; i < forms[p].elements; i++) {
            store(forms[p].weights, arrays->weights[p], i, draw(1, p, i));
        }
    }
}

void free_arrays(struct arrays *arrays)
{
    for (unsigned p = 0; p < PARAMETERS; p++) {
        free(arrays->weights[p]);
        free(arrays->gradients[p]);
    }
}

void make_gradient(const struct arrays *arrays, unsigned p, unsigned step, double scale)
{
    for (uint64_t i = 0; i < forms[p].elements; i++) {
        const float value = 0.1f * load(forms[p].weights, arrays->weights[p], i) +
                            0.01f * draw(100 + step, p, i);
        store(forms[p].gradients, arrays->gradients[p], i, (float)scale * value);
    }
}

/* ---- the reference ---- */

void alone_begin(struct alone *alone, const struct rules *rules, unsigned p, void *weights)
{
    const uint64_t n = forms[p].elements;
    const enum core_update_type gradients = rules->sums ? CORE_UPDATE_F32 : forms[p].gradients;
    const struct adam_options options = {
        .rule = rules->rule,
        .master = forms[p].weights == CORE_UPDATE_BF16   ? CORE_UPDATE_MASTER_SPLIT
                  : forms[p].weights == CORE_UPDATE_FP16 ? CORE_UPDATE_MASTER_FP16
                                                         : CORE_UPDATE_MASTER_F32,
        .gradients = gradients,
        .moments = rules->moments,
        .count = n,
        .seed = case_options().seed,
        .number = p,
        .groups = &groups[p % GROUPS],
        .groups_count = 1};
    *alone = (struct alone){.arrays = {.count = n}};
    struct adam_group first = groups[p % GROUPS];
    first.step = 1;
    struct adam_options made = options;
    made.groups = &first;
    check_int(adam_create(&made, &alone->adam), ==, 0);
    for (int i = 0; i < 6; i++) {
        alone->memory[i] = calloc(n + 256, 4);
    }
    alone->arrays.m = alone->memory[0];
    alone->arrays.v = alone->memory[1];
    alone->arrays.m_scale = alone->memory[2];
    alone->arrays.v_scale = alone->memory[3];
    if (forms[p].weights == CORE_UPDATE_F32) {
        alone->arrays.w32 = weights;
    } else {
        alone->arrays.w16 = weights;
        alone->arrays.lo16 = alone->memory[4];
        alone->arrays.w32 = alone->memory[5];
        for (uint64_t i = 0; i < n; i++) {
            alone->arrays.w32[i] = load(forms[p].weights, weights, i);
        }
    }
}

void alone_end(struct alone *alone)
{
    adam_destroy(alone->adam);
    for (int i = 0; i < 6; i++) {
        free(alone->memory[i]);
    }
}

void alone_step(struct alone *alone, unsigned p, const void *gradient, double scale)
{
    struct adam_group group = groups[p % GROUPS];
    group.step = ++alone->updates;
    check_int(adam_group_set(alone->adam, 0, &group), ==, 0);
    alone->arrays.g = gradient;
    check_int(adam_step(alone->adam, &alone->arrays, 0, alone->arrays.count, scale, NULL), ==, 0);
}

/* ---- the optimizer ---- */

enum core_update_type measured_type = CORE_UPDATE_BF16;
struct share share;

static int add_up(void *user, double *values, size_t count)
{
    struct meeting *meeting = user;
    pthread_mutex_lock(&meeting->lock);
    if (meeting->sums == NULL) {
        meeting->sums = calloc(count, sizeof *meeting->sums);
        meeting->count = count;
    }
    check_uint(count, ==, meeting->count);
    for (size_t i = 0; i < count; i++) {
        meeting->sums[i] += values[i];
    }
    pthread_mutex_unlock(&meeting->lock);
    pthread_barrier_wait(&meeting->barrier);
    memcpy(values, meeting->sums, count * sizeof *values);
    if (pthread_barrier_wait(&meeting->barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
        memset(meeting->sums, 0, count * sizeof *values);
    }
    pthread_barrier_wait(&meeting->barrier);
    return 0;
}

int try_optimizer(const struct way *way, const struct rules *rules, const struct arrays *arrays,
                  struct aio_fault *fault, struct run_optimizer **out)
{
    struct run_optimizer_parameter parameters[PARAMETERS];
    char names[PARAMETERS][16];
    struct run_optimizer_options options = {.parameters = parameters,
                                            .block_elements = SHARED,
                                            .parameter_count = PARAMETERS,
                                            .groups = groups,
                                            .group_count = GROUPS,
                                            .options = case_options(),
                                            .sums = rules->sums,
                                            .rates = case_rates()};
    for (unsigned p = 0; p < PARAMETERS; p++) {
        snprintf(names[p], sizeof names[p], "p%u", p);
        parameters[p] = (struct run_optimizer_parameter){.name = names[p],
                                                         .weights = arrays->weights[p],
                                                         .elements = forms[p].elements,
                                                         .weights_type = forms[p].weights,
                                                         .gradients_type = forms[p].gradients,
                                                         .group = p % GROUPS};
    }
    struct run_options *run = &options.options;
    run->type = measured_type == CORE_UPDATE_F32    ? KERN_F32
                : measured_type == CORE_UPDATE_BF16 ? KERN_BF16
                                                    : KERN_FP16;
    run->rule = rules->rule;
    run->moments = rules->moments;
    run->clip = rules->clip;
    run->may_skip = rules->may_skip;
    run->threads = way->threads;
    run->wishes = (struct plan_wishes){
        .states = way->states, .chunk_elements = way->chunk_elements, .state_slots = way->slots};
    run->budgets = (struct plan_budgets){
        .host_bytes = UINT64_C(1) << 32, .store_bytes = UINT64_C(1) << 40, .device_is_host = true};
    run->io = way->io;
    options.device = way->device;
    run->stores[0] = (struct store_path){.directory = test_directory(), .weight = 1};
    run->store_count = 1;
    if (share.world > 0) {
        options.world = share.world;
        options.rank = share.rank;
        options.sum = share.meeting != NULL ? add_up : NULL;
        options.sum_user = share.meeting;
        run->stores[0].directory = share.directories[share.rank];
    }
    if (fault != NULL) {
        run->stores[0].recipe = aio_fault_recipe(fault);
        /* A busy machine may exceed this short limit, so other faults keep the usual one. */
        if (fault->rules[0].kind == AIO_FAULT_STALLED) {
            run->io_limit_ns = INT64_C(300000000);
        }
    }
    return run_optimizer_create(&options, out);
}

struct run_optimizer *make_optimizer(const struct way *way, const struct rules *rules,
                                     const struct arrays *arrays)
{
    struct run_optimizer *optimizer = NULL;
    int rc = try_optimizer(way, rules, arrays, NULL, &optimizer);
    if (rc != 0) {
        test_fail(__FILE__, __LINE__, "%s: no optimizer (%d): %s", way->name, rc,
                  core_err_message());
    }
    return optimizer;
}

unsigned nth(const struct way *way, unsigned step, unsigned i)
{
    static const unsigned shuffled[PARAMETERS] = {4, 0, 11, 7, 2, 9, 1, 10, 3, 6, 5, 8};
    enum { LATE = 9 };
    unsigned drawn[PARAMETERS];
    switch (way->order) {
    case 0: return PARAMETERS - 1 - i;
    case 1: return i;
    case 2: return shuffled[(i + step * 5) % PARAMETERS];
    case 3: break;
    default:
        return step % 2 == 0               ? PARAMETERS - 1 - i
               : i + 1 == PARAMETERS       ? LATE
               : PARAMETERS - i > LATE + 1 ? PARAMETERS - 1 - i
                                           : PARAMETERS - 2 - i;
    }
    for (unsigned n = 0; n < PARAMETERS; n++) {
        const unsigned k = core_rng_philox(step, n, 7).word[0] % (n + 1);
        drawn[n] = n;
        drawn[n] = drawn[k];
        drawn[k] = n;
    }
    return drawn[i];
}

void compare(const struct way *way, const struct arrays *one, const struct arrays *other)
{
    for (unsigned p = 0; p < PARAMETERS; p++) {
        if (memcmp(one->weights[p], other->weights[p],
                   forms[p].elements * bytes_of(forms[p].weights)) != 0) {
            test_fail(__FILE__, __LINE__, "%s: the weights of p%u differ", way->name, p);
        }
    }
}

const struct way ways[WAYS] = {
    {"in memory", PLAN_WHERE_HOST, 0, 0, 1, 0, NULL, NULL},
    {"on the drive", PLAN_WHERE_STORE, 65536, 2, 2, 0, NULL, NULL},
    {"one slot", PLAN_WHERE_STORE, 131072, 1, 1, 1, "threads", NULL},
    {"in any order", PLAN_WHERE_AUTO, 0, 0, 2, 2, NULL, NULL},
    {"in any order on the drive", PLAN_WHERE_STORE, 0, 0, 1, 2, "threads", NULL},
    {"with a late one on the drive", PLAN_WHERE_STORE, 65536, 3, 1, 4, "threads", NULL},
    {"on a device", PLAN_WHERE_HOST, 0, 0, 2, 2, NULL, "cpu"},
    {"on a device and the drive", PLAN_WHERE_STORE, 65536, 2, 1, 4, "threads", "cpu"},
    {"in a new order on the drive", PLAN_WHERE_STORE, 131072, 4, 2, 3, "threads", NULL},
};
const struct rules plain = {CORE_UPDATE_ADAMW, CORE_UPDATE_F32, 0, 1, false, false, 0};

void submit_all(struct run_optimizer *optimizer, const struct arrays *arrays, const struct way *way,
                unsigned step)
{
    uint64_t token = 0;
    for (unsigned i = 0; i < PARAMETERS; i++) {
        const unsigned p = nth(way, step, i);
        check_int(run_optimizer_wait_weights(optimizer, p), ==, 0);
        make_gradient(arrays, p, step, 1);
        check_int(run_optimizer_submit(optimizer, p, arrays->gradients[p], true, &token), ==, 0);
    }
}
