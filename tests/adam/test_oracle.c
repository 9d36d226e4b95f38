/* Tests the rules against torch and DeepSpeed, and master weights against float64.
 * tests/oracle/adam.py writes the fixture and computes the same gradients. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/half.h"
#include "cpu_adam/adam.h"
#include "tests/adam/ref.h"
#include "tests/harness/test.h"

enum { COUNT = 64, STEPS = 1000 };

static uint32_t recurrence;

static double next_number(void)
{
    recurrence = recurrence * 1664525u + 1013904223u;
    return (double)(recurrence >> 8) * 0x1p-24 - 0.5;
}

static float start[COUNT];
static float gradients[STEPS][COUNT];

static void make_inputs(void)
{
    recurrence = 1;
    for (int i = 0; i < COUNT; i++) {
        start[i] = (float)next_number();
    }
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < COUNT; i++) {
            gradients[step][i] = (float)(next_number() * ldexp(1.0, -(i % 8)));
        }
    }
}

/* The largest magnitude of each weight in the last run_ours. */
static double way[COUNT];

/* Runs with fp32 moments and writes the final weights to `end`. */
static void run_ours(enum core_update_rule rule, enum core_update_master master,
                     struct adam_group group, float *end)
{
    float w32[COUNT];
    float g[COUNT];
    float m[COUNT] = {0};
    float v[COUNT] = {0};
    uint16_t w16[COUNT] = {0};
    uint16_t lo16[COUNT] = {0};
    struct adam *adam = NULL;
    group.step = 1;
    const struct adam_options options = {.rule = rule,
                                         .master = master,
                                         .gradients = CORE_UPDATE_F32,
                                         .count = COUNT,
                                         .groups = &group,
                                         .groups_count = 1};
    const struct adam_arrays arrays = {
        .count = COUNT, .w16 = w16, .lo16 = lo16, .w32 = w32, .g = g, .m = m, .v = v};
    check_int(adam_create(&options, &adam), ==, 0);
    check_int(adam_state_write(adam, &arrays, ADAM_VALUE_MASTER, 0, COUNT, start), ==, 0);
    for (int step = 0; step < STEPS; step++) {
        group.step = (uint64_t)step + 1;
        memcpy(g, gradients[step], sizeof g);
        check_int(adam_group_set(adam, 0, &group), ==, 0);
        check_int(adam_step(adam, &arrays, 0, COUNT, 1.0, NULL), ==, 0);
        ref_read(&options, &arrays, ADAM_VALUE_MASTER, 0, COUNT, end);
        for (int i = 0; i < COUNT; i++) {
            way[i] = fmax(step == 0 ? fabs((double)start[i]) : way[i], fabs((double)end[i]));
        }
    }
    adam_destroy(adam);
}

static enum core_update_rule rule_of(const char *name)
{
    for (int rule = 0; rule < CORE_UPDATE_RULES; rule++) {
        if (strcmp(adam_rule_name((enum core_update_rule)rule), name) == 0) {
            return (enum core_update_rule)rule;
        }
    }
    test_fail(__FILE__, __LINE__, "no rule %s", name);
}

/* Returns the largest difference of our weights from `theirs`, relative to the weight, or to 0.1 if
 * that is larger. Split and whole masters end with the same bits. */
static double difference(enum core_update_rule rule, struct adam_group group,
                         const double theirs[COUNT])
{
    double worst = 0.0;
    float split[COUNT];
    float whole[COUNT];
    run_ours(rule, CORE_UPDATE_MASTER_SPLIT, group, split);
    run_ours(rule, CORE_UPDATE_MASTER_F32, group, whole);
    check_memory(split, whole, sizeof split);
    for (int i = 0; i < COUNT; i++) {
        worst = fmax(worst, fabs((double)split[i] - theirs[i]) / fmax(fabs(theirs[i]), 0.1));
    }
    return worst;
}

/* torch rounds 1 - lr x decay to fp32, which changes the decay. */
static double decay_of_torch(const struct adam_group *group)
{
    return (1.0 - (double)(float)(1.0 - group->lr * group->decay)) / group->lr;
}

