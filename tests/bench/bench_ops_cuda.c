/* bench_ops_cuda.c: how fast a card's ops are, on the shapes of one layer and the head of an 8B
 * Llama (hidden 4096, inner 14336, 32 heads of 128, 8 key heads, vocabulary 128256) in bf16, 16384
 * tokens, and the products of larger models. Prints `name value unit` lines, as torch_ops.py does
 * for torch: TFLOP/s, or GB/s with a `_ratio` to copies within the card's memory. Options:
 * card_bench.h. */
#include <stdio.h>

#include "core/base/rng.h"
#include "core/base/update_args.h"
#include "kernels/quant.h"
#include "tests/bench/card_bench.h"

static const struct card_shape *shape;

static void moves(const char *name, enum kern_op op, const void *arguments, double bytes)
{
    if (card_bench_wanted(name)) {
        const double rate = bytes / card_bench_best(&(struct card_bench_step){op, arguments}, 1);
        printf("%s %.4g GB/s\n%s_ratio %.3f of_copy\n", name, rate * 1e-9, name, rate / bench.copy);
    }
}

static void computes(const char *name, enum kern_op op, const void *arguments, double flops)
{
    if (card_bench_wanted(name)) {
        printf("%s %.4g TFLOP/s\n", name,
               flops / card_bench_best(&(struct card_bench_step){op, arguments}, 1) * 1e-12);
    }
}

/* ---- Ops bound by memory ---- */

static struct kern_grad gradient(void *out)
{
    return (struct kern_grad){.out = out, .out_type = KERN_BF16, .first = true, .last = true};
}

static void norms(void)
{
    const double row = 2.0 * (double)bench.tokens * shape->hidden;
    struct kern_norm_arguments y = {.type = KERN_BF16,
                                    .tokens = bench.tokens,
                                    .heads = 1,
                                    .width = shape->hidden,
                                    .eps = 1e-5f,
                                    .x = bench.arrays[0],
                                    .x_stride = shape->hidden,
                                    .weight = bench.arrays[4],
                                    .y = bench.arrays[1],
                                    .y_stride = shape->hidden,
                                    .rstd = bench.arrays[5]};
    moves("norm_rms", KERN_NORM, &y, 2 * row);
    y.add = bench.arrays[2];
    y.sum = bench.arrays[3];
    moves("norm_rms_add", KERN_NORM, &y, 4 * row);
    const struct kern_norm_grad_arguments d = {.type = KERN_BF16,
                                               .tokens = bench.tokens,
                                               .heads = 1,
                                               .width = shape->hidden,
                                               .dy = bench.arrays[1],
                                               .dy_stride = shape->hidden,
                                               .s = bench.arrays[0],
                                               .s_stride = shape->hidden,
                                               .weight = bench.arrays[4],
                                               .rstd = bench.arrays[5],
                                               .add = bench.arrays[2],
                                               .dx = bench.arrays[3],
                                               .dx_stride = shape->hidden,
                                               .dweight = gradient(bench.arrays[6])};
    moves("norm_rms_grad", KERN_NORM_GRAD, &d, 4 * row);
    const struct kern_norm_arguments qk = {.type = KERN_BF16,
                                           .tokens = bench.tokens,
                                           .heads = shape->heads,
                                           .width = shape->dim,
                                           .eps = 1e-6f,
                                           .x = bench.arrays[0],
                                           .x_stride = shape->qkv,
                                           .weight = bench.arrays[4],
                                           .y = bench.arrays[0],
                                           .y_stride = shape->qkv,
                                           .rstd = bench.arrays[5]};
    moves("norm_qk", KERN_NORM, &qk, 2 * row);
    const struct kern_norm_grad_arguments qk_grad = {.type = KERN_BF16,
                                                     .tokens = bench.tokens,
                                                     .heads = shape->heads,
                                                     .width = shape->dim,
                                                     .dy = bench.arrays[1],
                                                     .dy_stride = shape->qkv,
                                                     .s = bench.arrays[0],
                                                     .s_stride = shape->qkv,
                                                     .weight = bench.arrays[4],
                                                     .rstd = bench.arrays[5],
                                                     .dx = bench.arrays[1],
                                                     .dx_stride = shape->qkv,
                                                     .dweight = gradient(bench.arrays[6])};
    moves("norm_qk_grad", KERN_NORM_GRAD, &qk_grad, 3 * row);
    y.kind = KERN_NORM_LAYER;
    y.bias = bench.arrays[7];
    y.mean = bench.arrays[8];
    moves("norm_layer_add", KERN_NORM, &y, 4 * row);
    struct kern_norm_grad_arguments layer = d;
    layer.kind = KERN_NORM_LAYER;
    layer.mean = bench.arrays[8];
    layer.dbias = gradient(bench.arrays[7]);
    moves("norm_layer_grad", KERN_NORM_GRAD, &layer, 4 * row);
}

