/* ref.c: see ref.h. */
#include "tests/adam/ref.h"

#include <math.h>
#include <string.h>

#include "core/base/half.h"
#include "core/base/rng.h"

float ref_load(const void *x, enum core_update_type type, uint64_t i)
{
    switch (type) {
    case CORE_UPDATE_BF16: return core_bf16_to_f32(((const uint16_t *)x)[i]);
    case CORE_UPDATE_FP16: return core_fp16_to_f32(((const uint16_t *)x)[i]);
    case CORE_UPDATE_F32:
    case CORE_UPDATE_Q8:
    default: return ((const float *)x)[i];
    }
}

void ref_store(void *x, enum core_update_type type, uint64_t i, float value)
{
    switch (type) {
    case CORE_UPDATE_BF16: ((uint16_t *)x)[i] = core_f32_to_bf16(value); break;
    case CORE_UPDATE_FP16: ((uint16_t *)x)[i] = core_f32_to_fp16(value); break;
    case CORE_UPDATE_F32:
    case CORE_UPDATE_Q8:
    default: ((float *)x)[i] = value; break;
    }
}

static const struct adam_group group = {.lr = 1e-3,
                                        .beta1 = 0.9,
                                        .beta2 = 0.99,
                                        .eps = 1e-8,
                                        .decay = 0.1,
                                        .step = 3,
                                        .bias_correction = true};

struct adam_options ref_options(enum core_update_rule rule, int n)
{
    static const enum core_update_type moments[] = {CORE_UPDATE_F32, CORE_UPDATE_BF16,
                                                    CORE_UPDATE_Q8};
    return (struct adam_options){
        .rule = rule,
        .master = (enum core_update_master)(n % 4),
        .gradients = (enum core_update_type)(n / 4 % 3),
        .moments = moments[n / 12],
        .groups = &group,
        .groups_count = 1,
        .seed = UINT64_C(0x1234567890abcdef),
        .number = 5,
    };
}

/* Returns the 16 random bits of an element. */
static uint32_t chance(uint64_t seed, uint64_t stream, uint64_t index)
{
    const uint64_t place = index % 256 / 2;
    const uint64_t counter = index / 256 * 16 + place % 16;
    const uint32_t drawn = core_rng_philox(seed, stream, counter).word[place % 64 / 16];
    const uint32_t word = place < 64 ? drawn : drawn << 8 | drawn >> 24;
    return index % 2 == 0 ? word & 0xffff : word >> 16;
}

static uint16_t bf16_by_chance(float x, uint32_t bits16)
{
    if (isnan(x)) {
        return core_f32_to_bf16(x);
    }
    return (uint16_t)((core_f32_bits(x) + bits16) >> 16);
}

/* The constant c, and the smallest and largest code of an 8-bit moment. */
struct kind {
    float c;
    uint32_t least;
    uint32_t most;
};
static const struct kind kind_m = {0x1p-15f, 0, 127};
static const struct kind kind_v = {0x1p-31f, 1, 255};

static float q8_value(struct kind kind, uint32_t code, float scale)
{
    const float y = core_f32_from_bits(core_f32_bits(kind.c) + (code << 20));
    const float unit = scale / (1.875f - kind.c);
    return fmaf(y, unit, -(kind.c * unit));
}

static uint32_t q8_code(struct kind kind, float size, float scale, uint32_t bits16)
{
    const float y = fmaf(size, (1.875f - kind.c) / scale, kind.c);
    const uint32_t code = (core_f32_bits(y) + (bits16 << 4) - core_f32_bits(kind.c)) >> 20;
    return code < kind.least ? kind.least : code & kind.most;
}

static float q8_scale(const float *x, uint64_t count)
{
    uint32_t most = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint32_t size = core_f32_bits(x[i]) & 0x7fffffffu;
        most = size > most ? size : most;
    }
    const float largest = core_f32_from_bits(most);
    return largest < 0x1p-80f ? 0x1p-80f : largest;
}

struct state {
    float p;
    float m;
    float v;
};

static float over(float a, float b)
{
    return b == 0.0f ? 0.0f : a / b;
}

