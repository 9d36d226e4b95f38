/* variant_neon.c: the inner loops for AArch64. */
#define ADAM_VEC_NEON
#include "cpu_adam/body.h"

void adam_ops_fill_neon(struct adam_ops *ops)
{
    fill(ops, "neon");
}
