/* ref.h: references for the ops that the CPU device has, in plain loops and double, on host memory.
 * Most take KERN_F64, too, for finite differences. Sums of gradients and saved statistics are
 * fp32. */
#ifndef KERNELS_REF_REF_H
#define KERNELS_REF_REF_H

#include "kernels/kern.h"
#include "kernels/ref/element.h"

void kern_ref_linear(const struct kern_linear_arguments *a);
void kern_ref_linear_grad_input(const struct kern_linear_grad_input_arguments *a);
void kern_ref_linear_grad_weight(const struct kern_linear_grad_weight_arguments *a);
void kern_ref_bias_grad(const struct kern_bias_grad_arguments *a);
void kern_ref_embed(const struct kern_embed_arguments *a);
void kern_ref_embed_grad(const struct kern_embed_grad_arguments *a);
void kern_ref_norm(const struct kern_norm_arguments *a);
void kern_ref_norm_grad(const struct kern_norm_grad_arguments *a);
void kern_ref_rope(const struct kern_rope_arguments *a);
void kern_ref_attention(const struct kern_attention_arguments *a);
void kern_ref_attention_grad(const struct kern_attention_grad_arguments *a);
void kern_ref_act(const struct kern_act_arguments *a);
void kern_ref_act_grad(const struct kern_act_grad_arguments *a);
void kern_ref_add(const struct kern_add_arguments *a);
void kern_ref_expand(const struct kern_expand_arguments *a);
void kern_ref_dropout(const struct kern_dropout_arguments *a);
void kern_ref_magnitude(const struct kern_magnitude_arguments *a);
void kern_ref_columns(const struct kern_columns_arguments *a);
void kern_ref_loss(const struct kern_loss_arguments *a);

void kern_ref_run(enum kern_op op, const void *arguments);

#endif
