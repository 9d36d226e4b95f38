/* body_update.h: the fused pass: reads gradient, master and moments; writes master, working weight
 * and moments.
 * The rule is a constant of each function. */
#ifndef CPU_ADAM_BODY_UPDATE_H
#define CPU_ADAM_BODY_UPDATE_H

#include <float.h>
#include <stdbool.h>

#include "cpu_adam/body_convert.h"
#include "cpu_adam/body_philox.h"
#include "cpu_adam/body_q8.h"
#include "cpu_adam/body_squares.h"
#include "cpu_adam/ops.h"

struct factors {
    vf gradient_scale;
    vf beta1;
    vf one_minus_beta1;
    vf beta2;
    vf one_minus_beta2;
    vf root_scale;
    vf eps;
    vf decay;
    vf rate;
    bool decays;
    bool divides; /* Adam's divisor is surely not 0 */
};

struct element {
    vf p;
    vf m;
    vf v;
};

V_INLINE struct factors factors_of(const struct core_update_scalars *s)
{
    return (struct factors){
        .gradient_scale = v_set(s->gradient_scale),
        .beta1 = v_set(s->beta1),
        .one_minus_beta1 = v_set(s->one_minus_beta1),
        .beta2 = v_set(s->beta2),
        .one_minus_beta2 = v_set(s->one_minus_beta2),
        .root_scale = v_set(s->root_scale),
        .eps = v_set(s->eps),
        .decay = v_set(s->decay),
        .rate = v_set(s->rate),
        .decays = s->decays != 0,
        .divides = s->eps >= FLT_MIN, /* a smaller eps takes v_div_or_zero */
    };
}

V_INLINE struct pair master_load(const struct core_update_args *u, uint64_t i)
{
    if (u->master != CORE_UPDATE_MASTER_SPLIT) {
        return pair_load(u->w32, CORE_UPDATE_F32, i);
    }
    vu high = u_load(u->w16 + i);
    vu low = u_load(u->lo16 + i);
    vu even = u_add(u_shl(high, 16), u_sar(u_shl(low, 16), 16));
    vu odd = u_add(u_and(high, u_set(0xffff0000u)), u_sar(low, 16));
    return (struct pair){v_float(even), v_float(odd)};
}

/* Writes master and working weight. NaNs of a split master keep their bits until finish(). */
V_INLINE void master_store(const struct core_update_args *u, uint64_t i, struct pair p)
{
    if (u->master == CORE_UPDATE_MASTER_SPLIT) {
        vu even = v_bits(p.even);
        vu odd = v_bits(p.odd);
        vu half = u_set(0x8000);
        u_store(u->w16 + i, halves_of(u_add(even, half), u_add(odd, half)));
        u_store(u->lo16 + i, u_pick(u_set(0xffff), even, u_shl(odd, 16)));
        return;
    }
    v_store_pair(u->w32 + i, p.even, p.odd);
    if (u->master == CORE_UPDATE_MASTER_BF16) {
        u_store(u->w16 + i, halves_of(bf16_of(p.even), bf16_of(p.odd)));
    } else if (u->master == CORE_UPDATE_MASTER_FP16) {
        v_store_pair_fp16(u->w16 + i, p.even, p.odd);
    }
}

V_INLINE void adam_rule(struct element *e, vf g, const struct factors *f, bool decoupled)
{
    if (f->decays && !decoupled) {
        g = v_fma(e->p, f->decay, g);
    }
    e->m = v_fma(g, f->one_minus_beta1, v_mul(e->m, f->beta1));
    e->v = v_fma(v_mul(g, g), f->one_minus_beta2, v_mul(e->v, f->beta2));
    vf size = v_fma(v_sqrt(e->v), f->root_scale, f->eps);
    vf direction = f->divides ? v_div(e->m, size) : v_div_or_zero(e->m, size);
    if (f->decays && decoupled) { /* rounds the weight once */
        e->p = v_add(e->p, v_fma(direction, f->rate, v_mul(e->p, f->decay)));
    } else {
        e->p = v_fma(direction, f->rate, e->p);
    }
}

