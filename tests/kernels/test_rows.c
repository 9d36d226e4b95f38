/* Tests ops on rows and single elements against the references. */
#include "tests/kernels/rig.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "kernels/quant.h"
#include "kernels/rope.h"

static const struct rig_bound bounds = {2.0, 32.0};

struct norm_shape {
    int64_t tokens, heads, width;
};

static void one_norm(uint64_t seed, const struct norm_shape *shape)
{
    const enum kern_type type = (enum kern_type)(seed % 3);
    const bool layer = seed / 3 % 2 == 1;
    const int64_t heads = shape->heads;
    const int64_t tokens = shape->tokens;
    const int64_t width = shape->width;
    const int64_t stride = heads * width + rig_int(0, 7);
    struct kern_norm_arguments y = {.type = type,
                                    .kind = layer ? KERN_NORM_LAYER : KERN_NORM_RMS,
                                    .tokens = tokens,
                                    .heads = heads,
                                    .width = width,
                                    .eps = 1e-5f,
                                    .x_stride = stride,
                                    .y_stride = stride + 1};
    y.x = rig_random(type, tokens * stride, 2.0);
    y.add = rig_int(0, 1) == 1 ? rig_random(type, tokens * stride, 1.0) : NULL;
    y.sum = y.add != NULL ? rig_zeros(type, tokens * stride) : NULL;
    y.weight = rig_random(type, width, 1.0);
    y.bias = layer ? rig_random(type, width, 1.0) : NULL;
    y.y = rig_zeros(type, tokens * y.y_stride);
    y.rstd = rig_zeros(KERN_F32, tokens * heads);
    y.mean = layer ? rig_zeros(KERN_F32, tokens * heads) : NULL;
    /* long sums */
    const struct rig_bound long_rows = {2.0, 128.0};
    rig_check(KERN_NORM, &y, width > 1000 ? long_rows : bounds, y.y, y.rstd,
              y.sum != NULL ? y.sum : y.y, NULL);

    struct kern_norm_grad_arguments d = {.type = type,
                                         .kind = y.kind,
                                         .tokens = tokens,
                                         .heads = heads,
                                         .width = width,
                                         .dy_stride = stride,
                                         .s = y.add != NULL ? y.sum : y.x,
                                         .s_stride = stride,
                                         .weight = y.weight,
                                         .mean = y.mean,
                                         .rstd = y.rstd,
                                         .dx_stride = stride};
    d.dy = rig_random(type, tokens * stride, 1.0);
    d.add = rig_int(0, 1) == 1 ? rig_random(type, tokens * stride, 1.0) : NULL;
    d.dx = rig_zeros(type, tokens * stride);
    d.dweight = (struct kern_grad){
        .out = rig_zeros(type, width), .out_type = type, .first = true, .last = true};
    if (layer) {
        d.dbias = (struct kern_grad){.sum = rig_random(KERN_F32, width, 1.0)};
    }
    const struct rig_bound loose = {2.0, 128.0};
    rig_check(KERN_NORM_GRAD, &d, loose, d.dx, d.dweight.out, layer ? (void *)d.dbias.sum : d.dx,
              NULL);
}

static void norm_sizes(void)
{
    for (uint64_t seed = 0; seed < (TEST_SLOW ? 12 : 90); seed++) {
        rig_case(seed);
        const struct norm_shape shape = {.tokens = rig_int(1, 90),
                                         .heads = rig_int(0, 1) == 1 ? 1 : rig_int(2, 5),
                                         .width = rig_int(1, 150)};
        one_norm(seed, &shape);
    }
    /* Rows that exceed a warp of a GPU or its registers, and unaligned rows. */
    const int64_t widths[] = {256, 257, 2048, 2060, 8192, 8200};
    for (uint64_t seed = 0; seed < (TEST_SLOW ? 6 : 36); seed++) {
        rig_case(seed + 1000);
        const struct norm_shape shape = {rig_int(1, 5), seed % 12 < 6 ? 1 : 2, widths[seed / 6]};
        one_norm(seed, &shape);
    }
}

static void norms_are_right(void)
{
    rig_each_kernel(norm_sizes);
}