static void pointwise(void)
{
    const double wide = 2.0 * (double)bench.tokens * shape->inner;
    char *both = bench.arrays[0];
    const struct kern_act_arguments y = {.type = KERN_BF16,
                                         .tokens = bench.tokens,
                                         .width = shape->inner,
                                         .gate = both,
                                         .gate_stride = 2 * shape->inner,
                                         .up = both + (size_t)shape->inner * 2,
                                         .up_stride = 2 * shape->inner,
                                         .y = bench.arrays[1],
                                         .y_stride = shape->inner};
    moves("swiglu", KERN_ACT, &y, 3 * wide);
    const struct kern_act_grad_arguments d = {.type = KERN_BF16,
                                              .tokens = bench.tokens,
                                              .width = shape->inner,
                                              .gate = both,
                                              .gate_stride = 2 * shape->inner,
                                              .up = y.up,
                                              .up_stride = 2 * shape->inner,
                                              .dy = bench.arrays[1],
                                              .dy_stride = shape->inner,
                                              .dgate = bench.arrays[2],
                                              .dgate_stride = 2 * shape->inner,
                                              .dup = (char *)bench.arrays[2] +
                                                     (size_t)shape->inner * 2,
                                              .dup_stride = 2 * shape->inner};
    moves("swiglu_grad", KERN_ACT_GRAD, &d, 5 * wide);
    struct kern_act_arguments gelu = y;
    gelu.kind = KERN_ACT_GELU_TANH;
    gelu.up = NULL;
    gelu.gate_stride = shape->inner;
    moves("gelu_tanh", KERN_ACT, &gelu, 2 * wide);
    struct kern_act_grad_arguments gelu_grad = d;
    gelu_grad.kind = KERN_ACT_GELU_TANH;
    gelu_grad.up = NULL;
    gelu_grad.dup = NULL;
    gelu_grad.gate_stride = shape->inner;
    gelu_grad.dgate_stride = shape->inner;
    moves("gelu_tanh_grad", KERN_ACT_GRAD, &gelu_grad, 3 * wide);
    const struct kern_rope_arguments rope = {.type = KERN_BF16,
                                             .tokens = bench.tokens,
                                             .heads = shape->heads + shape->kv_heads,
                                             .head_dim = shape->dim,
                                             .rotary = shape->dim,
                                             .x = bench.arrays[0],
                                             .stride = shape->qkv,
                                             .cos = bench.arrays[3],
                                             .sin = bench.arrays[4],
                                             .length = 2048};
    moves("rope", KERN_ROPE, &rope,
          4.0 * (double)bench.tokens * (shape->heads + shape->kv_heads) * shape->dim);
    const int64_t count = bench.tokens * shape->inner;
    const struct kern_add_arguments add = {count,           KERN_BF16, bench.arrays[0], KERN_BF16,
                                           bench.arrays[1], KERN_BF16, bench.arrays[2]};
    moves("add", KERN_ADD, &add, 3 * wide);
    const struct kern_dropout_arguments drop = {.type = KERN_BF16,
                                                .rate = 0.1f,
                                                .count = count,
                                                .x = bench.arrays[0],
                                                .y = bench.arrays[1],
                                                .seed = bench.arrays[2],
                                                .stream = 1};
    moves("dropout", KERN_DROPOUT, &drop, 2 * wide);
}

/* Copies integers to an array of the card: tokens, or documents' first tokens. */
static const int32_t *numbers(int array, const int32_t *values, size_t count)
{
    card_bench_fill(array, values, count * sizeof *values);
    return bench.arrays[array];
}

