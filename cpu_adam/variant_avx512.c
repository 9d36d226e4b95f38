/* variant_avx512.c: the inner loops for AVX-512 F, BW, DQ and VL. */
#define ADAM_VEC_AVX512
#include "cpu_adam/body.h"

void adam_ops_fill_avx512(struct adam_ops *ops)
{
    fill(ops, "avx512");
}