static void rule_step(enum core_update_rule rule, const struct core_update_scalars *s, float g,
                      struct state *e)
{
    if (s->decays &&
        (rule == CORE_UPDATE_ADAM || rule == CORE_UPDATE_ADAGRAD || rule == CORE_UPDATE_SGD)) {
        g = fmaf(e->p, s->decay, g);
    }
    if (rule == CORE_UPDATE_ADAM || rule == CORE_UPDATE_ADAMW) {
        e->m = fmaf(g, s->one_minus_beta1, e->m * s->beta1);
        e->v = fmaf(g * g, s->one_minus_beta2, e->v * s->beta2);
        const float u = over(e->m, fmaf(sqrtf(e->v), s->root_scale, s->eps));
        if (s->decays && rule == CORE_UPDATE_ADAMW) {
            e->p = e->p + fmaf(u, s->rate, e->p * s->decay);
        } else {
            e->p = fmaf(u, s->rate, e->p);
        }
    } else if (rule == CORE_UPDATE_LION) {
        const float mixed = fmaf(g, s->one_minus_beta1, e->m * s->beta1);
        const float move = signbit(mixed) ? -s->rate : s->rate;
        e->p = fmaf(e->p, s->decay, isfinite(mixed) ? move : NAN);
        e->m = fmaf(g, s->one_minus_beta2, e->m * s->beta2);
    } else if (rule == CORE_UPDATE_ADAGRAD) {
        e->v = fmaf(g, g, e->v);
        e->p = fmaf(over(g, sqrtf(e->v) + s->eps), s->rate, e->p);
    } else {
        e->m = fmaf(e->m, s->beta1, g);
        e->p = fmaf(e->m, s->rate, e->p);
    }
}

static float master_get(const struct adam_options *o, const struct adam_arrays *a, uint64_t i)
{
    if (o->master != CORE_UPDATE_MASTER_SPLIT) {
        return a->w32[i];
    }
    const uint32_t carry = a->lo16[i] >> 15; /* 1 if rounding has added one */
    return core_f32_from_bits(((uint32_t)a->w16[i] - carry) << 16 | a->lo16[i]);
}

/* Returns the working weight. */
static float master_set(const struct adam_options *o, const struct adam_arrays *a, uint64_t i,
                        float p)
{
    switch (o->master) {
    case CORE_UPDATE_MASTER_SPLIT:
        a->w16[i] = core_f32_to_bf16_away(p);
        a->lo16[i] = isnan(p) ? 0 : (uint16_t)core_f32_bits(p);
        return core_bf16_to_f32(a->w16[i]);
    case CORE_UPDATE_MASTER_BF16:
        a->w32[i] = p;
        a->w16[i] = core_f32_to_bf16(p);
        return core_bf16_to_f32(a->w16[i]);
    case CORE_UPDATE_MASTER_FP16:
        a->w32[i] = p;
        a->w16[i] = core_f32_to_fp16(p);
        return core_fp16_to_f32(a->w16[i]);
    case CORE_UPDATE_MASTER_F32:
    default: a->w32[i] = p; return p;
    }
}

static bool has_m(enum core_update_rule rule)
{
    return rule != CORE_UPDATE_ADAGRAD;
}

static bool has_v(enum core_update_rule rule)
{
    return rule != CORE_UPDATE_LION && rule != CORE_UPDATE_SGD;
}

static float moment_get(const struct adam_options *o, const struct adam_arrays *a, bool is_m,
                        uint64_t i)
{
    const void *x = is_m ? a->m : a->v;
    if (o->moments != CORE_UPDATE_Q8) {
        return ref_load(x, o->moments, i);
    }
    const uint32_t code = ((const uint8_t *)x)[i];
    const uint64_t block = i / 256;
    if (!is_m) {
        return q8_value(kind_v, code, a->v_scale[block]);
    }
    const float size = q8_value(kind_m, code & 127, a->m_scale[block]);
    return code & 128 ? -size : size;
}

