/* columns.cuh: sums over rows in an order that the arguments decide: kernels write partial sums,
 * and kern_cuda_columns_finish() adds these up as a gradient. */
#ifndef KERNELS_CUDA_COLUMNS_CUH
#define KERNELS_CUDA_COLUMNS_CUH

#include "core/dev/launch.h"
#include "kernels/cuda/half.cuh"
#include "kernels/cuda/wide.cuh"
#include "kernels/kern.h"

/* Adds up the rows of dense parts[count][width] and writes the sums as a gradient. In linear.cu. */
int kern_cuda_columns_finish(const struct dev_launch *where, const char *op, const float *parts,
                             int64_t count, int64_t width, const struct kern_grad *grad);

/* Adds `value`, element `index` of this micro-batch's gradient, to the sum over micro-batches;
 * after the last one writes the result to grad.out unless NULL. */
__device__ inline void kern_grad_put(const struct kern_grad &grad, int64_t index, float value)
{
    const float sum = grad.first ? value : grad.sum[index] + value;
    if (!grad.last || grad.out == nullptr) {
        grad.sum[index] = sum;
    } else if (grad.out_type == KERN_BF16) {
        static_cast<uint16_t *>(grad.out)[index] = kern_bf16::narrow(sum);
    } else if (grad.out_type == KERN_FP16) {
        static_cast<uint16_t *>(grad.out)[index] = kern_fp16::narrow(sum);
    } else {
        static_cast<float *>(grad.out)[index] = sum;
    }
}

/* As kern_grad_put(), for a group of elements from `index` on, of which `left` exist. */
__device__ inline void kern_grad_put_group(const struct kern_grad &grad, int64_t index,
                                           float (&value)[KERN_GROUP], int64_t left, bool wide)
{
    if (!grad.first) {
        float sum[KERN_GROUP];
        kern_load<kern_f32>(sum, grad.sum, index, left, wide);
#pragma unroll
        for (int j = 0; j < KERN_GROUP; j++) {
            value[j] = sum[j] + value[j];
        }
    }
    if (!grad.last || grad.out == nullptr) {
        kern_store<kern_f32>(value, grad.sum, index, left, wide);
    } else {
        kern_store_any(grad.out_type, value, grad.out, index, left, wide);
    }
}

/* Host: returns whether rows of `width` elements begin at multiples of 16 bytes in the gradient's
 * arrays (NULL does). */
static inline bool kern_grad_is_wide(const struct kern_grad &grad, int64_t width)
{
    return kern_is_wide(KERN_F32, grad.sum, width) && kern_is_wide(grad.out_type, grad.out, width);
}

#endif
