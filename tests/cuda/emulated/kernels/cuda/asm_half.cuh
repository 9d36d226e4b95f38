/* asm_half.cuh: the conversions of kernels/cuda/asm_half.cuh in plain C++, for the emulated
 * card. */
#ifndef KERNELS_CUDA_ASM_HALF_CUH
#define KERNELS_CUDA_ASM_HALF_CUH

extern "C" {
#include "core/base/half.h"
}

static inline float kern_half_widen(uint16_t bits)
{
    return core_fp16_to_f32(bits);
}

static inline uint16_t kern_half_narrow(float value)
{
    return core_f32_to_fp16(value);
}

static inline uint32_t kern_bf16_pair(float first, float second)
{
    const uint32_t low = first != first ? 0x7fffu : core_f32_to_bf16(first);
    const uint32_t high = second != second ? 0x7fffu : core_f32_to_bf16(second);
    return low | high << 16;
}

#endif
