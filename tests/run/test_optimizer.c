/* test_optimizer.c: the optimizer of an application has the bits of separate updates of its
 * parameters, and refuses wrong calls. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/dev/dev.h"
#include "offload/run/optimizer_internal.h"
#include "tests/reference/plain.h"
#include "tests/run/optimizer_case.h"

/* Set between a closed step and the next one; no update may use these numbers. */
static const struct adam_group wild = {.lr = 7, .eps = 1};

/* Returns gradient + gradient in fp32; the caller frees the sum. */
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

/* Trains parameters separately. `norms` come from the optimizer, so that the clipping factor has
 * the same bits. */
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
            check_int(run_optimizer_wait_weights(optimizer, p), ==, 0);
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
            if (way->device != NULL) { /* the gradient is copied */
                memset(arrays->gradients[p], 0xff,
                       bytes_of(forms[p].gradients) * forms[p].elements);
            }
        }
        struct run_optimizer_result result;
        check_int(run_optimizer_step(optimizer, &token), ==, 0);
        set_groups(optimizer, &wild, &wild); /* the closed step does not use these groups */
        check_int(run_optimizer_result(optimizer, &result), ==, 0);
        check_uint(result.step, ==, s + 1);
        check_true(!result.skipped);
        norms[s] = result.norm;
    }
    check_int(run_optimizer_wait_weights(optimizer, RUN_OPTIMIZER_ALL), ==, 0);
    run_optimizer_destroy(optimizer);
}

/* Compares every `stride`-th way with separate updates. */
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

/* Updates during the backward pass have the bits of separate updates. */
static void without_a_norm(void)
{
    all_ways(&(struct rules){CORE_UPDATE_ADAMW, CORE_UPDATE_F32, 0, 1, false, false, 0}, 1);
}

/* Updates that wait for a norm have the bits of separate updates. The first call clips, the
 * second does not. */
static void with_a_norm(void)
{
    all_ways(&(struct rules){CORE_UPDATE_ADAMW, CORE_UPDATE_F32, 0.5, 1024, false, false, 0}, 1);
    all_ways(&(struct rules){CORE_UPDATE_ADAM, CORE_UPDATE_BF16, 1e9, 1, true, false, 0}, 2);
}

/* A parameter without a gradient keeps its weights, states and step count. */
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

/* Between submits, an application may wait for weights of the last step and, if updates do not wait
 * for a norm, for blocks that have all their gradients. */
static void waits_in_the_middle(void)
{
    enum { ALONE = 2 }; /* has a block without others */
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
                check_int(run_optimizer_wait_weights(optimizer, p), ==, 0);
                make_gradient(&arrays, p, s, 1);
                check_int(run_optimizer_submit(optimizer, p, arrays.gradients[p], true, &tokens[p]),
                          ==, 0);
                check_int(run_optimizer_wait_weights(optimizer, other), ==, 0);
                if (p == ALONE) {
                    check_int(run_optimizer_wait(optimizer, tokens[p]), ==, 0);
                    check_int(run_optimizer_poll(optimizer, tokens[p]), ==, 1);
                }
            }
            /* no update waits for the end of the step */
            for (unsigned p = 0; p < PARAMETERS; p++) {
                check_int(run_optimizer_wait(optimizer, tokens[p]), ==, 0);
            }
            check_int(run_optimizer_step(optimizer, &token), ==, 0);
            check_int(run_optimizer_poll(optimizer, token), ==, 1);
        }
        run_optimizer_destroy(optimizer);
        free_arrays(&arrays);
    }
}

static void join(struct meeting *meeting)
{
    for (int i = 0; i < 3; i++) {
        pthread_barrier_wait(&meeting->barrier);
    }
}

static bool has_sums(struct meeting *meeting)
{
    pthread_mutex_lock(&meeting->lock);
    const bool has = meeting->sums != NULL;
    pthread_mutex_unlock(&meeting->lock);
    return has;
}

/* A submit does not wake a worker that waits for the norm of another process. */
static void submits_do_not_wake_a_busy_worker(void)
{
    const struct way *way = &ways[ON_DEVICE - 1];
    struct meeting meeting = {.sums = NULL};
    struct arrays arrays;
    uint64_t token = 0;
    make_arrays(&arrays);
    pthread_mutex_init(&meeting.lock, NULL);
    pthread_barrier_init(&meeting.barrier, NULL, 2);
    share = (struct share){.world = 2, .meeting = &meeting};
    snprintf(share.directories[0], sizeof share.directories[0], "%s", test_directory());
    struct run_optimizer *optimizer = make_optimizer(way, &plain, &arrays);
    submit_all(optimizer, &arrays, way, 0);
    check_int(run_optimizer_step(optimizer, &token), ==, 0);
    while (!has_sums(&meeting)) {
        usleep(1000);
    }
    const uint32_t rings = core_bell_look(&optimizer->rank->bell);
    submit_all(optimizer, &arrays, way, 1);
    check_uint(core_bell_look(&optimizer->rank->bell), ==, rings);
    join(&meeting);
    check_int(run_optimizer_step(optimizer, &token), ==, 0);
    join(&meeting);
    check_int(run_optimizer_wait(optimizer, token), ==, 0);
    run_optimizer_destroy(optimizer);
    share = (struct share){.world = 0};
    pthread_barrier_destroy(&meeting.barrier);
    pthread_mutex_destroy(&meeting.lock);
    free(meeting.sums);
    free_arrays(&arrays);
}

