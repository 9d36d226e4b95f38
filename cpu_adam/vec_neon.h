/* vec_neon.h: the vector functions with four lanes: AArch64's base instructions. vec_scalar.h
 * describes them. */
#ifndef CPU_ADAM_VEC_NEON_H
#define CPU_ADAM_VEC_NEON_H
#if defined(__aarch64__)

#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

#define V_INLINE static inline __attribute__((always_inline, unused))

typedef float32x4_t vf;
typedef uint32x4_t vu;
typedef float64x2_t vd;
enum { V_LANES = 4, V_DOUBLES = 2 };

V_INLINE vf v_load(const float *from)
{
    return vld1q_f32(from);
}

V_INLINE void v_store(float *to, vf x)
{
    vst1q_f32(to, x);
}

V_INLINE vf v_set(float x)
{
    return vdupq_n_f32(x);
}

V_INLINE vf v_mul(vf a, vf b)
{
    return vmulq_f32(a, b);
}

V_INLINE vf v_add(vf a, vf b)
{
    return vaddq_f32(a, b);
}

V_INLINE vf v_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}

V_INLINE vf v_sqrt(vf a)
{
    return vsqrtq_f32(a);
}

V_INLINE vf v_div(vf a, vf b)
{
    return vdivq_f32(a, b);
}

V_INLINE vf v_div_or_zero(vf a, vf b)
{
    uint32x4_t quotient = vreinterpretq_u32_f32(vdivq_f32(a, b));
    return vreinterpretq_f32_u32(vbicq_u32(quotient, vceqzq_f32(b)));
}

V_INLINE vu v_bits(vf a)
{
    return vreinterpretq_u32_f32(a);
}

V_INLINE vf v_float(vu a)
{
    return vreinterpretq_f32_u32(a);
}

V_INLINE vf v_canonical(vf a)
{
    vu sign = vandq_u32(vreinterpretq_u32_f32(a), vdupq_n_u32(0x80000000u));
    vu quiet = vorrq_u32(sign, vdupq_n_u32(0x7fc00000u));
    return vbslq_f32(vceqq_f32(a, a), a, vreinterpretq_f32_u32(quiet));
}

V_INLINE vf v_load_fp16(const uint16_t *from)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
}

V_INLINE void v_store_fp16(uint16_t *to, vf a)
{
    vst1_u16(to, vreinterpret_u16_f16(vcvt_f16_f32(v_canonical(a))));
}

V_INLINE vu u_set(uint32_t x)
{
    return vdupq_n_u32(x);
}

V_INLINE vu u_lanes(void)
{
    static const uint32_t lanes[4] = {0, 1, 2, 3};
    return vld1q_u32(lanes);
}

V_INLINE vu u_load16(const uint16_t *from)
{
    return vmovl_u16(vld1_u16(from));
}

V_INLINE vu u_load_signed16(const uint16_t *from)
{
    return vreinterpretq_u32_s32(vmovl_s16(vreinterpret_s16_u16(vld1_u16(from))));
}

V_INLINE void u_store16_two(uint16_t *to, vu a, vu b)
{
    vst1q_u16(to, vuzp1q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b)));
}

V_INLINE void u_store16_upper_two(uint16_t *to, vu a, vu b)
{
    vst1q_u16(to, vuzp2q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b)));
}

V_INLINE vu u_add(vu a, vu b)
{
    return vaddq_u32(a, b);
}

V_INLINE vu u_and(vu a, vu b)
{
    return vandq_u32(a, b);
}

V_INLINE vu u_or(vu a, vu b)
{
    return vorrq_u32(a, b);
}

V_INLINE vu u_xor(vu a, vu b)
{
    return veorq_u32(a, b);
}

V_INLINE vu u_max(vu a, vu b)
{
    return vmaxq_u32(a, b);
}

#define u_shl(a, bits) vshlq_n_u32(a, bits)
#define u_shr(a, bits) vshrq_n_u32(a, bits)

V_INLINE vu u_load(const void *from)
{
    return vld1q_u32((const uint32_t *)from);
}

V_INLINE void u_store(void *to, vu a)
{
    vst1q_u32((uint32_t *)to, a);
}

V_INLINE void v_load_pair(const float *from, vf *even, vf *odd)
{
    float32x4x2_t both = vld2q_f32(from);
    *even = both.val[0];
    *odd = both.val[1];
}

V_INLINE void v_store_pair(float *to, vf even, vf odd)
{
    vst2q_f32(to, (float32x4x2_t){{even, odd}});
}

V_INLINE void v_load_pair_fp16(const uint16_t *from, vf *even, vf *odd)
{
    uint16x4x2_t both = vld2_u16(from);
    *even = vcvt_f32_f16(vreinterpret_f16_u16(both.val[0]));
    *odd = vcvt_f32_f16(vreinterpret_f16_u16(both.val[1]));
}

V_INLINE void v_store_pair_fp16(uint16_t *to, vf even, vf odd)
{
    uint16x4_t low = vreinterpret_u16_f16(vcvt_f16_f32(v_canonical(even)));
    uint16x4_t high = vreinterpret_u16_f16(vcvt_f16_f32(v_canonical(odd)));
    vst2_u16(to, (uint16x4x2_t){{low, high}});
}

V_INLINE vu u_pick(vu mask, vu a, vu b)
{
    return vbslq_u32(mask, a, b);
}

V_INLINE vu u_and_or(vu a, vu mask, vu b)
{
    return vorrq_u32(vandq_u32(a, mask), b);
}

V_INLINE vf v_max(vf a, vf b)
{
    return vmaxq_f32(a, b);
}

#define u_sar(a, bits) vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u32(a), bits))

/* The low and high halves of products. */
struct vw {
    vu low;
    vu high;
};

V_INLINE struct vw w_spread(vu a)
{
    return (struct vw){a, a};
}

V_INLINE vu w_words(struct vw a)
{
    return a.low;
}

V_INLINE struct vw w_multiply(struct vw a, vu b)
{
    const uint32x2_t factor = vget_low_u32(b);
    uint32x4_t first = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(a.low), factor));
    uint32x4_t second = vreinterpretq_u32_u64(vmull_u32(vget_high_u32(a.low), factor));
    return (struct vw){vuzp1q_u32(first, second), vuzp2q_u32(first, second)};
}

V_INLINE struct vw w_next(struct vw product, struct vw a, vu key)
{
    const vu next = veorq_u32(veorq_u32(product.high, key), a.low);
    return (struct vw){next, next};
}

V_INLINE uint32_t u_largest(vu a)
{
    return vmaxvq_u32(a);
}

V_INLINE vd d_load(const double *from)
{
    return vld1q_f64(from);
}

V_INLINE void d_add_squares(vd *acc, vf x)
{
    vd low = vcvt_f64_f32(vget_low_f32(x));
    vd high = vcvt_high_f64_f32(x);
    acc[0] = vfmaq_f64(acc[0], low, low);
    acc[1] = vfmaq_f64(acc[1], high, high);
}

V_INLINE void d_store(double *to, vd a)
{
    vst1q_f64(to, a);
}

#endif
#endif
