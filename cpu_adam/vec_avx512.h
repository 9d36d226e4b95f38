/* vec_avx512.h: the vector functions with sixteen lanes: AVX-512 F, BW, DQ and VL. vec_scalar.h
 * describes them. */
#ifndef CPU_ADAM_VEC_AVX512_H
#define CPU_ADAM_VEC_AVX512_H
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)

#include <immintrin.h>
#include <stdint.h>

#define V_INLINE static inline __attribute__((always_inline, unused))

typedef __m512 vf;
typedef __m512i vu;
typedef __m512d vd;
enum { V_LANES = 16, V_DOUBLES = 8 };

V_INLINE vf v_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

V_INLINE void v_store(float *to, vf x)
{
    _mm512_storeu_ps(to, x);
}

V_INLINE vf v_set(float x)
{
    return _mm512_set1_ps(x);
}

V_INLINE vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}

V_INLINE vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}

V_INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

V_INLINE vf v_sqrt(vf a)
{
    return _mm512_sqrt_ps(a);
}

V_INLINE vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}

V_INLINE vf v_div_or_zero(vf a, vf b)
{
    __mmask16 some = _mm512_cmp_ps_mask(b, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    return _mm512_maskz_div_ps(some, a, b);
}

V_INLINE vu v_bits(vf a)
{
    return _mm512_castps_si512(a);
}

V_INLINE vf v_float(vu a)
{
    return _mm512_castsi512_ps(a);
}

V_INLINE vf v_canonical(vf a)
{
    __mmask16 nan = _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
    vu quiet = _mm512_set1_epi32(0x7fc00000);
    vu sign = _mm512_set1_epi32((int)0x80000000u);
    vu bits = _mm512_castps_si512(a);
    return _mm512_castsi512_ps(_mm512_mask_ternarylogic_epi32(bits, nan, sign, quiet, 0xea));
}

V_INLINE vf v_load_fp16(const uint16_t *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)from));
}

V_INLINE void v_store_fp16(uint16_t *to, vf a)
{
    __m256i half = _mm512_cvtps_ph(v_canonical(a), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256((__m256i *)(void *)to, half);
}

V_INLINE vu u_set(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}

V_INLINE vu u_lanes(void)
{
    return _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

V_INLINE vu u_load16(const uint16_t *from)
{
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)from));
}

V_INLINE vu u_load_signed16(const uint16_t *from)
{
    return _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)from));
}

V_INLINE void u_store16_two(uint16_t *to, vu a, vu b)
{
    const vu low = _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32,
                                    30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, low, b));
}

V_INLINE void u_store16_upper_two(uint16_t *to, vu a, vu b)
{
    const vu upper = _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35,
                                      33, 31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3,
                                      1);
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16(a, upper, b));
}

V_INLINE vu u_add(vu a, vu b)
{
    return _mm512_add_epi32(a, b);
}

V_INLINE vu u_and(vu a, vu b)
{
    return _mm512_and_si512(a, b);
}

V_INLINE vu u_or(vu a, vu b)
{
    return _mm512_or_si512(a, b);
}

V_INLINE vu u_xor(vu a, vu b)
{
    return _mm512_xor_si512(a, b);
}

V_INLINE vu u_max(vu a, vu b)
{
    return _mm512_max_epu32(a, b);
}

#define u_shl(a, bits) _mm512_slli_epi32(a, bits)
#define u_shr(a, bits) _mm512_srli_epi32(a, bits)

V_INLINE vu u_load(const void *from)
{
    return _mm512_loadu_si512(from);
}

V_INLINE void u_store(void *to, vu a)
{
    _mm512_storeu_si512(to, a);
}

V_INLINE void v_part(vf low, vf high, vf *even, vf *odd)
{
    const vu evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const vu odds = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    *even = _mm512_permutex2var_ps(low, evens, high);
    *odd = _mm512_permutex2var_ps(low, odds, high);
}

V_INLINE void v_join(vf even, vf odd, vf *low, vf *high)
{
    const vu first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const vu second = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                        31);
    *low = _mm512_permutex2var_ps(even, first, odd);
    *high = _mm512_permutex2var_ps(even, second, odd);
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
    return _mm512_ternarylogic_epi32(a, mask, b, 0xe2); /* the mask keeps its register */
}

V_INLINE vu u_and_or(vu a, vu mask, vu b)
{
    return _mm512_ternarylogic_epi32(a, mask, b, 0xea);
}

V_INLINE vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

#define u_sar(a, bits) _mm512_srai_epi32(a, bits)

/* A word is in the low half of a 64-bit lane; the upper half is undefined. */
struct vw {
    vu even;
    vu odd;
};

V_INLINE struct vw w_spread(vu a)
{
    return (struct vw){a, _mm512_srli_epi64(a, 32)};
}

V_INLINE vu w_words(struct vw a)
{
    return _mm512_mask_blend_epi32(0xaaaa, a.even, _mm512_slli_epi64(a.odd, 32));
}

V_INLINE struct vw w_multiply(struct vw a, vu b)
{
    return (struct vw){_mm512_mul_epu32(a.even, b), _mm512_mul_epu32(a.odd, b)};
}

V_INLINE struct vw w_next(struct vw product, struct vw a, vu key)
{
    return (struct vw){
        _mm512_ternarylogic_epi32(_mm512_srli_epi64(product.even, 32), a.even, key, 0x96),
        _mm512_ternarylogic_epi32(_mm512_srli_epi64(product.odd, 32), a.odd, key, 0x96),
    };
}

V_INLINE uint32_t u_largest(vu a)
{
    __m256i y = _mm256_max_epu32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    __m128i x = _mm_max_epu32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
    x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0x4e));
    x = _mm_max_epu32(x, _mm_shuffle_epi32(x, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(x);
}

V_INLINE vd d_load(const double *from)
{
    return _mm512_loadu_pd(from);
}

V_INLINE void d_add_squares(vd *acc, vf x)
{
    vd low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    vd high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    acc[0] = _mm512_fmadd_pd(low, low, acc[0]);
    acc[1] = _mm512_fmadd_pd(high, high, acc[1]);
}

V_INLINE void d_store(double *to, vd a)
{
    _mm512_storeu_pd(to, a);
}

#endif
#endif
