/* bench_ops_cuda.c: how fast a card's ops are, on the shapes of one layer and the head of an 8B Llama
 * (hidden 4096, inner 14336, 32 heads of 128, 8 key heads, vocabulary 128256), bf16, 16384 tokens, and
 * the products of larger models. torch_ops.py prints torch's lines of the same names.
 * Prints `name value unit` lines: GB/s of what is read and written, beside the card's copies within
 * its memory (`_ratio`: to twice the bytes copied a second), or TFLOP/s. `--quick` takes a quarter of
 * the tokens and fewer runs, `--only WORD` the lines whose name has it, `--choices FILE` times products
 * and keeps the ways there. Each line is the best of several batches of launches, end to end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/vec.h"
#include "core/dev/dev.h"
#include "kernels/kern.h"
#include "kernels/table.h"

enum { HIDDEN = 4096, INNER = 14336, VOCAB = 128256, HEADS = 32, KV_HEADS = 8, DIM = 128 };
enum { QKV = (HEADS + 2 * KV_HEADS) * DIM, ARRAYS = 10, FILL_BYTES = 32 << 20 };

static struct {
    struct dev_device *device;
    struct dev_queue *queue;
    struct kern_ops *ops;
    int64_t tokens;
    double copy; /* bytes read and written a second */
    int batches;
    const char *only;
    void *arrays[ARRAYS];
} bench = {.tokens = 16384, .batches = 5};

static const size_t array_bytes = (size_t)2 << 30;

static void must(int rc)
{
    if (rc < 0) {
        fprintf(stderr, "bench_ops_cuda: %s\n", core_err_sentence());
        exit(1);
    }
}

static void launch(enum kern_op op, const void *arguments, int count)
{
    const struct dev_command command = {
        .op = op, .arguments = arguments, .arguments_bytes = kern_op_argument_bytes(op)};
    struct core_fence fence = {0};
    for (int i = 0; i < count;) {
        const int rc = dev_queue_launch(bench.queue, &command, &fence);
        if (rc != -EAGAIN) {
            must(rc);
            i++;
        }
    }
    must(core_fence_wait(fence, 60000000000));
}

static double seconds(enum kern_op op, const void *arguments, int count)
{
    const int64_t start = core_clock_now_ns();
    launch(op, arguments, count);
    return (double)(core_clock_now_ns() - start) * 1e-9;
}

/* Best seconds of a launch: batches of about 20 ms. */
static double best(enum kern_op op, const void *arguments)
{
    launch(op, arguments, 2); /* chooses ways and warms up */
    const double one = seconds(op, arguments, 1);
    const int count = one > 0.02 ? 1 : (int)(0.02 / one) + 1;
    double least = 1e9;
    for (int i = 0; i < bench.batches; i++) {
        const double batch = seconds(op, arguments, count) / count;
        least = batch < least ? batch : least;
    }
    return least;
}

static bool wanted(const char *name)
{
    return bench.only == NULL || strstr(name, bench.only) != NULL;
}

static void moves(const char *name, enum kern_op op, const void *arguments, double bytes)
{
    if (wanted(name)) {
        const double rate = bytes / best(op, arguments);
        printf("%s %.1f GB/s\n%s_ratio %.3f of_copy\n", name, rate * 1e-9, name, rate / bench.copy);
    }
}

static void computes(const char *name, enum kern_op op, const void *arguments, double flops)
{
    if (wanted(name)) {
        printf("%s %.1f TFLOP/s\n", name, flops / best(op, arguments) * 1e-12);
    }
}

/* ---- Ops bound by memory ---- */

static struct kern_grad gradient(void *out)
{
    return (struct kern_grad){.out = out, .out_type = KERN_BF16, .first = true, .last = true};
}