V_INLINE void lion_rule(struct element *e, vf g, const struct factors *f)
{
    vf mixed = v_fma(g, f->one_minus_beta1, v_mul(e->m, f->beta1));
    vu sign = u_and(v_bits(mixed), u_set(0x80000000u));
    vf move = v_float(u_xor(sign, v_bits(f->rate)));
    move = v_fma(mixed, v_set(0.0f), move); /* NaN if `mixed` is not finite: a NaN's sign depends on
                                             * the processor */
    e->p = v_fma(e->p, f->decay, move);
    e->m = v_fma(g, f->one_minus_beta2, v_mul(e->m, f->beta2));
}

V_INLINE void adagrad_rule(struct element *e, vf g, const struct factors *f)
{
    if (f->decays) {
        g = v_fma(e->p, f->decay, g);
    }
    e->v = v_fma(g, g, e->v);
    vf direction = v_div_or_zero(g, v_add(v_sqrt(e->v), f->eps));
    e->p = v_fma(direction, f->rate, e->p);
}

V_INLINE void sgd_rule(struct element *e, vf g, const struct factors *f)
{
    if (f->decays) {
        g = v_fma(e->p, f->decay, g);
    }
    e->m = v_fma(e->m, f->beta1, g);
    e->p = v_fma(e->m, f->rate, e->p);
}

V_INLINE void apply(enum core_update_rule rule, struct element *e, vf g, const struct factors *f)
{
    switch (rule) {
    case CORE_UPDATE_ADAM: adam_rule(e, g, f, false); break;
    case CORE_UPDATE_LION: lion_rule(e, g, f); break;
    case CORE_UPDATE_ADAGRAD: adagrad_rule(e, g, f); break;
    case CORE_UPDATE_SGD: sgd_rule(e, g, f); break;
    case CORE_UPDATE_ADAMW:
    case CORE_UPDATE_RULES:
    default: adam_rule(e, g, f, true); break;
    }
}

/* `gradient` sums gradient x 0, which is NaN after a gradient that is not finite. `master`: bits of
 * the largest new weight's magnitude. */
struct met {
    vf gradient;
    vu master;
};

/* Returns the bits of the smallest magnitude that rounds to infinity. */
V_INLINE uint32_t working_limit(enum core_update_master master)
{
    switch (master) {
    case CORE_UPDATE_MASTER_FP16: return 0x477ff000u;
    case CORE_UPDATE_MASTER_F32: return 0x7f800000u;
    case CORE_UPDATE_MASTER_SPLIT:
    case CORE_UPDATE_MASTER_BF16:
    default: return 0x7f7f8000u;
    }
}

V_INLINE unsigned met_flags(const struct met *met, enum core_update_master master)
{
    const uint32_t gradient = u_largest(u_and(v_bits(met->gradient), u_set(0x7fffffffu)));
    const uint32_t most = u_largest(met->master);
    return (gradient > 0x7f800000u ? CORE_NONFINITE_GRADIENT : 0u) |
           (most >= 0x7f800000u ? CORE_NONFINITE_MASTER : 0u) |
           (most >= working_limit(master) ? CORE_NONFINITE_WORKING : 0u);
}

/* Gives NaNs of a split master processor-independent bits. */
__attribute__((noinline)) static void canonical_split(const struct core_update_args *u)
{
    for (uint64_t i = 0; i < u->count; i += PAIR) {
        const struct pair p = master_load(u, i);
        master_store(u, i, (struct pair){v_canonical(p.even), v_canonical(p.odd)});
    }
}

/* Ends a pass: makes the NaNs of a split master canonical and returns the flags. */
V_INLINE unsigned finish(const struct core_update_args *u, const struct met *met)
{
    const unsigned flags = met_flags(met, u->master);
    if (u->master == CORE_UPDATE_MASTER_SPLIT && (flags & CORE_NONFINITE_MASTER) != 0) {
        canonical_split(u);
    }
    return flags;
}

enum { AHEAD_NARROW_BYTES = 768, AHEAD_WIDE_BYTES = 2048, LINE_BYTES = 64 };

/* Prefetches elements several hundred after i, `wide` bytes each, perhaps beyond the array. The
 * processor's own prefetch is too short for five streams. */
