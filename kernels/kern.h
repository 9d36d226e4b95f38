/* kern.h: the ops of a training step: one id and one argument struct per op, for all devices.
 * Ops are called by id through the device (core/dev). Pointers are memory of that device, borrowed
 * until the op has run. The structs are read on the host at launch and may be on a stack.
 *
 * Words used below:
 * - type: storage of an op's activations, weights and activation gradients; arithmetic is in fp32,
 *   but operands of a product inside an op may be rounded to the type first; stored values are
 *   rounded once, to nearest even
 * - token: t counts the tokens of a micro-batch: rows * length, row after row
 * - stride: elements between the first elements of consecutive tokens, at least a token's width;
 *   arrays without a stride are dense. q, k and v, or gate and up, can be parts of one product's
 *   result
 * - alias: arrays do not overlap, unless "may be" allows it; then they have the same first element
 *   and stride
 * - dense: weights are dense and row-major, as Hugging Face stores them: [outputs][inputs]
 * Pointers are aligned to their element; dense rows at multiples of 64 bytes are fastest.
 *
 * The same arguments give the same bits on the same device with the same options and number of
 * threads. The number of tokens may be zero: the micro-batch's gradients and loss are then zeros.
 *
 * Numerics contract: a parameter's gradient is computed whole in fp32 for each micro-batch, added
 * to the fp32 accumulator in micro-batch order, and rounded once to the gradient type (struct
 * kern_grad). */
#ifndef KERNELS_KERN_H
#define KERNELS_KERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/update_args.h"

