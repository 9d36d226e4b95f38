/* Tests ops against PyTorch, and RoPE tables against transformers. This test reads torch_ops.bin in
 * the order in which tests/oracle/ops.py writes it. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/rope.h"
#include "tests/kernels/rig.h"

static FILE *file;

/* Returns the next array of the file, on host and device. */
static float *next(int64_t count)
{
    int64_t stored = 0;
    check_int(fread(&stored, sizeof stored, 1, file), ==, 1);
    check_int(stored, ==, count);
    float *values = malloc((size_t)count * sizeof *values);
    check_int(fread(values, sizeof *values, (size_t)count, file), ==, count);
    float *array = rig_ints((const int32_t *)(const void *)values, count);
    free(values);
    return array;
}

static void near(const char *what, const float *got, const float *want, int64_t count)
{
    double most = 0.0;
    for (int64_t i = 0; i < count; i++) {
        most = fmax(most, (double)fabsf(want[i]));
    }
    for (int64_t i = 0; i < count; i++) {
        if (!(fabs((double)got[i] - (double)want[i]) <= 1e-5 * most)) {
            test_fail(__FILE__, __LINE__, "%s: element %" PRId64 " is %.9g, not %.9g", what, i,
                      (double)got[i], (double)want[i]);
        }
    }
}

static void same(const char *what, const void *array, const float *want, int64_t count)
{
    near(what, rig_fetch(array), want, count);
}

static struct kern_grad whole(int64_t count)
{
    return (struct kern_grad){.out = rig_zeros(KERN_F32, count), .first = true, .last = true};
}

static void norms(enum kern_norm_kind kind)
{
    rig_case(1);
    const bool layer = kind == KERN_NORM_LAYER;
    struct kern_norm_arguments y = {.kind = kind,
                                    .tokens = 5,
                                    .heads = 1,
                                    .width = 40,
                                    .eps = 1e-5f,
                                    .x_stride = 40,
                                    .y_stride = 40};
    y.x = next(200);
    y.weight = next(40);
    y.bias = layer ? next(40) : NULL;
    y.y = rig_zeros(KERN_F32, 200);
    y.mean = rig_zeros(KERN_F32, 5);
    y.rstd = rig_zeros(KERN_F32, 5);
    check_int(rig_run(KERN_NORM, &y), ==, 0);
    same("norm", y.y, next(200), 200);
    struct kern_norm_grad_arguments d = {.kind = kind,
                                         .tokens = 5,
                                         .heads = 1,
                                         .width = 40,
                                         .dy_stride = 40,
                                         .s = y.x,
                                         .s_stride = 40,
                                         .weight = y.weight,
                                         .mean = y.mean,
                                         .rstd = y.rstd,
                                         .dx_stride = 40};
    d.dy = next(200);
    d.dx = rig_zeros(KERN_F32, 200);
    d.dweight = whole(40);
    d.dbias = whole(40);
    check_int(rig_run(KERN_NORM_GRAD, &d), ==, 0);
    same("dx of the norm", d.dx, next(200), 200);
    same("dweight of the norm", d.dweight.out, next(40), 40);
    if (layer) {
        same("dbias of the norm", d.dbias.out, next(40), 40);
    }
}

static void acts(enum kern_act_kind kind)
{
    rig_case(1);
    struct kern_act_arguments y = {
        .kind = kind, .tokens = 3, .width = 50, .gate_stride = 50, .up_stride = 50, .y_stride = 50};
    y.gate = next(150);
    y.up = next(150);
    y.y = rig_zeros(KERN_F32, 150);
    check_int(rig_run(KERN_ACT, &y), ==, 0);
    same("act", y.y, next(150), 150);
    struct kern_act_grad_arguments d = {.kind = kind,
                                        .tokens = 3,
                                        .width = 50,
                                        .gate = y.gate,
                                        .gate_stride = 50,
                                        .up = y.up,
                                        .up_stride = 50,
                                        .dy_stride = 50,
                                        .dgate_stride = 50,
                                        .dup_stride = 50};
    d.dy = next(150);
    d.dgate = rig_zeros(KERN_F32, 150);
    d.dup = rig_zeros(KERN_F32, 150);
    check_int(rig_run(KERN_ACT_GRAD, &d), ==, 0);
    same("dgate", d.dgate, next(150), 150);
    same("dup", d.dup, next(150), 150);
}

enum { ROWS = 2, LENGTH = 70, DIM = 16 };

/* Turns [row][head][token][dim] into [row][token][head][dim]. */
static float *tokens_first(const float *from, int64_t heads)
{
    const int64_t count = ROWS * heads * LENGTH * DIM;
    float *turned = malloc((size_t)count * sizeof *turned);
    for (int64_t i = 0; i < count; i++) {
        const int64_t token = i / DIM % LENGTH;
        const int64_t head = i / DIM / LENGTH % heads;
        const int64_t row = i / DIM / LENGTH / heads;
        turned[((row * LENGTH + token) * heads + head) * DIM + i % DIM] = from[i];
    }
    float *array = rig_ints((const int32_t *)(const void *)turned, count);
    free(turned);
    return array;
}

