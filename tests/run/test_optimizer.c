/* Proves that the optimizer of an application gives the bits that an update of each parameter alone gives,
 * wherever states are, in whatever order gradients come, with and without a norm that counts; and what it
 * refuses. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "core/base/rng.h"
#include "cpu_adam/adam.h"
#include "offload/run/optimizer.h"
#include "tests/aio/fault.h"
#include "tests/harness/test.h"
#include "tests/run/case.h"

enum {
    PARAMETERS = 12,
    GROUPS = 2,
    STEPS = 4,
    SHARED = TEST_COUNT(5, 2) << 16 /* elements of a block of several */
};

/* Under a sanitizer the long ones have two or three chunks. */
static struct {
    uint64_t elements;
    enum core_update_type weights, gradients;
} forms[PARAMETERS] = {
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

static const struct adam_group groups[GROUPS] = {
    {.lr = 1e-2, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .bias_correction = true},
    {.lr = 3e-3, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-6, .decay = 0, .bias_correction = true}};

/* Settings that no update may see. */
static const struct adam_group wild = {.lr = 7, .eps = 1};

/* What varies between runs that must give the same bits. */
struct way {
    const char *name;
    enum plan_where states;
    uint64_t chunk_elements;
    uint32_t slots;
    unsigned threads;
    int order; /* of submits: 0 backward, 1 forward, 2 shuffled, 3 anew in each step, 4 backward with one
                * that is last in every second step */
    const char *io;
};

/* What varies and changes bits. */
struct rules {
    enum core_update_rule rule;
    enum core_update_type moments;
    double clip;
    double loss_scale;
    bool may_skip;
    bool sums;
    int absent; /* in step s parameter (s * absent) % PARAMETERS has no gradient; 0: all have one */
};

struct arrays {
    void *weights[PARAMETERS];
    void *gradients[PARAMETERS];
};

static size_t bytes_of(enum core_update_type type)
{
    return type == CORE_UPDATE_F32 ? 4 : 2;
}

static inline __attribute__((always_inline)) void store(enum core_update_type type, void *array,
                                                        uint64_t i, float value)
{
    if (type == CORE_UPDATE_F32) {
        ((float *)array)[i] = value;
    } else {
        ((uint16_t *)array)[i] = type == CORE_UPDATE_BF16 ? core_f32_to_bf16(value)
                                                          : core_f32_to_fp16(value);
    }
}

static inline __attribute__((always_inline)) float load(enum core_update_type type,
                                                        const void *array, uint64_t i)
{
    return type == CORE_UPDATE_F32    ? ((const float *)array)[i]
           : type == CORE_UPDATE_BF16 ? core_bf16_to_f32(((const uint16_t *)array)[i])
                                      : core_fp16_to_f32(((const uint16_t *)array)[i]);
}

/* From -0.5 to 0.5; the same for the same arguments. */
static inline __attribute__((always_inline)) float draw(uint64_t seed, unsigned stream, uint64_t i)
{
    enum { NOISE = 1 << 16 };
    static float noise[NOISE];
    if (noise[1] >= 0 && noise[1] <= 0) {
        for (uint64_t n = 0; n < NOISE; n++) {
            noise[n] = core_rng_unit(core_rng_philox(1, 0, n).word[0]) - 0.5f;
        }
    }
    return noise[(i + i / NOISE + seed * 7919 + stream * 104729) % NOISE];
}

static void make_arrays(struct arrays *arrays)
{
    for (unsigned p = 0; p < PARAMETERS; p++) {
        arrays->weights[p] = malloc(forms[p].elements * bytes_of(forms[p].weights));
        arrays->gradients[p] = malloc(forms[p].elements * bytes_of(forms[p].gradients));
        for (uint64_t i = 0; i < forms[p].elements; i++) {
            store(forms[p].weights, arrays->weights[p], i, draw(1, p, i));
        }
    }
}

static void free_arrays(struct arrays *arrays)
{
    for (unsigned p = 0; p < PARAMETERS; p++) {
        free(arrays->weights[p]);
        free(arrays->gradients[p]);
    }
}

/* Gradients depend on the weights, so that an error shows in all later steps. */
static void make_gradient(const struct arrays *arrays, unsigned p, unsigned step, double scale)
{
    for (uint64_t i = 0; i < forms[p].elements; i++) {
        const float value = 0.1f * load(forms[p].weights, arrays->weights[p], i) +
                            0.01f * draw(100 + step, p, i);
        store(forms[p].gradients, arrays->gradients[p], i, (float)scale * value);
    }
}

static bool is_absent(const struct rules *rules, unsigned step, unsigned p)
{
    return rules->absent > 0 && (step * (unsigned)rules->absent) % PARAMETERS == p;
}

/* ---- the reference: each parameter alone ---- */

struct alone {
    struct adam *adam;
    struct adam_arrays arrays;
    void *memory[6];
    uint64_t updates;
};

static void alone_begin(struct alone *alone, const struct rules *rules, unsigned p, void *weights)
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

static void alone_end(struct alone *alone)
{
    adam_destroy(alone->adam);
    for (int i = 0; i < 6; i++) {
        free(alone->memory[i]);
    }
}

static void alone_step(struct alone *alone, unsigned p, const void *gradient, double scale)
{
    struct adam_group group = groups[p % GROUPS];
    group.step = ++alone->updates;
    check_int(adam_group_set(alone->adam, 0, &group), ==, 0);
    alone->arrays.g = gradient;
    check_int(adam_step(alone->adam, &alone->arrays, 0, alone->arrays.count, scale, NULL), ==, 0);
}

/* The sum of two gradients, as fp32. */
static float *twice(unsigned p, const void *gradient)
{
    float *sum = malloc(forms[p].elements * sizeof *sum);
    for (uint64_t i = 0; i < forms[p].elements; i++) {
        const float value = load(forms[p].gradients, gradient, i);
        sum[i] = value + value;
    }
    return sum;
}

static double norm_of(const struct rules *rules, const struct arrays *arrays, unsigned step)
{
    long double squares = 0;
    for (unsigned p = 0; p < PARAMETERS; p++) {
        for (uint64_t i = 0; !is_absent(rules, step, p) && i < forms[p].elements; i++) {
            const double value = (double)load(forms[p].gradients, arrays->gradients[p], i) *
                                 (rules->sums ? 2 : 1);
            squares += (long double)(value * value);
        }
    }
    return (double)sqrtl(squares) / rules->loss_scale;
}

/* `norms` are the reported ones, so that the factor has the same bits. */
static void train_alone(const struct rules *rules, const double *norms, struct arrays *arrays)
{
    struct alone alone[PARAMETERS];
    make_arrays(arrays);
    for (unsigned p = 0; p < PARAMETERS; p++) {
        alone_begin(&alone[p], rules, p, arrays->weights[p]);
    }
    for (unsigned s = 0; s < STEPS; s++) {
        for (unsigned p = 0; p < PARAMETERS; p++) {
            make_gradient(arrays, p, s, rules->loss_scale);
        }
        const double norm = norm_of(rules, arrays, s);
        check_double(fabs(norm - norms[s]), <=, 1e-9 * norm);
        const double factor = rules->clip > 0 ? fmin(rules->clip / (norms[s] + 1e-6), 1) : 1;
        for (unsigned p = 0; p < PARAMETERS; p++) {
            float *sum = rules->sums ? twice(p, arrays->gradients[p]) : NULL;
            if (!is_absent(rules, s, p)) {
                alone_step(&alone[p], p, sum != NULL ? sum : arrays->gradients[p],
                           factor / rules->loss_scale);
            }
            free(sum);
        }
    }
    for (unsigned p = 0; p < PARAMETERS; p++) {
        alone_end(&alone[p]);
    }
}

/* ---- the optimizer ---- */

static enum core_update_type measured_type = CORE_UPDATE_BF16; /* of the options: most weights' */

/* Processes that share states: here they are optimizers of one process with the same arrays. */
enum { WORLD_MAX = 3 };

struct meeting {
    pthread_barrier_t barrier;
    pthread_mutex_t lock;
    double *sums; /* of the values that came, [count] */
    size_t count;
};

static struct {
    uint32_t world, rank;
    struct meeting *meeting; /* NULL: nothing is summed */
    char directories[WORLD_MAX][600];
} share;

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

static int try_optimizer(const struct way *way, const struct rules *rules,
                         const struct arrays *arrays, struct aio_fault *fault,
                         struct run_optimizer **out)
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
        if (fault->rules[0].kind ==
            AIO_FAULT_STALLED) { /* a busy machine is slower than this, too */
            run->io_limit_ns = INT64_C(300000000);
        }
    }
    return run_optimizer_create(&options, out);
}

