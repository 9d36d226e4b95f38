/* check.c: what a caller may get wrong, said before anything is written. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>

#include "core/base/err.h"
#include "cpu_adam/description.h"
#include "cpu_adam/fp_mode.h"

enum { ARRAYS_MAX = ADAM_STREAMS };

struct span {
    const char *name;
    const void *base;
    uint64_t bytes;
    size_t element_bytes;
};

bool adam_has_m(enum core_vec_rule rule)
{
    return rule != CORE_VEC_ADAGRAD;
}

bool adam_has_v(enum core_vec_rule rule)
{
    return rule == CORE_VEC_ADAM || rule == CORE_VEC_ADAMW || rule == CORE_VEC_ADAGRAD;
}

static bool at_border(const struct adam *adam, uint64_t index)
{
    return index % CORE_VEC_Q8_BLOCK == 0 || index == adam->options.count;
}

static int check_range(const struct adam *adam, const struct adam_arrays *arrays, uint64_t begin,
                       uint64_t end)
{
    const uint64_t count = adam->options.count;
    if (arrays->first > count || arrays->count > count - arrays->first) {
        return core_err_set(-EINVAL,
                            "a window of %" PRIu64 " parameters from %" PRIu64
                            " leaves the array of %" PRIu64,
                            arrays->count, arrays->first, count);
    }
    if (begin > end || begin < arrays->first || end > arrays->first + arrays->count) {
        return core_err_set(-EINVAL,
                            "the range %" PRIu64 " to %" PRIu64
                            " does not lie in the window of %" PRIu64 " parameters from %" PRIu64,
                            begin, end, arrays->count, arrays->first);
    }
    if (adam->options.moments == CORE_VEC_Q8 && begin < end &&
        (arrays->first % CORE_VEC_Q8_BLOCK != 0 || begin % CORE_VEC_Q8_BLOCK != 0 ||
         !at_border(adam, end))) {
        return core_err_set(-EINVAL,
                            "8-bit moments are cut at multiples of %d: not a window from %" PRIu64
                            " and a range %" PRIu64 " to %" PRIu64,
                            CORE_VEC_Q8_BLOCK, arrays->first, begin, end);
    }
    return 0;
}

static size_t list_spans(const struct adam *adam, const struct adam_arrays *a, bool gradients,
                         struct span spans[ARRAYS_MAX])
{
    static const char *const names[ADAM_STREAMS] = {"w16", "lo16", "w32",     "g",
                                                    "m",   "v",    "m_scale", "v_scale"};
    const void *const bases[ADAM_STREAMS] = {a->w16, a->lo16, a->w32,     a->g,
                                             a->m,   a->v,    a->m_scale, a->v_scale};
    size_t listed = 0;
    for (int i = 0; i < ADAM_STREAMS; i++) {
        const uint64_t bytes = adam_stream_bytes(adam, (enum adam_stream)i, a->count);
        if (bytes > 0 && (gradients || i != ADAM_G)) {
            const bool is_scale = i == ADAM_M_SCALE || i == ADAM_V_SCALE;
            spans[listed++] = (struct span){
                .name = names[i],
                .base = bases[i],
                .bytes = bytes,
                .element_bytes = is_scale ? sizeof(float) : (size_t)(bytes / a->count),
            };
        }
    }
    return listed;
}

static int check_spans(const struct span *spans, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct span *s = &spans[i];
        const uintptr_t base = (uintptr_t)s->base;
        if (base == 0 || base % s->element_bytes != 0) {
            return core_err_set(-EINVAL, "%s lies at %p, which is not a multiple of %zu bytes",
                                s->name, s->base, s->element_bytes);
        }
        if (base > UINTPTR_MAX - s->bytes) {
            return core_err_set(-EINVAL, "%s of %" PRIu64 " bytes at %p leaves the address space",
                                s->name, s->bytes, s->base);
        }
        for (size_t j = 0; j < i; j++) {
            const uintptr_t other = (uintptr_t)spans[j].base;
            if (base < other + spans[j].bytes && other < base + s->bytes) {
                return core_err_set(
                    -EINVAL, "%s (%p, %" PRIu64 " bytes) and %s (%p, %" PRIu64 " bytes) overlap",
                    spans[j].name, spans[j].base, spans[j].bytes, s->name, s->base, s->bytes);
            }
        }
    }
    return 0;
}

int adam_check_arrays(const struct adam *adam, const struct adam_arrays *arrays, uint64_t begin,
                      uint64_t end, bool gradients)
{
    int rc = check_range(adam, arrays, begin, end);
    if (rc != 0 || begin == end) {
        return rc;
    }
    struct span spans[ARRAYS_MAX];
    return check_spans(spans, list_spans(adam, arrays, gradients, spans));
}

static int check_number(const char *name, double value, double limit)
{
    if (!(value >= 0.0) || !(value < limit)) {
        return core_err_set(-EINVAL, "%s is %g; it is at least 0 and %s %g", name, value,
                            isinf(limit) ? "below" : "less than", limit);
    }
    return 0;
}

static int check_group(const struct adam_group *group)
{
    int rc = check_number("lr", group->lr, HUGE_VAL);
    rc = rc != 0 ? rc : check_number("beta1", group->beta1, 1.0);
    rc = rc != 0 ? rc : check_number("beta2", group->beta2, 1.0);
    rc = rc != 0 ? rc : check_number("eps", group->eps, HUGE_VAL);
    rc = rc != 0 ? rc : check_number("weight decay", group->decay, HUGE_VAL);
    if (rc == 0 && group->step == 0) {
        rc = core_err_set(-EINVAL, "step is 0; steps are counted from 1");
    }
    return rc;
}

static int check_scalars(const struct core_vec_scalars *s)
{
    if (!isfinite(s->gradient_scale) || !isfinite(s->root_scale) || !isfinite(s->eps) ||
        !isfinite(s->decay) || !isfinite(s->rate) || s->beta1 >= 1.0f || s->beta2 >= 1.0f) {
        return core_err_set(-EINVAL,
                            "scalars beyond fp32: gradient scale %g, betas %.9g and %.9g, eps %g, "
                            "decay %g, rate %g",
                            (double)s->gradient_scale, (double)s->beta1, (double)s->beta2,
                            (double)s->eps, (double)s->decay, (double)s->rate);
    }
    return 0;
}

/* The arithmetic of adam_scalars(), its checks too: where the application traps invalid operations a
 * comparison with NaN is one. Not inlined, so that all of it stands within the mode. */