#ifdef __cplusplus
extern "C" {
#endif

enum kern_type {
    KERN_F32,
    KERN_BF16,
    KERN_FP16,
    KERN_F64, /* only for the references (ref/) */
};

/* Returns an element's bytes: 4 for fp32, 2 for bf16 and fp16, 8 for fp64. */
size_t kern_type_bytes(enum kern_type type);
const char *kern_type_name(enum kern_type type); /* "fp32", "bf16", "fp16", "fp64" */

enum kern_op {
    KERN_LINEAR,
    KERN_LINEAR_GRAD_INPUT,
    KERN_LINEAR_GRAD_WEIGHT,
    KERN_BIAS_GRAD,
    KERN_EMBED,
    KERN_EMBED_GRAD,
    KERN_NORM,
    KERN_NORM_GRAD,
    KERN_ROPE,
    KERN_ATTENTION,
    KERN_ATTENTION_GRAD,
    KERN_ACT,
    KERN_ACT_GRAD,
    KERN_ADD,
    KERN_DROPOUT,
    KERN_MAGNITUDE,
    KERN_COLUMNS,
    KERN_LOSS,
    KERN_EXPAND,
    KERN_UPDATE,  /* from here CUDA only; on the CPU, cpu_adam and core/coll do this */
    KERN_SQUARES, /* with struct core_squares_args */
    KERN_SUM,     /* with struct core_sum_args */
    KERN_OP_COUNT /* at most DEV_OP_MAX */
};

/* Returns "linear", "linear_grad_input" ...: the base name of the op's functions. */
const char *kern_op_name(enum kern_op op);
size_t kern_op_argument_bytes(enum kern_op op);

/* Destination of the gradient of one parameter. With p the fp32 gradient of this micro-batch:
 *   s = first ? p : sum + p;      last && out ? out = round(s) : sum = s
 * A step of one micro-batch has first = last = true and needs no `sum`; the bits are the same as
 * through `sum`. After `out` is written, `sum` is undefined. Both NULL: the gradient is not wanted
 * (a frozen parameter). A parameter with two uses gives each use its own `sum` and no `out`, and
 * adds them with KERN_ADD. `sum` may be `out` if out_type is KERN_F32. */
struct kern_grad {
    float *sum;
    void *out;
    enum kern_type out_type;
    bool first;
    bool last;
};

/* Returns the destination of the elements from `first` on. */
struct kern_grad kern_grad_at(const struct kern_grad *grad, int64_t first);

/* KERN_LINEAR: y[m][n] = scale x[m][k] w[n][k]^T + bias[n] + (onto ? y[m][n] : 0), rounded once. A
 * large linear is computed by tiles: one call per kern_tile_rows() rows of w, with w, bias, y (and
 * dw) advanced and n set to the tile's rows. */
struct kern_linear_arguments {
    enum kern_type type;
    int64_t m, n, k;
    const void *x;
    int64_t x_stride;
    const void *w;
    const void *bias; /* NULL: none */
    void *y;
    int64_t y_stride;
    float scale; /* 0: 1 */
    bool onto;   /* y is added to */
};

/* KERN_LINEAR_GRAD_INPUT: dx[m][k] = scale dy[m][n] w[n][k]. Whole: sum = NULL, first = last =
 * true. By tiles: one call per tile of w, in order, over a dense fp32 `sum`[m][k]: s = first ?
 * product : sum + product; last ? dx = round(s) : sum = s. */
struct kern_linear_grad_input_arguments {
    enum kern_type type;
    int64_t m, n, k;
    const void *dy;
    int64_t dy_stride;
    const void *w;
    void *dx; /* written only if `last`; else may be NULL */
    int64_t dx_stride;
    float *sum;
    float scale; /* 0: 1 */
    bool first;
    bool last;
};

/* KERN_LINEAR_GRAD_WEIGHT: dw[n][k] = dy[m][n]^T x[m][k]. */
struct kern_linear_grad_weight_arguments {
    enum kern_type type;
    int64_t m, n, k;
    const void *dy;
    int64_t dy_stride;
    const void *x;
    int64_t x_stride;
    struct kern_grad dw;
};

/* KERN_BIAS_GRAD: db[n] = sum over m of dy[m][n]. */
struct kern_bias_grad_arguments {
    enum kern_type type;
    int64_t m, n;
    const void *dy;
    int64_t dy_stride;
    struct kern_grad db;
};

/* Returns the rows of a tile of a weight [n][k]: n if the weight fits into tile_bytes (0: no
 * limit), else the largest multiple of 64 that fits, but at least min(n, 64). */
int64_t kern_tile_rows(int64_t n, int64_t k, enum kern_type type, uint64_t tile_bytes);

/* KERN_EMBED: y[t] = table[ids[t]] (+ position_table[positions[t]]), y dense [tokens][width]. An id
 * outside 0 .. vocab - 1 is -EINVAL on the CPU and must not reach other devices. */
struct kern_embed_arguments {
    enum kern_type type;
    int64_t tokens, width, vocab;
    /* elements between rows: the row of an id starts at id * stride; 0: width. May be below the
     * width: ids are then places in a slot that holds parts of the table (model_rows_place) */
    int64_t stride;
    const int32_t *ids;
    const void *table;          /* [vocab][width] */
    const void *position_table; /* [position_count][width]; NULL: none */
    int64_t position_count;
    const int32_t *positions; /* NULL: t % length */
    int64_t length;
    void *y;
};

/* KERN_EMBED_GRAD: dtable[id] = sum, in token order, of dy[t] with ids[t] == id; 0 for ids that do
 * not occur and, with has_padding, for `padding_id`. The position table's gradient is a second call
 * with ids = positions (NULL: t % length). */
struct kern_embed_grad_arguments {
    enum kern_type type;
    int64_t tokens, width, vocab;
    const int32_t *ids; /* NULL: t % length */
    int64_t length;
    const void *dy; /* dense [tokens][width] */
    bool has_padding;
    int64_t padding_id; /* valid only with has_padding */
    struct kern_grad dtable;
};

enum kern_norm_kind { KERN_NORM_RMS, KERN_NORM_LAYER };

/* KERN_NORM: each head of each token is normalised over its `width` elements:
 *   s = x + add, rounded to the type;  RMS: y = s * rstd * weight;
 *   LAYER: y = (s - mean) * rstd * weight + bias
 * Plain norms have heads = 1; QK-norm has the heads of q or k. Element (t, h, i) of x is at
 * t * x_stride + h * width + i; `add` and `sum` have x's layout. */
struct kern_norm_arguments {
    enum kern_type type;
    enum kern_norm_kind kind;
    int64_t tokens, heads, width;
    float eps;
    const void *x;
    int64_t x_stride;
    const void *add; /* residual branch; NULL: s is x */
    void *sum;       /* s; only with `add`; may be x or add */
    const void *weight;
    const void *bias; /* LAYER; NULL: none */
    void *y;          /* may be x if add is NULL */
    int64_t y_stride;
    float *mean; /* LAYER: [tokens * heads], for the gradient */
    float *rstd; /* [tokens * heads], for the gradient */
};

/* KERN_NORM_GRAD: dx = gradient with respect to s (+ add): s as in KERN_NORM, `add` the gradient of
 * the residual branch. */
struct kern_norm_grad_arguments {
    enum kern_type type;
    enum kern_norm_kind kind;
    int64_t tokens, heads, width;
    const void *dy;
    int64_t dy_stride;
    const void *s;
    int64_t s_stride;
    const void *weight;
    const float *mean; /* LAYER */
    const float *rstd;
    const void *add; /* layout of dx; NULL: none */
    void *dx;        /* may be dy or add */
    int64_t dx_stride;
    struct kern_grad dweight; /* [width] */
    struct kern_grad dbias;   /* [width]; LAYER */
};

/* KERN_ROPE, in place: for i < rotary / 2, with (c, s) = (cos, sin)[position][i]:
 *   x[i], x[i + rotary / 2] = x[i] c - x[i + rotary / 2] s, x[i + rotary / 2] c + x[i] s
 * Elements from `rotary` on are unchanged. `backward` rotates the other way: this is the gradient,
 * but not the inverse if the tables carry YaRN's factor. If q and k are adjacent, one call with the
 * heads of both rotates them. */
struct kern_rope_arguments {
    enum kern_type type;
    int64_t tokens, heads, head_dim, rotary;
    void *x;
    int64_t stride;
    const float *cos; /* [position][rotary / 2]: rope.h */
    const float *sin;
    const int32_t *positions; /* NULL: t % length */
    int64_t length;
    bool backward;
};

/* KERN_ATTENTION: o = softmax(scale q k^T + mask) v, causal, by tiles with a running maximum. Query
 * head h reads key head h / (heads / kv_heads). Query i sees key j of its row if starts[i] <= j <=
 * i and, with a window, i - j < window.
 * A document gives the bits of a call of its own if all numbers of its row are finite: a masked
 * pair may add 0 times a NaN of another document.
 * With `gaps`, a row is a prompt and two answers. Queries from gaps[row][1] on (the second answer)
 * do not see the first answer, keys gaps[row][0] .. gaps[row][1] - 1, and i - j does not count
 * these keys. */
struct kern_attention_arguments {
    enum kern_type type;
    int64_t rows, length;
    int64_t heads, kv_heads, head_dim;
    int64_t window; /* 0: none */
    float scale;
    const int32_t *starts; /* [rows * length]: position in the row where the token's document
                            * starts, ascending; NULL: a row is a document */
    const int32_t *gaps;   /* [rows][2]; only without `starts`; NULL: none */
    const void *q;
    int64_t q_stride;
    const void *k;
    int64_t k_stride;
    const void *v;
    int64_t v_stride;
    void *o; /* may be q */
    int64_t o_stride;
    float *lse; /* [heads][rows * length]: log of the sum of exponentials, for the gradient */
};

/* KERN_ATTENTION_GRAD: recomputes probabilities from `lse`, with KERN_ATTENTION's layouts. dq, dk,
 * dv may not be q, k, v; dq may be d_o. */
struct kern_attention_grad_arguments {
    struct kern_attention_arguments forward; /* q, k, v, o, lse as KERN_ATTENTION left them */
    const void *d_o;
    int64_t d_o_stride;
    void *dq;
    int64_t dq_stride;
    void *dk;
    int64_t dk_stride;
    void *dv;
    int64_t dv_stride;
};

enum kern_act_kind { KERN_ACT_SILU, KERN_ACT_GELU_TANH, KERN_ACT_GELU, KERN_ACT_RELU };

/* KERN_ACT: y = act(gate) * up, or act(gate) without `up`. SwiGLU is SILU with `up`; GELU is exact,
 * by erf. Element (t, i) is at t * stride + i. */
struct kern_act_arguments {
    enum kern_type type;
    enum kern_act_kind kind;
    int64_t tokens, width;
    const void *gate;
    int64_t gate_stride;
    const void *up; /* NULL: none */
    int64_t up_stride;
    void *y; /* may be gate or up */
    int64_t y_stride;
};

/* KERN_ACT_GRAD: dgate = dy * up * act'(gate), dup = dy * act(gate), and y again unless NULL (for
 * the gradient of the next weight). */
struct kern_act_grad_arguments {
    enum kern_type type;
    enum kern_act_kind kind;
    int64_t tokens, width;
    const void *gate;
    int64_t gate_stride;
    const void *up; /* NULL: none */
    int64_t up_stride;
    const void *dy;
    int64_t dy_stride;
    void *dgate; /* may be gate */
    int64_t dgate_stride;
    void *dup; /* may be up; NULL if up is NULL */
    int64_t dup_stride;
    void *y; /* NULL: not wanted; may be dy */
    int64_t y_stride;
};

/* KERN_ADD: y = a + b, or a cast of a. Dense. y may be a or b if their types are equal. */
struct kern_add_arguments {
    int64_t count;
    enum kern_type a_type;
    const void *a;
    enum kern_type b_type;
    const void *b; /* NULL: none */
    enum kern_type y_type;
    void *y;
};

/* KERN_DROPOUT: y = r (+ add) or, with `rest`, x - round(r) (+ add), rounded once. Dense. y may be
 * x or add. r is x if *seed is 0; else x / (1 - rate) for elements that are kept, 0 for others.
 * Element i is kept if the random number of (*seed, stream, i) is at least `rate` (core_rng_unit of
 * word i % 4 at position i / 4): the same call drops the same elements. */
struct kern_dropout_arguments {
    enum kern_type type;
    float rate; /* 0 <= rate < 1 */
    bool rest;
    int64_t count;
    const void *x;
    const void *add; /* NULL: none */
    void *y;
    const uint64_t *seed;
    uint64_t stream;
};

/* KERN_MAGNITUDE: factors of a DoRA adapter's rows: factor = magnitude / norm and inverse = 1 /
 * norm, with norm = |w + scale b a| of a row, rounded to `type` as in PEFT. A row of zeros has
 * factor 1 and inverse 0. */
struct kern_magnitude_arguments {
    enum kern_type type; /* of w, a, b and magnitude */
    int64_t rows, cols, rank;
    float scale;
    const void *w;         /* [rows][cols] */
    const void *a;         /* [rank][cols] */
    const void *b;         /* [rows][rank] */
    const void *magnitude; /* [rows] */
    float *factor;         /* [rows] */
    float *inverse;        /* [rows] */
};

/* KERN_COLUMNS: y = x * factor (* by) (+ bias) (+ add), rounded once; a factor and bias per column.
 * y may be x, by or add. */
struct kern_columns_arguments {
    enum kern_type type; /* of all arrays except factor */
    int64_t tokens, width;
    int64_t x_stride, by_stride, y_stride;
    const void *x;
    const float *factor; /* [width]; NULL: 1 */
    const void *by;      /* NULL: none */
    const void *bias;    /* [width]; NULL: none */
    const void *add;     /* with y's stride; NULL: none */
    void *y;
};

enum { KERN_LABEL_IGNORED = -100 };

/* The loss of one micro-batch. A step adds these up and divides once. */
struct kern_loss {
    double sum;    /* of -log p(label) over the targets, or of the pairs' losses */
    int64_t count; /* tokens whose label is not KERN_LABEL_IGNORED, or pairs that count */
    /* With pairs: sums of the rewards, and the number of pairs whose chosen answer has the larger
     * reward. */
    double chosen, rejected;
    int64_t right;
};

/* KERN_LOSS: logits = x w^T, their cross-entropy and, unless dx is NULL, the gradients of the sum
 * times *scale. labels[t] is the target of token t. Another label than KERN_LABEL_IGNORED and 0 ..
 * vocab - 1 is -EINVAL on the CPU.
 * The op works on tiles of the vocabulary and computes logits a second time for the gradients.
 * With neither `pairs` nor `tile`, a card with enough `logits_bytes` works on runs of tokens and
 * computes logits once.
 *
 * With `pairs` (DPO): 2 * pairs rows of equal length: the policy's row of each pair, then the
 * reference's, with the same labels. In the row of pair i, tokens from gaps[2 i + 1] on are of the
 * rejected answer, earlier ones of the prompt and the chosen answer. An answer's reward is beta
 * (log p(labels) of the policy - log p(labels) of the reference); a pair's loss is -log
 * sigmoid(reward of chosen - reward of rejected). A pair counts if both answers have labels. Only
 * the policy's half of dx is written. */
struct kern_loss_arguments {
    enum kern_type type;
    int64_t tokens, vocab, width;
    int64_t tile; /* rows of w in a tile; 0: chosen by the device */
    /* With tile = 0 on a card: scratch bytes that the loss may take even if tiles need less. The
     * number decides how the loss is computed, and so the bits. */
    uint64_t logits_bytes;
    const void *x;
    int64_t x_stride;
    const void *w;         /* [vocab][width] */
    const int32_t *labels; /* [tokens] */
    const float *scale;    /* loss scale / number of targets of the whole step */
    struct kern_loss *loss;
    void *dx; /* may be x; NULL: the loss alone */
    int64_t dx_stride;
    struct kern_grad dw; /* [vocab][width] */
    /* row_count 0: one launch computes everything. Otherwise a launch computes rows [first_row,
     * first_row + row_count) of w. Launches over consecutive parts of kern_loss_parts.rows rows
     * (the last may be shorter) give the bits of one launch. The first pass has no `dx` and
     * computes statistics; its last launch writes *loss. The second pass has `dx`; its last launch
     * writes it. */
    int64_t first_row, row_count;
    void *state;         /* kern_loss_parts.state_bytes bytes, shared by these launches */
    int64_t pairs;       /* 0: cross-entropy */
    double beta;         /* of the loss of pairs */
    const int32_t *gaps; /* [pairs][2], as in kern_attention_arguments */
};

/* How a loss is computed by parts of w. */
struct kern_loss_parts {
    int64_t rows; /* of a part; 0: one launch computes the whole loss */
    uint64_t state_bytes;
};

/* How frozen weights are stored (quant.h). */
enum kern_quant { KERN_QUANT_NONE, KERN_QUANT_INT8, KERN_QUANT_NF4, KERN_QUANT_NF4_F32 };

/* KERN_EXPAND: y = the weights of a stored tensor or of a part of it: in fp32, a code's value times
 * its scale, then rounded to `type`; the same bits on every device. kern_quant_point sets `codes`,
 * `scales` and `nested`. */
struct kern_expand_arguments {
    enum kern_type type; /* type of y */
    enum kern_quant quant;
    enum kern_type from; /* NONE: of the stored elements */
    int64_t rows, cols;  /* size of the tensor */
    int64_t first;       /* first element of the part; a multiple of kern_quant_grain */
    int64_t count;       /* a multiple of kern_quant_grain, or up to the tensor's end */
    const void *codes;   /* codes from element `first` on */
    const void *scales;  /* not NONE: from the row or block of element `first` on */
    const float *nested; /* NF4: fp32 values of the whole tensor */
    void *y;             /* dense; from element `first` on */
};

/* KERN_UPDATE: gives the bits of cpu_adam. With 8-bit moments `first` is a multiple of
 * CORE_UPDATE_Q8_BLOCK, and so is `count` unless the range ends with the array: all parameters of a
 * block have the same scalars. */
struct kern_update_arguments {
    struct core_update_args update;
    uint32_t *met; /* enum core_nonfinite_flags are or-ed in; NULL: not wanted */
};

/* How products are computed.
 * CUDA: KERN_PRODUCTS_PLAIN uses no tensor cores; the others use cuBLASLt if present. CPU:
 * KERN_PRODUCTS_BEST uses oneDNN, if it can be loaded, for bf16 on processors with AMX, else the
 * blocked product; KERN_PRODUCTS_ONEDNN uses oneDNN for fp32 and, with AVX-512, for bf16. */
enum kern_products { KERN_PRODUCTS_BEST, KERN_PRODUCTS_PLAIN, KERN_PRODUCTS_ONEDNN };

/* How a device's ops are attached (kernels/table.h). */
struct kern_options {
    unsigned cpu_flags; /* CPU: instruction sets to use, a mask over core_cpu_flags(); 0: all */
    enum kern_products products;
};

#ifdef __cplusplus
}
#endif

#endif