static void norms(void)
{
    const double row = 2.0 * (double)bench.tokens * HIDDEN;
    struct kern_norm_arguments y = {.type = KERN_BF16,
                                    .tokens = bench.tokens,
                                    .heads = 1,
                                    .width = HIDDEN,
                                    .eps = 1e-5f,
                                    .x = bench.arrays[0],
                                    .x_stride = HIDDEN,
                                    .weight = bench.arrays[4],
                                    .y = bench.arrays[1],
                                    .y_stride = HIDDEN,
                                    .rstd = bench.arrays[5]};
    moves("norm_rms", KERN_NORM, &y, 2 * row);
    y.add = bench.arrays[2];
    y.sum = bench.arrays[3];
    moves("norm_rms_add", KERN_NORM, &y, 4 * row);
    const struct kern_norm_grad_arguments d = {.type = KERN_BF16,
                                               .tokens = bench.tokens,
                                               .heads = 1,
                                               .width = HIDDEN,
                                               .dy = bench.arrays[1],
                                               .dy_stride = HIDDEN,
                                               .s = bench.arrays[0],
                                               .s_stride = HIDDEN,
                                               .weight = bench.arrays[4],
                                               .rstd = bench.arrays[5],
                                               .add = bench.arrays[2],
                                               .dx = bench.arrays[3],
                                               .dx_stride = HIDDEN,
                                               .dweight = gradient(bench.arrays[6])};
    moves("norm_rms_grad", KERN_NORM_GRAD, &d, 4 * row);
    const struct kern_norm_arguments qk = {.type = KERN_BF16,
                                           .tokens = bench.tokens,
                                           .heads = HEADS,
                                           .width = DIM,
                                           .eps = 1e-6f,
                                           .x = bench.arrays[0],
                                           .x_stride = QKV,
                                           .weight = bench.arrays[4],
                                           .y = bench.arrays[0],
                                           .y_stride = QKV,
                                           .rstd = bench.arrays[5]};
    moves("norm_qk", KERN_NORM, &qk, 2 * row);
}

static void pointwise(void)
{
    const double wide = 2.0 * (double)bench.tokens * INNER;
    char *both = bench.arrays[0];
    const struct kern_act_arguments y = {.type = KERN_BF16,
                                         .tokens = bench.tokens,
                                         .width = INNER,
                                         .gate = both,
                                         .gate_stride = 2 * INNER,
                                         .up = both + (size_t)INNER * 2,
                                         .up_stride = 2 * INNER,
                                         .y = bench.arrays[1],
                                         .y_stride = INNER};
    moves("swiglu", KERN_ACT, &y, 3 * wide);
    const struct kern_act_grad_arguments d = {.type = KERN_BF16,
                                              .tokens = bench.tokens,
                                              .width = INNER,
                                              .gate = both,
                                              .gate_stride = 2 * INNER,
                                              .up = y.up,
                                              .up_stride = 2 * INNER,
                                              .dy = bench.arrays[1],
                                              .dy_stride = INNER,
                                              .dgate = bench.arrays[2],
                                              .dgate_stride = 2 * INNER,
                                              .dup = (char *)bench.arrays[2] + (size_t)INNER * 2,
                                              .dup_stride = 2 * INNER};
    moves("swiglu_grad", KERN_ACT_GRAD, &d, 5 * wide);
    const struct kern_rope_arguments rope = {.type = KERN_BF16,
                                             .tokens = bench.tokens,
                                             .heads = HEADS + KV_HEADS,
                                             .head_dim = DIM,
                                             .rotary = DIM,
                                             .x = bench.arrays[0],
                                             .stride = QKV,
                                             .cos = bench.arrays[3],
                                             .sin = bench.arrays[4],
                                             .length = 2048};
    moves("rope", KERN_ROPE, &rope, 4.0 * (double)bench.tokens * (HEADS + KV_HEADS) * DIM);
    const int64_t count = bench.tokens * INNER;
    const struct kern_add_arguments add = {count,           KERN_BF16, bench.arrays[0], KERN_BF16,
                                           bench.arrays[1], KERN_BF16, bench.arrays[2]};
    moves("add", KERN_ADD, &add, 3 * wide);
    const struct core_vec_cast cast = {bench.arrays[0], bench.arrays[1], CORE_VEC_F32,
                                       CORE_VEC_BF16, (uint64_t)count};
    moves("cast", KERN_CAST, &cast, 3 * wide);
}