static void sums(void)
{
    int32_t ids[TOKENS_MAX];
    const double row = 2.0 * (double)bench.tokens * shape->hidden;
    for (int64_t t = 0; t < bench.tokens; t++) {
        ids[t] = (int32_t)(core_rng_philox(2, 0, (uint64_t)t).word[0] % (uint32_t)shape->vocab);
    }
    const int32_t *tokens = numbers(8, ids, (size_t)bench.tokens);
    const struct kern_embed_arguments rows = {.type = KERN_BF16,
                                              .tokens = bench.tokens,
                                              .width = shape->hidden,
                                              .vocab = shape->vocab,
                                              .ids = tokens,
                                              .table = bench.arrays[1],
                                              .y = bench.arrays[0]};
    moves("embed", KERN_EMBED, &rows, 2 * row);
    const struct kern_embed_grad_arguments embed = {.type = KERN_BF16,
                                                    .tokens = bench.tokens,
                                                    .width = shape->hidden,
                                                    .vocab = shape->vocab,
                                                    .ids = tokens,
                                                    .dy = bench.arrays[0],
                                                    .dtable = gradient(bench.arrays[1])};
    moves("embed_grad", KERN_EMBED_GRAD, &embed, row + 2.0 * shape->vocab * shape->hidden);
    const struct kern_bias_grad_arguments bias = {.type = KERN_BF16,
                                                  .m = bench.tokens,
                                                  .n = shape->qkv,
                                                  .dy = bench.arrays[0],
                                                  .dy_stride = shape->qkv,
                                                  .db = gradient(bench.arrays[1])};
    moves("bias_grad", KERN_BIAS_GRAD, &bias, 2.0 * (double)bench.tokens * shape->qkv);
}

static void arrays(void)
{
    enum { SUM_RANKS = 8 };
    const uint64_t count = shape->updated;
    struct kern_update_arguments update = {.update = {.rule = CORE_UPDATE_ADAMW,
                                                      .master = CORE_UPDATE_MASTER_SPLIT,
                                                      .gradients = CORE_UPDATE_BF16,
                                                      .moments = CORE_UPDATE_F32,
                                                      .count = count,
                                                      .w16 = bench.arrays[0],
                                                      .lo16 = bench.arrays[1],
                                                      .g = bench.arrays[2],
                                                      .m = bench.arrays[3],
                                                      .v = bench.arrays[4],
                                                      .m_scale = bench.arrays[5],
                                                      .v_scale = bench.arrays[6],
                                                      .scalars = {.gradient_scale = 1.0f,
                                                                  .beta1 = 0.9f,
                                                                  .one_minus_beta1 = 0.1f,
                                                                  .beta2 = 0.999f,
                                                                  .one_minus_beta2 = 0.001f,
                                                                  .root_scale = 1.0f,
                                                                  .eps = 1e-8f,
                                                                  .decay = -1e-5f,
                                                                  .rate = -1e-4f,
                                                                  .decays = 1}}};
    const struct {
        const char *name;
        enum core_update_type moments;
        double bytes;
    } formats[] = {{"adamw", CORE_UPDATE_F32, 26},
                   {"adamw_bf16_moments", CORE_UPDATE_BF16, 18},
                   {"adamw_8bit_moments", CORE_UPDATE_Q8, 14}};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        for (int moments = 3; moments < 7; moments++) { /* the root of a negative v is NaN */
            card_bench_zero(moments);
        }
        update.update.moments = formats[i].moments;
        moves(formats[i].name, KERN_UPDATE, &update, formats[i].bytes * (double)count);
    }
    const struct core_squares_args norm = {bench.arrays[0], CORE_UPDATE_BF16, 0, count,
                                           bench.arrays[7]};
    moves("squares", KERN_SQUARES, &norm, 2.0 * (double)count);
    const struct core_sum_args sum = {.type = CORE_UPDATE_BF16,
                                      .ranks = SUM_RANKS,
                                      .from = bench.arrays[0],
                                      .others = bench.arrays[1],
                                      .stride = count / SUM_RANKS,
                                      .count = count / SUM_RANKS,
                                      .to = bench.arrays[0]};
    moves("sum_ranks", KERN_SUM, &sum, 2.0 * (SUM_RANKS + 1) * (double)sum.count);
}

static void expands(void)
{
    static const struct {
        const char *name;
        enum kern_quant quant;
    } forms[] = {{"expand_nf4", KERN_QUANT_NF4}, {"expand_int8", KERN_QUANT_INT8}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct kern_expand_arguments expand = {.type = KERN_BF16,
                                               .quant = forms[i].quant,
                                               .from = KERN_BF16,
                                               .rows = 2 * shape->inner,
                                               .cols = shape->hidden,
                                               .count = (int64_t)2 * shape->inner * shape->hidden,
                                               .y = bench.arrays[0]};
        const struct kern_quant_layout layout = kern_quant_layout_of(expand.quant, expand.from,
                                                                     expand.rows, expand.cols);
        kern_quant_point(&expand, bench.arrays[1]);
        moves(forms[i].name, KERN_EXPAND, &expand,
              2.0 * (double)expand.count + (double)layout.bytes);
    }
}