static void act_sizes(void)
{
    for (uint64_t seed = 0; seed < (TEST_SLOW ? 12 : 60); seed++) {
        rig_case(seed);
        const enum kern_type type = (enum kern_type)(seed % 3);
        const enum kern_act_kind kind = (enum kern_act_kind)(seed / 3 % 4);
        const bool gated = rig_int(0, 1) == 1;
        const int64_t tokens = rig_int(1, 30);
        const int64_t width = rig_int(1, 100);
        const int64_t stride = 2 * width + rig_int(0, 3);
        char *both = rig_random(type, tokens * stride, seed % 5 == 0 ? 30.0 : 4.0);
        struct kern_act_arguments y = {.type = type,
                                       .kind = kind,
                                       .tokens = tokens,
                                       .width = width,
                                       .gate = both,
                                       .gate_stride = stride,
                                       .up_stride = stride,
                                       .y_stride = width};
        y.up = gated ? both + (size_t)width * kern_type_bytes(type) : NULL;
        y.y = rig_zeros(type, tokens * width);
        rig_check(KERN_ACT, &y, bounds, y.y, NULL);

        struct kern_act_grad_arguments d = {.type = type,
                                            .kind = kind,
                                            .tokens = tokens,
                                            .width = width,
                                            .gate = y.gate,
                                            .gate_stride = stride,
                                            .up = y.up,
                                            .up_stride = stride,
                                            .dy_stride = width,
                                            .dgate_stride = stride,
                                            .dup_stride = stride,
                                            .y_stride = width};
        d.dy = rig_random(type, tokens * width, 1.0);
        char *out = rig_zeros(type, tokens * stride);
        d.dgate = out;
        d.dup = gated ? out + (size_t)width * kern_type_bytes(type) : NULL;
        d.y = rig_zeros(type, tokens * width);
        rig_check(KERN_ACT_GRAD, &d, bounds, out, d.y, NULL);
        check_memory(rig_fetch(d.y), rig_fetch(y.y),
                     (size_t)(tokens * width) * kern_type_bytes(type));
        /* In place, the bits are the same. */
        const size_t bytes = (size_t)(tokens * stride) * kern_type_bytes(type);
        char apart[60000];
        check_true(bytes <= sizeof apart);
        memcpy(apart, rig_fetch(out), bytes);
        d.dgate = both;
        d.dup = gated ? both + (size_t)width * kern_type_bytes(type) : NULL;
        check_int(rig_run(KERN_ACT_GRAD, &d), ==, 0);
        const char *in_place = rig_fetch(both);
        const size_t run = (size_t)(gated ? 2 * width : width) * kern_type_bytes(type);
        for (int64_t t = 0; t < tokens; t++) {
            const size_t at = (size_t)(t * stride) * kern_type_bytes(type);
            check_memory(in_place + at, apart + at, run);
        }
    }
}

/* Activations are right; the backward pass recomputes the bits of y. */
static void acts_are_right(void)
{
    rig_each_kernel(act_sizes);
}

static void rope_sizes(void)
{
    for (uint64_t seed = 0; seed < (TEST_SLOW ? 9 : 40); seed++) {
        rig_case(seed);
        const enum kern_type type = (enum kern_type)(seed % 3);
        const int64_t length = rig_int(1, 20);
        const int64_t tokens = length * rig_int(1, 3);
        const int64_t heads = rig_int(1, 5);
        const int64_t rotary = 2 * rig_int(1, 40);
        const int64_t head_dim = rotary + rig_int(0, 6);
        struct kern_rope_arguments x = {.type = type,
                                        .tokens = tokens,
                                        .heads = heads,
                                        .head_dim = head_dim,
                                        .rotary = rotary,
                                        .stride = heads * head_dim + rig_int(0, 5),
                                        .length = length,
                                        .backward = rig_int(0, 1) == 1};
        float *cos_table = rig_zeros(KERN_F32, 20 * rotary / 2);
        float *sin_table = rig_zeros(KERN_F32, 20 * rotary / 2);
        float *cos_random = rig_random(KERN_F32, 20 * rotary / 2, 1.0);
        float *sin_random = rig_random(KERN_F32, 20 * rotary / 2, 1.0);
        const struct kern_rope_config config = {
            .theta = 10000.0, .rotary = rotary, .max_positions = 20};
        check_int(kern_rope_build(&config, 20, 0, cos_table, sin_table), ==, 0);
        check_double(cos_table[0], ==, 1.0);
        check_double(sin_table[rotary / 2], ==, (double)sinf(1.0f));
        x.cos = cos_random;
        x.sin = sin_random;
        int32_t positions[60];
        for (int64_t t = 0; t < tokens; t++) {
            positions[t] = (int32_t)rig_int(0, 19);
        }
        x.positions = rig_int(0, 1) == 1 ? rig_ints(positions, tokens) : NULL;
        x.x = rig_random(type, tokens * x.stride, 1.0);
        rig_check(KERN_ROPE, &x, bounds, x.x, NULL);
    }
}