static void arrays(void)
{
    const uint64_t count = (uint64_t)1 << 27;
    struct kern_update_arguments update = {.update = {.rule = CORE_VEC_ADAMW,
                                                      .master = CORE_VEC_MASTER_SPLIT,
                                                      .gradients = CORE_VEC_BF16,
                                                      .moments = CORE_VEC_F32,
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
                                                                  .beta1_rest = 0.1f,
                                                                  .beta2 = 0.999f,
                                                                  .beta2_rest = 0.001f,
                                                                  .root_scale = 1.0f,
                                                                  .eps = 1e-8f,
                                                                  .decay = -1e-5f,
                                                                  .rate = -1e-4f,
                                                                  .decays = 1}}};
    moves("adamw", KERN_UPDATE, &update, 26.0 * (double)count);
    update.update.moments = CORE_VEC_BF16;
    moves("adamw_bf16_moments", KERN_UPDATE, &update, 18.0 * (double)count);
    update.update.moments = CORE_VEC_Q8;
    moves("adamw_8bit_moments", KERN_UPDATE, &update, 14.0 * (double)count);
    const struct core_vec_norm norm = {bench.arrays[0], CORE_VEC_BF16, 0, count, bench.arrays[7]};
    moves("squares", KERN_SQUARES, &norm, 2.0 * (double)count);
    const struct core_vec_axpy axpy = {bench.arrays[3], bench.arrays[0], CORE_VEC_BF16, 1.0f,
                                       count};
    moves("axpy", KERN_AXPY, &axpy, 10.0 * (double)count);
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

static void attention(int64_t rows, int64_t length)
{
    const int64_t heads = 64;
    const int64_t width = heads * DIM;
    const struct kern_attention_arguments a = {.type = KERN_BF16,
                                               .rows = rows,
                                               .length = length,
                                               .heads = heads,
                                               .kv_heads = 8,
                                               .head_dim = DIM,
                                               .scale = 0.088388f,
                                               .q = bench.arrays[0],
                                               .q_stride = width,
                                               .k = bench.arrays[1],
                                               .k_stride = 8 * DIM,
                                               .v = bench.arrays[2],
                                               .v_stride = 8 * DIM,
                                               .o = bench.arrays[3],
                                               .o_stride = width,
                                               .lse = bench.arrays[4]};
    const double pairs = (double)rows * (double)heads * (double)length * (double)length / 2.0;
    char name[64];
    snprintf(name, sizeof name, "attention_%dk", (int)(length / 1024));
    computes(name, KERN_ATTENTION, &a, 4.0 * DIM * pairs);
    const struct kern_attention_grad_arguments g = {.forward = a,
                                                    .d_o = bench.arrays[5],
                                                    .d_o_stride = width,
                                                    .dq = bench.arrays[6],
                                                    .dq_stride = width,
                                                    .dk = bench.arrays[7],
                                                    .dk_stride = 8 * DIM,
                                                    .dv = bench.arrays[8],
                                                    .dv_stride = 8 * DIM};
    snprintf(name, sizeof name, "attention_grad_%dk", (int)(length / 1024));
    computes(name, KERN_ATTENTION_GRAD, &g, 10.0 * DIM * pairs);
}

static void loss(void)
{
    const struct kern_loss_arguments a = {.type = KERN_BF16,
                                          .tokens = bench.tokens,
                                          .vocab = VOCAB,
                                          .width = HIDDEN,
                                          .x = bench.arrays[0],
                                          .x_stride = HIDDEN,
                                          .w = bench.arrays[1],
                                          .labels = bench.arrays[9], /* zeros: class 0 */
                                          .scale = bench.arrays[3],
                                          .loss = bench.arrays[4],
                                          .dx = bench.arrays[5],
                                          .dx_stride = HIDDEN,
                                          .dw = gradient(bench.arrays[6])};
    computes("loss_and_gradients", KERN_LOSS, &a, 6.0 * (double)bench.tokens * VOCAB * HIDDEN);
}

/* ---- */

