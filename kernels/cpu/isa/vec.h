/* vec.h: a vector of LANES floats for code compiled once per instruction set.
 * KERN_TYPE_CASES makes `type` a constant after inlining, so that a loop does not branch on it. */
#ifndef KERNELS_CPU_ISA_VEC_H
#define KERNELS_CPU_ISA_VEC_H

#include <stdint.h>
#include <string.h>

#include "kernels/cpu/isa/inline.h"
#include "kernels/kern.h"

#if defined(__AVX512F__)
#include "kernels/cpu/isa/vec_avx512.h"
#elif defined(__AVX2__)
#include "kernels/cpu/isa/vec_avx2.h"
#else
#include "kernels/cpu/isa/vec_base.h"
#endif

/* Calls body(type) with each type as a constant: one copy of the loop per type. */
#define KERN_TYPE_CASES(type, body)                                                                \
    do {                                                                                           \
        if ((type) == KERN_F32) {                                                                  \
            body(KERN_F32);                                                                        \
        } else if ((type) == KERN_BF16) {                                                          \
            body(KERN_BF16);                                                                       \
        } else {                                                                                   \
            body(KERN_FP16);                                                                       \
        }                                                                                          \
    } while (0)

VF_INLINE vf vf_get(enum kern_type type, const void *from, int64_t index)
{
    if (type == KERN_F32) {
        return vf_load((const float *)from + index);
    }
    const uint16_t *half = (const uint16_t *)from + index;
    return type == KERN_BF16 ? vf_load_bf16(half) : vf_load_fp16(half);
}

VF_INLINE void vf_put(enum kern_type type, void *to, int64_t index, vf value)
{
    if (type == KERN_F32) {
        vf_store((float *)to + index, value);
    } else if (type == KERN_BF16) {
        vf_store_bf16((uint16_t *)to + index, value);
    } else {
        vf_store_fp16((uint16_t *)to + index, value);
    }
}

/* Returns the first `count` elements (1 or more; LANES if more), then zeros. */
VF_INLINE vf vf_get_part(enum kern_type type, const void *from, int64_t index, int64_t count)
{
    if (count >= LANES) {
        return vf_get(type, from, index);
    }
    _Alignas(64) float whole[LANES] = {0};
    const size_t bytes = type == KERN_F32 ? 4 : 2;
    memcpy(whole, (const char *)from + (size_t)index * bytes, (size_t)count * bytes);
    return vf_get(type, whole, 0);
}

VF_INLINE void vf_put_part(enum kern_type type, void *to, int64_t index, vf value, int64_t count)
{
    if (count >= LANES) {
        vf_put(type, to, index, value);
        return;
    }
    _Alignas(64) float whole[LANES];
    const size_t bytes = type == KERN_F32 ? 4 : 2;
    vf_put(type, whole, 0, value);
    memcpy((char *)to + (size_t)index * bytes, whole, (size_t)count * bytes);
}

/* Pairs: a lane holds two bf16, the earlier one in its low half. Sets with VF_DOTS multiply them
 * (vf_dot: sum + a.high b.high + a.low b.low; subnormals count as zero); other sets have no
 * pairs. */
#ifndef VF_DOTS
#define VF_DOTS 0
#endif

/* VF_SHARED names functions without pairs. A set that only adds pairs takes them from the other
 * set; kernels/cpu/meson.build does not compile their sources again. */
#ifndef VF_SHARED
#define VF_SHARED VF_ISA
#endif

#if VF_DOTS
/* Returns the pairs of `count` consecutive elements (1 or more; 2 LANES if more), then zeros. */
VF_INLINE vf vf_pairs(enum kern_type type, const void *from, int64_t index, int64_t count)
{
    return type == KERN_BF16 ? vf_pairs_bf16((const uint16_t *)from + index, count)
                             : vf_pairs_f32((const float *)from + index, count);
}

/* Returns lanes that pair elements low + i and high + i, i < count (1 to LANES). If high < 0, low +
 * i is paired with zero. */
VF_INLINE vf vf_join(enum kern_type type, const void *from, int64_t low, int64_t high,
                     int64_t count)
{
    if (type == KERN_BF16) {
        const uint16_t *half = from;
        return vf_join_bf16(half + low, high >= 0 ? half + high : NULL, count);
    }
    const float *whole = from;
    return vf_join_f32(whole + low, high >= 0 ? whole + high : NULL, count);
}
#endif

/* Returns `value` stored as `type` and read back. */
VF_INLINE vf vf_rounded(enum kern_type type, vf value)
{
    if (type == KERN_F32) {
        return value;
    }
    _Alignas(64) uint16_t half[LANES];
    vf_put(type, half, 0, value);
    return vf_get(type, half, 0);
}