/* Pairs change by the tables' row of their position; elements from `rotary` on stay unchanged. */
static void ropes_are_right(void)
{
    rig_each_kernel(rope_sizes);
}

/* The message about an invalid configuration names the field. */
static void bad_ropes_are_refused(void)
{
    float table[8];
    struct kern_rope_config config = {.theta = 10000.0, .rotary = 3, .max_positions = 4};
    check_int(kern_rope_build(&config, 1, 0, table, table), ==, -EINVAL);
    check_contains(core_err_message(), "rotary");
    config.rotary = 4;
    config.theta = 0.5;
    check_int(kern_rope_build(&config, 1, 0, table, table), ==, -EINVAL);
    check_contains(core_err_message(), "rope_theta");
    config.theta = 10000.0;
    config.kind = KERN_ROPE_LINEAR;
    check_int(kern_rope_build(&config, 1, 0, table, table), ==, -EINVAL);
    check_contains(core_err_message(), "factor");
    config.kind = KERN_ROPE_LLAMA3;
    config.factor = 8.0;
    check_int(kern_rope_build(&config, 1, 0, table, table), ==, -EINVAL);
    check_contains(core_err_message(), "low_freq_factor");
}

static void add_sizes(void)
{
    for (uint64_t seed = 0; seed < 54; seed++) {
        rig_case(seed);
        const int64_t count = seed < 40 ? (int64_t)seed + 1 : rig_int(1, 60000);
        struct kern_add_arguments y = {.count = count,
                                       .a_type = (enum kern_type)(seed % 3),
                                       .b_type = (enum kern_type)(seed / 3 % 3),
                                       .y_type = (enum kern_type)(seed / 9 % 3)};
        y.a = rig_random(y.a_type, count, 1.0);
        y.b = rig_int(0, 1) == 1 ? rig_random(y.b_type, count, 1.0) : NULL;
        y.y = rig_zeros(y.y_type, count);
        const struct rig_bound exact = {2.0, 0.0};
        rig_check(KERN_ADD, &y, exact, y.y, NULL);
    }
}

static void adds_are_right(void)
{
    rig_each_kernel(add_sizes);
}

static const void *stored_tensor(const struct kern_expand_arguments *y)
{
    const int64_t count = y->rows * y->cols;
    const struct kern_quant_layout layout = kern_quant_layout_of(y->quant, y->from, y->rows,
                                                                 y->cols);
    const int64_t grain = kern_quant_grain(y->quant, y->cols);
    if (y->quant == KERN_QUANT_NONE) {
        return rig_random(y->from, count, 1.0);
    }
    uint8_t *made = calloc(1, layout.bytes);
    const float *weights = rig_random(KERN_F32, count, 1.0);
    float *scales = rig_zeros(KERN_F32, (count + grain - 1) / grain);
    check_true(kern_quant_encode(y->quant, y->cols, weights, count, made, scales));
    kern_quant_encode_scales(y->quant, &layout, scales, made + layout.scales);
    void *stored = rig_ints((const int32_t *)(void *)made, (int64_t)(layout.bytes / 4));
    free(made);
    return stored;
}

static void expand_sizes(void)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        rig_case(seed);
        struct kern_expand_arguments y = {.type = (enum kern_type)(seed % 3),
                                          .quant = (enum kern_quant)(seed / 3 % 4),
                                          .from = (enum kern_type)(seed / 12 % 3),
                                          .rows = rig_int(1, seed < 45 ? 9 : 300),
                                          .cols = rig_int(1, 90) * 2};
        const void *stored = stored_tensor(&y);
        const int64_t elements = y.rows * y.cols;
        const int64_t grain = kern_quant_grain(y.quant, y.cols);
        const struct rig_bound same = {0.0, 0.0};
        for (int part = 0; part < 2; part++) { /* all, then a part */
            const int64_t end = part > 0 ? rig_int(1, (elements - 1) / grain + 1) * grain
                                         : elements;
            y.first = part > 0 ? rig_int(0, (end - 1) / grain) * grain : 0;
            y.count = (end < elements ? end : elements) - y.first;
            kern_quant_point(&y, stored);
            y.y = rig_zeros(y.type, y.count);
            rig_check(KERN_EXPAND, &y, same, y.y, NULL);
        }
    }
}