V_INLINE void ahead(const void *x, uint64_t i, unsigned wide)
{
    const unsigned far = wide == sizeof(float) ? AHEAD_WIDE_BYTES : AHEAD_NARROW_BYTES;
    for (unsigned at = 0; at < PAIR * wide; at += LINE_BYTES) {
        __builtin_prefetch((const void *)((uintptr_t)x + i * wide + far + at));
    }
}

V_INLINE void ahead_of_inputs(const struct core_update_args *u, uint64_t i)
{
    ahead(u->g, i, u->gradients == CORE_UPDATE_F32 ? 4 : 2);
    if (u->master == CORE_UPDATE_MASTER_SPLIT) {
        ahead(u->w16, i, 2);
        ahead(u->lo16, i, 2);
    } else {
        ahead(u->w32, i, 4);
    }
}

/* Updates one pair: reads gradient and master from memory, replaces moments in *m and *v. */
V_INLINE void update_pair(const struct core_update_args *u, enum core_update_rule rule,
                          const struct factors *f, uint64_t i, struct pair *m, struct pair *v,
                          struct met *met)
{
    const vf zero = v_set(0.0f);
    ahead_of_inputs(u, i);
    struct pair g = pair_load(u->g, u->gradients, i);
    struct pair p = master_load(u, i);
    g.even = v_mul(g.even, f->gradient_scale);
    g.odd = v_mul(g.odd, f->gradient_scale);
    struct element even = {p.even, m->even, v->even};
    struct element odd = {p.odd, m->odd, v->odd};
    apply(rule, &even, g.even, f);
    apply(rule, &odd, g.odd, f);
    master_store(u, i, (struct pair){even.p, odd.p});
    *m = (struct pair){even.m, odd.m};
    *v = (struct pair){even.v, odd.v};
    met->gradient = v_fma(g.odd, zero, v_fma(g.even, zero, met->gradient));
    met->master = q8_larger(met->master, (struct pair){even.p, odd.p});
}

V_INLINE bool has_m(enum core_update_rule rule)
{
    return rule != CORE_UPDATE_ADAGRAD;
}

V_INLINE bool has_v(enum core_update_rule rule)
{
    return rule != CORE_UPDATE_LION && rule != CORE_UPDATE_SGD;
}

/* Not inline: the sums would take the registers of the loop around it. */
__attribute__((noinline)) static void add_squares(const struct core_update_args *u, uint64_t at,
                                                  uint64_t count, double *lanes)
{
    const uint64_t bytes = u->gradients == CORE_UPDATE_F32 ? 4 : 2;
    squares((const unsigned char *)u->g + at * bytes, u->gradients, count, lanes);
}

V_INLINE vf weights_load(const struct core_update_args *u, uint64_t i)
{
    if (u->master != CORE_UPDATE_MASTER_SPLIT) {
        return v_load(u->w32 + i);
    }
    return v_float(u_add(u_shl(u_load16(u->w16 + i), 16), u_load_signed16(u->lo16 + i)));
}

/* Like master_store(), for two vectors of consecutive elements. */
V_INLINE void weights_store(const struct core_update_args *u, uint64_t i, vf first, vf second)
{
    if (u->master == CORE_UPDATE_MASTER_SPLIT) {
        const vu half = u_set(0x8000);
        u_store16_two(u->lo16 + i, v_bits(first), v_bits(second));
        u_store16_upper_two(u->w16 + i, u_add(v_bits(first), half), u_add(v_bits(second), half));
        return;
    }
    v_store(u->w32 + i, first);
    v_store(u->w32 + i + V_LANES, second);
    if (u->master == CORE_UPDATE_MASTER_BF16) {
        u_store16_upper_two(u->w16 + i, bf16_of(first), bf16_of(second));
    } else if (u->master == CORE_UPDATE_MASTER_FP16) {
        v_store_fp16(u->w16 + i, first);
        v_store_fp16(u->w16 + i + V_LANES, second);
    }
}

/* Updates V_LANES consecutive elements with fp32 moments. Returns the new master; `raw` is the
 * unscaled gradient. */
