/* vec_avx2.h: the vector functions with eight lanes: AVX2, FMA and F16C. vec_scalar.h describes
 * them. */
#ifndef CPU_ADAM_VEC_AVX2_H
#define CPU_ADAM_VEC_AVX2_H
#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>
#include <stdint.h>

#define V_INLINE static inline __attribute__((always_inline, unused))

typedef __m256 vf;
typedef __m256i vu;
typedef __m256d vd;
enum { V_LANES = 8, V_DOUBLES = 4 };

V_INLINE vf v_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

V_INLINE void v_store(float *to, vf x)
{
    _mm256_storeu_ps(to, x);
}

V_INLINE vf v_set(float x)
{
    return _mm256_set1_ps(x);
}

V_INLINE vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}

V_INLINE vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}

V_INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

V_INLINE vf v_sqrt(vf a)
{
    return _mm256_sqrt_ps(a);
}

V_INLINE vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}

V_INLINE vf v_div_or_zero(vf a, vf b)
{
    vf zero = _mm256_cmp_ps(b, _mm256_setzero_ps(), _CMP_EQ_OQ);
    return _mm256_andnot_ps(zero, _mm256_div_ps(a, b));
}

V_INLINE vu v_bits(vf a)
{
    return _mm256_castps_si256(a);
}

V_INLINE vf v_float(vu a)
{
    return _mm256_castsi256_ps(a);
}

V_INLINE vf v_canonical(vf a)
{
    vf nan = _mm256_cmp_ps(a, a, _CMP_UNORD_Q);
    vf sign = _mm256_and_ps(a, _mm256_set1_ps(-0.0f));
    vf quiet = _mm256_or_ps(sign, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)));
    return _mm256_blendv_ps(a, quiet, nan);
}

V_INLINE vf v_load_fp16(const uint16_t *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)from));
}

V_INLINE void v_store_fp16(uint16_t *to, vf a)
{
    __m128i half = _mm256_cvtps_ph(v_canonical(a), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128((__m128i *)(void *)to, half);
}

V_INLINE vu u_set(uint32_t x)
{
    return _mm256_set1_epi32((int)x);
}

V_INLINE vu u_lanes(void)
{
    return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
}

V_INLINE vu u_load16(const uint16_t *from)
{
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)from));
}

V_INLINE vu u_load_signed16(const uint16_t *from)
{
    return _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(const void *)from));
}

V_INLINE void u_store16_two(uint16_t *to, vu a, vu b)
{
    const vu low = _mm256_set1_epi32(0xffff);
    vu packed = _mm256_packus_epi32(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permute4x64_epi64(packed, 0xd8));
}

V_INLINE void u_store16_upper_two(uint16_t *to, vu a, vu b)
{
    vu packed = _mm256_packus_epi32(_mm256_srli_epi32(a, 16), _mm256_srli_epi32(b, 16));
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permute4x64_epi64(packed, 0xd8));
}

V_INLINE vu u_add(vu a, vu b)
{
    return _mm256_add_epi32(a, b);
}

V_INLINE vu u_and(vu a, vu b)
{
    return _mm256_and_si256(a, b);
}

V_INLINE vu u_or(vu a, vu b)
{
    return _mm256_or_si256(a, b);
}

V_INLINE vu u_xor(vu a, vu b)
{
    return _mm256_xor_si256(a, b);
}

V_INLINE vu u_max(vu a, vu b)
{
    return _mm256_max_epu32(a, b);
}

#define u_shl(a, bits) _mm256_slli_epi32(a, bits)
#define u_shr(a, bits) _mm256_srli_epi32(a, bits)

V_INLINE vu u_load(const void *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}

V_INLINE void u_store(void *to, vu a)
{
    _mm256_storeu_si256((__m256i *)to, a);
}

V_INLINE vf v_swap_middle(vf a)
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(a), 0xd8));
}

V_INLINE void v_part(vf low, vf high, vf *even, vf *odd)
{
    *even = v_swap_middle(_mm256_shuffle_ps(low, high, 0x88));
    *odd = v_swap_middle(_mm256_shuffle_ps(low, high, 0xdd));
}

V_INLINE void v_join(vf even, vf odd, vf *low, vf *high)
{
    vf first = _mm256_unpacklo_ps(even, odd);
    vf second = _mm256_unpackhi_ps(even, odd);
    *low = _mm256_permute2f128_ps(first, second, 0x20);
    *high = _mm256_permute2f128_ps(first, second, 0x31);
}

V_INLINE void v_load_pair(const float *from, vf *even, vf *odd)
{
    v_part(v_load(from), v_load(from + V_LANES), even, odd);
}

V_INLINE void v_store_pair(float *to, vf even, vf odd)
{
    vf low;
    vf high;
    v_join(even, odd, &low, &high);
    v_store(to, low);
    v_store(to + V_LANES, high);
}

V_INLINE void v_load_pair_fp16(const uint16_t *from, vf *even, vf *odd)
{
    v_part(v_load_fp16(from), v_load_fp16(from + V_LANES), even, odd);
}

V_INLINE void v_store_pair_fp16(uint16_t *to, vf even, vf odd)
{
    vf low;
    vf high;
    v_join(even, odd, &low, &high);
    v_store_fp16(to, low);
    v_store_fp16(to + V_LANES, high);
}

V_INLINE vu u_pick(vu mask, vu a, vu b)
{
    return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
}

V_INLINE vu u_and_or(vu a, vu mask, vu b)
{
    return _mm256_or_si256(_mm256_and_si256(a, mask), b);
}

V_INLINE vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}

#define u_sar(a, bits) _mm256_srai_epi32(a, bits)

/* A word is in the low half of a 64-bit lane; the upper half is undefined. */
struct vw {
    vu even;
    vu odd;
};

V_INLINE struct vw w_spread(vu a)
{
    return (struct vw){a, _mm256_srli_epi64(a, 32)};
}

V_INLINE vu w_words(struct vw a)
{
    return _mm256_blend_epi32(a.even, _mm256_slli_epi64(a.odd, 32), 0xaa);
}

V_INLINE struct vw w_multiply(struct vw a, vu b)
{
    return (struct vw){_mm256_mul_epu32(a.even, b), _mm256_mul_epu32(a.odd, b)};
}

V_INLINE vu w_next_half(vu product, vu a, vu key)
{
    return _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(product, 32), key), a);
}

V_INLINE struct vw w_next(struct vw product, struct vw a, vu key)
{
    return (struct vw){w_next_half(product.even, a.even, key),
                       w_next_half(product.odd, a.odd, key)};
}

V_INLINE uint32_t u_largest(vu a)
{
    __m128i x = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0x4e));
    x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(x);
}

V_INLINE vd d_load(const double *from)
{
    return _mm256_loadu_pd(from);
}

V_INLINE void d_add_squares(vd *acc, vf x)
{
    vd low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    vd high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    acc[0] = _mm256_fmadd_pd(low, low, acc[0]);
    acc[1] = _mm256_fmadd_pd(high, high, acc[1]);
}

V_INLINE void d_store(double *to, vd a)
{
    _mm256_storeu_pd(to, a);
}

#endif
#endif
