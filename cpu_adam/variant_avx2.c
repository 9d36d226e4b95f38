/* variant_avx2.c: the inner loops for AVX2 with FMA and F16C. */
#define ADAM_VEC_AVX2
#include "cpu_adam/body.h"

void adam_ops_fill_avx2(struct adam_ops *ops)
{
    fill(ops, "avx2");
}