static struct run_optimizer *make_optimizer(const struct way *way, const struct rules *rules,
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

static unsigned nth(const struct way *way, unsigned step, unsigned i)
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

static void set_groups(struct run_optimizer *optimizer, const struct adam_group *first,
                       const struct adam_group *second)
{
    check_int(run_optimizer_set_group(optimizer, 0, first), ==, 0);
    check_int(run_optimizer_set_group(optimizer, 1, second), ==, 0);
}

static void train(const struct way *way, const struct rules *rules, struct arrays *arrays,
                  double *norms)
{
    make_arrays(arrays);
    struct run_optimizer *optimizer = make_optimizer(way, rules, arrays);
    uint64_t token = 0;
    check_int(run_optimizer_set_loss_scale(optimizer, rules->loss_scale), ==, 0);
    for (unsigned s = 0; s < STEPS; s++) {
        for (unsigned p = 0; p < PARAMETERS; p++) { /* the forward pass needs the weights */
            check_int(run_optimizer_wait(optimizer, run_optimizer_token(optimizer, p)), ==, 0);
            make_gradient(arrays, p, s, rules->loss_scale);
        }
        set_groups(optimizer, &groups[0], &groups[1]);
        for (unsigned i = 0; i < PARAMETERS; i++) {
            const unsigned p = nth(way, s, i);
            if (is_absent(rules, s, p)) {
                continue;
            }
            if (rules->sums) {
                check_int(run_optimizer_submit(optimizer, p, arrays->gradients[p], false, &token),
                          ==, 0);
            }
            check_int(run_optimizer_submit(optimizer, p, arrays->gradients[p], true, &token), ==,
                      0);
        }
        struct run_optimizer_result result;
        check_int(run_optimizer_step(optimizer, &token), ==, 0);
        set_groups(optimizer, &wild, &wild); /* not for the step that is closed */
        check_int(run_optimizer_result(optimizer, &result), ==, 0);
        check_uint(result.step, ==, s + 1);
        check_true(!result.skipped);
        norms[s] = result.norm;
    }
    check_int(run_optimizer_wait(optimizer, token), ==, 0);
    run_optimizer_destroy(optimizer);
}

static void compare(const struct way *way, const struct arrays *one, const struct arrays *other)
{
    for (unsigned p = 0; p < PARAMETERS; p++) {
        if (memcmp(one->weights[p], other->weights[p],
                   forms[p].elements * bytes_of(forms[p].weights)) != 0) {
            test_fail(__FILE__, __LINE__, "%s: the weights of p%u differ", way->name, p);
        }
    }
}

static const struct way ways[] = {
    {"in memory", PLAN_WHERE_HOST, 0, 0, 1, 0, NULL},
    {"on the drive", PLAN_WHERE_STORE, 65536, 2, 2, 0, NULL},
    {"one slot", PLAN_WHERE_STORE, 131072, 1, 1, 1, "threads"},
    {"in any order", PLAN_WHERE_AUTO, 0, 0, 2, 2, NULL},
    {"in any order on the drive", PLAN_WHERE_STORE, 0, 0, 1, 2, "threads"},
    {"with a late one on the drive", PLAN_WHERE_STORE, 65536, 3, 1, 4, "threads"},
    {"in a new order on the drive", PLAN_WHERE_STORE, 131072, 4, 2, 3, "threads"},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

/* Every `stride`th way, under a sanitizer half or a third of these. */
static void all_ways(const struct rules *rules, size_t stride)
{
    const size_t step = stride * (TEST_RACES ? 3 : TEST_COUNT(1, 2));
    for (size_t w = stride - 1; w < WAYS; w += step) {
        struct arrays mine;
        struct arrays alone;
        double norms[STEPS];
        train(&ways[w], rules, &mine, norms);
        train_alone(rules, norms, &alone);
        compare(&ways[w], &alone, &mine);
        free_arrays(&mine);
        free_arrays(&alone);
    }
}

/* Updates begin under the backward pass. */
static void without_a_norm(void)
{
    all_ways(&(struct rules){CORE_UPDATE_ADAMW, CORE_UPDATE_F32, 0, 1, false, false, 0}, 1);
}

/* Updates wait for the norm, which clips each step, or none. */
static void with_a_norm(void)
{
    all_ways(&(struct rules){CORE_UPDATE_ADAMW, CORE_UPDATE_F32, 0.5, 1024, false, false, 0}, 1);
    all_ways(&(struct rules){CORE_UPDATE_ADAM, CORE_UPDATE_BF16, 1e9, 1, true, false, 0}, 2);
}

/* A parameter without a gradient keeps its weights, states and count of steps. */
static void parameters_stay_behind(void)
{
    all_ways(&(struct rules){CORE_UPDATE_ADAMW, CORE_UPDATE_Q8, 0, 1, false, false, 2}, 2);
    all_ways(&(struct rules){CORE_UPDATE_LION, CORE_UPDATE_F32, 0.5, 1, true, false, 7}, 2);
}

static void gradients_are_summed(void)
{
    all_ways(&(struct rules){CORE_UPDATE_SGD, CORE_UPDATE_F32, 0, 1, false, true, 0}, 2);
    all_ways(&(struct rules){CORE_UPDATE_ADAGRAD, CORE_UPDATE_F32, 0.5, 8, false, true, 5}, 2);
}

static const struct rules plain = {CORE_UPDATE_ADAMW, CORE_UPDATE_F32, 0, 1, false, false, 0};

static void submit_all(struct run_optimizer *optimizer, const struct arrays *arrays,
                       const struct way *way, unsigned step)
{
    uint64_t token = 0;
    for (unsigned i = 0; i < PARAMETERS; i++) {
        const unsigned p = nth(way, step, i);
        check_int(run_optimizer_wait(optimizer, run_optimizer_token(optimizer, p)), ==, 0);
        make_gradient(arrays, p, step, 1);
        check_int(run_optimizer_submit(optimizer, p, arrays->gradients[p], true, &token), ==, 0);
    }
}

/* In the middle of a step the caller may wait for weights of the last one and, if the norm does not count, for
 * the update of a block that has all its gradients, whichever that is. */
static void waits_in_the_middle(void)
{
    enum { ALONE = 2 }; /* it has a block of its own */
    for (unsigned w = 1; w < WAYS; w++) {
        struct arrays arrays;
        uint64_t tokens[PARAMETERS];
        uint64_t token = 0;
        make_arrays(&arrays);
        struct run_optimizer *optimizer = make_optimizer(&ways[w], &plain, &arrays);
        for (unsigned s = 0; s < STEPS; s++) {
            for (unsigned i = 0; i < PARAMETERS; i++) {
                const unsigned p = nth(&ways[w], s, i);
                const unsigned other = (p + s) % PARAMETERS;
                check_int(run_optimizer_wait(optimizer, run_optimizer_token(optimizer, p)), ==, 0);
                make_gradient(&arrays, p, s, 1);
                check_int(run_optimizer_submit(optimizer, p, arrays.gradients[p], true, &tokens[p]),
                          ==, 0);
                check_int(run_optimizer_wait(optimizer, run_optimizer_token(optimizer, other)), ==,
                          0);
                if (p == ALONE) {
                    check_int(run_optimizer_wait(optimizer, tokens[p]), ==, 0);
                    check_int(run_optimizer_poll(optimizer, tokens[p]), ==, 1);
                }
            }
            for (unsigned p = 0; p < PARAMETERS; p++) { /* no block needs the end of the step */
                check_int(run_optimizer_wait(optimizer, tokens[p]), ==, 0);
            }
            check_int(run_optimizer_step(optimizer, &token), ==, 0);
            check_int(run_optimizer_poll(optimizer, token), ==, 1);
        }
        run_optimizer_destroy(optimizer);
        free_arrays(&arrays);
    }
}

/* ---- what may go wrong ---- */

/* A step whose norm is not finite changes nothing, and the next one is the first. */
static void a_step_is_skipped(void)
{
    const struct rules rules = {CORE_UPDATE_ADAMW, CORE_UPDATE_F32, 1, 1, true, false, 0};
    struct arrays skipping;
    struct arrays straight;
    make_arrays(&skipping);
    make_arrays(&straight);
    for (int skips = 0; skips < 2; skips++) {
        struct arrays *arrays = skips ? &skipping : &straight;
        struct run_optimizer *optimizer = make_optimizer(&ways[1], &rules, arrays);
        struct run_optimizer_result result;
        uint64_t token = 0;
        for (unsigned s = 0; s < 2; s++) {
            if (skips) {
                uint64_t bad = 0;
                check_int(run_optimizer_wait(optimizer, token), ==, 0);
                make_gradient(arrays, 5, s, 1);
                store(forms[5].gradients, arrays->gradients[5], 4711, NAN);
                check_int(run_optimizer_submit(optimizer, 5, arrays->gradients[5], true, &bad), ==,
                          0);
                check_int(run_optimizer_step(optimizer, &token), ==, 0);
                check_int(run_optimizer_result(optimizer, &result), ==, 0);
                check_true(result.skipped && !isfinite(result.norm));
                check_int(run_optimizer_wait(optimizer, token), ==, 0);
            }
            submit_all(optimizer, arrays, &ways[1], s);
            check_int(run_optimizer_step(optimizer, &token), ==, 0);
            check_int(run_optimizer_result(optimizer, &result), ==, 0);
            check_true(!result.skipped);
        }
        check_int(run_optimizer_wait(optimizer, token), ==, 0);
        run_optimizer_destroy(optimizer);
    }
    compare(&ways[1], &straight, &skipping);
    free_arrays(&skipping);
    free_arrays(&straight);
}

/* Without `may_skip` a gradient that is not finite ends the optimizer, and the message names it. */
static void a_bad_gradient_ends_it(void)
{
    struct arrays arrays;
    uint64_t token = 0;
    struct run_optimizer_result result;
    make_arrays(&arrays);
    struct run_optimizer *optimizer = make_optimizer(&ways[0], &plain, &arrays);
    make_gradient(&arrays, 2, 0, 1);
    store(forms[2].gradients, arrays.gradients[2], forms[2].elements / 2, INFINITY);
    check_int(run_optimizer_submit(optimizer, 2, arrays.gradients[2], true, &token), ==, 0);
    check_int(run_optimizer_step(optimizer, &token), ==, 0);
    check_int(run_optimizer_result(optimizer, &result), ==, -EDOM);
    check_contains(core_err_message(), "the gradient of p2 is not finite");
    check_int(run_optimizer_submit(optimizer, 0, arrays.gradients[0], true, &token), ==, -EDOM);
    run_optimizer_destroy(optimizer);
    free_arrays(&arrays);
}

static void bad_calls_are_refused(void)
{
    struct arrays arrays;
    uint64_t token = 0;
    make_arrays(&arrays);
    struct run_optimizer *optimizer = make_optimizer(&ways[0], &plain, &arrays);
    check_int(run_optimizer_step(optimizer, &token), ==, -ENODATA);
    check_contains(core_err_message(), "without a gradient");
    check_int(run_optimizer_submit(optimizer, PARAMETERS, arrays.gradients[0], true, &token), ==,
              -EINVAL);
    check_int(run_optimizer_submit(optimizer, 0, NULL, true, &token), ==, -EINVAL);
    check_int(run_optimizer_submit(optimizer, 0, (char *)arrays.gradients[0] + 1, true, &token), ==,
              -EINVAL);
    check_int(run_optimizer_submit(optimizer, 0, arrays.gradients[0], false, &token), ==, -EINVAL);
    check_contains(core_err_message(), "need the option `accumulate`");
    make_gradient(&arrays, 0, 0, 1);
    check_int(run_optimizer_submit(optimizer, 0, arrays.gradients[0], true, &token), ==, 0);
    check_int(run_optimizer_submit(optimizer, 0, arrays.gradients[0], true, &token), ==, -EALREADY);
    check_int(run_optimizer_set_loss_scale(optimizer, 2), ==, -EBUSY);
    check_int(run_optimizer_weights_changed(optimizer, 0), ==, -EBUSY);
    check_int(run_optimizer_set_group(optimizer, GROUPS, &groups[0]), ==, -EINVAL);
    struct adam_group bad = groups[0];
    bad.beta1 = 1;
    check_int(run_optimizer_set_group(optimizer, 0, &bad), ==, -EINVAL);
    run_optimizer_destroy(optimizer); /* the step is open */
    free_arrays(&arrays);
}

/* ---- bad drives ---- */

/* Steps until one fails. */
static int train_on(struct aio_fault *fault, const struct rules *rules, struct arrays *arrays)
{
    static const struct way way = {"on a bad drive", PLAN_WHERE_STORE, 131072, 2, 1, 0, "threads"};
    struct run_optimizer *optimizer = NULL;
    uint64_t token = 0;
    make_arrays(arrays);
    int rc = try_optimizer(&way, rules, arrays, fault, &optimizer);
    for (unsigned s = 0; rc == 0 && s < STEPS; s++) {
        for (unsigned p = 0; rc == 0 && p < PARAMETERS; p++) {
            rc = run_optimizer_wait(optimizer, run_optimizer_token(optimizer, p));
            if (rc == 0) { /* else the update may still use the arrays */
                make_gradient(arrays, p, s, 1);
            }
        }
        for (unsigned p = PARAMETERS; rc == 0 && p-- > 0;) {
            rc = run_optimizer_submit(optimizer, p, arrays->gradients[p], true, &token);
        }
        rc = rc == 0 ? run_optimizer_step(optimizer, &token) : rc;
    }
    rc = rc == 0 ? run_optimizer_wait(optimizer, token) : rc;
    const struct core_err kept = core_err_keep(rc);
    run_optimizer_destroy(optimizer);
    return core_err_first(&kept, 0);
}

/* Whatever a drive does, from whichever operation on, the weights are right or a call says what happened,
 * and nothing waits for ever. */
static void a_drive_fails(void)
{
    static const struct {
        struct aio_fault_rule rule;
        int code; /* 0: the weights are right */
    } days[] = {
        {{.kind = AIO_FAULT_SHORT, .one_in = 5}, 0},
        {{.kind = AIO_FAULT_ERROR}, 0},
        {{.kind = AIO_FAULT_ERROR, .count = AIO_FAULT_FOREVER}, -EIO},
        {{.kind = AIO_FAULT_ERROR, .argument = ENOSPC, .writes_only = true}, -ENOSPC},
        {{.kind = AIO_FAULT_CORRUPT, .reads_only = true, .count = AIO_FAULT_FOREVER}, -EBADMSG},
        {{.kind = AIO_FAULT_STALLED, .count = AIO_FAULT_FOREVER}, -ETIMEDOUT},
    };
    for (int clips = 0; clips < 2; clips++) {
        const struct rules rules = {CORE_UPDATE_ADAMW, CORE_UPDATE_F32, clips, 1, false, false, 0};
        struct arrays right;
        check_int(train_on(NULL, &rules, &right), ==, 0);
        for (size_t d = 0; d < sizeof days / sizeof days[0]; d++) {
            const uint64_t first = TEST_COUNT(1, 1 + (d + (size_t)clips) % 2 * 198);
            for (uint64_t from = first; from < 200; from += TEST_COUNT(99, 200)) {
                struct aio_fault fault = {.inner = aio_backend_find("threads"),
                                          .seed = from,
                                          .rules_count = 1,
                                          .rules = {days[d].rule}};
                struct arrays mine;
                fault.rules[0].from = from;
                const int rc = train_on(&fault, &rules, &mine);
                if (rc != days[d].code && !(rc == 0 && fault.hits[days[d].rule.kind] == 0)) {
                    test_fail(__FILE__, __LINE__, "day %zu from %d: %d: %s", d, (int)from, rc,
                              core_err_message());
                }
                if (rc == 0) {
                    compare(&ways[1], &right, &mine);
                } else {
                    check_true(core_err_message()[0] != '\0');
                }
                aio_fault_release(&fault);
                free_arrays(&mine);
            }
        }
        free_arrays(&right);
    }
}

/* ---- weights that the application wrote ---- */

/* After a change the masters are the new weights, wherever states are, and moments go on. */
static void weights_may_change(void)
{
    struct arrays results[2];
    for (int w = 0; w < 2; w++) {
        struct arrays *arrays = &results[w];
        uint64_t token = 0;
        make_arrays(arrays);
        struct run_optimizer *optimizer = make_optimizer(&ways[w], &plain, arrays);
        struct alone alone[PARAMETERS];
        struct arrays reference;
        make_arrays(&reference);
        for (unsigned p = 0; p < PARAMETERS; p++) {
            alone_begin(&alone[p], &plain, p, reference.weights[p]);
        }
        for (unsigned s = 0; s < STEPS; s++) {
            submit_all(optimizer, arrays, &ways[w], s);
            check_int(run_optimizer_step(optimizer, &token), ==, 0);
            check_int(run_optimizer_wait(optimizer, token), ==, 0);
            for (unsigned p = 0; p < PARAMETERS; p++) {
                make_gradient(&reference, p, s, 1);
                alone_step(&alone[p], p, reference.gradients[p], 1);
            }
            for (unsigned p = s; p < PARAMETERS; p += 3) {
                for (uint64_t i = 0; i < forms[p].elements; i++) {
                    const float value = draw(50 + s, p, i);
                    store(forms[p].weights, arrays->weights[p], i, value);
                    store(forms[p].weights, reference.weights[p], i, value);
                    if (forms[p].weights != CORE_UPDATE_F32) {
                        alone[p].arrays.lo16[i] = 0;
                        alone[p].arrays.w32[i] = load(forms[p].weights, reference.weights[p], i);
                    }
                }
                check_int(run_optimizer_weights_changed(optimizer, p), ==, 0);
            }
        }
        compare(&ways[w], &reference, arrays);
        run_optimizer_destroy(optimizer);
        for (unsigned p = 0; p < PARAMETERS; p++) {
            alone_end(&alone[p]);
        }
        free_arrays(&reference);
    }
    free_arrays(&results[0]);
    free_arrays(&results[1]);
}

/* ---- checkpoints ---- */

static int load_from(struct run_optimizer *optimizer, const char *path, uint64_t *step)
{
    return run_optimizer_load(optimizer, &path, 1, step);
}

/* Makes all types alike; the second call restores them. */
static void swap_types(enum core_update_type type)
{
    static enum core_update_type kept[PARAMETERS][2];
    static bool swapped;
    for (unsigned p = 0; p < PARAMETERS; p++) {
        if (!swapped) {
            kept[p][0] = forms[p].weights;
            kept[p][1] = forms[p].gradients;
        }
        forms[p].weights = swapped ? kept[p][0] : type;
        forms[p].gradients = swapped ? kept[p][1] : type;
    }
    swapped = !swapped;
    measured_type = type;
}

static void steps_of(struct run_optimizer *optimizer, struct arrays *arrays, const struct way *way,
                     unsigned first, unsigned end)
{
    uint64_t token = 0;
    for (unsigned s = first; s < end; s++) {
        submit_all(optimizer, arrays, way, s);
        check_int(run_optimizer_step(optimizer, &token), ==, 0);
    }
    check_int(run_optimizer_wait(optimizer, token), ==, 0);
}

/* Saved in one placement and loaded in another, a run goes on with the bits of one that was never interrupted,
 * with weights of one type and of several, also if its gradients then come in another order. */
static void checkpoints_go_on(void)
{
    static const enum core_update_type types[] = {CORE_UPDATE_F32, CORE_UPDATE_BF16,
                                                  CORE_UPDATE_FP16};
    enum { ALIKE = sizeof types / sizeof types[0] };
    for (size_t t = 0; t <= ALIKE; t++) {
        const struct rules rules = {CORE_UPDATE_ADAMW,
                                    t == 1 ? CORE_UPDATE_Q8 : CORE_UPDATE_F32,
                                    (double)(t % 2),
                                    1,
                                    false,
                                    false,
                                    0};
        struct arrays straight;
        struct arrays saved;
        struct arrays loaded;
        char directory[600];
        uint64_t step = 0;
        snprintf(directory, sizeof directory, "%s/checkpoints %zu", test_directory(), t);
        if (t < ALIKE) {
            swap_types(types[t]);
        }
        make_arrays(&straight);
        make_arrays(&saved);
        make_arrays(&loaded);
        struct run_optimizer *optimizer = make_optimizer(&ways[t % 2], &rules, &straight);
        steps_of(optimizer, &straight, &ways[0], 0, 5);
        run_optimizer_destroy(optimizer);
        optimizer = make_optimizer(&ways[t % 2], &rules, &saved);
        check_int(load_from(optimizer, directory, &step), ==, -ENOENT);
        steps_of(optimizer, &saved, &ways[0], 0, 1);
        check_int(run_optimizer_save(optimizer, directory, 2), ==, 0);
        steps_of(optimizer, &saved, &ways[0], 1, 2);
        check_int(run_optimizer_save(optimizer, directory, 2), ==, 0);
        run_optimizer_destroy(optimizer);
        optimizer = make_optimizer(&ways[1 - t % 2], &rules, &loaded);
        check_int(run_optimizer_save(optimizer, directory, 2), ==, -EEXIST);
        check_int(load_from(optimizer, directory, &step), ==, 0);
        check_uint(step, ==, 2);
        compare(&ways[1], &saved, &loaded);
        steps_of(optimizer, &loaded, &ways[WAYS - 1], 2, 5);
        check_int(run_optimizer_save(optimizer, directory, 2), ==, 0);
        compare(&ways[1], &straight, &loaded);
        char one[700];
        snprintf(one, sizeof one, "%s/checkpoint-2", directory);
        check_int(load_from(optimizer, one, &step), ==, 0);
        check_uint(step, ==, 2);
        compare(&ways[1], &saved, &loaded);
        run_optimizer_destroy(optimizer);
        if (t < ALIKE) {
            swap_types(types[t]);
        }
        free_arrays(&straight);
        free_arrays(&saved);
        free_arrays(&loaded);
    }
}

/* ---- processes that share states ---- */

/* Optimizers with the arrays of one; `meeting` belongs to the caller. */
static void begin_world(const struct rules *rules, const struct arrays *arrays, uint32_t world,
                        struct meeting *meeting, struct run_optimizer **out)
{
    *meeting = (struct meeting){.count = 0};
    pthread_mutex_init(&meeting->lock, NULL);
    pthread_barrier_init(&meeting->barrier, NULL, world);
    for (uint32_t r = 0; r < world; r++) {
        snprintf(share.directories[r], sizeof share.directories[r], "%s/rank %u", test_directory(),
                 r);
        share.world = world;
        share.rank = r;
        share.meeting = meeting;
        out[r] = make_optimizer(&ways[r % 2], rules, arrays);
    }
    share.world = 0;
}

static void end_world(uint32_t world, struct meeting *meeting, struct run_optimizer **optimizers)
{
    for (uint32_t r = 0; r < world; r++) {
        run_optimizer_destroy(optimizers[r]);
    }
    pthread_barrier_destroy(&meeting->barrier);
    pthread_mutex_destroy(&meeting->lock);
    free(meeting->sums);
}

/* Gradients follow from the weights of all; each optimizer reads its share of them. */
static void world_steps(const struct rules *rules, const struct arrays *arrays, uint32_t world,
                        struct run_optimizer **optimizers, const unsigned steps[2], double *norms)
{
    uint64_t token = 0;
    for (unsigned s = steps[0]; s < steps[1]; s++) {
        for (unsigned p = 0; p < PARAMETERS; p++) {
            make_gradient(arrays, p, s, rules->loss_scale);
        }
        for (uint32_t r = 0; r < world; r++) {
            for (unsigned i = 0; i < PARAMETERS; i++) {
                const unsigned p = nth(&ways[2 + r], s, i);
                if (!is_absent(rules, s, p)) {
                    if (rules->sums) {
                        check_int(run_optimizer_submit(optimizers[r], p, arrays->gradients[p],
                                                       false, &token),
                                  ==, 0);
                    }
                    check_int(
                        run_optimizer_submit(optimizers[r], p, arrays->gradients[p], true, &token),
                        ==, 0);
                }
            }
            check_int(run_optimizer_step(optimizers[r], &token), ==, 0);
        }
        for (uint32_t r = 0; r < world; r++) {
            struct run_optimizer_result result;
            check_int(run_optimizer_wait(optimizers[r], run_optimizer_last_token(optimizers[r])),
                      ==, 0);
            check_int(run_optimizer_result(optimizers[r], &result), ==, 0);
            if (norms[s] < 0) {
                norms[s] = result.norm;
            }
            check_memory(&result.norm, &norms[s], sizeof norms[s]);
        }
    }
}

/* The shares of all cover each parameter once. */
static void check_shares(uint32_t world, struct run_optimizer **optimizers)
{
    for (unsigned p = 0; p < PARAMETERS; p++) {
        uint64_t next = 0;
        for (uint32_t r = 0; r < world; r++) {
            const struct plan_span own = run_optimizer_share(optimizers[r], p);
            check_uint(own.count > 0 ? own.first : next, ==, next);
            next += own.count;
        }
        check_uint(next, ==, forms[p].elements);
    }
}

/* Saves what each process has, and begins again with `world` processes, which load it. Gradients of all
 * processes follow from weights of one array, so that no weights have to be sent. */
static void change_world(const struct rules *rules, struct arrays *arrays, uint32_t *world,
                         uint32_t next, struct meeting *meeting, struct run_optimizer **optimizers)
{
    char directories[WORLD_MAX][700];
    const char *paths[WORLD_MAX];
    uint64_t step = 0;
    uint64_t saved = 0;
    for (uint32_t r = 0; r < *world; r++) {
        snprintf(directories[r], sizeof directories[r], "%s/%d %d saved by %u", test_directory(),
                 rules->rule, rules->moments, r);
        paths[*world - 1 - r] = directories[r]; /* in any order */
        check_int(run_optimizer_save(optimizers[r], directories[r], 0), ==, 0);
    }
    struct run_optimizer_result result;
    check_int(run_optimizer_result(optimizers[0], &result), ==, 0);
    saved = result.step;
    end_world(*world, meeting, optimizers);
    free_arrays(arrays);
    make_arrays(arrays);
    begin_world(rules, arrays, next, meeting, optimizers);
    if (*world > 1) { /* a share is not enough for another one */
        const uint32_t last = next == *world ? 0 : next - 1;
        check_int(load_from(optimizers[last], directories[next == *world ? 1 : 0], &step), ==,
                  -EINVAL);
        check_contains(core_err_message(), " needs the states of process ");
        check_int(run_optimizer_load(optimizers[0], (const char *[]){paths[0], paths[0]}, 2, &step),
                  ==, -EINVAL);
        check_contains(core_err_message(), "; expected another process of ");
    }
    for (uint32_t r = 0; r < next; r++) {
        if (*world == next) {
            check_int(load_from(optimizers[r], directories[r], &step), ==, 0);
        } else {
            check_int(run_optimizer_load(optimizers[r], paths, *world, &step), ==, 0);
        }
        check_uint(step, ==, saved);
    }
    *world = next;
}

/* Processes with a share each have the bits of one, its norms too, with and without clipping, sums and parameters
 * without gradients, in all types. So they have after others loaded what they had saved. */
static void states_are_shared(void)
{
    static const uint32_t worlds[] = {2, 2, 3, 2, 1, 3};
    enum { CHANGES = sizeof worlds / sizeof worlds[0] };
    static const struct rules of[] = {
        {CORE_UPDATE_ADAMW, CORE_UPDATE_F32, 0, 1, false, false, 5},
        {CORE_UPDATE_ADAMW, CORE_UPDATE_Q8, 0.5, 8, true, false, 0},
        {CORE_UPDATE_LION, CORE_UPDATE_BF16, 0.1, 1, false, true, 0},
    };
    for (size_t k = 0; k < sizeof of / sizeof of[0]; k += TEST_COUNT(1, 2)) {
        struct arrays whole;
        struct arrays arrays;
        double norms[CHANGES + 1];
        struct run_optimizer *optimizers[WORLD_MAX];
        struct meeting meeting;
        uint32_t world = 1;
        for (unsigned s = 0; s <= CHANGES; s++) {
            norms[s] = -1;
        }
        make_arrays(&whole);
        begin_world(&of[k], &whole, 1, &meeting, optimizers);
        world_steps(&of[k], &whole, 1, optimizers, (const unsigned[]){0, CHANGES + 1}, norms);
        end_world(1, &meeting, optimizers);
        make_arrays(&arrays);
        begin_world(&of[k], &arrays, 1, &meeting, optimizers);
        for (unsigned s = 0; s < CHANGES; s++) {
            check_shares(world, optimizers);
            world_steps(&of[k], &arrays, world, optimizers, (const unsigned[]){s, s + 1}, norms);
            change_world(&of[k], &arrays, &world, worlds[s], &meeting, optimizers);
        }
        world_steps(&of[k], &arrays, world, optimizers, (const unsigned[]){CHANGES, CHANGES + 1},
                    norms);
        compare(&ways[1], &whole, &arrays);
        end_world(world, &meeting, optimizers);
        free_arrays(&arrays);
        free_arrays(&whole);
    }
}

/* What cannot be shared is refused. A process without any part of a parameter takes its gradients and states as if
 * it had one. */
static void wrong_shares_are_refused(void)
{
    struct arrays arrays;
    struct run_optimizer *optimizer = NULL;
    struct rules rules = plain;
    make_arrays(&arrays);
    share.meeting = NULL;
    share.world = 2;
    share.rank = 2;
    check_int(try_optimizer(&ways[0], &rules, &arrays, NULL, &optimizer), ==, -EINVAL);
    check_contains(core_err_message(), "process 2 of 2");
    share.rank = 1;
    rules.clip = 1;
    check_int(try_optimizer(&ways[0], &rules, &arrays, NULL, &optimizer), ==, -EINVAL);
    check_contains(core_err_message(), "need the norm of all processes");
    rules.clip = 0;
    share.world = 1000;
    share.rank = 0;
    check_int(try_optimizer(&ways[0], &rules, &arrays, NULL, &optimizer), ==, -EINVAL);
    check_contains(core_err_message(), "would have no parameters");
    share.world = 2;
    optimizer = make_optimizer(&ways[0], &rules, &arrays);
    share.world = 0;
    struct run_optimizer_states states = {.updates = 7};
    uint64_t token = 0;
    unsigned absent = 0;
    while (absent < PARAMETERS && run_optimizer_share(optimizer, absent).count > 0) {
        absent++;
    }
    check_uint(absent, <, PARAMETERS);
    make_gradient(&arrays, absent, 0, 1);
    check_int(run_optimizer_weights_changed(optimizer, absent), ==, 0);
    check_int(run_optimizer_get_states(optimizer, absent, &states), ==, 0);
    check_uint(states.updates, ==, 0);
    check_int(run_optimizer_submit(optimizer, absent, arrays.gradients[absent], true, &token), ==,
              0);
    check_int(run_optimizer_submit(optimizer, absent, arrays.gradients[absent], true, &token), ==,
              -EALREADY);
    check_int(run_optimizer_poll(optimizer, token), ==, 1);
    check_int(run_optimizer_step(optimizer, &token), ==, 0);
    check_int(run_optimizer_wait(optimizer, token), ==, 0);
    check_int(run_optimizer_wait(optimizer, run_optimizer_token(optimizer, absent)), ==, 0);
    run_optimizer_destroy(optimizer);
    free_arrays(&arrays);
}

struct states {
    float *values[3];
    uint64_t updates;
};

static void get_states(struct run_optimizer *optimizer, unsigned p, struct states *states)
{
    struct run_optimizer_states found = {.updates = 0};
    for (int v = 0; v < 3; v++) {
        states->values[v] = calloc(forms[p].elements, sizeof(float));
        found.values[v] = states->values[v];
    }
    check_int(run_optimizer_get_states(optimizer, p, &found), ==, 0);
    states->updates = found.updates;
}

static void set_states(struct run_optimizer *optimizer, unsigned p, const struct states *states)
{
    struct run_optimizer_states wanted = {.updates = states->updates};
    memcpy(wanted.values, states->values, sizeof states->values);
    check_int(run_optimizer_set_states(optimizer, p, &wanted), ==, 0);
}

/* States that are read as fp32 and written to another optimizer with another placement go on with the same bits:
 * also the weights, which follow the masters. A single one leaves the others alone. */
static void states_are_carried(void)
{
    static const struct rules rules = {CORE_UPDATE_ADAMW, CORE_UPDATE_F32, 0, 1, false, false, 0};
    for (int back = 0; back < 2; back++) {
        struct arrays from;
        struct arrays to;
        struct states states[PARAMETERS];
        make_arrays(&from);
        make_arrays(&to);
        struct run_optimizer *one = make_optimizer(&ways[back], &rules, &from);
        struct run_optimizer *other = make_optimizer(&ways[1 - back], &rules, &to);
        steps_of(one, &from, &ways[0], 0, 2);
        uint64_t token = 0;
        make_gradient(&from, 5, 7, 1);
        check_int(run_optimizer_submit(one, 5, from.gradients[5], true, &token), ==, 0);
        struct run_optimizer_states busy = {.updates = 0};
        check_int(run_optimizer_get_states(one, 0, &busy), ==, -EBUSY);
        check_int(run_optimizer_set_states(one, 0, &busy), ==, -EBUSY);
        check_int(run_optimizer_step(one, &token), ==, 0);
        for (unsigned p = 0; p < PARAMETERS; p++) {
            get_states(one, p, &states[p]);
            check_uint(states[p].updates, ==, p == 5 ? 3 : 2);
            check_true(fabsf(states[p].values[ADAM_VALUE_M][forms[p].elements - 1]) > 0);
            set_states(other, p, &states[p]);
        }
        compare(&ways[1], &from, &to);
        steps_of(one, &from, &ways[2], 2, 3);
        steps_of(other, &to, &ways[WAYS - 1], 2, 3);
        compare(&ways[1], &from, &to);
        struct states now;
        get_states(other, 2, &now);
        memset(now.values[ADAM_VALUE_V], 0, forms[2].elements * sizeof(float));
        struct run_optimizer_states only = {.values = {[ADAM_VALUE_V] = now.values[ADAM_VALUE_V]},
                                            .updates = 9};
        check_int(run_optimizer_set_states(other, 2, &only), ==, 0);
        struct states then;
        get_states(other, 2, &then);
        check_uint(then.updates, ==, 9);
        for (int v = 0; v < 3; v++) {
            check_memory(then.values[v], now.values[v], forms[2].elements * sizeof(float));
            free(then.values[v]);
            free(now.values[v]);
        }
        for (unsigned p = 0; p < PARAMETERS; p++) {
            for (int v = 0; v < 3; v++) {
                free(states[p].values[v]);
            }
        }
        run_optimizer_destroy(one);
        run_optimizer_destroy(other);
        free_arrays(&from);
        free_arrays(&to);
    }
}

static void wrong_checkpoints_are_refused(void)
{
    struct arrays arrays;
    struct arrays others;
    char directory[600];
    uint64_t step = 0;
    snprintf(directory, sizeof directory, "%s/wrong", test_directory());
    make_arrays(&arrays);
    struct run_optimizer *optimizer = make_optimizer(&ways[0], &plain, &arrays);
    steps_of(optimizer, &arrays, &ways[0], 0, 1);
    check_int(run_optimizer_save(optimizer, directory, 1), ==, 0);
    run_optimizer_destroy(optimizer);
    for (int k = 0; k < 2; k++) { /* another parameter, another type */
        forms[9].elements += k == 0;
        forms[9].weights = k == 0 ? CORE_UPDATE_F32 : CORE_UPDATE_FP16;
        make_arrays(&others);
        optimizer = make_optimizer(&ways[0], &plain, &others);
        check_int(load_from(optimizer, directory, &step), ==, -EINVAL);
        run_optimizer_destroy(optimizer);
        free_arrays(&others);
        forms[9].elements -= k == 0;
        forms[9].weights = CORE_UPDATE_F32;
    }
    free_arrays(&arrays);
}

/* ---- many parameters ---- */

/* 100,000 parameters share few blocks, and are updated each with its own count. */
static void a_hundred_thousand_parameters(void)
{
    enum { MANY = TEST_SLOW ? 5000 : 100000, EACH = 40 };
    struct run_optimizer_parameter *parameters = calloc(MANY, sizeof *parameters);
    char(*names)[256] = calloc(MANY, sizeof *names);
    float *weights = calloc(MANY, EACH * sizeof *weights);
    float *gradients = calloc(MANY, EACH * sizeof *gradients);
    struct run_optimizer_options options = {.parameters = parameters,
                                            .parameter_count = MANY,
                                            .groups = groups,
                                            .group_count = 1,
                                            .options = case_options(),
                                            .rates = case_rates()};
    struct run_optimizer *optimizer = NULL;
    uint64_t token = 0;
    options.options.clip = 0;
    options.options.rule = CORE_UPDATE_SGD;
    options.options.wishes = (struct plan_wishes){.chunk_elements = 0};
    options.options.budgets = (struct plan_budgets){.host_bytes = UINT64_C(1) << 32};
    options.options.store_count = 0;
    struct adam_group sgd = {.lr = 0.5};
    options.groups = &sgd;
    for (unsigned p = 0; p < MANY; p++) {
        snprintf(names[p], sizeof names[p], "%0250u", p);
        parameters[p] = (struct run_optimizer_parameter){.name = names[p],
                                                         .weights = weights + p * EACH,
                                                         .elements = EACH - p % 7,
                                                         .weights_type = CORE_UPDATE_F32,
                                                         .gradients_type = CORE_UPDATE_F32};
        for (unsigned i = 0; i < EACH; i++) {
            gradients[p * EACH + i] = (float)(p % 16 + i);
        }
    }
    check_int(run_optimizer_create(&options, &optimizer), ==, 0);
    check_uint(run_optimizer_info(optimizer).blocks, <=, MANY / 4000 + 1);
    for (int s = 0; s < 2; s++) {
        for (unsigned p = (unsigned)s; p < MANY; p++) {
            check_int(run_optimizer_submit(optimizer, p, gradients + p * EACH, true, &token), ==,
                      0);
        }
        check_int(run_optimizer_step(optimizer, &token), ==, 0);
    }
    check_int(run_optimizer_wait(optimizer, token), ==, 0);
    for (unsigned p = 0; p < MANY; p++) {
        for (unsigned i = 0; i < EACH - p % 7; i++) {
            const float wanted = -0.5f * gradients[p * EACH + i] * (p == 0 ? 1 : 2);
            if (weights[p * EACH + i] < wanted || weights[p * EACH + i] > wanted) {
                test_fail(__FILE__, __LINE__, "element %u of parameter %u is %g, not %g", i, p,
                          (double)weights[p * EACH + i], (double)wanted);
            }
        }
    }
    run_optimizer_destroy(optimizer);
    free(parameters);
    free(names);
    free(weights);
    free(gradients);
}

TEST_MAIN({"without_a_norm", without_a_norm}, {"with_a_norm", with_a_norm},
          {"parameters_stay_behind", parameters_stay_behind},
          {"gradients_are_summed", gradients_are_summed},
          {"waits_in_the_middle", waits_in_the_middle}, {"a_step_is_skipped", a_step_is_skipped},
          {"a_bad_gradient_ends_it", a_bad_gradient_ends_it},
          {"bad_calls_are_refused", bad_calls_are_refused}, {"a_drive_fails", a_drive_fails},
          {"weights_may_change", weights_may_change}, {"checkpoints_go_on", checkpoints_go_on},
          {"states_are_carried", states_are_carried}, {"states_are_shared", states_are_shared},
          {"wrong_shares_are_refused", wrong_shares_are_refused},
          {"wrong_checkpoints_are_refused", wrong_checkpoints_are_refused},
          {"a_hundred_thousand_parameters", a_hundred_thousand_parameters})
