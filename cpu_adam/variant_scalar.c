/* variant_scalar.c: the inner loops in plain C, for any machine. */
#include "cpu_adam/body.h"

void adam_ops_fill_scalar(struct adam_ops *ops)
{
    fill(ops, "scalar");
}
