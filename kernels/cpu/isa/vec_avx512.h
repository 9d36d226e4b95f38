/* vec_avx512.h: the vector of vec.h for AVX-512 (F, BW, DQ, VL), with and without BF16. */
#ifndef KERNELS_CPU_ISA_VEC_AVX512_H
#define KERNELS_CPU_ISA_VEC_AVX512_H

#if defined(__AVX512F__) /* without AVX-512 such vectors have no calling convention */

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/cpu/isa/inline.h"

enum { LANES = 16, PRODUCT_ROWS = 12, PRODUCT_VECTORS = 2 };

typedef __m512 vf;
typedef int32_t vi __attribute__((vector_size(64)));

#if defined(__AVX512BF16__)
#define VF_ISA(name)    name##_avx512bf16
#define VF_SHARED(name) name##_avx512
#define VF_FLAG         CORE_CPU_AVX512_BF16
#define VF_DOTS         1
#else
#define VF_ISA(name) name##_avx512
#define VF_FLAG      CORE_CPU_AVX512
#endif

#define VF_EACH(macro, h)                                                                          \
    macro(0, h), macro(1, h), macro(2, h), macro(3, h), macro(4, h), macro(5, h), macro(6, h),     \
        macro(7, h), macro(8, h), macro(9, h), macro(10, h), macro(11, h), macro(12, h),           \
        macro(13, h), macro(14, h), macro(15, h)

VF_INLINE vf vf_set(float value)
{
    return _mm512_set1_ps(value);
}

VF_INLINE vf vf_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

VF_INLINE void vf_store(float *to, vf value)
{
    _mm512_storeu_ps(to, value);
}

VF_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

VF_INLINE vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

VF_INLINE vf vf_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}

VF_INLINE vf vf_round(vf a)
{
    return _mm512_roundscale_ps(a, 0);
}

/* Returns value * 2^n; 0 where x is below `low`. */
VF_INLINE vf vf_exp_scale(vf value, vf n, vf x, vf low)
{
    const __mmask16 there = _mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(there, value, n);
}

VF_INLINE vf vf_load_int8(const int8_t *from)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)from)));
}

VF_INLINE vf vf_lookup4(const float *values, const uint8_t *codes)
{
    const __m128i bytes = _mm_loadl_epi64((const void *)codes);
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), mask);
    const __m128i both = _mm_unpacklo_epi8(high, _mm_and_si128(bytes, mask));
    return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(both), _mm512_loadu_ps(values));
}

VF_INLINE vf vf_load_bf16(const uint16_t *from)
{
    const __m256i half = _mm256_loadu_si256((const void *)from);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

VF_INLINE void vf_store_bf16(uint16_t *to, vf value)
{
    const __m512i bits = _mm512_castps_si512(value);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i high = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    high = _mm512_srli_epi32(high, 16);
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    const __m512i sign = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x8000));
    high = _mm512_mask_or_epi32(high, nan, sign, _mm512_set1_epi32(0x7fc0));
    _mm256_storeu_si256((void *)to, _mm512_cvtepi32_epi16(high));
}

VF_INLINE vf vf_load_fp16(const uint16_t *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)from));
}

VF_INLINE void vf_store_fp16(uint16_t *to, vf value)
{
    _mm256_storeu_si256((void *)to, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

#if defined(__AVX512BF16__)

VF_INLINE vf vf_dot(vf a, vf b, vf sum)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

/* Returns lanes that pair low[i] and high[i], rounded. */
VF_INLINE vf vf_pair(vf low, vf high)
{
    const __m512i even = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(low));
    const __m512i odd = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(high));
    return (vf)_mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
}

/* Returns the pairs of 32 consecutive values, rounded. */
VF_INLINE vf vf_pair_next(vf first, vf second)
{
    return (vf)_mm512_cvtne2ps_pbh(second, first);
}

VF_INLINE uint32_t vf_first(int64_t count)
{
    return count < 32 ? (1u << count) - 1 : ~0u;
}

VF_INLINE vf vf_pairs_bf16(const uint16_t *from, int64_t count)
{
    return (vf)_mm512_maskz_loadu_epi16(vf_first(count), from);
}

VF_INLINE vf vf_pairs_f32(const float *from, int64_t count)
{
    const uint32_t there = vf_first(count);
    return vf_pair_next(_mm512_maskz_loadu_ps((__mmask16)there, from),
                        _mm512_maskz_loadu_ps((__mmask16)(there >> 16), from + 16));
}

VF_INLINE vf vf_join_bf16(const uint16_t *low, const uint16_t *high, int64_t count)
{
    const __mmask16 there = (__mmask16)vf_first(count);
    const __m256i even = _mm256_maskz_loadu_epi16(there, low);
    const __m256i odd = high != NULL ? _mm256_maskz_loadu_epi16(there, high)
                                     : _mm256_setzero_si256();
    return (vf)_mm512_or_si512(_mm512_cvtepu16_epi32(even),
                               _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
}

VF_INLINE vf vf_join_f32(const float *low, const float *high, int64_t count)
{
    const __mmask16 there = (__mmask16)vf_first(count);
    return vf_pair(_mm512_maskz_loadu_ps(there, low),
                   high != NULL ? _mm512_maskz_loadu_ps(there, high) : _mm512_setzero_ps());
}

#endif

#endif

#endif
