/* cuda.h: private to kernels/: the ops of CUDA devices and their shared context. Host side.
 * An op puts its kernels on the queue's stream and returns without waiting, except in the checks of
 * attention.h. `kern_cuda_<op>_bytes` returns the op's scratch bytes. */
#ifndef KERNELS_CUDA_CUDA_H
#define KERNELS_CUDA_CUDA_H

#include "core/base/update_args.h"
#include "core/dev/launch.h"
#include "kernels/kern.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kern_lt;

enum kern_sm90 { KERN_SM90_UNKNOWN, KERN_SM90_WORKS, KERN_SM90_LEFT_OUT };

/* The object of dev_launch.context. Only the submitting thread changes it. */
struct kern_cuda {
    struct kern_lt *lt;       /* owned; NULL: all products are plain */
    enum kern_sm90 sm90;      /* whether attention_sm90.cu is used */
    enum kern_sm90 sm90_grad; /* whether attention_grad_sm90.cu is used */
    char description[160];
};

/* KERN_CUDA_OPS: the ops without scratch; KERN_CUDA_SCRATCH_OPS: the others. each(id, name, struct
 * of arguments). */
#define KERN_CUDA_OPS(each)                                                                        \
    each(KERN_EMBED, embed, kern_embed_arguments) each(KERN_NORM, norm, kern_norm_arguments)       \
        each(KERN_ROPE, rope, kern_rope_arguments) each(KERN_ACT, act, kern_act_arguments)         \
            each(KERN_ACT_GRAD, act_grad, kern_act_grad_arguments)                                 \
                each(KERN_ADD, add, kern_add_arguments)                                            \
                    each(KERN_EXPAND, expand, kern_expand_arguments)                               \
                        each(KERN_DROPOUT, dropout, kern_dropout_arguments)                        \
                            each(KERN_MAGNITUDE, magnitude, kern_magnitude_arguments)              \
                                each(KERN_COLUMNS, columns, kern_columns_arguments)                \
                                    each(KERN_UPDATE, update, kern_update_arguments)               \
                                        each(KERN_SQUARES, squares, core_squares_args)             \
                                            each(KERN_SUM, sum, core_sum_args)

#define KERN_CUDA_SCRATCH_OPS(each)                                                                \
    each(KERN_LINEAR, linear, kern_linear_arguments)                                               \
        each(KERN_LINEAR_GRAD_INPUT, linear_grad_input, kern_linear_grad_input_arguments)          \
            each(KERN_LINEAR_GRAD_WEIGHT, linear_grad_weight, kern_linear_grad_weight_arguments)   \
                each(KERN_BIAS_GRAD, bias_grad, kern_bias_grad_arguments)                          \
                    each(KERN_EMBED_GRAD, embed_grad, kern_embed_grad_arguments)                   \
                        each(KERN_NORM_GRAD, norm_grad, kern_norm_grad_arguments)                  \
                            each(KERN_ATTENTION, attention, kern_attention_arguments)              \
                                each(KERN_ATTENTION_GRAD, attention_grad,                          \
                                     kern_attention_grad_arguments)                                \
                                    each(KERN_LOSS, loss, kern_loss_arguments)

#define KERN_CUDA_DECLARE(id, name, type)                                                          \
    int kern_cuda_##name(const struct dev_launch *where, const struct type *a);
#define KERN_CUDA_DECLARE_BYTES(id, name, type)                                                    \
    size_t kern_cuda_##name##_bytes(const struct type *a);
KERN_CUDA_OPS(KERN_CUDA_DECLARE)
KERN_CUDA_SCRATCH_OPS(KERN_CUDA_DECLARE)
KERN_CUDA_SCRATCH_OPS(KERN_CUDA_DECLARE_BYTES)
#undef KERN_CUDA_DECLARE
#undef KERN_CUDA_DECLARE_BYTES

#ifdef __cplusplus
}
#endif

#endif