/* ---- errors of a step and of calls ---- */

/* A step whose norm is not finite changes nothing and is not counted. */
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

/* Without `may_skip`, a gradient that is not finite ends the optimizer, with a message that
 * names the gradient. */
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
    check_contains(core_err_message(), "the step has no gradient");
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
    run_optimizer_destroy(optimizer); /* while a step is open */
    free_arrays(&arrays);
}

/* ---- bad drives ---- */

/* Returns the first error of STEPS steps. */
static int train_on(struct aio_fault *fault, const struct rules *rules, struct arrays *arrays)
{
    static const struct way way = {
        "on a bad drive", PLAN_WHERE_STORE, 131072, 2, 1, 0, "threads", NULL};
    struct run_optimizer *optimizer = NULL;
    uint64_t token = 0;
    make_arrays(arrays);
    int rc = try_optimizer(&way, rules, arrays, fault, &optimizer);
    for (unsigned s = 0; rc == 0 && s < STEPS; s++) {
        for (unsigned p = 0; rc == 0 && p < PARAMETERS; p++) {
            rc = run_optimizer_wait_weights(optimizer, p);
            if (rc == 0) { /* otherwise an update may still use the arrays */
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

/* If a drive fails, the weights are right or a call reports an error. */
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

/* ---- many parameters ---- */

/* Many parameters share few blocks, but a parameter without a gradient is not updated. */
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

/* ---- the size of the store ---- */

static const struct sizes {
    const char *what;
    unsigned count;
    uint64_t least, step, turn; /* parameter p has least + p % turn * step elements */
    uint64_t last;              /* elements of one more parameter; 0: none */
    enum core_update_type weights, moments;
} sizes[] = {
    {"100,000 biases and norms", TEST_COUNT(100000, 2000), 34, 1, 7, 0, CORE_UPDATE_F32,
     CORE_UPDATE_F32},
    {"100,000 in bf16 with bf16 moments", TEST_COUNT(100000, 2000), 1, 3, 16, 0, CORE_UPDATE_BF16,
     CORE_UPDATE_BF16},
    {"20,000 of 256 or 512 with 8-bit moments", TEST_COUNT(20000, 2000), 256, 256, 2, 0,
     CORE_UPDATE_BF16, CORE_UPDATE_Q8},
    {"a model of 12 layers", 12 * 4, 256 * 1024, 1023, 4, 8003 * 256, CORE_UPDATE_BF16,
     CORE_UPDATE_F32},
};

static uint64_t elements_of(const struct sizes *of, unsigned p)
{
    return p == of->count ? of->last : of->least + p % of->turn * of->step;
}

/* Returns the bytes of an element's states: a master beside the weights, and both moments of
 * AdamW. */
static double state_bytes_of(const struct sizes *of)
{
    const double moment = of->moments == CORE_UPDATE_Q8     ? 1 + 4.0 / CORE_UPDATE_Q8_BLOCK
                          : of->moments == CORE_UPDATE_BF16 ? 2
                                                            : 4;
    return (of->weights == CORE_UPDATE_BF16 ? 2 : 0) + 2 * moment;
}

/* The store's extents are at most 2 % larger than the states. With 8-bit moments, 256 elements
 * share a scale, so sizes are multiples of 256. */
static void extents_are_hardly_larger_than_states(void)
{
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const struct sizes *of = &sizes[s];
        const unsigned count = of->count + (of->last > 0);
        struct run_optimizer_parameter *parameters = calloc(count, sizeof *parameters);
        char(*names)[16] = calloc(count, sizeof *names);
        struct run_optimizer_options options = {.parameters = parameters,
                                                .parameter_count = count,
                                                .groups = groups,
                                                .group_count = 1,
                                                .options = case_options(),
                                                .rates = case_rates()};
        struct run_optimizer *optimizer = NULL;
        uint64_t elements = 0;
        options.options.moments = of->moments;
        options.options.type = of->weights == CORE_UPDATE_BF16 ? KERN_BF16 : KERN_F32;
        options.options.wishes = (struct plan_wishes){.states = PLAN_WHERE_STORE};
        options.options.budgets = (struct plan_budgets){.host_bytes = UINT64_C(1) << 32,
                                                        .store_bytes = UINT64_C(1) << 32};
        options.options.io = "mem";
        options.options.stores[0] = (struct store_path){.directory = test_directory(), .weight = 1};
        options.options.store_count = 1;
        for (unsigned p = 0; p < count; p++) {
            elements += elements_of(of, p);
        }
        char *weights = calloc(elements, bytes_of(of->weights)); /* no step touches these pages */
        char *next = weights;
        for (unsigned p = 0; p < count; p++) {
            snprintf(names[p], sizeof names[p], "p%u", p);
            parameters[p] = (struct run_optimizer_parameter){.name = names[p],
                                                             .weights = next,
                                                             .elements = elements_of(of, p),
                                                             .weights_type = of->weights,
                                                             .gradients_type = of->weights};
            next += elements_of(of, p) * bytes_of(of->weights);
        }
        check_int(run_optimizer_create(&options, &optimizer), ==, 0);
        const double bytes = (double)run_optimizer_info(optimizer).store_bytes;
        const double states = (double)elements * state_bytes_of(of);
        test_note("%s: %.0f bytes of states, %.3f times as many in the store", of->what, states,
                  bytes / states);
        if (bytes < states || bytes > 1.02 * states) {
            test_fail(__FILE__, __LINE__, "%s: %.0f bytes of states take %.0f of the store",
                      of->what, states, bytes);
        }
        run_optimizer_destroy(optimizer);
        free(parameters);
        free(names);
        free(weights);
    }
}

/* ---- an engine's gradients ---- */

enum { RECORDED_STEPS = 3, TENSORS_MAX = 128 };

/* A model's weights in flat arrays of blocks, which the optimizer changes. */
struct copied {
    char *weights[32]; /* owned; one array per block */
    size_t count;
    struct run_optimizer_parameter parameters[TENSORS_MAX];
    unsigned blocks[TENSORS_MAX];
    uint64_t firsts[TENSORS_MAX]; /* in the block */
};

static uint32_t run_of(const struct block *block, uint64_t element)
{
    size_t run = 0;
    while (block->runs[run].end <= element) {
        run++;
    }
    return block->runs[run].group;
}

static void copy_model(const struct model *model, const struct plain *trainer,
                       enum core_update_type type, struct copied *copied)
{
    const size_t width = bytes_of(type);
    copied->count = 0;
    for (unsigned b = 0; b < model->block_count; b++) {
        const struct block *block = &model->flat->list[b];
        copied->weights[b] = malloc(block->elements * width);
        memcpy(copied->weights[b], plain_weights(trainer, b), block->elements * width);
        for (size_t t = 0; t < block->tensor_count; t++) {
            const struct block_tensor *tensor = &block->tensors[t];
            check_uint(copied->count, <, TENSORS_MAX);
            copied->blocks[copied->count] = b;
            copied->firsts[copied->count] = tensor->first;
            copied->parameters[copied->count++] = (struct run_optimizer_parameter){
                .name = tensor->name,
                .weights = copied->weights[b] + tensor->first * width,
                .elements = (uint64_t)(tensor->rows * tensor->cols),
                .weights_type = type,
                .gradients_type = type,
                .group = run_of(block, tensor->first)};
        }
    }
}

/* Hashes weights as case_run_engine() does. */
static uint64_t hash_weights(const struct model *model, const struct copied *copied, size_t width,
                             uint64_t each)
{
    uint64_t hash = 0;
    for (unsigned b = 0; b < model->block_count; b++) {
        const uint64_t elements = model->blocks[b].elements;
        for (uint64_t at = 0; at < elements; at += each) {
            const uint64_t count = elements - at < each ? elements - at : each;
            hash = core_hash(copied->weights[b] + at * width, count * width, hash);
        }
    }
    return hash;
}

/* The trainer's masters have bits of the model's files that rounded weights lack. */
static void set_masters(struct run_optimizer *optimizer, const struct plain *trainer,
                        const struct copied *copied)
{
    for (size_t p = 0; p < copied->count; p++) {
        float *masters = plain_arrays(trainer, copied->blocks[p]).w32 + copied->firsts[p];
        const struct run_optimizer_states states = {.values = {[ADAM_VALUE_MASTER] = masters}};
        check_int(run_optimizer_set_states(optimizer, p, &states), ==, 0);
    }
}

/* An optimizer that gets the trainer's gradients ends with an engine's weights. */
static void record(const char *name, enum core_update_type type, enum plan_where states)
{
    struct run_options run = case_options();
    struct case_model made;
    struct case_outcome engine;
    struct dev_device *device = NULL;
    struct plain *plain_trainer = NULL;
    struct run_optimizer *optimizer = NULL;
    struct copied copied;
    int32_t ids[CASE_ROWS * CASE_LENGTH];
    uint64_t token = 0;
    bool clipped = false;
    const size_t width = bytes_of(type);
    run.type = type == CORE_UPDATE_F32    ? KERN_F32
               : type == CORE_UPDATE_BF16 ? KERN_BF16
                                          : KERN_FP16;
    run.scale.fixed = 128;
    const double loss_scale = type == CORE_UPDATE_FP16 ? run.scale.fixed : 1;
    case_model_make(&made, name);
    case_run_engine(&made, &run, RECORDED_STEPS, &engine);
    const struct plain_options plain_options = {
        .shape = {.rows = run.rows, .length = run.length, .type = run.type},
        .micro_batches = 1,
        .threads = run.threads,
        .rule = run.rule,
        .group = run.group,
        .clip = run.clip,
        .loss_scale = loss_scale};
    check_int(dev_open("cpu", &(struct dev_options){.memory_bytes = 256 << 20}, &device), ==, 0);
    check_int(plain_create(made.model, device, &plain_options, &plain_trainer), ==, 0);
    check_int(plain_load(plain_trainer, made.files), ==, 0);
    copy_model(made.model, plain_trainer, type, &copied);
    struct adam_group both[2] = {run.group, run.group};
    both[1].decay = 0;
    struct run_optimizer_options options = {.parameters = copied.parameters,
                                            .parameter_count = copied.count,
                                            .groups = both,
                                            .group_count = 2,
                                            .options = run,
                                            .rates = case_rates()};
    options.options.wishes.states = states;
    options.options.budgets.store_bytes = UINT64_C(1) << 30;
    options.options.io = "threads";
    options.options.stores[0] = (struct store_path){.directory = test_directory(), .weight = 1};
    options.options.store_count = 1;
    check_int(run_optimizer_create(&options, &optimizer), ==, 0);
    check_int(run_optimizer_set_loss_scale(optimizer, loss_scale), ==, 0);
    if (type == CORE_UPDATE_FP16) {
        set_masters(optimizer, plain_trainer, &copied);
    }
    for (unsigned s = 0; s < RECORDED_STEPS; s++) {
        const struct model_batch batch = case_batch(&made, s, 0, ids);
        struct plain_result result = {0};
        struct run_optimizer_result own;
        check_int(plain_step(plain_trainer, &batch, run.group.lr, &result), ==, 0);
        for (size_t p = copied.count; p-- > 0;) {
            const char *gradient = plain_grads(plain_trainer, copied.blocks[p]);
            check_int(run_optimizer_submit(optimizer, p, gradient + copied.firsts[p] * width, true,
                                           &token),
                      ==, 0);
        }
        check_int(run_optimizer_step(optimizer, &token), ==, 0);
        check_int(run_optimizer_result(optimizer, &own), ==, 0);
        check_int(run_optimizer_wait_weights(optimizer, RUN_OPTIMIZER_ALL), ==, 0);
        check_double(fabs(own.norm - engine.norm[s]), <=, 1e-12 * own.norm);
        clipped = clipped || own.factor < 1;
    }
    check_true(clipped);
    if (hash_weights(made.model, &copied, width, run.wishes.chunk_elements) != engine.weight_hash) {
        test_fail(__FILE__, __LINE__, "%s, type %d: the engine has other weights", name, type);
    }
    run_optimizer_destroy(optimizer);
    for (unsigned b = 0; b < made.model->block_count; b++) {
        free(copied.weights[b]);
    }
    plain_destroy(plain_trainer);
    dev_close(device);
    case_model_free(&made);
}

/* The plain trainer's gradients are the engine's (test_master.c). Other blocks may change a
 * norm's last bits in double, but not the factor in fp32. */
static void an_engines_gradients(void)
{
    record("llama tied", CORE_UPDATE_BF16, PLAN_WHERE_STORE);
    if (!TEST_RACES) {
        record("gpt2", CORE_UPDATE_F32, PLAN_WHERE_HOST);
        record("qwen3", CORE_UPDATE_FP16, PLAN_WHERE_HOST);
    }
}

TEST_MAIN({"without_a_norm", without_a_norm}, {"with_a_norm", with_a_norm},
          {"parameters_stay_behind", parameters_stay_behind},
          {"gradients_are_summed", gradients_are_summed},
          {"waits_in_the_middle", waits_in_the_middle},
          {"submits_do_not_wake_a_busy_worker", submits_do_not_wake_a_busy_worker},
          {"a_step_is_skipped", a_step_is_skipped},
          {"a_bad_gradient_ends_it", a_bad_gradient_ends_it},
          {"bad_calls_are_refused", bad_calls_are_refused}, {"a_drive_fails", a_drive_fails},
          {"a_hundred_thousand_parameters", a_hundred_thousand_parameters},
          {"extents_are_hardly_larger_than_states", extents_are_hardly_larger_than_states},
          {"an_engines_gradients", an_engines_gradients})