V_INLINE vf update_vector(const struct core_update_args *u, enum core_update_rule rule,
                          const struct factors *f, uint64_t i, vf raw, struct met *met)
{
    float *const m = (float *)u->m + i;
    float *const v = (float *)u->v + i;
    const vf zero = v_set(0.0f);
    const vf g = v_mul(raw, f->gradient_scale);
    struct element e = {.p = weights_load(u, i),
                        .m = has_m(rule) ? v_load(m) : zero,
                        .v = has_v(rule) ? v_load(v) : zero};
    apply(rule, &e, g, f);
    if (has_m(rule)) {
        v_store(m, e.m);
    }
    if (has_v(rule)) {
        v_store(v, e.v);
    }
    met->gradient = v_fma(g, zero, met->gradient);
    met->master = u_max(met->master, u_and(v_bits(e.p), u_set(0x7fffffffu)));
    return e.p;
}

/* Updates with fp32 moments, the default. They need no random numbers, so elements stay in order,
 * which saves instructions. `usual`: weights decay and the divisor is never 0. */
V_INLINE unsigned update_wide(enum core_update_rule rule, bool usual,
                              const struct core_update_args *in, double *lanes)
{
    enum { EACH = V_LANES / V_DOUBLES, SUMS = ADAM_NORM_LANES / V_DOUBLES };
    const double none[ADAM_NORM_LANES] = {0};
    const struct core_update_args u = *in;
    struct factors f = factors_of(&u.scalars);
    f.decays |= usual;
    f.divides |= usual;
    struct met met = {v_set(0.0f), u_set(0)};
    vd sum[SUMS];
    for (int k = 0; k < SUMS; k++) {
        sum[k] = d_load((lanes != NULL ? lanes : none) + k * V_DOUBLES);
    }
    for (uint64_t group = 0; group < u.count; group += CORE_UPDATE_GROUP) {
        for (int k = 0; k < GROUP_PAIRS; k++) {
            const uint64_t i = group + (uint64_t)(k * PAIR);
            vf p[2];
            ahead(u.m, i, 4);
            ahead(u.v, i, 4);
            ahead_of_inputs(&u, i);
            for (int half = 0; half < 2; half++) {
                const uint64_t at = i + (uint64_t)(half * V_LANES);
                const vf raw = load_any(u.g, u.gradients, at);
                if (lanes != NULL) {
                    d_add_squares(sum + (2 * k + half) * EACH % SUMS, raw);
                }
                p[half] = update_vector(&u, rule, &f, at, raw, &met);
            }
            weights_store(&u, i, p[0], p[1]);
        }
    }
    for (int k = 0; lanes != NULL && k < SUMS; k++) {
        d_store(lanes + k * V_DOUBLES, sum[k]);
    }
    return finish(in, &met);
}

V_INLINE unsigned update_bf16(enum core_update_rule rule, const struct core_update_args *in,
                              double *lanes)
{
    const struct core_update_args u = *in;
    const struct factors f = factors_of(&u.scalars);
    const struct pair none = {v_set(0.0f), v_set(0.0f)};
    struct met met = {v_set(0.0f), u_set(0)};
    for (uint64_t group = 0; group < u.count; group += CORE_UPDATE_GROUP) {
        vu chance[GROUP_PAIRS];
        if (lanes != NULL) {
            add_squares(&u, group, CORE_UPDATE_GROUP, lanes);
        }
        group_chances(u.seed, u.stream, u.first + group, chance);
        for (int k = 0; k < GROUP_PAIRS; k++) {
            const uint64_t i = group + (uint64_t)(k * PAIR);
            ahead(u.m, i, 2);
            ahead(u.v, i, 2);
            struct pair m = has_m(rule) ? pair_load(u.m, CORE_UPDATE_BF16, i) : none;
            struct pair v = has_v(rule) ? pair_load(u.v, CORE_UPDATE_BF16, i) : none;
            update_pair(&u, rule, &f, i, &m, &v, &met);
            if (has_m(rule)) {
                pair_store_chance((uint16_t *)u.m + i, m, chance[k]);
            }
            if (has_v(rule)) {
                pair_store_chance((uint16_t *)u.v + i, v, chance[k]);
            }
        }
    }
    return finish(in, &met);
}

