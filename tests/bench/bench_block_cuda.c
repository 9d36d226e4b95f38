/* bench_block_cuda.c: how fast a card computes one block of an 8B Llama forward and backward, in
 * bf16, 4 rows of a quarter of 16384 tokens: every op in its order, as the engine launches them.
 * Prints `block` in TFLOP/s, as torch_ops.py does for torch, and in tokens per second. Options:
 * card_bench.h. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/card_bench.h"

enum { PRODUCTS = 4, BLOCK_STEPS = 32, BLOCK_ROWS = 4 };

/* A product of the block, y[tokens][n] = x w^T, with the arrays of its gradients. */
struct layer {
    int64_t n, k;
    char *x, *w, *y, *dy, *dx, *dw;
};

static struct {
    size_t taken[CARD_BENCH_ARRAYS];
    struct card_bench_step steps[BLOCK_STEPS];
    int length;
    struct layer qkv, out, up, down;
    struct kern_linear_arguments linears[PRODUCTS];
    struct kern_linear_grad_input_arguments inputs[PRODUCTS];
    struct kern_linear_grad_weight_arguments weights[PRODUCTS];
    int linears_count, grads_count;
    struct kern_norm_arguments norms[2];
    struct kern_norm_grad_arguments norm_grads[2];
    struct kern_rope_arguments ropes[2];
    struct kern_attention_arguments attention;
    struct kern_attention_grad_arguments attention_grad;
    struct kern_act_arguments act;
    struct kern_act_grad_arguments act_grad;
    struct kern_add_arguments add;
} block;

/* Takes space for `count` numbers of 16 bits from the arrays that are not zeros. */
static char *take(int64_t count)
{
    const size_t bytes = ((size_t)count * 2 + 255) / 256 * 256;
    for (int i = 0; i < CARD_BENCH_ARRAYS - 1; i++) {
        if (CARD_BENCH_ARRAY_BYTES - block.taken[i] >= bytes) {
            char *at = (char *)bench.arrays[i] + block.taken[i];
            block.taken[i] += bytes;
            return at;
        }
    }
    fprintf(stderr, "bench_block_cuda: no room for a block\n");
    exit(1);
}

static struct kern_grad gradient_of(void *out)
{
    return (struct kern_grad){.out = out, .out_type = KERN_BF16, .first = true, .last = true};
}

static void step(enum kern_op op, const void *arguments)
{
    block.steps[block.length++] = (struct card_bench_step){op, arguments};
}

static struct layer layer_of(int64_t n, int64_t k)
{
    return (struct layer){.n = n,
                          .k = k,
                          .x = take(bench.tokens * k),
                          .w = take(n * k),
                          .y = take(bench.tokens * n),
                          .dy = take(bench.tokens * n),
                          .dx = take(bench.tokens * k),
                          .dw = take(n * k)};
}

static void linear(const struct layer *l)
{
    struct kern_linear_arguments *y = &block.linears[block.linears_count++];
    *y = (struct kern_linear_arguments){.type = KERN_BF16,
                                        .m = bench.tokens,
                                        .n = l->n,
                                        .k = l->k,
                                        .x = l->x,
                                        .x_stride = l->k,
                                        .w = l->w,
                                        .y = l->y,
                                        .y_stride = l->n};
    step(KERN_LINEAR, y);
}

static void linear_grads(const struct layer *l)
{
    struct kern_linear_grad_weight_arguments *dw = &block.weights[block.grads_count];
    struct kern_linear_grad_input_arguments *dx = &block.inputs[block.grads_count++];
    *dw = (struct kern_linear_grad_weight_arguments){.type = KERN_BF16,
                                                     .m = bench.tokens,
                                                     .n = l->n,
                                                     .k = l->k,
                                                     .dy = l->dy,
                                                     .dy_stride = l->n,
                                                     .x = l->x,
                                                     .x_stride = l->k,
                                                     .dw = gradient_of(l->dw)};
    *dx = (struct kern_linear_grad_input_arguments){.type = KERN_BF16,
                                                    .m = bench.tokens,
                                                    .n = l->n,
                                                    .k = l->k,
                                                    .dy = l->dy,
                                                    .dy_stride = l->n,
                                                    .w = l->w,
                                                    .dx = l->dx,
                                                    .dx_stride = l->k,
                                                    .first = true,
                                                    .last = true};
    step(KERN_LINEAR_GRAD_WEIGHT, dw);
    step(KERN_LINEAR_GRAD_INPUT, dx);
}

/* y is the norm of x, or of x plus `add`, which the sum then overwrites. */
static void norm_of(int which, void *x, void *add, void *y)
{
    block.norms[which] = (struct kern_norm_arguments){
        .type = KERN_BF16,
        .tokens = bench.tokens,
        .heads = 1,
        .width = HIDDEN,
        .eps = 1e-5f,
        .x = x,
        .x_stride = HIDDEN,
        .add = add,
        .sum = add,
        .weight = take(HIDDEN),
        .y = y,
        .y_stride = HIDDEN,
        .rstd = (float *)(void *)take(2 * bench.tokens)};
    step(KERN_NORM, &block.norms[which]);
}

/* dx is the sum of the gradient through the norm and the gradient past it. */
static void norm_grad_of(int which, const void *s, const void *dy, const void *past, void *dx)
{
    block.norm_grads[which] = (struct kern_norm_grad_arguments){
        .type = KERN_BF16,
        .tokens = bench.tokens,
        .heads = 1,
        .width = HIDDEN,
        .dy = dy,
        .dy_stride = HIDDEN,
        .s = s,
        .s_stride = HIDDEN,
        .weight = block.norms[which].weight,
        .rstd = block.norms[which].rstd,
        .add = past,
        .dx = dx,
        .dx_stride = HIDDEN,
        .dweight = gradient_of(take(HIDDEN))};
    step(KERN_NORM_GRAD, &block.norm_grads[which]);
}