/* Times a DoRA adapter's factors, and their product with a layer's output. */
static void magnitudes(void)
{
    enum { RANK = 16 };
    const int64_t rows = 2 * shape->inner;
    const double weights = 2.0 * (double)rows * shape->hidden;
    const struct kern_magnitude_arguments factors = {.type = KERN_BF16,
                                                     .rows = rows,
                                                     .cols = shape->hidden,
                                                     .rank = RANK,
                                                     .scale = 2.0f,
                                                     .w = bench.arrays[0],
                                                     .a = bench.arrays[1],
                                                     .b = bench.arrays[2],
                                                     .magnitude = bench.arrays[3],
                                                     .factor = bench.arrays[5],
                                                     .inverse = bench.arrays[6]};
    moves("magnitude", KERN_MAGNITUDE, &factors, weights);
    const struct kern_columns_arguments y = {.type = KERN_BF16,
                                             .tokens = bench.tokens,
                                             .width = rows,
                                             .x_stride = rows,
                                             .y_stride = rows,
                                             .x = bench.arrays[0],
                                             .factor = bench.arrays[5],
                                             .y = bench.arrays[0]};
    moves("columns", KERN_COLUMNS, &y, 4.0 * (double)bench.tokens * (double)rows);
}

/* ---- Ops bound by the card's arithmetic ---- */

static void products(const char *layer, int64_t m, int64_t n, int64_t k)
{
    const double flops = 2.0 * (double)m * (double)n * (double)k;
    char name[64];
    const struct kern_linear_arguments y = {.type = KERN_BF16,
                                            .m = m,
                                            .n = n,
                                            .k = k,
                                            .x = bench.arrays[0],
                                            .x_stride = k,
                                            .w = bench.arrays[1],
                                            .y = bench.arrays[2],
                                            .y_stride = n};
    snprintf(name, sizeof name, "linear_%s", layer);
    computes(name, KERN_LINEAR, &y, flops);
    const struct kern_linear_grad_input_arguments dx = {.type = KERN_BF16,
                                                        .m = m,
                                                        .n = n,
                                                        .k = k,
                                                        .dy = bench.arrays[2],
                                                        .dy_stride = n,
                                                        .w = bench.arrays[1],
                                                        .dx = bench.arrays[3],
                                                        .dx_stride = k,
                                                        .first = true,
                                                        .last = true};
    if (n == shape->qkv) {
        struct kern_linear_arguments biased = y;
        biased.bias = bench.arrays[3];
        computes("linear_qkv_bias", KERN_LINEAR, &biased, flops);
    }
    snprintf(name, sizeof name, "linear_%s_dx", layer);
    computes(name, KERN_LINEAR_GRAD_INPUT, &dx, flops);
    struct kern_linear_grad_weight_arguments dw = {.type = KERN_BF16,
                                                   .m = m,
                                                   .n = n,
                                                   .k = k,
                                                   .dy = bench.arrays[2],
                                                   .dy_stride = n,
                                                   .x = bench.arrays[0],
                                                   .x_stride = k,
                                                   .dw = gradient(bench.arrays[4])};
    snprintf(name, sizeof name, "linear_%s_dw", layer);
    computes(name, KERN_LINEAR_GRAD_WEIGHT, &dw, flops);
    dw.dw = (struct kern_grad){.sum = bench.arrays[4]};
    snprintf(name, sizeof name, "linear_%s_dw_onto", layer);
    computes(name, KERN_LINEAR_GRAD_WEIGHT, &dw, flops);
}

/* Times attention with heads of size `dim`. `documents` per row divide the pairs of tokens that see
 * each other. */
