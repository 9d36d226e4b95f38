/* kern.h: the ops of a training step: one id and one argument struct per op, shared by all devices.
 * Ops are called by id through the device (core/dev); `kernels/cpu` and `kernels/cuda` fill one
 * table each with the same base names. All pointers are memory of that device, borrowed for the
 * call. The structs themselves are read on the host when the op is launched and may be on a stack.
 *
 * Words used below
 *   type     storage of an op's activations, weights and activation gradients; arithmetic is in
 *            fp32 and every stored value is rounded once, to nearest even
 *   token    row t of an activation; a micro-batch has rows * length of them, row after row
 *   stride   elements between the first elements of consecutive tokens, at least the width of one;
 *            arrays without a stride are dense. With strides, q, k and v, or gate and up, can be
 *            parts of one product's result
 *   alias    no two arrays overlap, unless "may be" allows it; then they coincide exactly (same
 *            first element, same stride)
 *   dense    weights are dense and row-major, as Hugging Face stores them: [outputs][inputs]
 * Pointers are aligned to their element; dense rows at multiples of 64 bytes are fastest.
 *
 * The same arguments give the same bits on every call with the same number of threads: sums run in
 * an order that depends on shapes alone (products: on shapes and the number of threads). Sizes may
 * be zero: then nothing is read, and outputs that are sums (gradients, the loss) are zeros.
 *
 * Numerics contract: a parameter's gradient is computed whole in fp32, starting from zero, for each
 * micro-batch, added to the fp32 accumulator in micro-batch order (the first one stored), and
 * rounded once to the gradient type (struct kern_grad). */
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
    KERN_F64, /* only for the references (ref/); no device takes it */
};

/* Returns the bytes of one element: 4 for fp32, 2 for bf16 and fp16, 8 for fp64. */
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
    KERN_UPDATE,  /* this and the next two: CUDA only; on the CPU, cpu_adam and core/coll do this */
    KERN_SQUARES, /* with struct core_squares_args */
    KERN_SUM,     /* with struct core_sum_args */
    KERN_OP_COUNT /* at most DEV_OP_MAX */
};

/* Returns "linear", "linear_grad_input" ...: the base name of the op's functions. */
const char *kern_op_name(enum kern_op op);
/* Returns the bytes of the op's argument struct. */
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

/* Returns the destination of the gradient's elements from `first` on. */
struct kern_grad kern_grad_at(const struct kern_grad *grad, int64_t first);

/* KERN_LINEAR: y[m][n] = scale x[m][k] w[n][k]^T + bias[n] + (onto ? y[m][n] : 0), rounded once. A
 * large linear is computed by tiles: one call for each kern_tile_rows() rows of w, with w, bias, y
 * (and dw) advanced to the tile and n set to the tile's rows. */
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
    bool onto;   /* y is added to, not replaced */
};

/* KERN_LINEAR_GRAD_INPUT: dx[m][k] = scale dy[m][n] w[n][k].
 * Whole: sum = NULL, first = last = true. By tiles: one call per tile of w, in order, over a dense
 * fp32 `sum`[m][k]: s = first ? product : sum + product; last ? dx = round(s) : sum = s. */
struct kern_linear_grad_input_arguments {
    enum kern_type type;
    int64_t m, n, k;
    const void *dy;
    int64_t dy_stride;
    const void *w;
    void *dx; /* written only if `last`; otherwise it may be NULL */
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

/* Returns the rows of a weight [n][k] in one tile: n if the whole weight fits into tile_bytes (0:
 * no limit), otherwise the largest multiple of 64 rows that fits, but at least min(n, 64). The
 * result depends on nothing else. */
int64_t kern_tile_rows(int64_t n, int64_t k, enum kern_type type, uint64_t tile_bytes);

/* KERN_EMBED: y[t] = table[ids[t]] (+ position_table[positions[t]]), y dense [tokens][width].
 * An id outside 0 .. vocab - 1 is -EINVAL on the CPU and must not reach other devices. */
struct kern_embed_arguments {
    enum kern_type type;
    int64_t tokens, width, vocab;
    /* elements from row to row: the row of an id starts at id * stride; 0: width. A stride below
     * the width is for a slot with parts of a table: ids are then places in the slot
     * (model_rows_place) */
    int64_t stride;
    const int32_t *ids;
    const void *table;          /* [vocab][width] */
    const void *position_table; /* [position_count][width]; NULL: none */
    int64_t position_count;
    const int32_t *positions; /* NULL: t % length */
    int64_t length;
    void *y;
};

/* KERN_EMBED_GRAD: dtable[id] = sum, in token order, of dy[t] with ids[t] == id. Rows of ids that
 * do not occur are 0, and so is the row of `padding_id` if has_padding is set. The position table's
 * gradient is a second call with ids = positions (NULL: t % length). */
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
    float *mean; /* LAYER: [tokens * heads], saved for the gradient */
    float *rstd; /* [tokens * heads], saved for the gradient */
};