static void copy(enum dev_copy_direction direction, void *to, const void *from, size_t bytes)
{
    struct core_fence fence = {0};
    const struct dev_copy move = {.direction = direction, .to = to, .from = from, .bytes = bytes};
    must(dev_queue_copy(bench.queue, &move, &fence));
    must(core_fence_wait(fence, 60000000000));
}

/* Numbers of about 0.01, as products meet them: what lies in memory decides how fast a card clocks.
 * The last array is zeros. */
static void fill(void)
{
    uint16_t *host = malloc(FILL_BYTES);
    uint32_t random = 1;
    if (host == NULL) {
        exit(1);
    }
    for (size_t i = 0; i < FILL_BYTES / 2; i++) {
        random = random * 1664525U + 1013904223U;
        host[i] = (uint16_t)((random >> 31) << 15 | (0x3c00U + (random >> 16 & 0xffU)));
    }
    for (int array = 0; array < ARRAYS; array++) {
        must(dev_memory_alloc(bench.device, array_bytes, &bench.arrays[array]));
        if (array == ARRAYS - 1) {
            memset(host, 0, FILL_BYTES);
        }
        copy(DEV_COPY_UP, bench.arrays[array], host, FILL_BYTES);
        for (size_t at = FILL_BYTES; at < array_bytes; at += FILL_BYTES) {
            copy(DEV_COPY_WITHIN, (char *)bench.arrays[array] + at, bench.arrays[array],
                 FILL_BYTES);
        }
    }
    free(host);
}

static void begin(const struct kern_options *options)
{
    struct dev_rates rates;
    const struct dev_options memory = {.memory_bytes = (size_t)24 << 30};
    must(dev_open("cuda", &memory, &bench.device));
    must(dev_rates_measure(bench.device, (size_t)1 << 30, &rates));
    bench.copy = 2.0 * rates.within;
    must(kern_ops_attach(bench.device, options, &bench.ops));
    const struct dev_queue_options queue = {
        .kind = DEV_QUEUE_COMPUTE, .depth = 512, .scratch_bytes = (size_t)2 << 30};
    must(dev_queue_create(bench.device, &queue, &bench.queue));
    printf("# %s; %s\n", dev_properties(bench.device)->description, kern_ops_describe(bench.ops));
    printf("copy_within %.1f GB/s\ncopy_up %.1f GB/s\ncopy_down %.1f GB/s\n"
           "copy_up_and_down %.1f GB/s_each\n",
           bench.copy * 1e-9, rates.up * 1e-9, rates.down * 1e-9, rates.both * 1e-9);
    fill();
}

int main(int argc, char **argv)
{
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* a run that is cut short keeps its lines */
    struct kern_options options = {.products = KERN_PRODUCTS_BEST};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            bench.tokens = 4096;
            bench.batches = 2;
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            bench.only = argv[++i];
        } else if (strcmp(argv[i], "--choices") == 0 && i + 1 < argc) {
            options.cuda_choices = argv[++i];
        } else {
            fprintf(stderr, "bench_ops_cuda [--quick] [--only WORD] [--choices FILE]\n");
            return 2;
        }
    }
    begin(&options);
    norms();
    pointwise();
    arrays();
    products("8192", 8192, 8192, 8192);
    products("qkv", bench.tokens, QKV, HIDDEN);
    products("up", bench.tokens, 2 * INNER, HIDDEN);
    products("down", bench.tokens, HIDDEN, INNER);
    products("14b_up", bench.tokens, 2 * 17408, 5120);
    products("14b_down", bench.tokens, 5120, 17408);
    products("32b_up", bench.tokens, 2 * 25600, 5120);
    products("32b_down", bench.tokens, 5120, 25600);
    attention(bench.batches > 2 ? 2 : 1, 4096);
    attention(1, bench.batches > 2 ? 16384 : 8192);
    loss();
    dev_queue_destroy(bench.queue);
    kern_ops_detach(bench.ops);
    for (int array = 0; array < ARRAYS; array++) {
        dev_memory_free(bench.device, bench.arrays[array]);
    }
    dev_close(bench.device);
    return 0;
}
