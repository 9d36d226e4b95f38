/* vec_scalar.h: the vector functions with one lane, in plain C: the reference for the other three
 * headers. Functions v_ work on floats, u_ on 32-bit integers, d_ on doubles, w_ on Philox
 * words. */
#ifndef CPU_ADAM_VEC_SCALAR_H
#define CPU_ADAM_VEC_SCALAR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/base/half.h"

#define V_INLINE static inline __attribute__((always_inline, unused))

typedef float vf;
typedef uint32_t vu;
typedef double vd;
enum { V_LANES = 1, V_DOUBLES = 1 };

V_INLINE vf v_load(const float *from)
{
    float x;
    memcpy(&x, from, sizeof x);
    return x;
}

V_INLINE void v_store(float *to, vf x)
{
    memcpy(to, &x, sizeof x);
}

V_INLINE vf v_set(float x)
{
    return x;
}

V_INLINE vf v_mul(vf a, vf b)
{
    return a * b;
}

V_INLINE vf v_add(vf a, vf b)
{
    return a + b;
}

V_INLINE vf v_fma(vf a, vf b, vf c)
{
    return fmaf(a, b, c);
}

V_INLINE vf v_sqrt(vf a)
{
    return sqrtf(a);
}

V_INLINE vf v_div(vf a, vf b)
{
    return a / b;
}

V_INLINE vf v_div_or_zero(vf a, vf b)
{
    return b == 0.0f ? 0.0f : a / b;
}

V_INLINE vu v_bits(vf a)
{
    vu bits;
    memcpy(&bits, &a, sizeof bits);
    return bits;
}

V_INLINE vf v_float(vu a)
{
    vf x;
    memcpy(&x, &a, sizeof x);
    return x;
}

/* NaN becomes the canonical quiet NaN of its sign. */
V_INLINE vf v_canonical(vf a)
{
    vu bits = v_bits(a);
    return (bits & 0x7fffffffu) > 0x7f800000u ? v_float((bits & 0x80000000u) | 0x7fc00000u) : a;
}

V_INLINE vf v_load_fp16(const uint16_t *from)
{
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return core_fp16_to_f32(half);
}

V_INLINE void v_store_fp16(uint16_t *to, vf a)
{
    uint16_t half = core_f32_to_fp16(a);
    memcpy(to, &half, sizeof half);
}

V_INLINE vu u_set(uint32_t x)
{
    return x;
}

V_INLINE vu u_lanes(void)
{
    return 0;
}

V_INLINE vu u_load16(const uint16_t *from)
{
    uint16_t x;
    memcpy(&x, from, sizeof x);
    return x;
}

/* Loads 16-bit elements with their sign. */
V_INLINE vu u_load_signed16(const uint16_t *from)
{
    return (u_load16(from) ^ 0x8000u) - 0x8000u;
}

V_INLINE void u_store16(uint16_t *to, vu a)
{
    uint16_t x = (uint16_t)a;
    memcpy(to, &x, sizeof x);
}

/* Writes the low halves of a, then of b. */
V_INLINE void u_store16_two(uint16_t *to, vu a, vu b)
{
    u_store16(to, a);
    u_store16(to + 1, b);
}

/* Writes the upper halves of a, then of b. */
V_INLINE void u_store16_upper_two(uint16_t *to, vu a, vu b)
{
    u_store16_two(to, a >> 16, b >> 16);
}

V_INLINE vu u_add(vu a, vu b)
{
    return a + b;
}

V_INLINE vu u_and(vu a, vu b)
{
    return a & b;
}

V_INLINE vu u_or(vu a, vu b)
{
    return a | b;
}

V_INLINE vu u_xor(vu a, vu b)
{
    return a ^ b;
}

V_INLINE vu u_max(vu a, vu b)
{
    return a > b ? a : b;
}

#define u_shl(a, bits) ((vu)((a) << (bits)))
#define u_shr(a, bits) ((vu)((a) >> (bits)))

/* Returns elements in pairs: V_LANES 32-bit words hold 2 V_LANES elements of 16 bits, even ones in
 * the low halves. Fp32 arrays are separated into even and odd elements to match. */
V_INLINE vu u_load(const void *from)
{
    vu x;
    memcpy(&x, from, sizeof x);
    return x;
}

V_INLINE void u_store(void *to, vu a)
{
    memcpy(to, &a, sizeof a);
}

V_INLINE void v_load_pair(const float *from, vf *even, vf *odd)
{
    *even = v_load(from);
    *odd = v_load(from + 1);
}

V_INLINE void v_store_pair(float *to, vf even, vf odd)
{
    v_store(to, even);
    v_store(to + 1, odd);
}

V_INLINE void v_load_pair_fp16(const uint16_t *from, vf *even, vf *odd)
{
    *even = v_load_fp16(from);
    *odd = v_load_fp16(from + 1);
}

V_INLINE void v_store_pair_fp16(uint16_t *to, vf even, vf odd)
{
    v_store_fp16(to, even);
    v_store_fp16(to + 1, odd);
}

/* Returns a's bits where mask has ones, b's elsewhere. */
V_INLINE vu u_pick(vu mask, vu a, vu b)
{
    return (a & mask) | (b & ~mask);
}

/* Returns a where mask has ones, else b, which must be zero under the mask. */
V_INLINE vu u_and_or(vu a, vu mask, vu b)
{
    return (a & mask) | b;
}

/* Returns the larger; unspecified if one is NaN. */
V_INLINE vf v_max(vf a, vf b)
{
    return a > b ? a : b;
}

#define u_sar(a, bits) ((vu)((int32_t)(a) >> (bits)))

/* Philox words between rounds, as whole products: w_next() reads the high half, the next round the
 * low half. */
struct vw {
    uint64_t product;
};

V_INLINE struct vw w_spread(vu a)
{
    return (struct vw){a};
}

V_INLINE vu w_words(struct vw a)
{
    return (vu)a.product;
}

V_INLINE struct vw w_multiply(struct vw a, vu b)
{
    return (struct vw){(uint64_t)(uint32_t)a.product * b};
}

/* Returns (high half of product) ^ (low word of a) ^ key. */
V_INLINE struct vw w_next(struct vw product, struct vw a, vu key)
{
    return (struct vw){product.product >> 32 ^ (uint32_t)a.product ^ key};
}

V_INLINE uint32_t u_largest(vu a)
{
    return a;
}

V_INLINE vd d_load(const double *from)
{
    return *from;
}

/* Adds the lanes' squares to acc[], in double: V_LANES / V_DOUBLES accumulators, lanes in order. */
V_INLINE void d_add_squares(vd *acc, vf x)
{
    double wide = (double)x;
    acc[0] = fma(wide, wide, acc[0]);
}

V_INLINE void d_store(double *to, vd a)
{
    *to = a;
}

#endif
