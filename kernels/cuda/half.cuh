/* half.cuh: bf16 and fp16 to fp32 and back on the device, with the bits of core/base/half.h: to
 * nearest even; narrowing makes a NaN the quiet one of its sign, widening keeps its payload. */
#ifndef KERNELS_CUDA_HALF_CUH
#define KERNELS_CUDA_HALF_CUH

#include <stdint.h>

#include "kernels/cuda/asm_half.cuh"

/* The element types; `store` is the form in memory. */
struct kern_f32 {
    using store = uint32_t;
    static __device__ float widen(store bits)
    {
        return __uint_as_float(bits);
    }
    static __device__ store narrow(float value)
    {
        return __float_as_uint(value);
    }
};

struct kern_bf16 {
    using store = uint16_t;
    static __device__ float widen(store bits)
    {
        return __uint_as_float(static_cast<uint32_t>(bits) << 16);
    }
    static __device__ store narrow(float value)
    {
        uint32_t bits = __float_as_uint(value);
        uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
        uint32_t nan = (bits >> 16 & 0x8000u) | 0x7fc0u;
        return static_cast<store>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
    }
};

template <typename T> constexpr bool kern_is_bf16 = false;
template <> constexpr bool kern_is_bf16<kern_bf16> = true;

struct kern_fp16 {
    using store = uint16_t;
    static __device__ float widen(store bits)
    {
        uint32_t nan = (bits & 0x8000u) << 16 | 0x7fc00000u | (bits & 0x3ffu) << 13;
        return (bits & 0x7fffu) > 0x7c00u ? __uint_as_float(nan) : kern_half_widen(bits);
    }
    static __device__ store narrow(float value)
    {
        uint32_t bits = __float_as_uint(value);
        uint32_t nan = (bits >> 16 & 0x8000u) | 0x7e00u;
        uint32_t rounded = kern_half_narrow(value);
        return static_cast<store>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
    }
};

#endif