V_INLINE unsigned update_q8(enum core_update_rule rule, const struct core_update_args *in,
                            double *lanes)
{
    const struct core_update_args u = *in;
    const struct factors f = factors_of(&u.scalars);
    uint8_t *const m_code = u.m;
    uint8_t *const v_code = u.v;
    const struct q8_out out = {m_code, v_code, u.m_scale, u.v_scale};
    const struct pair none = {v_set(0.0f), v_set(0.0f)};
    struct met met = {v_set(0.0f), u_set(0)};
    for (uint64_t at = 0; at < u.count; at += CORE_UPDATE_Q8_BLOCK) {
        const uint64_t b = at / CORE_UPDATE_Q8_BLOCK;
        const struct q8_unit m_unit = q8_unit_of(has_m(rule) ? u.m_scale[b] : 0, Q8_M_TOP, Q8_M_C);
        const struct q8_unit v_unit = q8_unit_of(has_v(rule) ? u.v_scale[b] : 0, Q8_V_TOP, Q8_V_C);
        struct q8_moment m = q8_moment_none();
        struct q8_moment v = q8_moment_none();
        vu chance[GROUP_PAIRS];
        if (lanes != NULL) {
            add_squares(&u, at, CORE_UPDATE_Q8_BLOCK, lanes);
        }
        for (int k = 0; k < GROUP_PAIRS; k++) {
            const uint64_t i = at + (uint64_t)(k * PAIR);
            if ((k & 1) == 0) {
                ahead(m_code, i, 1);
                ahead(v_code, i, 1);
            }
            struct pair new_m = has_m(rule) ? q8_load_m(m_code + i, m_unit) : none;
            struct pair new_v = has_v(rule) ? q8_load_v(v_code + i, v_unit) : none;
            update_pair(&u, rule, &f, i, &new_m, &new_v, &met);
            q8_keep(&m, k, new_m);
            q8_keep_size(&v, k, new_v);
        }
        group_chances(u.seed, u.stream, u.first + at, chance);
        q8_encode_block(has_m(rule) ? &m : NULL, has_v(rule) ? &v : NULL, chance, &out, at);
    }
    return finish(in, &met);
}

V_INLINE unsigned update_any(enum core_update_rule rule, bool usual,
                             const struct core_update_args *u, double *lanes)
{
    switch (u->moments) {
    case CORE_UPDATE_BF16: return update_bf16(rule, u, lanes);
    case CORE_UPDATE_Q8: return update_q8(rule, u, lanes);
    case CORE_UPDATE_F32:
    case CORE_UPDATE_FP16:
    default: return update_wide(rule, usual, u, lanes);
    }
}

/* For the default formats, compilers make copies of the pass in which the formats are constants.
 * Two copies also assume that weights decay and that eps is at least FLT_MIN. This keeps the loop's
 * values in registers. */
V_INLINE unsigned update_formats(enum core_update_rule rule, const struct core_update_args *u,
                                 double *lanes)
{
    if (u->master == CORE_UPDATE_MASTER_SPLIT && u->gradients == CORE_UPDATE_BF16) {
        struct core_update_args usual = *u;
        usual.master = CORE_UPDATE_MASTER_SPLIT;
        usual.gradients = CORE_UPDATE_BF16;
        if (u->scalars.decays == 0 || u->scalars.eps < FLT_MIN) {
            return update_any(rule, false, &usual, lanes);
        }
        return lanes != NULL ? update_any(rule, true, &usual, lanes)
                             : update_any(rule, true, &usual, NULL);
    }
    return update_any(rule, false, u, lanes);
}

__attribute__((unused)) static unsigned update_adam(const struct core_update_args *u, double *lanes)
{
    return update_formats(CORE_UPDATE_ADAM, u, lanes);
}

__attribute__((unused)) static unsigned update_adamw(const struct core_update_args *u,
                                                     double *lanes)
{
    return update_formats(CORE_UPDATE_ADAMW, u, lanes);
}

__attribute__((unused)) static unsigned update_lion(const struct core_update_args *u, double *lanes)
{
    return update_formats(CORE_UPDATE_LION, u, lanes);
}

__attribute__((unused)) static unsigned update_adagrad(const struct core_update_args *u,
                                                       double *lanes)
{
    return update_formats(CORE_UPDATE_ADAGRAD, u, lanes);
}

__attribute__((unused)) static unsigned update_sgd(const struct core_update_args *u, double *lanes)
{
    return update_formats(CORE_UPDATE_SGD, u, lanes);
}

#endif
