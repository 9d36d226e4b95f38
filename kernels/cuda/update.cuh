/* update.cuh: the parts of the update that work on one number: rules, codes of 8-bit moments,
 * random numbers (docs/optimizers.md).
 * Multiply-adds are fused only where the code says so, which gives the CPU's bits. */
#ifndef KERNELS_CUDA_UPDATE_CUH
#define KERNELS_CUDA_UPDATE_CUH

#include <cuda_runtime_api.h>

#include "core/base/update_args.h"
#include "kernels/cuda/half.cuh"

/* ---- The rules ---- */

struct kern_element {
    float p, m, v;
};

__device__ inline float kern_div_or_zero(float a, float b)
{
    const float quotient = __fdiv_rn(a, b); /* always computed: no branch */
    return b == 0.0f ? 0.0f : quotient;
}

__device__ inline void kern_adam(kern_element &e, float g, const core_update_scalars &s,
                                 bool decoupled)
{
    if (s.decays && !decoupled) {
        g = __fmaf_rn(e.p, s.decay, g);
    }
    e.m = __fmaf_rn(g, s.one_minus_beta1, e.m * s.beta1);
    e.v = __fmaf_rn(g * g, s.one_minus_beta2, e.v * s.beta2);
    const float size = __fmaf_rn(__fsqrt_rn(e.v), s.root_scale, s.eps);
    const float direction = kern_div_or_zero(e.m, size);
    const float decayed = e.p + __fmaf_rn(direction, s.rate, e.p * s.decay); /* small terms first */
    const float plain = __fmaf_rn(direction, s.rate, e.p);
    e.p = s.decays && decoupled ? decayed : plain;
}

__device__ inline void kern_lion(kern_element &e, float g, const core_update_scalars &s)
{
    const float mixed = __fmaf_rn(g, s.one_minus_beta1, e.m * s.beta1);
    const uint32_t sign = __float_as_uint(mixed) & 0x80000000u;
    const float move = __uint_as_float(sign ^ __float_as_uint(s.rate));
    /* NaN if `mixed` is not finite: a NaN's sign depends on the processor. */
    e.p = __fmaf_rn(e.p, s.decay, __fmaf_rn(mixed, 0.0f, move));
    e.m = __fmaf_rn(g, s.one_minus_beta2, e.m * s.beta2);
}

__device__ inline void kern_adagrad(kern_element &e, float g, const core_update_scalars &s)
{
    if (s.decays) {
        g = __fmaf_rn(e.p, s.decay, g);
    }
    e.v = __fmaf_rn(g, g, e.v);
    e.p = __fmaf_rn(kern_div_or_zero(g, __fsqrt_rn(e.v) + s.eps), s.rate, e.p);
}

__device__ inline void kern_sgd(kern_element &e, float g, const core_update_scalars &s)
{
    if (s.decays) {
        g = __fmaf_rn(e.p, s.decay, g);
    }
    e.m = __fmaf_rn(e.m, s.beta1, g);
    e.p = __fmaf_rn(e.m, s.rate, e.p);
}

__device__ inline void kern_apply(core_update_rule rule, kern_element &e, float g,
                                  const core_update_scalars &s)
{
    /* No default: a missing new rule is a compiler warning. */
    switch (rule) {
    case CORE_UPDATE_ADAM: kern_adam(e, g, s, false); break;
    case CORE_UPDATE_ADAMW: kern_adam(e, g, s, true); break;
    case CORE_UPDATE_LION: kern_lion(e, g, s); break;
    case CORE_UPDATE_ADAGRAD: kern_adagrad(e, g, s); break;
    case CORE_UPDATE_SGD: kern_sgd(e, g, s); break;
    case CORE_UPDATE_RULES: break; /* refused before the launch */
    }
}

/* ---- Moments in 8 bits ---- */

constexpr int KERN_Q8_SHIFT = 20;
constexpr float KERN_Q8_M_C = 0x1p-15f;
constexpr float KERN_Q8_V_C = 0x1p-31f;
constexpr float KERN_Q8_M_TOP = 1.875f - KERN_Q8_M_C;
constexpr float KERN_Q8_V_TOP = 1.875f - KERN_Q8_V_C;
constexpr float KERN_Q8_V_LEAST = 0x1.2p-31f;
constexpr float KERN_Q8_SCALE_MIN = 0x1p-80f;

__device__ inline float kern_q8_value(uint32_t code, float c, float unit)
{
    const float y = __uint_as_float((code << KERN_Q8_SHIFT) + __float_as_uint(c));
    return __fmaf_rn(y, unit, -(c * unit));
}

__device__ inline float kern_q8_m_value(uint32_t code, float unit)
{
    const uint32_t size = __float_as_uint(kern_q8_value(code & 0x7fu, KERN_Q8_M_C, unit));
    return __uint_as_float((size & 0x7fffffffu) | (code & 0x80u) << 24);
}

__device__ inline uint32_t kern_q8_m_code(float x, float rate, uint32_t chance)
{
    const uint32_t bits = __float_as_uint(x);
    const float y = __fmaf_rn(__uint_as_float(bits & 0x7fffffffu), rate, KERN_Q8_M_C);
    const uint32_t size = (__float_as_uint(y) + (chance << (KERN_Q8_SHIFT - 16))) >> KERN_Q8_SHIFT;
    return (size & 0x7fu) | (bits >> 24 & 0x80u);
}

__device__ inline uint32_t kern_q8_v_code(float x, float rate, uint32_t chance)
{
    const float wanted = __fmaf_rn(x, rate, KERN_Q8_V_C);
    const float y = wanted > KERN_Q8_V_LEAST ? wanted : KERN_Q8_V_LEAST;
    return (__float_as_uint(y) + (chance << (KERN_Q8_SHIFT - 16))) >> KERN_Q8_SHIFT & 0xffu;
}

/* ---- Random numbers: Philox-4x32-10 ---- */

__device__ inline uint4 kern_philox(uint64_t seed, uint64_t stream, uint64_t position)
{
    uint4 c = {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
               static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
    uint32_t k0 = static_cast<uint32_t>(seed);
    uint32_t k1 = static_cast<uint32_t>(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64_t product0 = static_cast<uint64_t>(c.x) * 0xD2511F53u; /* one instruction */
        const uint64_t product1 = static_cast<uint64_t>(c.z) * 0xCD9E8D57u;
        const uint32_t high0 = static_cast<uint32_t>(product0 >> 32);
        const uint32_t high1 = static_cast<uint32_t>(product1 >> 32);
        const uint32_t low0 = static_cast<uint32_t>(product0);
        const uint32_t low1 = static_cast<uint32_t>(product1);
        c = {high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, low0};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

#endif
