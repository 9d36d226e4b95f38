/* grad.h: the references' rules for where gradients go. */
#ifndef KERNELS_REF_GRAD_H
#define KERNELS_REF_GRAD_H

#include "kernels/ref/ref.h"

/* Element `index` of a parameter's gradient is `value` in this micro-batch. */
void kern_ref_grad(const struct kern_grad *grad, int64_t index, double value);

#endif
