/* Tests the references' gradients by finite differences in float64, without a device. */
#include <stdlib.h>

#include "core/base/rng.h"
#include "kernels/ref/ref.h"
#include "tests/harness/test.h"

enum { MOST = 512 };

static uint64_t drawn;

static void draw(double *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const struct core_rng_words words = core_rng_philox(11, 3, drawn++);
        values[i] = 2.0 * (double)core_rng_unit(words.word[0]) - 1.0;
    }
}

/* The function: the sum of its outputs, weighted with `weights`. */
struct function {
    void (*run)(void);
    const double *output;
    const double *weights;
    int64_t output_count;
};

static double value_of(const struct function *f)
{
    double sum = 0.0;
    f->run();
    for (int64_t i = 0; i < f->output_count; i++) {
        sum += f->output[i] * f->weights[i];
    }
    return sum;
}

static void check_slopes(const struct function *f, double *input, const double *slope,
                         int64_t count)
{
    const double step = 1e-5;
    for (int64_t i = 0; i < count; i++) {
        const double here = input[i];
        input[i] = here + step;
        const double above = value_of(f);
        input[i] = here - step;
        const double below = value_of(f);
        input[i] = here;
        const double want = (above - below) / (2.0 * step);
        check_double(fabs(slope[i] - want), <=, 1e-6 * (1.0 + fabs(want)));
    }
}

static struct kern_grad whole(double *out)
{
    return (struct kern_grad){.out = out, .out_type = KERN_F64, .first = true, .last = true};
}

static double x[MOST], w[MOST], b[MOST], y[MOST], dy[MOST], dx[MOST], dw[MOST], db[MOST];
static float saved[2][MOST];

static struct kern_linear_arguments linear;

static void linear_run(void)
{
    kern_ref_linear(&linear);
}

static void linear_slopes(void)
{
    draw(x, 15);
    draw(w, 20);
    draw(b, 4);
    draw(dy, 12);
    linear = (struct kern_linear_arguments){.type = KERN_F64,
                                            .m = 3,
                                            .n = 4,
                                            .k = 5,
                                            .x = x,
                                            .x_stride = 5,
                                            .w = w,
                                            .bias = b,
                                            .y = y,
                                            .y_stride = 4};
    kern_ref_linear_grad_input(&(struct kern_linear_grad_input_arguments){.type = KERN_F64,
                                                                          .m = 3,
                                                                          .n = 4,
                                                                          .k = 5,
                                                                          .dy = dy,
                                                                          .dy_stride = 4,
                                                                          .w = w,
                                                                          .dx = dx,
                                                                          .dx_stride = 5,
                                                                          .first = true,
                                                                          .last = true});
    kern_ref_linear_grad_weight(&(struct kern_linear_grad_weight_arguments){.type = KERN_F64,
                                                                            .m = 3,
                                                                            .n = 4,
                                                                            .k = 5,
                                                                            .dy = dy,
                                                                            .dy_stride = 4,
                                                                            .x = x,
                                                                            .x_stride = 5,
                                                                            .dw = whole(dw)});
    kern_ref_bias_grad(&(struct kern_bias_grad_arguments){
        .type = KERN_F64, .m = 3, .n = 4, .dy = dy, .dy_stride = 4, .db = whole(db)});
    const struct function f = {linear_run, y, dy, 12};
    check_slopes(&f, x, dx, 15);
    check_slopes(&f, w, dw, 20);
    check_slopes(&f, b, db, 4);
}

static struct kern_embed_arguments embed;
static const int32_t ids[4] = {2, 0, 2, 1};

static void embed_run(void)
{
    kern_ref_embed(&embed);
}

static void embed_slopes(void)
{
    draw(w, 12);
    draw(dy, 12);
    embed = (struct kern_embed_arguments){.type = KERN_F64,
                                          .tokens = 4,
                                          .width = 3,
                                          .vocab = 4,
                                          .ids = ids,
                                          .table = w,
                                          .length = 4,
                                          .y = y};
    kern_ref_embed_grad(&(struct kern_embed_grad_arguments){.type = KERN_F64,
                                                            .tokens = 4,
                                                            .width = 3,
                                                            .vocab = 4,
                                                            .ids = ids,
                                                            .length = 4,
                                                            .dy = dy,
                                                            .dtable = whole(dw)});
    const struct function f = {embed_run, y, dy, 12};
    check_slopes(&f, w, dw, 12);
}

