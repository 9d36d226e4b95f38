/* bench_block_cuda.c: how fast a card computes one block of an 8B Llama forward and backward, in
 * bf16, 4 rows of 4096 tokens (--quick: 1024). Prints `block` in TFLOP/s, as torch_ops.py does, and
 * in tokens per second. Options: card_bench.h. */
#include <stdio.h>
#include <stdlib.h>

#include "tests/bench/card_bench.h"

enum { PRODUCTS = 4, BLOCK_STEPS = 32, BLOCK_ROWS = 4 };

/* A product y[tokens][n] = x w^T, and the arrays of its gradients. */
struct layer {
    int64_t n, k;
    char *x, *w, *y, *dy, *dx, *dw;
};

static const struct card_shape *shape;

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

/* Takes space for `count` 16-bit numbers from the arrays that are not zeros. */
static char *take(int64_t count)
{
    const size_t bytes = ((size_t)count * 2 + 255) / 256 * 256;
    for (int i = 0; i < CARD_BENCH_ARRAYS - 1; i++) {
        if (shape->array_bytes - block.taken[i] >= bytes) {
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

/* Adds the step for y, the norm of x or of x + add; the sum replaces `add`. */
static void norm_of(int which, void *x, void *add, void *y)
{
    block.norms[which] = (struct kern_norm_arguments){
        .type = KERN_BF16,
        .tokens = bench.tokens,
        .heads = 1,
        .width = shape->hidden,
        .eps = 1e-5f,
        .x = x,
        .x_stride = shape->hidden,
        .add = add,
        .sum = add,
        .weight = take(shape->hidden),
        .y = y,
        .y_stride = shape->hidden,
        .rstd = (float *)(void *)take(2 * bench.tokens)};
    step(KERN_NORM, &block.norms[which]);
}

/* Adds the step for dx, the sum of the gradients through and past the norm. */
static void norm_grad_of(int which, const void *s, const void *dy, const void *past, void *dx)
{
    block.norm_grads[which] = (struct kern_norm_grad_arguments){
        .type = KERN_BF16,
        .tokens = bench.tokens,
        .heads = 1,
        .width = shape->hidden,
        .dy = dy,
        .dy_stride = shape->hidden,
        .s = s,
        .s_stride = shape->hidden,
        .weight = block.norms[which].weight,
        .rstd = block.norms[which].rstd,
        .add = past,
        .dx = dx,
        .dx_stride = shape->hidden,
        .dweight = gradient_of(take(shape->hidden))};
    step(KERN_NORM_GRAD, &block.norm_grads[which]);
}

static void rope_of(int which, char *qk, const float *angles)
{
    block.ropes[which] = (struct kern_rope_arguments){.type = KERN_BF16,
                                                      .tokens = bench.tokens,
                                                      .heads = shape->heads + shape->kv_heads,
                                                      .head_dim = shape->dim,
                                                      .rotary = shape->dim,
                                                      .x = qk,
                                                      .stride = shape->qkv,
                                                      .cos = angles,
                                                      .sin = angles,
                                                      .length = bench.tokens / BLOCK_ROWS,
                                                      .backward = which == 1};
    step(KERN_ROPE, &block.ropes[which]);
}

/* Returns the bytes from a token's queries to its keys; v_at(): to its values. */
static size_t k_at(void)
{
    return (size_t)shape->heads * (size_t)shape->dim * 2;
}

static size_t v_at(void)
{
    return k_at() + (size_t)shape->kv_heads * (size_t)shape->dim * 2;
}

static void block_forward(char *x, const float *angles)
{
    norm_of(0, x, NULL, block.qkv.x);
    linear(&block.qkv);
    rope_of(0, block.qkv.y, angles);
    block.attention = (struct kern_attention_arguments){
        .type = KERN_BF16,
        .rows = BLOCK_ROWS,
        .length = bench.tokens / BLOCK_ROWS,
        .heads = shape->heads,
        .kv_heads = shape->kv_heads,
        .head_dim = shape->dim,
        .scale = 0.088388f,
        .q = block.qkv.y,
        .q_stride = shape->qkv,
        .k = block.qkv.y + k_at(),
        .k_stride = shape->qkv,
        .v = block.qkv.y + v_at(),
        .v_stride = shape->qkv,
        .o = block.out.x,
        .o_stride = shape->hidden,
        .lse = (float *)(void *)take(2 * bench.tokens * shape->heads)};
    step(KERN_ATTENTION, &block.attention);
    linear(&block.out);
    norm_of(1, x, block.out.y, block.up.x);
    linear(&block.up);
    block.act = (struct kern_act_arguments){.type = KERN_BF16,
                                            .tokens = bench.tokens,
                                            .width = shape->inner,
                                            .gate = block.up.y,
                                            .gate_stride = 2 * shape->inner,
                                            .up = block.up.y + (size_t)shape->inner * 2,
                                            .up_stride = 2 * shape->inner,
                                            .y = block.down.x,
                                            .y_stride = shape->inner};
    step(KERN_ACT, &block.act);
    linear(&block.down);
    block.add = (struct kern_add_arguments){bench.tokens * shape->hidden,
                                            KERN_BF16,
                                            block.out.y,
                                            KERN_BF16,
                                            block.down.y,
                                            KERN_BF16,
                                            block.down.y};
    step(KERN_ADD, &block.add);
}

static void block_backward(char *x, const float *angles)
{
    linear_grads(&block.down);
    block.act_grad = (struct kern_act_grad_arguments){.type = KERN_BF16,
                                                      .tokens = bench.tokens,
                                                      .width = shape->inner,
                                                      .gate = block.up.y,
                                                      .gate_stride = 2 * shape->inner,
                                                      .up = block.up.y + (size_t)shape->inner * 2,
                                                      .up_stride = 2 * shape->inner,
                                                      .dy = block.down.dx,
                                                      .dy_stride = shape->inner,
                                                      .dgate = block.up.dy,
                                                      .dgate_stride = 2 * shape->inner,
                                                      .dup = block.up.dy + (size_t)shape->inner * 2,
                                                      .dup_stride = 2 * shape->inner};
    step(KERN_ACT_GRAD, &block.act_grad);
    linear_grads(&block.up);
    norm_grad_of(1, block.out.y, block.up.dx, block.down.dy, block.out.dy);
    linear_grads(&block.out);
    block.attention_grad = (struct kern_attention_grad_arguments){.forward = block.attention,
                                                                  .d_o = block.out.dx,
                                                                  .d_o_stride = shape->hidden,
                                                                  .dq = block.qkv.dy,
                                                                  .dq_stride = shape->qkv,
                                                                  .dk = block.qkv.dy + k_at(),
                                                                  .dk_stride = shape->qkv,
                                                                  .dv = block.qkv.dy + v_at(),
                                                                  .dv_stride = shape->qkv};
    step(KERN_ATTENTION_GRAD, &block.attention_grad);
    rope_of(1, block.qkv.dy, angles);
    linear_grads(&block.qkv);
    norm_grad_of(0, x, block.qkv.dx, block.out.dy, take(bench.tokens * shape->hidden));
}

int main(int argc, char **argv)
{
    card_bench_open(argc, argv);
    shape = bench.shape;
    block.qkv = layer_of(shape->qkv, shape->hidden);
    block.out = layer_of(shape->hidden, shape->hidden);
    block.up = layer_of(2 * shape->inner, shape->hidden);
    block.down = layer_of(shape->hidden, shape->inner);
    char *x = take(bench.tokens * shape->hidden);
    const float *angles = (const float *)(const void *)take(bench.tokens * shape->dim);
    block_forward(x, angles);
    block_backward(x, angles);
    const double tokens = (double)bench.tokens;
    const double weights = (double)shape->hidden * (shape->qkv + shape->hidden + 3 * shape->inner);
    const double pairs = shape->heads * tokens * tokens / BLOCK_ROWS / 2.0;
    const double seconds = card_bench_best(block.steps, block.length);
    printf("block %.4g TFLOP/s\nblock_tokens %.1f token/s\n",
           (6.0 * tokens * weights + 12.0 * shape->dim * pairs) / seconds * 1e-12,
           tokens / seconds);
    card_bench_close();
    return 0;
}