/* KERN_NORM_GRAD: dx = gradient with respect to s (+ add), where s is what KERN_NORM normalised and
 * `add` the gradient that bypasses the norm along the residual branch. */
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

/* KERN_ATTENTION: o = softmax(scale q k^T + mask) v, causal, by tiles with a running maximum; the
 * score matrix is never stored whole. Query head h reads key head h / (heads / kv_heads). Within a
 * row, query i sees key j if starts[i] <= j <= i and, with a window, i - j < window. A row with
 * several documents gives the same bits as one call per document if all of its numbers are finite;
 * otherwise a masked pair may add 0 times a NaN of another document. With `gaps`, a row is a prompt
 * and two answers to it: queries from gaps[row][1] on (the second answer) do not see keys
 * gaps[row][0] .. gaps[row][1] - 1 (the first answer), and i - j does not count these keys. */
struct kern_attention_arguments {
    enum kern_type type;
    int64_t rows, length;
    int64_t heads, kv_heads, head_dim;
    int64_t window; /* 0: none */
    float scale;
    const int32_t *starts; /* [rows * length]: position in the row of the first token of the token's
                            * document, at most the token's own position, ascending; NULL: a row is
                            * a document */
    const int32_t *gaps;   /* [rows][2]; only without `starts`; NULL: none */
    const void *q;
    int64_t q_stride;
    const void *k;
    int64_t k_stride;
    const void *v;
    int64_t v_stride;
    void *o; /* may be q */
    int64_t o_stride;
    float *lse; /* [heads][rows * length]: log of the sum of exponentials, saved for the gradient */
};

/* KERN_ATTENTION_GRAD: recomputes tiles of probabilities from `lse`. Layouts as above. dq, dk, dv
 * may not be q, k, v; dq may be d_o. */