static void rope_of(int which, char *qk, const float *angles)
{
    block.ropes[which] = (struct kern_rope_arguments){.type = KERN_BF16,
                                                      .tokens = bench.tokens,
                                                      .heads = HEADS + KV_HEADS,
                                                      .head_dim = DIM,
                                                      .rotary = DIM,
                                                      .x = qk,
                                                      .stride = QKV,
                                                      .cos = angles,
                                                      .sin = angles,
                                                      .length = bench.tokens / BLOCK_ROWS,
                                                      .backward = which == 1};
    step(KERN_ROPE, &block.ropes[which]);
}

static const size_t k_at = (size_t)HEADS * DIM * 2;
static const size_t v_at = (size_t)(HEADS + KV_HEADS) * DIM * 2;

static void block_forward(char *x, const float *angles)
{
    norm_of(0, x, NULL, block.qkv.x);
    linear(&block.qkv);
    rope_of(0, block.qkv.y, angles);
    block.attention = (struct kern_attention_arguments){
        .type = KERN_BF16,
        .rows = BLOCK_ROWS,
        .length = bench.tokens / BLOCK_ROWS,
        .heads = HEADS,
        .kv_heads = KV_HEADS,
        .head_dim = DIM,
        .scale = 0.088388f,
        .q = block.qkv.y,
        .q_stride = QKV,
        .k = block.qkv.y + k_at,
        .k_stride = QKV,
        .v = block.qkv.y + v_at,
        .v_stride = QKV,
        .o = block.out.x,
        .o_stride = HIDDEN,
        .lse = (float *)(void *)take(2 * bench.tokens * HEADS)};
    step(KERN_ATTENTION, &block.attention);
    linear(&block.out);
    norm_of(1, x, block.out.y, block.up.x);
    linear(&block.up);
    block.act = (struct kern_act_arguments){.type = KERN_BF16,
                                            .tokens = bench.tokens,
                                            .width = INNER,
                                            .gate = block.up.y,
                                            .gate_stride = 2 * INNER,
                                            .up = block.up.y + (size_t)INNER * 2,
                                            .up_stride = 2 * INNER,
                                            .y = block.down.x,
                                            .y_stride = INNER};
    step(KERN_ACT, &block.act);
    linear(&block.down);
    block.add = (struct kern_add_arguments){
        bench.tokens * HIDDEN, KERN_BF16, block.out.y, KERN_BF16,
        block.down.y,          KERN_BF16, block.down.y};
    step(KERN_ADD, &block.add);
}

static void block_backward(char *x, const float *angles)
{
    linear_grads(&block.down);
    block.act_grad = (struct kern_act_grad_arguments){.type = KERN_BF16,
                                                      .tokens = bench.tokens,
                                                      .width = INNER,
                                                      .gate = block.up.y,
                                                      .gate_stride = 2 * INNER,
                                                      .up = block.up.y + (size_t)INNER * 2,
                                                      .up_stride = 2 * INNER,
                                                      .dy = block.down.dx,
                                                      .dy_stride = INNER,
                                                      .dgate = block.up.dy,
                                                      .dgate_stride = 2 * INNER,
                                                      .dup = block.up.dy + (size_t)INNER * 2,
                                                      .dup_stride = 2 * INNER};
    step(KERN_ACT_GRAD, &block.act_grad);
    linear_grads(&block.up);
    norm_grad_of(1, block.out.y, block.up.dx, block.down.dy, block.out.dy);
    linear_grads(&block.out);
    block.attention_grad = (struct kern_attention_grad_arguments){.forward = block.attention,
                                                                  .d_o = block.out.dx,
                                                                  .d_o_stride = HIDDEN,
                                                                  .dq = block.qkv.dy,
                                                                  .dq_stride = QKV,
                                                                  .dk = block.qkv.dy + k_at,
                                                                  .dk_stride = QKV,
                                                                  .dv = block.qkv.dy + v_at,
                                                                  .dv_stride = QKV};
    step(KERN_ATTENTION_GRAD, &block.attention_grad);
    rope_of(1, block.qkv.dy, angles);
    linear_grads(&block.qkv);
    norm_grad_of(0, x, block.qkv.dx, block.out.dy, take(bench.tokens * HIDDEN));
}

int main(int argc, char **argv)
{
    card_bench_open(argc, argv);
    block.qkv = layer_of(QKV, HIDDEN);
    block.out = layer_of(HIDDEN, HIDDEN);
    block.up = layer_of(2 * INNER, HIDDEN);
    block.down = layer_of(HIDDEN, INNER);
    char *x = take(bench.tokens * HIDDEN);
    const float *angles = (const float *)(const void *)take(bench.tokens * DIM);
    block_forward(x, angles);
    block_backward(x, angles);
    const double tokens = (double)bench.tokens;
    const double weights = (double)HIDDEN * (QKV + HIDDEN + 3 * INNER);
    const double pairs = HEADS * tokens * tokens / BLOCK_ROWS / 2.0;
    const double seconds = card_bench_best(block.steps, block.length);
    printf("block %.1f TFLOP/s\nblock_tokens %.0f token/s\n",
           (6.0 * tokens * weights + 12.0 * DIM * pairs) / seconds * 1e-12, tokens / seconds);
    card_bench_close();
    return 0;
}