void ref_read(const struct adam_options *o, const struct adam_arrays *a, enum adam_value value,
              uint64_t begin, uint64_t end, float *out)
{
    for (uint64_t i = begin - a->first; i < end - a->first; i++) {
        *out++ = value == ADAM_VALUE_MASTER ? master_get(o, a, i)
                                            : moment_get(o, a, value == ADAM_VALUE_M, i);
    }
}

/* Encodes the moments of a block from x. */
static void block_set(const struct adam_options *o, const struct adam_arrays *a, bool is_m,
                      uint64_t i, uint64_t count, const float *x)
{
    uint8_t *codes = (uint8_t *)(is_m ? a->m : a->v) + i;
    float *scale = (is_m ? a->m_scale : a->v_scale) + i / 256;
    *scale = q8_scale(x, count);
    for (uint64_t k = 0; k < count; k++) {
        const uint64_t stream = o->groups[0].step << 32 | o->number;
        const uint32_t word = chance(o->seed, stream, a->first + i + k);
        if (is_m) {
            const uint32_t code = q8_code(kind_m, fabsf(x[k]), *scale, word);
            codes[k] = (uint8_t)(code | (signbit(x[k]) ? 128u : 0u));
        } else {
            codes[k] = (uint8_t)q8_code(kind_v, x[k], *scale, word);
        }
    }
}

static void moment_set(const struct adam_options *o, const struct adam_arrays *a, bool is_m,
                       uint64_t i, float x)
{
    void *to = is_m ? a->m : a->v;
    if (o->moments == CORE_UPDATE_F32) {
        ((float *)to)[i] = x;
        return;
    }
    const uint64_t stream = o->groups[0].step << 32 | o->number;
    const uint32_t word = chance(o->seed, stream, a->first + i);
    ((uint16_t *)to)[i] = bf16_by_chance(x, word);
}

unsigned ref_step(const struct adam_options *o, const struct adam_arrays *a, uint64_t begin,
                  uint64_t end, double gradient_scale)
{
    struct core_update_scalars s;
    unsigned met = 0;
    if (adam_scalars(o->rule, &o->groups[0], gradient_scale, &s) != 0) {
        return ~0u;
    }
    float m[256];
    float v[256];
    for (uint64_t i = begin - a->first; i < end - a->first; i++) {
        struct state e = {.p = master_get(o, a, i)};
        e.m = has_m(o->rule) ? moment_get(o, a, true, i) : 0.0f;
        e.v = has_v(o->rule) ? moment_get(o, a, false, i) : 0.0f;
        const float g = ref_load(a->g, o->gradients, i) * s.gradient_scale;
        rule_step(o->rule, &s, g, &e);
        const float working = master_set(o, a, i, e.p);
        met |= isfinite(g) ? 0u : (unsigned)CORE_NONFINITE_GRADIENT;
        met |= isfinite(e.p) ? 0u : (unsigned)CORE_NONFINITE_MASTER;
        met |= isfinite(working) ? 0u : (unsigned)CORE_NONFINITE_WORKING;
        m[i % 256] = e.m;
        v[i % 256] = e.v;
        if (o->moments != CORE_UPDATE_Q8) {
            if (has_m(o->rule)) {
                moment_set(o, a, true, i, e.m);
            }
            if (has_v(o->rule)) {
                moment_set(o, a, false, i, e.v);
            }
        } else if (i % 256 == 255 || i + 1 == end - a->first) {
            const uint64_t block = i / 256 * 256;
            if (has_m(o->rule)) {
                block_set(o, a, true, block, i + 1 - block, m);
            }
            if (has_v(o->rule)) {
                block_set(o, a, false, block, i + 1 - block, v);
            }
        }
    }
    return met;
}

double ref_tile_sum(const void *x, enum core_update_type type, uint64_t count)
{
    double lanes[32] = {0};
    for (uint64_t i = 0; i < count; i++) {
        const double wide = (double)ref_load(x, type, i);
        lanes[i % 32] = fma(wide, wide, lanes[i % 32]);
    }
    for (int half = 16; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) {
            lanes[i] += lanes[i + half];
        }
    }
    return lanes[0];
}
