/* element.h: loads and stores one element of any storage type, and of a parameter's gradient. */
#ifndef KERNELS_REF_ELEMENT_H
#define KERNELS_REF_ELEMENT_H

#include "kernels/kern.h"

double kern_ref_load(enum kern_type type, const void *from, int64_t index);
/* Rounds to nearest even; 16-bit types from the fp32 value. */
void kern_ref_store(enum kern_type type, void *to, int64_t index, double value);

/* Applies element `index` of a micro-batch's gradient as struct kern_grad specifies. */
void kern_ref_grad(const struct kern_grad *grad, int64_t index, double value);

#endif
