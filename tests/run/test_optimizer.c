/* Proves that the optimizer of an application gives the bits that an update of each parameter alone gives,
 * wherever states are, in whatever order gradients come, with and without a norm that counts; and what it
 * refuses. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "tests/run/optimizer_case.h"

/* Settings that are made after a step was closed and replaced before the next one begins, so that
 * no update may use them. */
static const struct adam_group wild = {.lr = 7, .eps = 1};

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
        set_groups(optimizer, &wild, &wild); /* not for the step that is closed */
        check_int(run_optimizer_result(optimizer, &result), ==, 0);
        check_uint(result.step, ==, s + 1);
        check_true(!result.skipped);
        norms[s] = result.norm;
    }
    check_int(run_optimizer_wait_weights(optimizer, RUN_OPTIMIZER_ALL), ==, 0);
    run_optimizer_destroy(optimizer);
}

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

/* A norm is computed, and updates wait for it: in the first run it clips every step, in the second
 * one none. */
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

/* In the middle of a step the caller may wait for a parameter's weights of the last step and, if
 * the norm does not count, for the update of any block that has all its gradients. */
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

/* ---- errors of a step and of calls ---- */

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
    run_optimizer_destroy(optimizer); /* the step is open */
    free_arrays(&arrays);
}

/* ---- bad drives ---- */

/* Steps until one fails. */
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

/* ---- many parameters ---- */

/* 100,000 parameters share few blocks, but each is updated with its own count of steps. */
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
          {"a_hundred_thousand_parameters", a_hundred_thousand_parameters})