#define VF_OTHER(j, h)      ((j) ^ (h))
#define VF_ACROSS(value, h) __builtin_shufflevector(value, value, VF_EACH(VF_OTHER, h))

/* Adds by halves. */
VF_INLINE float vf_sum(vf value)
{
#if defined(__AVX512F__)
    value += VF_ACROSS(value, 8);
#endif
#if defined(__AVX2__)
    value += VF_ACROSS(value, 4);
#endif
    value += VF_ACROSS(value, 2);
    value += VF_ACROSS(value, 1);
    return value[0];
}

VF_INLINE float vf_top(vf value)
{
#if defined(__AVX512F__)
    value = vf_max(value, VF_ACROSS(value, 8));
#endif
#if defined(__AVX2__)
    value = vf_max(value, VF_ACROSS(value, 4));
#endif
    value = vf_max(value, VF_ACROSS(value, 2));
    value = vf_max(value, VF_ACROSS(value, 1));
    return value[0];
}

VF_INLINE vf vf_zero(void)
{
    return vf_set(0.0f);
}

/* Returns a where `mask` is all ones, b where it is zero. */
VF_INLINE vf vf_pick(vi mask, vf a, vf b)
{
    return (vf)(((vi)a & mask) | ((vi)b & ~mask));
}

/* Returns exp(r) for small r, within 2 ulp. */
VF_INLINE vf vf_exp_near(vf r)
{
    vf p = vf_set(1.9875691500e-4f);
    p = vf_fma(p, r, vf_set(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set(5.0000001201e-1f));
    return vf_fma(p, r * r, r + vf_set(1.0f));
}

/* Returns exp(y) / 2^n, where n is y / ln 2 rounded. */
VF_INLINE vf vf_exp_rest(vf y, vf n)
{
    const vf r = vf_fma(n, vf_set(-0.693359375f), y);
    return vf_exp_near(vf_fma(n, vf_set(2.12194440e-4f), r));
}

/* Returns exp within 2 ulp; 0 below -87.3 (subnormal results), infinity above 88.7. */
VF_INLINE vf vf_exp(vf x)
{
    const vf low = vf_set(-87.3365447505f);
    const vf log2_e = vf_set(1.44269504089f);
#if defined(__AVX512F__)
    /* Overflow scales to infinity. vf_min keeps a NaN in its second operand. */
    const vf y = vf_min(vf_set(89.0f), x);
    const vf n = vf_round(y * log2_e);
    return vf_exp_scale(vf_exp_rest(y, n), n, x, low);
#else
    const vf high = vf_set(88.7228317261f);
    const vi under = x < low;
    const vi over = x > high;
    const vi nan = x != x;
    const vf y = vf_min(vf_max(x, low), high);
    const vf n = vf_round(y * log2_e);
    /* Two factors of 2^n, because n reaches 128. */
    const vi whole = __builtin_convertvector(n, vi);
    const vi half = whole >> 1;
    const vf first = (vf)((half + 127) << 23);
    const vf second = (vf)((whole - half + 127) << 23);
    vf value = vf_exp_rest(y, n) * first * second;
    value = vf_pick(under, vf_zero(), value);
    value = vf_pick(over, vf_set(__builtin_inff()), value);
    return vf_pick(nan, x, value);
#endif
}

/* Transposes LANES vectors: swaps blocks of h lanes, h = LANES/2 ... 1. */
#define VF_UPPER(j, h) (((j) & (h)) ? LANES + (j) - (h) : (j))
#define VF_LOWER(j, h) (((j) & (h)) ? LANES + (j) : (j) + (h))
#define VF_SWAP(rows, h)                                                                           \
    _Pragma("GCC unroll 16") for (int i_ = 0; i_ < LANES; i_++)                                    \
    {                                                                                              \
        if ((i_ & (h)) == 0) {                                                                     \
            const vf a_ = (rows)[i_];                                                              \
            const vf b_ = (rows)[i_ + (h)];                                                        \
            (rows)[i_] = __builtin_shufflevector(a_, b_, VF_EACH(VF_UPPER, h));                    \
            (rows)[i_ + (h)] = __builtin_shufflevector(a_, b_, VF_EACH(VF_LOWER, h));              \
        }                                                                                          \
    }

VF_INLINE void vf_transpose(vf rows[LANES])
{
#if defined(__AVX512F__)
    VF_SWAP(rows, 8)
#endif
#if defined(__AVX2__)
    VF_SWAP(rows, 4)
#endif
    VF_SWAP(rows, 2)
    VF_SWAP(rows, 1)
}

#endif
