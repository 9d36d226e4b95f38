/* body_q8.h: 8-bit moments, block by block. A magnitude, scaled to y from 0 to 1.875 - c, becomes
 * the upper bits of the float y + c: codes are evenly spaced below c and have three bits of
 * mantissa above. The scale of a block is its largest magnitude, or Q8_SCALE_MIN if that is larger,
 * and has the largest code. Steps round stochastically, so that small changes are not lost. v never
 * gets code 0, because v = 0 with m not 0 would make the weight jump. */
#ifndef CPU_ADAM_BODY_Q8_H
#define CPU_ADAM_BODY_Q8_H

#include <stddef.h>
#include <string.h>

#include "cpu_adam/body_convert.h"
#include "cpu_adam/body_philox.h"
#include "cpu_adam/ops.h"

#define Q8_SHIFT     20 /* 23 - 3 bits of mantissa */
#define Q8_M_MASK    0x07f00000u
#define Q8_V_MASK    0x0ff00000u
#define Q8_M_C       0x1p-15f          /* 16 binades: codes 0 to 127 and the sign */
#define Q8_V_C       0x1p-31f          /* 32 binades: codes 0 to 255 */
#define Q8_M_TOP     (1.875f - Q8_M_C) /* the value of code 127 */
#define Q8_V_TOP     (1.875f - Q8_V_C) /* the value of code 255 */
#define Q8_V_LEAST   0x1.2p-31f        /* c plus the value of code 1 */
#define Q8_SCALE_MIN 0x1p-80f

/* Decodes a block's codes: value = (y + c) * unit + less, with less = -(c * unit). */
struct q8_unit {
    vf unit;
    vf less;
};

V_INLINE struct q8_unit q8_unit_of(float scale, float top, float c)
{
    const float unit = scale / top;
    return (struct q8_unit){v_set(unit), v_set(-(c * unit))};
}

/* Returns the value of the code that `mask` selects from `bits`. The mask excludes the bits of
 * c. */
V_INLINE vf q8_value(vu bits, uint32_t mask, float c, struct q8_unit unit)
{
    vf y = v_float(u_and_or(bits, u_set(mask), v_bits(v_set(c))));
    return v_fma(y, unit.unit, unit.less);
}

V_INLINE vf q8_signed(vu sign, vf size)
{
    return v_float(u_pick(u_set(0x80000000u), sign, v_bits(size)));
}

V_INLINE struct pair q8_load_m(const uint8_t *code, struct q8_unit unit)
{
    vu both = u_load16((const uint16_t *)(const void *)code);
    vf even = q8_value(u_shl(both, Q8_SHIFT), Q8_M_MASK, Q8_M_C, unit);
    vf odd = q8_value(u_shl(both, Q8_SHIFT - 8), Q8_M_MASK, Q8_M_C, unit);
    return (struct pair){q8_signed(u_shl(both, 24), even), q8_signed(u_shl(both, 16), odd)};
}

V_INLINE struct pair q8_load_v(const uint8_t *code, struct q8_unit unit)
{
    vu both = u_load16((const uint16_t *)(const void *)code);
    return (struct pair){q8_value(u_shl(both, Q8_SHIFT), Q8_V_MASK, Q8_V_C, unit),
                         q8_value(u_shl(both, Q8_SHIFT - 8), Q8_V_MASK, Q8_V_C, unit)};
}

/* Returns the float whose upper bits are the code of |x|. */
V_INLINE vf q8_m_size(vf x, vf rate)
{
    vf size = v_float(u_and(v_bits(x), u_set(0x7fffffffu)));
    return v_fma(size, rate, v_set(Q8_M_C));
}

V_INLINE vf q8_v_size(vf x, vf rate)
{
    return v_max(v_fma(x, rate, v_set(Q8_V_C)), v_set(Q8_V_LEAST));
}

/* Returns 16 random bits per element, below bit Q8_SHIFT. */
V_INLINE struct pair_of_words q8_parts(vu chance)
{
    const vu mask = u_set(0xffffu << (Q8_SHIFT - 16));
    return (struct pair_of_words){u_and(u_shl(chance, Q8_SHIFT - 16), mask),
                                  u_and(u_shr(chance, 32 - Q8_SHIFT), mask)};
}

/* Returns a pair's codes in the low halves of the lanes; the high halves are undefined. */
V_INLINE vu q8_m_codes(struct pair m, vf rate, struct pair_of_words part)
{
    vu even = u_add(v_bits(q8_m_size(m.even, rate)), part.even);
    vu odd = u_add(v_bits(q8_m_size(m.odd, rate)), part.odd);
    vu sizes = u_pick(u_set(0x7f), u_shr(even, Q8_SHIFT), u_shr(odd, Q8_SHIFT - 8));
    vu signs = u_pick(u_set(0x80), u_shr(v_bits(m.even), 24), u_shr(v_bits(m.odd), 16));
    return u_pick(u_set(0x7f7f), sizes, signs);
}

V_INLINE vu q8_v_codes(struct pair v, vf rate, struct pair_of_words part)
{
    vu even = u_add(v_bits(q8_v_size(v.even, rate)), part.even);
    vu odd = u_add(v_bits(q8_v_size(v.odd, rate)), part.odd);
    return u_pick(u_set(0xff), u_shr(even, Q8_SHIFT), u_shr(odd, Q8_SHIFT - 8));
}