static void attentions(void)
{
    rig_case(1);
    const int64_t q = 4 * DIM;
    const int64_t k = 2 * DIM;
    const int64_t tokens = ROWS * LENGTH;
    struct kern_attention_arguments a = {.rows = ROWS,
                                         .length = LENGTH,
                                         .heads = 4,
                                         .kv_heads = 2,
                                         .head_dim = DIM,
                                         .scale = 0.25f,
                                         .q_stride = q,
                                         .k_stride = k,
                                         .v_stride = k,
                                         .o_stride = q};
    a.q = tokens_first(next(tokens * q), 4);
    a.k = tokens_first(next(tokens * k), 2);
    a.v = tokens_first(next(tokens * k), 2);
    a.o = rig_zeros(KERN_F32, tokens * q);
    a.lse = rig_zeros(KERN_F32, tokens * 4);
    check_int(rig_run(KERN_ATTENTION, &a), ==, 0);
    same("attention", a.o, tokens_first(next(tokens * q), 4), tokens * q);
    struct kern_attention_grad_arguments g = {
        .forward = a, .d_o_stride = q, .dq_stride = q, .dk_stride = k, .dv_stride = k};
    g.d_o = tokens_first(next(tokens * q), 4);
    g.dq = rig_zeros(KERN_F32, tokens * q);
    g.dk = rig_zeros(KERN_F32, tokens * k);
    g.dv = rig_zeros(KERN_F32, tokens * k);
    check_int(rig_run(KERN_ATTENTION_GRAD, &g), ==, 0);
    same("dq", g.dq, tokens_first(next(tokens * q), 4), tokens * q);
    same("dk", g.dk, tokens_first(next(tokens * k), 2), tokens * k);
    same("dv", g.dv, tokens_first(next(tokens * k), 2), tokens * k);
}

static void losses(void)
{
    rig_case(1);
    const int32_t labels[9] = {3, -100, 30, 0, 7, 7, -100, 12, 29};
    struct kern_loss_arguments a = {
        .tokens = 9, .vocab = 31, .width = 20, .x_stride = 20, .dx_stride = 20};
    a.x = next(180);
    a.w = next(620);
    const float *sum = next(1);
    a.labels = rig_ints(labels, 9);
    a.scale = next(1); /* weight of PyTorch's result */
    a.loss = rig_bytes(sizeof *a.loss);
    a.dx = rig_zeros(KERN_F32, 180);
    a.dw = whole(620);
    check_int(rig_run(KERN_LOSS, &a), ==, 0);
    const struct kern_loss *loss = rig_fetch(a.loss);
    check_int(loss->count, ==, 7);
    check_double(fabs(loss->sum - (double)*sum), <=, 1e-5 * (double)*sum);
    same("dx of the loss", a.dx, next(180), 180);
    same("dw of the loss", a.dw.out, next(620), 620);
}

static void ropes(void)
{
    const struct kern_rope_config kinds[] = {
        {.kind = KERN_ROPE_DEFAULT},
        {.kind = KERN_ROPE_LINEAR, .factor = 4.0},
        {.kind = KERN_ROPE_DYNAMIC, .factor = 2.0},
        {.kind = KERN_ROPE_YARN, .factor = 4.0, .original_max_positions = 64},
        {.kind = KERN_ROPE_LLAMA3,
         .factor = 8.0,
         .low_freq_factor = 1.0,
         .high_freq_factor = 4.0,
         .original_max_positions = 64},
    };
    enum { POSITIONS = 100, HALF = 16 };
    static float cos_table[POSITIONS * HALF];
    static float sin_table[POSITIONS * HALF];
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        rig_case(1);
        struct kern_rope_config config = kinds[i];
        config.theta = 10000.0;
        config.rotary = 2 * HALF;
        config.max_positions = 128;
        check_int(kern_rope_build(&config, POSITIONS, 0, cos_table, sin_table), ==, 0);
        near("cos", cos_table, next(POSITIONS * HALF), POSITIONS * HALF);
        near("sin", sin_table, next(POSITIONS * HALF), POSITIONS * HALF);
    }
}

static void ops_agree_with_torch(void)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/kernels/torch_ops.bin", test_root());
    file = fopen(path, "rb");
    check_true(file != NULL);
    rig_open(NULL, 2);
    norms(KERN_NORM_RMS);
    norms(KERN_NORM_LAYER);
    acts(KERN_ACT_SILU);
    acts(KERN_ACT_GELU_TANH);
    acts(KERN_ACT_GELU);
    acts(KERN_ACT_RELU);
    attentions();
    losses();
    ropes();
    check_int(fgetc(file), ==, EOF);
    fclose(file);
    rig_close();
}

RIG_MAIN({"ops_agree_with_torch", ops_agree_with_torch})
