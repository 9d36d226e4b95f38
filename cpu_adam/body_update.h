/* body_update.h: the fused pass: reads gradient, master and moments; writes master, working weight
 * and moments. The rule is a constant of each function; formats are the same for all of a call, so
 * their branches are predicted and cost nothing compared with memory access. */
#ifndef CPU_ADAM_BODY_UPDATE_H
#define CPU_ADAM_BODY_UPDATE_H

#include <stdbool.h>

#include "cpu_adam/body_convert.h"
#include "cpu_adam/body_philox.h"
#include "cpu_adam/body_q8.h"
#include "cpu_adam/body_squares.h"
#include "cpu_adam/ops.h"

/* The scalars in all lanes. */
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

/* Writes master and working weight. */
V_INLINE void master_store(const struct core_update_args *u, uint64_t i, struct pair p)
{
    if (u->master == CORE_UPDATE_MASTER_SPLIT) {
        vu even = v_bits(v_canonical(p.even));
        vu odd = v_bits(v_canonical(p.odd));
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
    vf direction = v_div_or_zero(e->m, size);
    if (f->decays && decoupled) { /* one rounding of the weight, not two */
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
    move = v_fma(mixed, v_set(0.0f), move); /* a NaN has no sign: the weight becomes NaN */
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

/* Collects gradient x 0, which is NaN from the first gradient that is not finite, and the largest
 * new weight. */
struct met {
    vf gradient;
    vu master;
};

/* The smallest magnitude that the working weight rounds to infinity. */
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

/* Prefetches the elements of `x`, each of `wide` bytes, some hundred elements after the pair at
 * element i; the address may be beyond the array. The processor's own prefetch does not reach far
 * enough for five streams. */
enum { AHEAD_NARROW_BYTES = 768, AHEAD_WIDE_BYTES = 2048, LINE_BYTES = 64 };
V_INLINE void ahead(const void *x, uint64_t i, unsigned wide)
{
    const unsigned far = wide == sizeof(float) ? AHEAD_WIDE_BYTES : AHEAD_NARROW_BYTES;
    for (unsigned at = 0; at < PAIR * wide; at += LINE_BYTES) {
        __builtin_prefetch((const void *)((uintptr_t)x + i * wide + far + at));
    }
}

/* One pair: gradient and master from memory, moments from and to `m` and `v`. */
V_INLINE void update_pair(const struct core_update_args *u, enum core_update_rule rule,
                          const struct factors *f, uint64_t i, struct pair *m, struct pair *v,
                          struct met *met)
{
    const vf zero = v_set(0.0f);
    ahead(u->g, i, u->gradients == CORE_UPDATE_F32 ? 4 : 2);
    if (u->master == CORE_UPDATE_MASTER_SPLIT) {
        ahead(u->w16, i, 2);
        ahead(u->lo16, i, 2);
    } else {
        ahead(u->w32, i, 4);
    }
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

V_INLINE void moment_store(void *x, enum core_update_type type, uint64_t i, struct pair a,
                           vu chance)
{
    if (type == CORE_UPDATE_BF16) {
        pair_store_chance((uint16_t *)x + i, a, chance);
    } else {
        v_store_pair((float *)x + i, a.even, a.odd);
    }
}

/* Sums the squares of gradients that the update is about to read. Not inline: its sums would take the registers of the
 * loop around it. */
__attribute__((noinline)) static void add_squares(const struct core_update_args *u, uint64_t at,
                                                  uint64_t count, double *lanes)
{
    const uint64_t bytes = u->gradients == CORE_UPDATE_F32 ? 4 : 2;
    squares((const unsigned char *)u->g + at * bytes, u->gradients, count, lanes);
}

/* Moments in fp32 or bf16. */
V_INLINE unsigned update_plain(enum core_update_rule rule, enum core_update_type moments,
                               const struct core_update_args *in, double *lanes)
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
        if (moments == CORE_UPDATE_BF16) {
            group_chances(u.seed, u.stream, u.first + group, chance);
        }
        for (int k = 0; k < GROUP_PAIRS; k++) {
            const uint64_t i = group + (uint64_t)(k * PAIR);
            const vu part = moments == CORE_UPDATE_BF16 ? chance[k] : u_set(0);
            ahead(u.m, i, moments == CORE_UPDATE_BF16 ? 2 : 4);
            ahead(u.v, i, moments == CORE_UPDATE_BF16 ? 2 : 4);
            struct pair m = has_m(rule) ? pair_load(u.m, moments, i) : none;
            struct pair v = has_v(rule) ? pair_load(u.v, moments, i) : none;
            update_pair(&u, rule, &f, i, &m, &v, &met);
            if (has_m(rule)) {
                moment_store(u.m, moments, i, m, part);
            }
            if (has_v(rule)) {
                moment_store(u.v, moments, i, v, part);
            }
        }
    }
    return met_flags(&met, u.master);
}

/* Moments in 8 bits: a block is updated whole, then encoded. */
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
    return met_flags(&met, u.master);
}

V_INLINE unsigned update_any(enum core_update_rule rule, const struct core_update_args *u,
                             double *lanes)
{
    switch (u->moments) {
    case CORE_UPDATE_BF16: return update_plain(rule, CORE_UPDATE_BF16, u, lanes);
    case CORE_UPDATE_Q8: return update_q8(rule, u, lanes);
    case CORE_UPDATE_F32:
    case CORE_UPDATE_FP16:
    default: return update_plain(rule, CORE_UPDATE_F32, u, lanes);
    }
}

/* The default formats have a copy of the pass in which they are constants: it has no branches and
 * its values fit into registers. */
V_INLINE unsigned update_formats(enum core_update_rule rule, const struct core_update_args *u,
                                 double *lanes)
{
    if (u->master == CORE_UPDATE_MASTER_SPLIT && u->gradients == CORE_UPDATE_BF16) {
        struct core_update_args usual = *u;
        usual.master = CORE_UPDATE_MASTER_SPLIT;
        usual.gradients = CORE_UPDATE_BF16;
        return update_any(rule, &usual, lanes);
    }
    return update_any(rule, u, lanes);
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
