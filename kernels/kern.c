/* kern.c: names and sizes of types and ops, and the size of a tile. No state. */
#include "kernels/kern.h"

#include <assert.h>

static const struct {
    const char *name;
    size_t argument_bytes;
} ops[KERN_OP_COUNT] = {
    [KERN_LINEAR] = {"linear", sizeof(struct kern_linear_arguments)},
    [KERN_LINEAR_GRAD_INPUT] = {"linear_grad_input",
                                sizeof(struct kern_linear_grad_input_arguments)},
    [KERN_LINEAR_GRAD_WEIGHT] = {"linear_grad_weight",
                                 sizeof(struct kern_linear_grad_weight_arguments)},
    [KERN_BIAS_GRAD] = {"bias_grad", sizeof(struct kern_bias_grad_arguments)},
    [KERN_EMBED] = {"embed", sizeof(struct kern_embed_arguments)},
    [KERN_EMBED_GRAD] = {"embed_grad", sizeof(struct kern_embed_grad_arguments)},
    [KERN_NORM] = {"norm", sizeof(struct kern_norm_arguments)},
    [KERN_NORM_GRAD] = {"norm_grad", sizeof(struct kern_norm_grad_arguments)},
    [KERN_ROPE] = {"rope", sizeof(struct kern_rope_arguments)},
    [KERN_ATTENTION] = {"attention", sizeof(struct kern_attention_arguments)},
    [KERN_ATTENTION_GRAD] = {"attention_grad", sizeof(struct kern_attention_grad_arguments)},
    [KERN_ACT] = {"act", sizeof(struct kern_act_arguments)},
    [KERN_ACT_GRAD] = {"act_grad", sizeof(struct kern_act_grad_arguments)},
    [KERN_ADD] = {"add", sizeof(struct kern_add_arguments)},
    [KERN_DROPOUT] = {"dropout", sizeof(struct kern_dropout_arguments)},
    [KERN_MAGNITUDE] = {"magnitude", sizeof(struct kern_magnitude_arguments)},
    [KERN_COLUMNS] = {"columns", sizeof(struct kern_columns_arguments)},
    [KERN_LOSS] = {"loss", sizeof(struct kern_loss_arguments)},
    [KERN_EXPAND] = {"expand", sizeof(struct kern_expand_arguments)},
    [KERN_UPDATE] = {"update", sizeof(struct kern_update_arguments)},
    [KERN_SQUARES] = {"squares", sizeof(struct core_squares_args)},
    [KERN_SUM] = {"sum", sizeof(struct core_sum_args)},
};

enum { TILE_GRAIN = 64 };

size_t kern_type_bytes(enum kern_type type)
{
    static const size_t bytes[] = {4, 2, 2, 8};
    return bytes[type];
}

const char *kern_type_name(enum kern_type type)
{
    static const char *const names[] = {"fp32", "bf16", "fp16", "fp64"};
    return names[type];
}

const char *kern_op_name(enum kern_op op)
{
    assert(op < KERN_OP_COUNT);
    return ops[op].name;
}

size_t kern_op_argument_bytes(enum kern_op op)
{
    assert(op < KERN_OP_COUNT);
    return ops[op].argument_bytes;
}

struct kern_grad kern_grad_at(const struct kern_grad *grad, int64_t first)
{
    struct kern_grad at = *grad;
    if (at.sum != NULL) {
        at.sum += first;
    }
    if (at.out != NULL) {
        at.out = (char *)at.out + (size_t)first * kern_type_bytes(at.out_type);
    }
    return at;
}

int64_t kern_tile_rows(int64_t n, int64_t k, enum kern_type type, uint64_t tile_bytes)
{
    assert(n >= 0 && k > 0);
    const uint64_t rows = tile_bytes / ((uint64_t)k * kern_type_bytes(type));
    if (tile_bytes == 0 || rows >= (uint64_t)n) {
        return n;
    }
    const int64_t tile = (int64_t)(rows / TILE_GRAIN * TILE_GRAIN);
    return tile > TILE_GRAIN ? tile : (n < TILE_GRAIN ? n : TILE_GRAIN);
}