__attribute__((noinline)) static int compute_scalars(enum core_vec_rule rule,
                                                     const struct adam_group *group,
                                                     double gradient_scale,
                                                     struct core_vec_scalars *out)
{
    int rc = check_group(group);
    if (rc != 0) {
        return rc;
    }
    const bool is_adam = rule == CORE_VEC_ADAM || rule == CORE_VEC_ADAMW;
    const double step = (double)group->step;
    double rate = -group->lr;
    double root_scale = 1.0;
    if (is_adam && group->bias_correction) {
        rate /= 1.0 - pow(group->beta1, step);
        root_scale = 1.0 / sqrt(1.0 - pow(group->beta2, step));
    }
    double decay = group->decay;
    if (rule == CORE_VEC_ADAMW) {
        decay = -group->lr * group->decay;
    } else if (rule == CORE_VEC_LION) {
        decay = 1.0 - group->lr * group->decay;
    }
    const struct core_vec_scalars scalars = {
        .gradient_scale = (float)gradient_scale,
        .beta1 = (float)group->beta1,
        .beta1_rest = (float)(1.0 - group->beta1),
        .beta2 = (float)group->beta2,
        .beta2_rest = (float)(1.0 - group->beta2),
        .root_scale = (float)root_scale,
        .eps = (float)group->eps,
        .decay = (float)decay,
        .rate = (float)rate,
        .decays = group->decay > 0.0,
    };
    rc = check_scalars(&scalars);
    if (rc == 0) {
        *out = scalars;
    }
    return rc;
}

int adam_scalars(enum core_vec_rule rule, const struct adam_group *group, double gradient_scale,
                 struct core_vec_scalars *out)
{
    const uint64_t mode = adam_fp_begin();
    const int rc = compute_scalars(rule, group, gradient_scale, out);
    adam_fp_end(mode);
    return rc;
}