static struct kern_norm_arguments norm;

static void norm_run(void)
{
    kern_ref_norm(&norm);
}

/* Statistics are stored in fp32, so inputs are exact in fp32, and the bound allows for that
 * rounding. */
static void norm_slopes(void)
{
    for (int kind = 0; kind < 2; kind++) {
        draw(x, 12);
        draw(w, 6);
        draw(b, 6);
        draw(dy, 12);
        norm = (struct kern_norm_arguments){.type = KERN_F64,
                                            .kind = (enum kern_norm_kind)kind,
                                            .tokens = 2,
                                            .heads = 1,
                                            .width = 6,
                                            .eps = 1e-5f,
                                            .x = x,
                                            .x_stride = 6,
                                            .weight = w,
                                            .bias = kind == KERN_NORM_LAYER ? b : NULL,
                                            .y = y,
                                            .y_stride = 6,
                                            .mean = saved[0],
                                            .rstd = saved[1]};
        norm_run();
        kern_ref_norm_grad(&(struct kern_norm_grad_arguments){.type = KERN_F64,
                                                              .kind = norm.kind,
                                                              .tokens = 2,
                                                              .heads = 1,
                                                              .width = 6,
                                                              .dy = dy,
                                                              .dy_stride = 6,
                                                              .s = x,
                                                              .s_stride = 6,
                                                              .weight = w,
                                                              .mean = saved[0],
                                                              .rstd = saved[1],
                                                              .dx = dx,
                                                              .dx_stride = 6,
                                                              .dweight = whole(dw),
                                                              .dbias = whole(db)});
        const struct function f = {norm_run, y, dy, 12};
        check_slopes(&f, x, dx, 12);
        check_slopes(&f, w, dw, 6);
        if (kind == KERN_NORM_LAYER) {
            check_slopes(&f, b, db, 6);
        }
    }
}

static struct kern_act_arguments act;

static void act_run(void)
{
    kern_ref_act(&act);
}

static void act_slopes(void)
{
    for (int kind = 0; kind < 4; kind++) {
        draw(x, 20);
        draw(w, 20);
        draw(dy, 20);
        for (int i = 0; i < 20; i++) {
            x[i] = x[i] * 4.0 + 0.01;
        }
        act = (struct kern_act_arguments){.type = KERN_F64,
                                          .kind = (enum kern_act_kind)kind,
                                          .tokens = 2,
                                          .width = 10,
                                          .gate = x,
                                          .gate_stride = 10,
                                          .up = w,
                                          .up_stride = 10,
                                          .y = y,
                                          .y_stride = 10};
        kern_ref_act_grad(&(struct kern_act_grad_arguments){.type = KERN_F64,
                                                            .kind = act.kind,
                                                            .tokens = 2,
                                                            .width = 10,
                                                            .gate = x,
                                                            .gate_stride = 10,
                                                            .up = w,
                                                            .up_stride = 10,
                                                            .dy = dy,
                                                            .dy_stride = 10,
                                                            .dgate = dx,
                                                            .dgate_stride = 10,
                                                            .dup = dw,
                                                            .dup_stride = 10});
        const struct function f = {act_run, y, dy, 20};
        check_slopes(&f, x, dx, 20);
        check_slopes(&f, w, dw, 20);
    }
}

static struct kern_rope_arguments rope;

static void rope_run(void)
{
    memcpy(y, x, sizeof y);
    kern_ref_rope(&rope);
}

