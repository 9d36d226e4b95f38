/* vec_avx2.h: the vector of vec.h for AVX2 with FMA and F16C. */
#ifndef KERNELS_CPU_ISA_VEC_AVX2_H
#define KERNELS_CPU_ISA_VEC_AVX2_H

#if defined(__AVX2__) /* without AVX2 such vectors have no calling convention */

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/isa/inline.h"

enum { LANES = 8, PRODUCT_ROWS = 6, PRODUCT_VECTORS = 2 };

typedef __m256 vf;
typedef int32_t vi __attribute__((vector_size(32)));

#define VF_ISA(name) name##_avx2
#define VF_FLAG      CORE_CPU_AVX2

#define VF_EACH(macro, h)                                                                          \
    macro(0, h), macro(1, h), macro(2, h), macro(3, h), macro(4, h), macro(5, h), macro(6, h),     \
        macro(7, h)

VF_INLINE vf vf_set(float value)
{
    return _mm256_set1_ps(value);
}

VF_INLINE vf vf_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

VF_INLINE void vf_store(float *to, vf value)
{
    _mm256_storeu_ps(to, value);
}

VF_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

VF_INLINE vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

VF_INLINE vf vf_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}

VF_INLINE vf vf_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

VF_INLINE vf vf_load_int8(const int8_t *from)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)from)));
}

VF_INLINE vf vf_lookup4(const float *values, const uint8_t *codes)
{
    int32_t four;
    memcpy(&four, codes, sizeof four);
    const __m128i bytes = _mm_cvtsi32_si128(four);
    const __m128i mask = _mm_set1_epi8(15);
    const __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), mask);
    const __m128i both = _mm_unpacklo_epi8(high, _mm_and_si128(bytes, mask));
    const __m256i index = _mm256_cvtepu8_epi32(both);
    const __m256 first = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values), index);
    const __m256 second = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values + 8), index);
    return _mm256_blendv_ps(first, second, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
}

VF_INLINE vf vf_load_bf16(const uint16_t *from)
{
    const __m128i half = _mm_loadu_si128((const void *)from);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

VF_INLINE void vf_store_bf16(uint16_t *to, vf value)
{
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i upper = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    const __m256i sign = _mm256_and_si256(upper, _mm256_set1_epi32(0x8000));
    const __m256i quiet = _mm256_or_si256(sign, _mm256_set1_epi32(0x7fc0));
    const __m256i high = _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, high), 0xd8);
    _mm_storeu_si128((void *)to, _mm256_castsi256_si128(packed));
}

VF_INLINE vf vf_load_fp16(const uint16_t *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)from));
}

VF_INLINE void vf_store_fp16(uint16_t *to, vf value)
{
    _mm_storeu_si128((void *)to, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

#endif

#endif
