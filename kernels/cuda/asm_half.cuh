/* asm_half.cuh: the card's conversions between 16-bit types and fp32, without cuda_fp16.h and
 * cuda_bf16.h, which would slow down every file's compilation.
 * A test replaces this file by plain C++ (tests/cuda). */
#ifndef KERNELS_CUDA_ASM_HALF_CUH
#define KERNELS_CUDA_ASM_HALF_CUH

#include <stdint.h>

#include <cuda_runtime_api.h>

__device__ __forceinline__ float kern_half_widen(uint16_t bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}

__device__ __forceinline__ uint16_t kern_half_narrow(float value)
{
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

/* Converts two numbers to bf16, to nearest even, the first in the low half. NaN becomes 0x7fff. */
__device__ __forceinline__ uint32_t kern_bf16_pair(float first, float second)
{
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}

#endif
