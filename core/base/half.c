/* half.c: conversions that give the same bits on every machine. */
#include "core/base/half.h"

#include <string.h>

uint32_t core_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float core_f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t magnitude(uint32_t bits)
{
    return bits & 0x7fffffffu;
}

float core_bf16_to_f32(uint16_t half)
{
    return core_f32_from_bits((uint32_t)half << 16);
}

uint16_t core_f32_to_bf16(float value)
{
    uint32_t bits = core_f32_bits(value);
    if (magnitude(bits) > 0x7f800000u) {
        return (uint16_t)(bits >> 16 & 0x8000u) | CORE_BF16_NAN;
    }
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}

uint16_t core_f32_to_bf16_away(float value)
{
    uint32_t bits = core_f32_bits(value);
    if (magnitude(bits) > 0x7f800000u) {
        return (uint16_t)(bits >> 16 & 0x8000u) | CORE_BF16_NAN;
    }
    return (uint16_t)((bits + 0x8000u) >> 16);
}

float core_fp16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 0x1fu;
    uint32_t fraction = half & 0x3ffu;
    if (exponent == 0x1f) {
        return core_f32_from_bits(sign | 0x7f800000u | fraction << 13 |
                                  (fraction != 0 ? 0x400000u : 0));
    }
    if (exponent == 0) {
        float small = (float)fraction * 0x1p-24f;
        return core_f32_from_bits(sign | core_f32_bits(small));
    }
    return core_f32_from_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

uint16_t core_f32_to_fp16(float value)
{
    uint32_t bits = core_f32_bits(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t size = magnitude(bits);
    if (size > 0x7f800000u) {
        return (uint16_t)(sign | CORE_FP16_NAN);
    }
    if (size >= 0x477ff000u) { /* rounds to infinity */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (size < 0x38800000u) { /* the addition rounds to a multiple of 2^-24 */
        float shifted = core_f32_from_bits(size) + 0.5f;
        return (uint16_t)(sign | (core_f32_bits(shifted) - 0x3f000000u));
    }
    uint32_t rounded = size + 0xfffu + (size >> 13 & 1);
    return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}

void core_bf16_widen(const void *from, size_t count, float *to)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, (const char *)from + 2 * i, sizeof half);
        to[i] = core_f32_from_bits((uint32_t)half << 16);
    }
}

/* core_f32_to_bf16() without a branch, so that compilers vectorise the loop. */
void core_bf16_narrow(const void *from, size_t count, uint16_t *to)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, (const char *)from + 4 * i, sizeof bits);
        const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
        const uint32_t nan = (bits >> 16 & 0x8000u) | CORE_BF16_NAN;
        to[i] = (uint16_t)(magnitude(bits) > 0x7f800000u ? nan : rounded);
    }
}

void core_fp16_widen(const void *from, size_t count, float *to)
{
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        memcpy(&half, (const char *)from + 2 * i, sizeof half);
        to[i] = core_fp16_to_f32(half);
    }
}

void core_fp16_narrow(const void *from, size_t count, uint16_t *to)
{
    for (size_t i = 0; i < count; i++) {
        float value;
        memcpy(&value, (const char *)from + 4 * i, sizeof value);
        to[i] = core_f32_to_fp16(value);
    }
}
