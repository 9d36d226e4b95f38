/* scalars.c: one group's scalars for one step: computed in double, rounded once to fp32. */
#include <errno.h>
#include <math.h>

#include "core/base/err.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/fp_mode.h"

static int check_number(const char *name, double value, double limit)
{
    if (!(value >= 0.0) || !(value < limit)) {
        return core_err_set(-EINVAL, "%s is %g; it must be at least 0 and %s %g", name, value,
                            isinf(limit) ? "below" : "less than", limit);
    }
    return 0;
}

static int check_group(const struct adam_group *group)
{
    const struct {
        const char *name;
        double value;
        double limit;
    } numbers[] = {
        {"lr", group->lr, HUGE_VAL},
        {"beta1", group->beta1, 1.0},
        {"beta2", group->beta2, 1.0},
        {"eps", group->eps, HUGE_VAL},
        {"weight decay", group->decay, HUGE_VAL},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        int rc = check_number(numbers[i].name, numbers[i].value, numbers[i].limit);
        if (rc != 0) {
            return rc;
        }
    }
    if (group->step == 0) {
        return core_err_set(-EINVAL, "step is 0; the first step is 1");
    }
    return 0;
}

static int check_scalars(const struct core_update_scalars *s)
{
    if (!isfinite(s->gradient_scale) || !isfinite(s->root_scale) || !isfinite(s->eps) ||
        !isfinite(s->decay) || !isfinite(s->rate) || s->beta1 >= 1.0f || s->beta2 >= 1.0f) {
        return core_err_set(-EINVAL,
                            "scalars out of range for fp32: gradient scale %g, betas %.9g and "
                            "%.9g, eps %g, decay %g, rate %g",
                            (double)s->gradient_scale, (double)s->beta1, (double)s->beta2,
                            (double)s->eps, (double)s->decay, (double)s->rate);
    }
    return 0;
}

/* Not inlined, so that no arithmetic leaves adam_fp_begin() .. adam_fp_end(): even a comparison
 * with NaN may trap. */
__attribute__((noinline)) static int compute_scalars(enum core_update_rule rule,
                                                     const struct adam_group *group,
                                                     double gradient_scale,
                                                     struct core_update_scalars *out)
{
    int rc = check_group(group);
    if (rc != 0) {
        return rc;
    }
    const bool is_adam = rule == CORE_UPDATE_ADAM || rule == CORE_UPDATE_ADAMW;
    const double step = (double)group->step;
    double rate = -group->lr;
    double root_scale = 1.0;
    if (is_adam && group->bias_correction) {
        rate /= 1.0 - pow(group->beta1, step);
        root_scale = 1.0 / sqrt(1.0 - pow(group->beta2, step));
    }
    double decay = group->decay;
    if (rule == CORE_UPDATE_ADAMW) {
        decay = -group->lr * group->decay;
    } else if (rule == CORE_UPDATE_LION) {
        decay = 1.0 - group->lr * group->decay;
    }
    const struct core_update_scalars scalars = {
        .gradient_scale = (float)gradient_scale,
        .beta1 = (float)group->beta1,
        .one_minus_beta1 = (float)(1.0 - group->beta1),
        .beta2 = (float)group->beta2,
        .one_minus_beta2 = (float)(1.0 - group->beta2),
        .root_scale = (float)root_scale,
        .eps = (float)group->eps,
        .decay = (float)decay,
        .rate = (float)rate,
        .decays = group->decay > 0.0,
    };
    rc = check_scalars(&scalars);
    if (rc != 0) {
        return rc;
    }
    *out = scalars;
    return 0;
}

int adam_scalars(enum core_update_rule rule, const struct adam_group *group, double gradient_scale,
                 struct core_update_scalars *out)
{
    const uint64_t mode = adam_fp_begin();
    const int rc = compute_scalars(rule, group, gradient_scale, out);
    adam_fp_end(mode);
    return rc;
}
