/* body_q8.h: 8-bit moments, block by block. A magnitude y from 0 to 1.875 - c becomes upper bits of
 * the float y + c: evenly spaced below c, three bits of mantissa above, so that the code needs one
 * add each way. The block's largest magnitude has the largest code; what lies between two codes
 * goes up or down by chance, so that small changes are not lost. A v of zero under an m that is not
 * would be a leap: v never gets code 0. */
#ifndef CPU_ADAM_BODY_Q8_H
#define CPU_ADAM_BODY_Q8_H

#include <stddef.h>
#include <string.h>

#include "cpu_adam/body_convert.h"
#include "cpu_adam/body_philox.h"
#include "cpu_adam/ops.h"

#define Q8_SHIFT     20                /* 23 - 3 bits of mantissa */
#define Q8_M_C       0x1p-15f          /* 16 binades: codes 0 to 127 beside the sign */
#define Q8_V_C       0x1p-31f          /* 32 binades: codes 0 to 255 */
#define Q8_M_TOP     (1.875f - Q8_M_C) /* what code 127 stands for */
#define Q8_V_TOP     (1.875f - Q8_V_C) /* what code 255 stands for */
#define Q8_V_LEAST   0x1.2p-31f        /* c and code 1 */
#define Q8_SCALE_MIN 0x1p-80f

/* The value of a code that stands at bit Q8_SHIFT. */
V_INLINE vf q8_value(vu code, float c, float unit)
{
    vf y = v_float(u_add(code, v_bits(v_set(c))));
    return v_fma(y, v_set(unit), v_set(-(c * unit)));
}

/* The signed value of a code in the uppermost byte; below stands anything. */
V_INLINE vf q8_m_value(vu code, float unit)
{
    vf size = q8_value(u_shr(u_and(code, u_set(0x7f000000u)), 4), Q8_M_C, unit);
    return v_float(u_pick(u_set(0x80000000u), code, v_bits(size)));
}

V_INLINE struct pair q8_load_m(const uint8_t *code, float unit)
{
    vu both = u_load16((const uint16_t *)(const void *)code);
    return (struct pair){q8_m_value(u_shl(both, 24), unit), q8_m_value(u_shl(both, 16), unit)};
}

V_INLINE struct pair q8_load_v(const uint8_t *code, float unit)
{
    vu both = u_load16((const uint16_t *)(const void *)code);
    vu even = u_shl(u_and(both, u_set(0xff)), Q8_SHIFT);
    vu odd = u_shl(u_and(both, u_set(0xff00)), Q8_SHIFT - 8);
    return (struct pair){q8_value(even, Q8_V_C, unit), q8_value(odd, Q8_V_C, unit)};
}

V_INLINE void q8_store(uint8_t *code, vu even, vu odd)
{
    u_store16((uint16_t *)(void *)code, u_pick(u_set(0xff), even, u_shl(odd, 8)));
}

/* `part`: 16 random bits below bit Q8_SHIFT. The code is in the low byte of the result. */
V_INLINE vu q8_m_code(vf x, vf rate, vu part)
{
    vu bits = v_bits(x);
    vf size = v_float(u_and(bits, u_set(0x7fffffffu)));
    vf y = v_fma(size, rate, v_set(Q8_M_C));
    return u_pick(u_set(0x7f), u_shr(u_add(v_bits(y), part), Q8_SHIFT), u_shr(bits, 24));
}

V_INLINE vu q8_v_code(vf x, vf rate, vu part)
{
    vf y = v_max(v_fma(x, rate, v_set(Q8_V_C)), v_set(Q8_V_LEAST));
    return u_shr(u_add(v_bits(y), part), Q8_SHIFT);
}

V_INLINE vu part_even(vu chance)
{
    return u_shl(u_and(chance, u_set(0xffff)), Q8_SHIFT - 16);
}

V_INLINE vu part_odd(vu chance)
{
    return u_and(u_shr(chance, 32 - Q8_SHIFT), u_set(0xffffu << (Q8_SHIFT - 16)));
}

/* The larger magnitude, as bits: NaN counts above infinity. */
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

/* A block's m, v or both in pairs, between decoding and encoding. */
struct q8_block {
    struct pair m[GROUP_PAIRS];
    struct pair v[GROUP_PAIRS];
};

V_INLINE vf q8_encode_begin(const struct pair *x, float top, float *scale)
{
    vu most = u_set(0);
    for (int k = 0; k < GROUP_PAIRS; k++) {
        most = q8_larger(most, x[k]);
    }
    *scale = q8_scale(most);
    return v_set(top / *scale);
}

V_INLINE void q8_encode_m(const struct pair *m, uint8_t *code, float *scale, const vu *chance)
{
    const vf rate = q8_encode_begin(m, Q8_M_TOP, scale);
    for (int k = 0; k < GROUP_PAIRS; k++) {
        q8_store(code + k * PAIR, q8_m_code(m[k].even, rate, part_even(chance[k])),
                 q8_m_code(m[k].odd, rate, part_odd(chance[k])));
    }
}

V_INLINE void q8_encode_v(const struct pair *v, uint8_t *code, float *scale, const vu *chance)
{
    const vf rate = q8_encode_begin(v, Q8_V_TOP, scale);
    for (int k = 0; k < GROUP_PAIRS; k++) {
        q8_store(code + k * PAIR, q8_v_code(v[k].even, rate, part_even(chance[k])),
                 q8_v_code(v[k].odd, rate, part_odd(chance[k])));
    }
}

__attribute__((unused)) static void q8_decode(const struct adam_q8 *q8)
{
    for (uint64_t i = 0; i < q8->count; i += PAIR) {
        const uint64_t block = i / CORE_VEC_Q8_BLOCK;
        if (q8->m != NULL) {
            struct pair m = q8_load_m(q8->m_code + i, q8->m_scale[block] / Q8_M_TOP);
            v_store_pair(q8->m + i, m.even, m.odd);
        }
        if (q8->v != NULL) {
            struct pair v = q8_load_v(q8->v_code + i, q8->v_scale[block] / Q8_V_TOP);
            v_store_pair(q8->v + i, v.even, v.odd);
        }
    }
}

/* To nearest is a chance of one half that always falls the same way. */
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

V_INLINE void block_load(struct pair *x, const float *from)
{
    for (int k = 0; k < GROUP_PAIRS; k++) {
        v_load_pair(from + k * PAIR, &x[k].even, &x[k].odd);
    }
}

__attribute__((unused)) static void q8_encode(const struct adam_q8 *q8)
{
    for (uint64_t i = 0; i < q8->count; i += CORE_VEC_Q8_BLOCK) {
        const uint64_t b = i / CORE_VEC_Q8_BLOCK;
        struct pair x[GROUP_PAIRS];
        vu chance[GROUP_PAIRS];
        q8_chances(q8, i, chance);
        if (q8->m != NULL) {
            block_load(x, q8->m + i);
            q8_encode_m(x, q8->m_code + i, q8->m_scale + b, chance);
        }
        if (q8->v != NULL) {
            block_load(x, q8->v + i);
            q8_encode_v(x, q8->v_code + i, q8->v_scale + b, chance);
        }
    }
}

#endif
