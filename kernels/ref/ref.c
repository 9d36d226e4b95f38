/* ref.c: runs a reference op by its id. */
#include "kernels/ref/ref.h"

#include <assert.h>

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
    case KERN_DROPOUT: kern_ref_dropout(arguments); return;
    case KERN_MAGNITUDE: kern_ref_magnitude(arguments); return;
    case KERN_COLUMNS: kern_ref_columns(arguments); return;
    case KERN_LOSS: kern_ref_loss(arguments); return;
    case KERN_EXPAND: kern_ref_expand(arguments); return;
    case KERN_UPDATE: /* tests/cuda/test_update.c tests these three */
    case KERN_SQUARES:
    case KERN_SUM:
    case KERN_OP_COUNT: break;
    }
    assert(op < KERN_UPDATE);
}