/* Our weights end near those of torch and DeepSpeed, which round some scalars. */
static void peers_agree(void)
{
    char path[512];
    char name[64];
    char rule[64];
    int bias = 0;
    int cases = 0;
    struct adam_group group;
    make_inputs();
    snprintf(path, sizeof path, "%s/fixtures/adam.txt", test_root());
    FILE *file = fopen(path, "r");
    check_true(file != NULL);
    while (fscanf(file, "%63s %63s %lf %lf %lf %lf %lf %d", name, rule, &group.lr, &group.beta1,
                  &group.beta2, &group.eps, &group.decay, &bias) == 8) {
        double theirs[COUNT];
        group.bias_correction = bias != 0;
        for (int i = 0; i < COUNT; i++) {
            check_int(fscanf(file, "%la", &theirs[i]), ==, 1);
        }
        double worst = difference(rule_of(rule), group, theirs);
        test_note("%s: largest relative difference %.2g", name, worst);
        if (strstr(name, "rounded") != NULL) {
            check_double(worst, <, 1e-4);
            group.decay = decay_of_torch(&group);
            worst = difference(rule_of(rule), group, theirs);
            test_note("%s: with the decay it rounded to %.2g", name, worst);
        }
        check_double(worst, <, strncmp(name, "torch", 5) == 0 ? 1e-5 : 1e-4);
        cases++;
    }
    fclose(file);
    check_int(cases, ==, 11);
}

/* Runs AdamW in double with fp32 scalars; `rounded`: the weight is rounded to fp32 after
 * each step. */
static void run_double(const struct adam_group *group, bool rounded, double *end)
{
    double m[COUNT] = {0};
    double v[COUNT] = {0};
    for (int i = 0; i < COUNT; i++) {
        end[i] = (double)start[i];
    }
    for (int step = 0; step < STEPS; step++) {
        struct adam_group now = *group;
        struct core_update_scalars s;
        now.step = (uint64_t)step + 1;
        check_int(adam_scalars(CORE_UPDATE_ADAMW, &now, 1.0, &s), ==, 0);
        for (int i = 0; i < COUNT; i++) {
            const double g = (double)gradients[step][i];
            m[i] = (double)s.beta1 * m[i] + (double)s.one_minus_beta1 * g;
            v[i] = (double)s.beta2 * v[i] + (double)s.one_minus_beta2 * g * g;
            end[i] += (double)s.decay * end[i];
            end[i] += (double)s.rate * m[i] / (sqrt(v[i]) * (double)s.root_scale + (double)s.eps);
            end[i] = rounded ? (double)(float)end[i] : end[i];
        }
    }
}

static double ulp_of(double x)
{
    return (double)(nextafterf((float)fabs(x), INFINITY) - (float)fabs(x));
}

/* Errors against float64 are hardly larger than those of a run in double that rounds only the
 * stored master to fp32. */
static void master_is_as_good_as_fp32(void)
{
    const struct adam_group group = {.lr = 1e-3,
                                     .beta1 = 0.9,
                                     .beta2 = 0.999,
                                     .eps = 1e-8,
                                     .decay = 0.01,
                                     .bias_correction = true};
    float ours[COUNT];
    double exact[COUNT];
    double allowed[COUNT];
    double our_error = 0.0;
    double allowed_error = 0.0;
    double our_worst = 0.0;
    double allowed_worst = 0.0;
    make_inputs();
    run_ours(CORE_UPDATE_ADAMW, CORE_UPDATE_MASTER_SPLIT, group, ours);
    run_double(&group, false, exact);
    run_double(&group, true, allowed);
    for (int i = 0; i < COUNT; i++) {
        const double ulp = ulp_of(way[i]);
        const double our_ulp = fabs((double)ours[i] - exact[i]) / ulp;
        const double allowed_ulp = fabs(allowed[i] - exact[i]) / ulp;
        our_error += our_ulp / COUNT;
        allowed_error += allowed_ulp / COUNT;
        our_worst = fmax(our_worst, our_ulp);
        allowed_worst = fmax(allowed_worst, allowed_ulp);
    }
    test_note("error in ulp: mean %.3f, largest %.3f; of an fp32 master alone %.3f, %.3f",
              our_error, our_worst, allowed_error, allowed_worst);
    check_double(our_worst, <=, allowed_worst + 2.0);
    check_double(our_error, <=, allowed_error * 1.05);
}

TEST_MAIN({"peers_agree", peers_agree}, {"master_is_as_good_as_fp32", master_is_as_good_as_fp32})
