/* element.c: one element of an array or of a parameter's gradient. */
#include "kernels/ref/element.h"

#include "core/base/half.h"

double kern_ref_load(enum kern_type type, const void *from, int64_t index)
{
    switch (type) {
    case KERN_F32: return (double)((const float *)from)[index];
    case KERN_BF16: return (double)core_bf16_to_f32(((const uint16_t *)from)[index]);
    case KERN_FP16: return (double)core_fp16_to_f32(((const uint16_t *)from)[index]);
    case KERN_F64: break;
    }
    return ((const double *)from)[index];
}

void kern_ref_store(enum kern_type type, void *to, int64_t index, double value)
{
    switch (type) {
    case KERN_F32: ((float *)to)[index] = (float)value; return;
    case KERN_BF16: ((uint16_t *)to)[index] = core_f32_to_bf16((float)value); return;
    case KERN_FP16: ((uint16_t *)to)[index] = core_f32_to_fp16((float)value); return;
    case KERN_F64: ((double *)to)[index] = value; return;
    }
}

void kern_ref_grad(const struct kern_grad *grad, int64_t index, double value)
{
    if (grad->sum == NULL && grad->out == NULL) {
        return;
    }
    const double sum = grad->first ? value : (double)grad->sum[index] + value;
    if (grad->last && grad->out != NULL) {
        kern_ref_store(grad->out_type, grad->out, index, sum);
    } else {
        grad->sum[index] = (float)sum;
    }
}
