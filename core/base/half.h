/* half.h: converts between fp32 and bf16 or fp16. fp32 is rounded to bf16 to nearest even; for the
 * split master, ties round away from zero, so that the high half and the low 16 bits restore an
 * fp32 number. Narrowing turns a NaN into the canonical quiet NaN of its sign. */
#ifndef CORE_BASE_HALF_H
#define CORE_BASE_HALF_H

#include <stddef.h>
#include <stdint.h>

enum { CORE_BF16_NAN = 0x7fc0, CORE_FP16_NAN = 0x7e00 };

float core_bf16_to_f32(uint16_t half);
uint16_t core_f32_to_bf16(float value);      /* nearest, ties to even */
uint16_t core_f32_to_bf16_away(float value); /* nearest, ties away from zero */

float core_fp16_to_f32(uint16_t half);
uint16_t core_f32_to_fp16(float value); /* nearest, ties to even; beyond the range: infinity */

/* The same conversions for arrays. `from` needs no alignment. */
void core_bf16_widen(const void *from, size_t count, float *to);
void core_bf16_narrow(const void *from, size_t count, uint16_t *to); /* from fp32, ties to even */
void core_fp16_widen(const void *from, size_t count, float *to);
void core_fp16_narrow(const void *from, size_t count, uint16_t *to);

uint32_t core_f32_bits(float value);
float core_f32_from_bits(uint32_t bits);

#endif
