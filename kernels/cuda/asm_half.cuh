/* asm_half.cuh: the card's conversions between fp16 and fp32, nearest even. cuda_fp16.h has them too, and
 * takes each file 0.4 s to read. A test replaces this file by one in plain C++ (tests/cuda). */
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

#endif
