/* vec_base.h: the vector of vec.h in portable C: four lanes, which compilers map to SSE2 or
 * NEON. */
#ifndef KERNELS_CPU_ISA_VEC_BASE_H
#define KERNELS_CPU_ISA_VEC_BASE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/base/half.h"
#include "kernels/cpu/isa/inline.h"

enum { LANES = 4, PRODUCT_ROWS = 4, PRODUCT_VECTORS = 2 };

typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));

#define VF_ISA(name) name##_base
#define VF_FLAG      0

#define VF_EACH(macro, h) macro(0, h), macro(1, h), macro(2, h), macro(3, h)

VF_INLINE vf vf_set(float value)
{
    return (vf){value, value, value, value};
}

VF_INLINE vf vf_load(const float *from)
{
    vf value;
    memcpy(&value, from, sizeof value);
    return value;
}

VF_INLINE void vf_store(float *to, vf value)
{
    memcpy(to, &value, sizeof value);
}

VF_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}

VF_INLINE vf vf_max(vf a, vf b)
{
    const vi above = a > b;
    return (vf)(((vi)a & above) | ((vi)b & ~above));
}

VF_INLINE vf vf_min(vf a, vf b)
{
    const vi below = a < b;
    return (vf)(((vi)a & below) | ((vi)b & ~below));
}

/* Rounds to whole numbers, for values below 2^22. */
VF_INLINE vf vf_round(vf a)
{
    const vf magic = vf_set(12582912.0f);
    return (a + magic) - magic;
}

/* Returns signed bytes as floats. */
VF_INLINE vf vf_load_int8(const int8_t *from)
{
    return (vf){from[0], from[1], from[2], from[3]};
}

/* Returns the values of LANES 4-bit codes; a byte's high half comes first. */
VF_INLINE vf vf_lookup4(const float *values, const uint8_t *codes)
{
    return (vf){values[codes[0] >> 4], values[codes[0] & 15], values[codes[1] >> 4],
                values[codes[1] & 15]};
}

VF_INLINE vf vf_load_bf16(const uint16_t *from)
{
    vi bits = {(int32_t)((uint32_t)from[0] << 16), (int32_t)((uint32_t)from[1] << 16),
               (int32_t)((uint32_t)from[2] << 16), (int32_t)((uint32_t)from[3] << 16)};
    return (vf)bits;
}

VF_INLINE void vf_store_bf16(uint16_t *to, vf value)
{
    for (int i = 0; i < LANES; i++) {
        to[i] = core_f32_to_bf16(value[i]);
    }
}

VF_INLINE vf vf_load_fp16(const uint16_t *from)
{
    return (vf){core_fp16_to_f32(from[0]), core_fp16_to_f32(from[1]), core_fp16_to_f32(from[2]),
                core_fp16_to_f32(from[3])};
}

VF_INLINE void vf_store_fp16(uint16_t *to, vf value)
{
    for (int i = 0; i < LANES; i++) {
        to[i] = core_f32_to_fp16(value[i]);
    }
}

#endif