struct kern_attention_grad_arguments {
    struct kern_attention_arguments forward; /* with q, k, v, o, lse as KERN_ATTENTION left them */
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

/* KERN_ACT: y = act(gate) * up; without `up`, y = act(gate). SwiGLU is SILU with `up`; GELU is
 * exact, by erf. Element (t, i) is at t * stride + i. */
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

/* KERN_ACT_GRAD: dgate = dy * up * act'(gate), dup = dy * act(gate), and, if `y` is not NULL, y
 * again (the gradient of the next weight reads it, so y need not be kept). */
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

/* KERN_DROPOUT: y = keeps(i) ? x / (1 - rate) : 0, (+ add), rounded once. Element i is kept if the
 * random number of (*seed, stream, i) is at least `rate` (core_rng_unit of word i % 4 at position i
 * / 4), so that the same call drops the same elements again. A *seed of 0: nothing is dropped and x
 * is not scaled. Dense. y may be x or add. With `rest`: y = x - r (+ add), where r is what y would
 * be without `rest` and `add`. */
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

/* KERN_MAGNITUDE: the factors of a DoRA adapter's rows: factor = magnitude / norm and inverse = 1 /
 * norm, where norm = |w + scale b a| of a row, rounded to `type` as in PEFT. For a row of zeros,
 * factor is 1 and inverse is 0. */
struct kern_magnitude_arguments {
    enum kern_type type; /* type of w, a, b and magnitude */
    int64_t rows, cols, rank;
    float scale;
    const void *w;         /* [rows][cols] */
    const void *a;         /* [rank][cols] */
    const void *b;         /* [rows][rank] */
    const void *magnitude; /* [rows] */
    float *factor;         /* [rows] */
    float *inverse;        /* [rows] */
};

/* KERN_COLUMNS: y = x * factor (* by) (+ bias) (+ add), rounded once; factor and bias belong to
 * columns. y may be x, by or add. */
struct kern_columns_arguments {
    enum kern_type type; /* type of all arrays except factor */
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

/* The loss of one micro-batch; a step adds these up over micro-batches and divides once. */
struct kern_loss {
    double sum;    /* sum of -log p(label) over the targets; with pairs, sum of the losses of
                    * pairs */
    int64_t count; /* tokens whose label is not KERN_LABEL_IGNORED; with pairs, the pairs that
                    * count */
    /* With pairs: sums of the rewards, and the number of pairs whose chosen answer has the larger
     * one. */
    double chosen, rejected;
    int64_t right;
};

/* KERN_LOSS: logits = x w^T, their cross-entropy and, unless dx is NULL, the gradients of the sum
 * times *scale. The op works on tiles of the vocabulary and computes their logits a second time for
 * the gradients. Without `pairs`, a card whose `logits_bytes` are enough works on runs of tokens
 * instead, keeps the gradients of all logits and computes logits once. Labels are already shifted:
 * labels[t] is what token t predicts. A label that is neither KERN_LABEL_IGNORED nor in 0 .. vocab
 * - 1 is -EINVAL on the CPU.
 *
 * With `pairs` (DPO): the tokens are those of 2 * pairs rows of equal length: a row for each pair
 * of the policy, and then the same rows of the reference, with the same labels. In the row of pair
 * i, tokens from gaps[2 i + 1] on are of the rejected answer, and those before it of the prompt and
 * the chosen one. The reward of an answer is beta (log p(labels) of the policy - log p(labels) of
 * the reference), and the loss of a pair is -log sigmoid(reward of chosen - reward of rejected). A
 * pair counts if both answers have labels. Only the policy's half of dx is written; gradients are
 * those of the policy. */
struct kern_loss_arguments {
    enum kern_type type;
    int64_t tokens, vocab, width;
    int64_t tile; /* rows of w in a tile; 0: as many as the device's limit for logits allows */
    /* With tile = 0 on a card: bytes of scratch that the loss may take even if tiles need less. The
     * number decides how the loss is computed, and so its bits. */
    uint64_t logits_bytes;
    const void *x;
    int64_t x_stride;
    const void *w;         /* [vocab][width] */
    const int32_t *labels; /* [tokens] */
    const float *scale;    /* one float: loss scale / target tokens of the whole step */
    struct kern_loss *loss;
    void *dx; /* may be x; NULL: the loss alone */
    int64_t dx_stride;
    struct kern_grad dw; /* [vocab][width] */
    /* A row_count of 0: the launch computes everything. Otherwise it computes rows [first_row,
     * first_row + row_count) of w. Launches over consecutive parts of kern_loss_parts.rows rows
     * (the last part may be shorter) give the same bits as one launch: the first pass over all
     * parts has no `dx` and computes statistics, and its last launch writes *loss; the second pass
     * has `dx`, which its last launch writes. */
    int64_t first_row, row_count;
    void *state;         /* memory of kern_loss_parts.state_bytes that these launches share */
    int64_t pairs;       /* 0: cross-entropy */
    double beta;         /* beta of the loss of pairs */
    const int32_t *gaps; /* [pairs][2], as in kern_attention_arguments */
};

/* How a loss is computed by parts of w. */
struct kern_loss_parts {
    int64_t rows; /* number of rows of a part; 0: one launch computes the whole loss */
    uint64_t state_bytes;
};

/* How a tensor of frozen weights is stored (quant.h). */
enum kern_quant { KERN_QUANT_NONE, KERN_QUANT_INT8, KERN_QUANT_NF4, KERN_QUANT_NF4_F32 };

/* KERN_EXPAND: y = weights of a stored tensor, or of a part of it, each the fp32 product of the
 * value of its code and its scale, rounded once; the same bits on every device. kern_quant_point
 * sets the pointers. */
struct kern_expand_arguments {
    enum kern_type type; /* type of y */
    enum kern_quant quant;
    enum kern_type from; /* NONE: type of the stored elements */
    int64_t rows, cols;  /* size of the tensor */
    int64_t first;       /* first element of the part; a multiple of kern_quant_grain */
    int64_t count; /* a multiple of kern_quant_grain, or all elements up to the end of the tensor */
    const void *codes;   /* codes from element `first` on */
    const void *scales;  /* not NONE: from the row or block of element `first` on */
    const float *nested; /* NF4: fp32 values of the whole tensor */
    void *y;             /* dense; from element `first` on */
};

/* KERN_UPDATE computes the same bits as cpu_adam. With 8-bit moments `first` is a multiple of
 * CORE_UPDATE_Q8_BLOCK, and so is `count` unless the range ends with the array: a card does not
 * update a block whose parameters have different scalars. */
struct kern_update_arguments {
    struct core_update_args update;
    uint32_t *met; /* enum core_nonfinite_flags are or-ed into it; NULL: not wanted */
};

/* How products are computed. CUDA: KERN_PRODUCTS_PLAIN uses no tensor cores; all others use
 * cuBLASLt if it is present. CPU: KERN_PRODUCTS_BEST uses oneDNN, if it can be loaded, for bf16 on
 * processors with AMX, and the blocked product for all else; KERN_PRODUCTS_ONEDNN uses it for fp32
 * and, with AVX-512, for bf16. The choice does not depend on timing, so neither do bits. */
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
