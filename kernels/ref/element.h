/* element.h: loads and stores one element of any storage type, and adds one element to a
 * parameter's gradient. Does not depend on the reference ops. */
#ifndef KERNELS_REF_ELEMENT_H
#define KERNELS_REF_ELEMENT_H

#include "kernels/kern.h"

double kern_ref_load(enum kern_type type, const void *from, int64_t index);
/* Rounds to nearest even; a 16-bit type from the value rounded to fp32. */
void kern_ref_store(enum kern_type type, void *to, int64_t index, double value);

/* `value` is element `index` of the parameter's gradient in this micro-batch: stores it, adds it or
 * writes the sum, as struct kern_grad specifies. */
void kern_ref_grad(const struct kern_grad *grad, int64_t index, double value);

#endif