/* Stored weights expand to the reference's bits. */
static void expanded_weights_are_exact(void)
{
    rig_each_kernel(expand_sizes);
}

/* Dropout keeps and scales the elements that its random numbers select; a seed of 0
 * drops nothing. */
static void dropout_cases(void)
{
    for (uint64_t seed = 0; seed < (TEST_SLOW ? 6 : 18); seed++) {
        rig_case(seed);
        const int64_t count = seed % 3 == 0 ? rig_int(16384, 40000) : rig_int(1, 300);
        struct kern_dropout_arguments y = {
            .type = (enum kern_type)(seed % 3),
            .rate = seed % 4 == 0 ? 0.5f : 0.1f,
            .count = count,
            .stream = (uint64_t)rig_int(0, 1 << 30) << 8,
        };
        const int32_t number[2] = {seed == 5 ? 0 : (int32_t)seed * 77 + 1, 0};
        y.seed = (const uint64_t *)(const void *)rig_ints(number, 2);
        y.x = rig_random(y.type, count, 1.0);
        y.y = rig_zeros(y.type, count);
        for (int part = 0; part < 4; part++) {
            y.rest = part % 2 == 1;
            y.add = part < 2 ? NULL : (y.y = rig_random(y.type, count, 1.0));
            rig_check(KERN_DROPOUT, &y, bounds, y.y, NULL);
        }
    }
}

static void dropouts_are_right(void)
{
    rig_each_kernel(dropout_cases);
}

static void dora_cases(void)
{
    for (uint64_t seed = 0; seed < (TEST_SLOW ? 6 : 24); seed++) {
        static const double steps[] = {
            [KERN_F32] = 64, [KERN_BF16] = 1 << 18, [KERN_FP16] = 1 << 15};
        rig_case(seed);
        const enum kern_type type = (enum kern_type)(seed % 3);
        const int64_t rows = rig_int(1, 40);
        const int64_t cols = rig_int(1, seed % 4 == 0 ? 700 : 70);
        const int64_t rank = rig_int(1, 9);
        struct kern_magnitude_arguments norm = {
            .type = type, .rows = rows, .cols = cols, .rank = rank, .scale = 0.5f};
        norm.w = seed == 5 ? rig_zeros(type, rows * cols) : rig_random(type, rows * cols, 1.0);
        norm.a = rig_random(type, rank * cols, 1.0);
        norm.b = seed == 5 ? rig_zeros(type, rows * rank) : rig_random(type, rows * rank, 1.0);
        norm.magnitude = rig_random(type, rows, 1.0);
        norm.factor = rig_zeros(KERN_F32, rows);
        norm.inverse = rig_zeros(KERN_F32, rows);
        /* A norm may be rounded to the next number of the type. */
        const struct rig_bound bound = {2.0, steps[type]};
        rig_check(KERN_MAGNITUDE, &norm, bound, norm.factor, norm.inverse, NULL);
        struct kern_columns_arguments y = {.type = type,
                                           .tokens = rig_int(1, 30),
                                           .width = rows,
                                           .x_stride = rows + rig_int(0, 1) * 8,
                                           .by_stride = rows + rig_int(0, 5),
                                           .y_stride = rows + rig_int(0, 1) * 16};
        y.x = rig_random(type, y.tokens * y.x_stride, 1.0);
        y.factor = seed % 4 == 1 ? NULL : rig_random(KERN_F32, rows, 1.0);
        y.by = seed % 2 == 0 ? NULL : rig_random(type, y.tokens * y.by_stride, 1.0);
        y.bias = seed % 4 < 2 ? NULL : rig_random(type, rows, 1.0);
        y.y = rig_zeros(type, y.tokens * y.y_stride);
        rig_check(KERN_COLUMNS, &y, bounds, y.y, NULL);
        y.add = y.y = rig_random(type, y.tokens * y.y_stride, 1.0);
        rig_check(KERN_COLUMNS, &y, bounds, y.y, NULL);
    }
}

static void dora_is_right(void)
{
    rig_each_kernel(dora_cases);
}

RIG_MAIN({"norms_are_right", norms_are_right}, {"acts_are_right", acts_are_right},
         {"ropes_are_right", ropes_are_right}, {"bad_ropes_are_refused", bad_ropes_are_refused},
         {"adds_are_right", adds_are_right},
         {"expanded_weights_are_exact", expanded_weights_are_exact},
         {"dropouts_are_right", dropouts_are_right}, {"dora_is_right", dora_is_right})
