/* act.c: activations with and without a gate, forward and backward. */
#include "kernels/cpu/isa/bodies.h"

/* act(x) and its derivative. */
struct act {
    vf value;
    vf slope;
};

VF_INLINE vf sigmoid(vf x)
{
    return vf_set(1.0f) / (vf_set(1.0f) + vf_exp(-x));
}

/* Returns tanh: from exp for large |x|, from a series near 0 to avoid cancellation. */
VF_INLINE vf tanh_of(vf x)
{
    const vf e = vf_exp(vf_min(x + x, vf_set(40.0f)));
    const vf far = (e - vf_set(1.0f)) / (e + vf_set(1.0f));
    const vf s = x * x;
    vf near = vf_set(62.0f / 2835.0f);
    near = vf_fma(near, s, vf_set(-17.0f / 315.0f));
    near = vf_fma(near, s, vf_set(2.0f / 15.0f));
    near = vf_fma(near, s, vf_set(-1.0f / 3.0f));
    near = vf_fma(near, s * x, x);
    const vi small = s < vf_set(0.02f);
    return vf_pick(small, near, far);
}

/* Returns erf within about 1e-7: from a series near 0; elsewhere 1 - t exp(-x^2 + p(t)) with the
 * sign of x, where t = 2 / (2 + |x|). */
VF_INLINE vf erf_of(vf x)
{
    const vf s = x * x;
    vf near = vf_set(-1.0f / 1320.0f);
    near = vf_fma(near, s, vf_set(1.0f / 216.0f));
    near = vf_fma(near, s, vf_set(-1.0f / 42.0f));
    near = vf_fma(near, s, vf_set(1.0f / 10.0f));
    near = vf_fma(near, s, vf_set(-1.0f / 3.0f));
    near = vf_fma(near, s, vf_set(1.0f));
    near = near * x * vf_set(1.1283791671f);
    const vf size = vf_max(x, -x);
    const vf t = vf_set(2.0f) / (vf_set(2.0f) + size);
    vf p = vf_set(0.17087277f);
    p = vf_fma(p, t, vf_set(-0.82215223f));
    p = vf_fma(p, t, vf_set(1.48851587f));
    p = vf_fma(p, t, vf_set(-1.13520398f));
    p = vf_fma(p, t, vf_set(0.27886807f));
    p = vf_fma(p, t, vf_set(-0.18628806f));
    p = vf_fma(p, t, vf_set(0.09678418f));
    p = vf_fma(p, t, vf_set(0.37409196f));
    p = vf_fma(p, t, vf_set(1.00002368f));
    p = vf_fma(p, t, vf_set(-1.26551223f));
    const vf tail = t * vf_exp(p - s);
    const vf far = vf_set(1.0f) - tail;
    const vf signed_far = vf_pick(x < vf_zero(), -far, far);
    const vi small = size < vf_set(0.5f);
    return vf_pick(small, near, signed_far);
}

VF_INLINE struct act silu(vf x)
{
    const vf s = sigmoid(x);
    return (struct act){x * s, vf_fma(x * s, vf_set(1.0f) - s, s)};
}

VF_INLINE struct act gelu_tanh(vf x)
{
    const vf a = vf_set(0.7978845608f);
    const vf b = vf_set(0.044715f);
    const vf half = vf_set(0.5f);
    const vf one = vf_set(1.0f);
    const vf square = x * x;
    const vf t = tanh_of(a * x * vf_fma(b, square, one));
    const vf inner = a * vf_fma(vf_set(3.0f) * b, square, one);
    const vf slope = vf_fma(half * x * (one - t * t), inner, half * (one + t));
    return (struct act){half * x * (one + t), slope};
}

VF_INLINE struct act gelu(vf x)
{
    const vf half = vf_set(0.5f);
    const vf part = half * (vf_set(1.0f) + erf_of(x * vf_set(0.7071067812f)));
    const vf density = vf_exp(-half * x * x) * vf_set(0.3989422804f);
    return (struct act){x * part, vf_fma(x, density, part)};
}