static void attention(const char *name, const int64_t size[2], int64_t dim, int64_t documents)
{
    int32_t starts[TOKENS_MAX];
    const int64_t rows = size[0];
    const int64_t length = size[1];
    const int64_t heads = shape->attention_heads;
    const int64_t kv_heads = heads < 8 ? 1 : heads / 8;
    const int64_t width = heads * dim;
    const int64_t document = length / documents;
    for (int64_t t = 0; t < rows * length; t++) {
        starts[t] = (int32_t)(t % length / document * document);
    }
    const struct kern_attention_arguments a = {
        .type = KERN_BF16,
        .rows = rows,
        .length = length,
        .heads = heads,
        .kv_heads = kv_heads,
        .head_dim = dim,
        .scale = dim == shape->dim ? 0.088388f : 0.125f,
        .starts = documents > 1 ? numbers(9, starts, (size_t)(rows * length)) : NULL,
        .q = bench.arrays[0],
        .q_stride = width,
        .k = bench.arrays[1],
        .k_stride = kv_heads * dim,
        .v = bench.arrays[2],
        .v_stride = kv_heads * dim,
        .o = bench.arrays[3],
        .o_stride = width,
        .lse = bench.arrays[4]};
    const double pairs = (double)(rows * heads * length) * (double)document / 2.0;
    char line[64];
    snprintf(line, sizeof line, "attention_%s", name);
    computes(line, KERN_ATTENTION, &a, 4.0 * (double)dim * pairs);
    const struct kern_attention_grad_arguments g = {.forward = a,
                                                    .d_o = bench.arrays[5],
                                                    .d_o_stride = width,
                                                    .dq = bench.arrays[6],
                                                    .dq_stride = width,
                                                    .dk = bench.arrays[7],
                                                    .dk_stride = kv_heads * dim,
                                                    .dv = bench.arrays[8],
                                                    .dv_stride = kv_heads * dim};
    snprintf(line, sizeof line, "attention_grad_%s", name);
    computes(line, KERN_ATTENTION_GRAD, &g, 10.0 * (double)dim * pairs);
}

static void loss(void)
{
    struct kern_loss_arguments a = {.type = KERN_BF16,
                                    .tokens = bench.tokens,
                                    .vocab = shape->vocab,
                                    .width = shape->hidden,
                                    .logits_bytes = shape->scratch_bytes,
                                    .x = bench.arrays[0],
                                    .x_stride = shape->hidden,
                                    .w = bench.arrays[1],
                                    .labels = bench.arrays[9], /* zeros: class 0 */
                                    .scale = bench.arrays[3],
                                    .loss = bench.arrays[4],
                                    .dx = bench.arrays[5],
                                    .dx_stride = shape->hidden,
                                    .dw = gradient(bench.arrays[6])};
    const double flops = 6.0 * (double)bench.tokens * shape->vocab * shape->hidden;
    computes("loss_and_gradients", KERN_LOSS, &a, flops);
    a.logits_bytes = 0; /* by tiles */
    computes("loss_and_gradients_by_tile", KERN_LOSS, &a, flops);
}

static void all_products(void)
{
    const int64_t d = shape->divisor;
    products("8192", 8192 / d, 8192 / d, 8192 / d);
    products("qkv", bench.tokens, shape->qkv, shape->hidden);
    products("up", bench.tokens, 2 * shape->inner, shape->hidden);
    products("down", bench.tokens, shape->hidden, shape->inner);
    products("head", bench.tokens / 4, shape->vocab, shape->hidden);
    products("14b_up", bench.tokens, 2 * 17408 / d, 5120 / d);
    products("14b_down", bench.tokens, 5120 / d, 17408 / d);
    products("32b_up", bench.tokens, 2 * 25600 / d, 5120 / d);
    products("32b_down", bench.tokens, 5120 / d, 25600 / d);
}

static void all_attention(void)
{
    const bool quick = bench.tokens < shape->tokens;
    const int64_t middle[2] = {quick ? 1 : 2, 4096 / shape->divisor};
    const int64_t large[2] = {1, (quick ? 8192 : 16384) / shape->divisor};
    attention("4k", middle, 128, 1);
    attention(quick ? "8k" : "16k", large, 128, 1);
    attention("4k_64", middle, 64, 1);
    attention(quick ? "8k_64" : "16k_64", large, 64, 1);
    attention("4k_documents", middle, 128, 8); /* overwrites the zeros that the loss reads */
}

/* torch_ops.py calls it from a shared library, so that one process measures both. */
__attribute__((visibility("default"))) int bench_ops_cuda(int argc, char **argv);
int bench_ops_cuda(int argc, char **argv)
{
    card_bench_open(argc, argv);
    shape = bench.shape;
    norms();
    pointwise();
    sums();
    arrays();
    expands();
    magnitudes();
    all_products();
    loss();
    all_attention();
    card_bench_close();
    return 0;
}

int main(int argc, char **argv)
{
    return bench_ops_cuda(argc, argv);
}
