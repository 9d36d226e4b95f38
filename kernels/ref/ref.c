/* ref.c: storage types, gradients of parameters, and the references by id. */
#include "kernels/ref/ref.h"

#include <assert.h>

#include "core/base/half.h"
#include "kernels/ref/grad.h"

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

void kern_ref_run(enum kern_op op, const void *arguments)
{
    switch (op) {
    case KERN_LINEAR: kern_ref_linear(arguments); return;
    case KERN_LINEAR_GRAD_INPUT: kern_ref_linear_grad_input(arguments); return;
    case KERN_LINEAR_GRAD_WEIGHT: kern_ref_linear_grad_weight(arguments); return;
    case KERN_BIAS_GRAD: kern_ref_bias_grad(arguments); return;
    case KERN_EMBED: kern_ref_embed(arguments); return;
    case KERN_EMBED_GRAD: kern_ref_embed_grad(arguments); return;
    case KERN_NORM: kern_ref_norm(arguments); return;
    case KERN_NORM_GRAD: kern_ref_norm_grad(arguments); return;
    case KERN_ROPE: kern_ref_rope(arguments); return;
    case KERN_ATTENTION: kern_ref_attention(arguments); return;
    case KERN_ATTENTION_GRAD: kern_ref_attention_grad(arguments); return;
    case KERN_ACT: kern_ref_act(arguments); return;
    case KERN_ACT_GRAD: kern_ref_act_grad(arguments); return;
    case KERN_ADD: kern_ref_add(arguments); return;
    case KERN_LOSS: kern_ref_loss(arguments); return;
    case KERN_LOSS_STATS: kern_ref_loss_stats(arguments); return;
    case KERN_LOSS_SUM: kern_ref_loss_sum(arguments); return;
    case KERN_LOSS_GRAD: kern_ref_loss_grad(arguments); return;
    case KERN_CAST:   /* tests/dev holds it against its own reference, */
    case KERN_UPDATE: /* and tests/cuda these against cpu_adam */
    case KERN_SQUARES:
    case KERN_AXPY:
    case KERN_SCALE:
    case KERN_FINITE:
    case KERN_OP_COUNT: break;
    }
    assert(op < KERN_CAST);
}