/* Returns the largest magnitude in `most` and x, as bits; NaN is above infinity. */
V_INLINE vu q8_larger(vu most, struct pair x)
{
    vu even = u_and(v_bits(x.even), u_set(0x7fffffffu));
    vu odd = u_and(v_bits(x.odd), u_set(0x7fffffffu));
    return u_max(most, u_max(even, odd));
}

V_INLINE float q8_scale(vu most)
{
    const uint32_t bits = u_largest(most);
    float largest;
    memcpy(&largest, &bits, sizeof largest);
    return largest < Q8_SCALE_MIN ? Q8_SCALE_MIN : largest;
}

struct q8_moment {
    struct pair x[GROUP_PAIRS];
    vu most; /* the largest magnitude of each lane, as bits */
};

V_INLINE struct q8_moment q8_moment_none(void)
{
    struct q8_moment moment;
    moment.most = u_set(0);
    return moment;
}

V_INLINE void q8_keep(struct q8_moment *moment, int k, struct pair x)
{
    moment->x[k] = x;
    moment->most = q8_larger(moment->most, x);
}

/* Stores a pair of non-negative values, and updates the largest magnitude. */
V_INLINE void q8_keep_size(struct q8_moment *moment, int k, struct pair x)
{
    moment->x[k] = x;
    moment->most = u_max(moment->most, u_max(v_bits(x.even), v_bits(x.odd)));
}

struct q8_out {
    uint8_t *m_code;
    uint8_t *v_code;
    float *m_scale;
    float *v_scale;
};

/* Encodes the new moments of the block at element `at`; a NULL moment is skipped. */
V_INLINE void q8_encode_block(const struct q8_moment *m, const struct q8_moment *v,
                              const vu *chance, const struct q8_out *out, uint64_t at)
{
    const uint64_t block = at / CORE_UPDATE_Q8_BLOCK;
    vf m_rate = v_set(0.0f);
    vf v_rate = v_set(0.0f);
    if (m != NULL) {
        out->m_scale[block] = q8_scale(m->most);
        m_rate = v_set(Q8_M_TOP / out->m_scale[block]);
    }
    if (v != NULL) {
        out->v_scale[block] = q8_scale(v->most);
        v_rate = v_set(Q8_V_TOP / out->v_scale[block]);
    }
    for (int k = 0; k < GROUP_PAIRS; k += 2) {
        const struct pair_of_words first = q8_parts(chance[k]);
        const struct pair_of_words second = q8_parts(chance[k + 1]);
        if (m != NULL) {
            u_store16_two((uint16_t *)(void *)(out->m_code + at + k * PAIR),
                          q8_m_codes(m->x[k], m_rate, first),
                          q8_m_codes(m->x[k + 1], m_rate, second));
        }
        if (v != NULL) {
            u_store16_two((uint16_t *)(void *)(out->v_code + at + k * PAIR),
                          q8_v_codes(v->x[k], v_rate, first),
                          q8_v_codes(v->x[k + 1], v_rate, second));
        }
    }
}

__attribute__((unused)) static void q8_decode(const struct adam_q8 *q8)
{
    for (uint64_t i = 0; i < q8->count; i += PAIR) {
        const uint64_t block = i / CORE_UPDATE_Q8_BLOCK;
        if (q8->m != NULL) {
            struct pair m = q8_load_m(q8->m_code + i,
                                      q8_unit_of(q8->m_scale[block], Q8_M_TOP, Q8_M_C));
            v_store_pair(q8->m + i, m.even, m.odd);
        }
        if (q8->v != NULL) {
            struct pair v = q8_load_v(q8->v_code + i,
                                      q8_unit_of(q8->v_scale[block], Q8_V_TOP, Q8_V_C));
            v_store_pair(q8->v + i, v.even, v.odd);
        }
    }
}

/* Rounding to nearest uses one half instead of a random number. */
V_INLINE void q8_chances(const struct adam_q8 *q8, uint64_t at, vu *chance)
{
    if (!q8->nearest) {
        group_chances(q8->seed, q8->stream, q8->first + at, chance);
        return;
    }
    for (int k = 0; k < GROUP_PAIRS; k++) {
        chance[k] = u_set(0x80008000u);
    }
}

V_INLINE struct q8_moment q8_moment_load(const float *from)
{
    struct q8_moment moment = q8_moment_none();
    for (int k = 0; k < GROUP_PAIRS; k++) {
        struct pair x;
        v_load_pair(from + k * PAIR, &x.even, &x.odd);
        q8_keep(&moment, k, x);
    }
    return moment;
}

__attribute__((unused)) static void q8_encode(const struct adam_q8 *q8)
{
    const struct q8_out out = {q8->m_code, q8->v_code, q8->m_scale, q8->v_scale};
    for (uint64_t i = 0; i < q8->count; i += CORE_UPDATE_Q8_BLOCK) {
        struct q8_moment moment;
        vu chance[GROUP_PAIRS];
        q8_chances(q8, i, chance);
        if (q8->m != NULL) {
            moment = q8_moment_load(q8->m + i);
            q8_encode_block(&moment, NULL, chance, &out, i);
        }
        if (q8->v != NULL) {
            moment = q8_moment_load(q8->v + i);
            q8_encode_block(NULL, &moment, chance, &out, i);
        }
    }
}

#endif