VF_INLINE struct act relu(vf x)
{
    const vi above = x > vf_zero();
    return (struct act){vf_pick(above, x, vf_zero()), vf_pick(above, vf_set(1.0f), vf_zero())};
}

VF_INLINE struct act act_of(enum kern_act_kind kind, vf x)
{
    switch (kind) {
    case KERN_ACT_SILU: return silu(x);
    case KERN_ACT_GELU_TANH: return gelu_tanh(x);
    case KERN_ACT_GELU: return gelu(x);
    case KERN_ACT_RELU: break;
    }
    return relu(x);
}

VF_INLINE void act_rows(const struct kern_act_arguments *a, enum kern_type type,
                        enum kern_act_kind kind, const int64_t range[2])
{
    for (int64_t t = range[0]; t < range[1]; t++) {
        for (int64_t i = 0; i < a->width; i += LANES) {
            const int64_t wide = a->width - i;
            vf y = act_of(kind, vf_get_part(type, a->gate, t * a->gate_stride + i, wide)).value;
            if (a->up != NULL) {
                y = y * vf_get_part(type, a->up, t * a->up_stride + i, wide);
            }
            vf_put_part(type, a->y, t * a->y_stride + i, y, wide);
        }
    }
}

VF_INLINE void act_grad_rows(const struct kern_act_grad_arguments *a, enum kern_type type,
                             enum kern_act_kind kind, const int64_t range[2])
{
    for (int64_t t = range[0]; t < range[1]; t++) {
        for (int64_t i = 0; i < a->width; i += LANES) {
            const int64_t wide = a->width - i;
            const vf gate = vf_get_part(type, a->gate, t * a->gate_stride + i, wide);
            const vf dy = vf_get_part(type, a->dy, t * a->dy_stride + i, wide);
            const struct act act = act_of(kind, gate);
            vf y = act.value;
            vf dgate = dy * act.slope;
            if (a->up != NULL) {
                const vf up = vf_get_part(type, a->up, t * a->up_stride + i, wide);
                dgate = dgate * up;
                vf_put_part(type, a->dup, t * a->dup_stride + i, dy * act.value, wide);
                y = y * up;
            }
            vf_put_part(type, a->dgate, t * a->dgate_stride + i, dgate, wide);
            if (a->y != NULL) {
                vf_put_part(type, a->y, t * a->y_stride + i, y, wide);
            }
        }
    }
}

#define KIND_CASES(kind, type, body)                                                               \
    do {                                                                                           \
        if ((kind) == KERN_ACT_SILU) {                                                             \
            body(type, KERN_ACT_SILU);                                                             \
        } else if ((kind) == KERN_ACT_GELU_TANH) {                                                 \
            body(type, KERN_ACT_GELU_TANH);                                                        \
        } else if ((kind) == KERN_ACT_GELU) {                                                      \
            body(type, KERN_ACT_GELU);                                                             \
        } else {                                                                                   \
            body(type, KERN_ACT_RELU);                                                             \
        }                                                                                          \
    } while (0)

void kern_act_tokens(const struct kern_act_arguments *a, int64_t begin, int64_t end)
{
    const int64_t range[2] = {begin, end};
#define ROWS_OF(t, kind) act_rows(a, t, kind, range)
#define BODY(t)          KIND_CASES(a->kind, t, ROWS_OF)
    KERN_TYPE_CASES(a->type, BODY);
#undef BODY
#undef ROWS_OF
}

void kern_act_grad_tokens(const struct kern_act_grad_arguments *a, int64_t begin, int64_t end)
{
    const int64_t range[2] = {begin, end};
#define ROWS_OF(t, kind) act_grad_rows(a, t, kind, range)
#define BODY(t)          KIND_CASES(a->kind, t, ROWS_OF)
    KERN_TYPE_CASES(a->type, BODY);
#undef BODY
#undef ROWS_OF
}