/* `backward` is the transpose, even if the tables are not a rotation. */
static void rope_slopes(void)
{
    static float tables[2][6];
    for (int i = 0; i < 6; i++) {
        tables[0][i] = 0.3f * (float)i - 1.0f;
        tables[1][i] = 0.7f - 0.2f * (float)i;
    }
    draw(x, 30);
    draw(dy, 30);
    rope = (struct kern_rope_arguments){.type = KERN_F64,
                                        .tokens = 3,
                                        .heads = 2,
                                        .head_dim = 5,
                                        .rotary = 4,
                                        .x = y,
                                        .stride = 10,
                                        .cos = tables[0],
                                        .sin = tables[1],
                                        .length = 3};
    struct kern_rope_arguments back = rope;
    memcpy(dx, dy, sizeof dx);
    back.x = dx;
    back.backward = true;
    kern_ref_rope(&back);
    const struct function f = {rope_run, y, dy, 30};
    check_slopes(&f, x, dx, 30);
}

static struct kern_attention_arguments attention;

static void attention_run(void)
{
    kern_ref_attention(&attention);
}

static void attention_slopes(void)
{
    enum { TOKENS = 7, Q = 6, K = 3 };
    static const int32_t starts[TOKENS] = {0, 0, 0, 3, 3, 3, 3};
    draw(x, TOKENS * Q);
    draw(w, TOKENS * K);
    draw(b, TOKENS * K);
    draw(dy, TOKENS * Q);
    attention = (struct kern_attention_arguments){.type = KERN_F64,
                                                  .rows = 1,
                                                  .length = TOKENS,
                                                  .heads = 2,
                                                  .kv_heads = 1,
                                                  .head_dim = 3,
                                                  .window = 3,
                                                  .scale = 0.75f,
                                                  .starts = starts,
                                                  .q = x,
                                                  .q_stride = Q,
                                                  .k = w,
                                                  .k_stride = K,
                                                  .v = b,
                                                  .v_stride = K,
                                                  .o = y,
                                                  .o_stride = Q,
                                                  .lse = saved[0]};
    attention_run();
    kern_ref_attention_grad(&(struct kern_attention_grad_arguments){.forward = attention,
                                                                    .d_o = dy,
                                                                    .d_o_stride = Q,
                                                                    .dq = dx,
                                                                    .dq_stride = Q,
                                                                    .dk = dw,
                                                                    .dk_stride = K,
                                                                    .dv = db,
                                                                    .dv_stride = K});
    const struct function f = {attention_run, y, dy, TOKENS * Q};
    check_slopes(&f, x, dx, TOKENS * Q);
    check_slopes(&f, w, dw, TOKENS * K);
    check_slopes(&f, b, db, TOKENS * K);
}

static struct kern_loss_arguments loss;
static struct kern_loss summed;
static double loss_output;

static void loss_run(void)
{
    struct kern_loss_arguments alone = loss;
    alone.dx = NULL;
    kern_ref_loss(&alone);
    loss_output = summed.sum;
}

static void loss_slopes(void)
{
    static const int32_t labels[3] = {1, KERN_LABEL_IGNORED, 4};
    static const float scale = 0.5f;
    static const double weight = 0.5;
    draw(x, 12);
    draw(w, 20);
    loss = (struct kern_loss_arguments){.type = KERN_F64,
                                        .tokens = 3,
                                        .vocab = 5,
                                        .width = 4,
                                        .x = x,
                                        .x_stride = 4,
                                        .w = w,
                                        .labels = labels,
                                        .scale = &scale,
                                        .loss = &summed,
                                        .dx = dx,
                                        .dx_stride = 4,
                                        .dw = whole(dw)};
    kern_ref_loss(&loss);
    check_int(summed.count, ==, 2);
    const struct function f = {loss_run, &loss_output, &weight, 1};
    check_slopes(&f, x, dx, 12);
    check_slopes(&f, w, dw, 20);
}

TEST_MAIN({"linear_slopes", linear_slopes}, {"embed_slopes", embed_slopes},
          {"norm_slopes", norm_slopes}, {"act_slopes", act_slopes}, {"rope_slopes", rope_slopes},
          {"attention_slopes", attention_slopes}, {"loss_slopes", loss_slopes})
