/* Tests the products of linear layers, bias and embedding against the references in double. */
#include "tests/kernels/rig.h"

#include <errno.h>

#include "core/base/err.h"

static const struct rig_bound bounds = {2.0, 64.0};

static struct kern_grad grad_of(enum kern_type type, int64_t count, int way)
{
    /* Way 0 writes `out` directly, 1 sets the sum, 2 adds to it, 3 adds and writes `out`. */
    struct kern_grad grad = {.out_type = type, .first = way < 2, .last = way == 0 || way == 3};
    grad.sum = way > 0 ? rig_random(KERN_F32, count, 1.0) : NULL;
    grad.out = way == 0 || way == 3 ? rig_zeros(type, count) : NULL;
    return grad;
}

static void *grad_result(const struct kern_grad *grad)
{
    return grad->out != NULL ? grad->out : grad->sum;
}

static void one_linear(enum kern_type type, int64_t m, int64_t n, int64_t k)
{
    const int64_t gap = rig_int(0, 3);
    const bool bias = rig_int(0, 1) == 1;
    struct kern_linear_arguments y = {
        .type = type, .m = m, .n = n, .k = k, .x_stride = k + gap, .y_stride = n + gap};
    y.x = rig_random(type, m * y.x_stride, 1.0);
    y.w = rig_random(type, n * k, 1.0);
    y.bias = bias ? rig_random(type, n, 1.0) : NULL;
    y.scale = rig_int(0, 1) == 1 ? 0.0f : (float)rig_int(-8, 8) / 4.0f;
    y.onto = rig_int(0, 1) == 1;
    y.y = y.onto ? rig_random(type, m * y.y_stride, 1.0) : rig_zeros(type, m * y.y_stride);
    rig_check(KERN_LINEAR, &y, bounds, y.y, NULL);

    struct kern_linear_grad_input_arguments dx = {
        .type = type, .m = m, .n = n, .k = k, .dy_stride = n + gap, .dx_stride = k + gap};
    dx.dy = rig_random(type, m * dx.dy_stride, 1.0);
    dx.w = y.w;
    dx.dx = rig_zeros(type, m * dx.dx_stride);
    dx.first = rig_int(0, 1) == 1;
    dx.last = dx.first || rig_int(0, 1) == 1;
    dx.scale = rig_int(0, 1) == 1 ? 0.0f : (float)rig_int(-8, 8) / 4.0f;
    dx.sum = dx.first ? NULL : rig_random(KERN_F32, m * k, 1.0);
    rig_check(KERN_LINEAR_GRAD_INPUT, &dx, bounds, dx.last ? dx.dx : (void *)dx.sum, NULL);

    struct kern_linear_grad_weight_arguments dw = {.type = type,
                                                   .m = m,
                                                   .n = n,
                                                   .k = k,
                                                   .dy = dx.dy,
                                                   .dy_stride = dx.dy_stride,
                                                   .x = y.x,
                                                   .x_stride = y.x_stride};
    dw.dw = grad_of(rig_int(0, 1) == 1 ? type : KERN_F32, n * k, (int)rig_int(0, 3));
    rig_check(KERN_LINEAR_GRAD_WEIGHT, &dw, bounds, grad_result(&dw.dw), NULL);

    struct kern_bias_grad_arguments db = {
        .type = type, .m = m, .n = n, .dy = dx.dy, .dy_stride = dx.dy_stride};
    db.db = grad_of(type, n, (int)rig_int(0, 3));
    rig_check(KERN_BIAS_GRAD, &db, bounds, grad_result(&db.db), NULL);
}

static void linear_sizes(void)
{
    const int64_t fixed[][3] = {{1, 1, 1},    {12, 32, 384}, {13, 33, 385}, {24, 64, 16},
                                {70, 100, 3}, {5, 1200, 40}, {1100, 40, 9}, {40, 16, 800}};
    for (int type = 0; type < 3; type++) {
        const size_t fixed_count = TEST_SLOW ? 3 : sizeof fixed / sizeof fixed[0];
        for (size_t i = 0; i < fixed_count; i++) {
            rig_case(i);
            one_linear((enum kern_type)type, fixed[i][0], fixed[i][1], fixed[i][2]);
        }
        for (uint64_t seed = 100; seed < (TEST_SLOW ? 103 : 130); seed++) {
            rig_case(seed);
            one_linear((enum kern_type)type, rig_int(1, 60), rig_int(1, 90), rig_int(1, 70));
        }
    }
}

static void linears_are_right(void)
{
    rig_each(linear_sizes);
}

static void *copy_of(const void *from, size_t bytes)
{
    void *copy = rig_bytes((bytes + 7) / 8 * 8);
    memcpy(copy, from, bytes);
    return copy;
}

/* A gradient that is written directly has the bits of its rounded fp32 sum; later micro-batches add
 * fp32 products. */
static void contract_case(void)
{
    for (int type = 0; type < 3; type++) {
        rig_case((uint64_t)type + 1);
        const int64_t m = 70;
        const int64_t n = 130;
        const int64_t k = 90;
        const size_t count = (size_t)(n * k);
        struct kern_linear_grad_weight_arguments a = {
            .type = (enum kern_type)type, .m = m, .n = n, .k = k, .dy_stride = n, .x_stride = k};
        float *products[2];
        for (int batch = 0; batch < 2; batch++) {
            a.dy = rig_random(a.type, m * n, 1.0);
            a.x = rig_random(a.type, m * k, 1.0);
            a.dw = (struct kern_grad){.sum = rig_zeros(KERN_F32, n * k), .first = true};
            check_int(rig_run(KERN_LINEAR_GRAD_WEIGHT, &a), ==, 0);
            products[batch] = copy_of(rig_fetch(a.dw.sum), count * sizeof(float));
            if (batch == 0) {
                struct kern_grad kept = a.dw;
                a.dw = (struct kern_grad){.out = rig_zeros(a.type, n * k),
                                          .out_type = a.type,
                                          .first = true,
                                          .last = true};
                check_int(rig_run(KERN_LINEAR_GRAD_WEIGHT, &a), ==, 0);
                struct kern_add_arguments cast = {
                    .count = n * k, .a = kept.sum, .y_type = a.type, .y = rig_zeros(a.type, n * k)};
                check_int(rig_run(KERN_ADD, &cast), ==, 0);
                check_memory(rig_fetch(a.dw.out), rig_fetch(cast.y),
                             count * kern_type_bytes(a.type));
                a.dw = kept;
            }
        }
        /* The second product, which the next call (first = false) adds again. */
        a.dw = (struct kern_grad){.sum = rig_zeros(KERN_F32, n * k), .first = true};
        check_int(rig_run(KERN_LINEAR_GRAD_WEIGHT, &a), ==, 0);
        a.dw.first = false;
        check_int(rig_run(KERN_LINEAR_GRAD_WEIGHT, &a), ==, 0);
        const float *twice = rig_fetch(a.dw.sum);
        for (size_t i = 0; i < count; i++) {
            check_double(twice[i], ==, products[1][i] + products[1][i]);
        }
        check_true(memcmp(products[0], products[1], count * sizeof(float)) != 0);
    }
}

static void contract_holds(void)
{
    rig_each(contract_case);
}

static void embed_sizes(void)
{
    for (uint64_t seed = 0; seed < (TEST_SLOW ? 4 : 12); seed++) {
        rig_case(seed);
        const enum kern_type type = (enum kern_type)(seed % 3);
        const int64_t length = rig_int(1, 20);
        const int64_t tokens = length * rig_int(1, 4);
        const int64_t width = rig_int(1, 70);
        const int64_t vocab = seed % 2 == 0 ? rig_int(1, 9) : rig_int(2049, 2200);
        int32_t ids[80];
        int32_t places[80];
        int32_t positions[80];
        for (int64_t t = 0; t < tokens; t++) {
            ids[t] = (int32_t)rig_int(0, vocab - 1);
            positions[t] = (int32_t)rig_int(0, 19);
        }
        struct kern_embed_arguments y = {.type = type,
                                         .tokens = tokens,
                                         .width = width,
                                         .vocab = vocab,
                                         .position_count = 20,
                                         .length = length};
        y.ids = rig_ints(ids, tokens);
        y.table = rig_random(type, vocab * width, 1.0);
        y.position_table = rig_int(0, 1) == 1 ? rig_random(type, 20 * width, 1.0) : NULL;
        y.positions = rig_int(0, 1) == 1 ? rig_ints(positions, tokens) : NULL;
        y.y = rig_zeros(type, tokens * width);
        rig_check(KERN_EMBED, &y, bounds, y.y, NULL);
        struct kern_embed_arguments pieces = y; /* the same rows, by place */
        pieces.stride = width % 2 == 0 ? width / 2 : 1;
        pieces.vocab = (vocab - 1) * (width / pieces.stride) + 1;
        for (int64_t t = 0; t < tokens; t++) {
            places[t] = (int32_t)(ids[t] * (width / pieces.stride));
        }
        pieces.ids = rig_ints(places, tokens);
        rig_check(KERN_EMBED, &pieces, bounds, y.y, NULL);
        for (int way = 0; way < 4; way++) {
            struct kern_embed_grad_arguments d = {
                .type = type, .tokens = tokens, .width = width, .vocab = vocab, .length = length};
            d.ids = way == 1 && vocab >= length ? NULL : y.ids;
            d.has_padding = way > 1;
            d.padding_id = way == 3 ? vocab - 1 : ids[0];
            d.dy = rig_random(type, tokens * width, 1.0);
            d.dtable = grad_of(type, vocab * width, way);
            rig_check(KERN_EMBED_GRAD, &d, bounds, grad_result(&d.dtable), NULL);
        }
    }
}

/* Rows are looked up by id; gradients are right for repeated and unused rows. */
static void embeds_are_right(void)
{
    rig_each(embed_sizes);
}

/* The message about an id outside the table names the token. */
static void bad_ids_are_refused(void)
{
    if (rig_is_card()) {
        test_skip("a card does not check ids, so they must be right");
    }
    const int32_t bad[] = {-1, 4};
    for (int i = 0; i < 2; i++) {
        rig_open(NULL, 1);
        rig_case(1);
        const int32_t ids[3] = {0, bad[i], 3};
        struct kern_embed_arguments y = {.tokens = 3, .width = 8, .vocab = 4, .length = 3};
        y.ids = rig_ints(ids, 3);
        y.table = rig_random(KERN_F32, 32, 1.0);
        y.y = rig_zeros(KERN_F32, 24);
        check_int(rig_run(KERN_EMBED, &y), ==, -EINVAL);
        check_contains(core_err_message(), "token 1 has id");
        rig_close();
    }
}

/* A product with k = 0 is zero, and one with m = 0 does nothing. */
static void empty_sizes(void)
{
    rig_open(NULL, 2);
    rig_case(1);
    struct kern_linear_arguments y = {.m = 4, .n = 5, .k = 0, .x_stride = 1, .y_stride = 5};
    y.x = rig_zeros(KERN_F32, 8);
    y.w = rig_zeros(KERN_F32, 8);
    y.y = rig_random(KERN_F32, 20, 1.0);
    rig_check(KERN_LINEAR, &y, bounds, y.y, NULL);
    y.m = 0;
    check_int(rig_run(KERN_LINEAR, &y), ==, 0);
    rig_close();
}

RIG_MAIN({"linears_are_right", linears_are_right}, {"contract_holds", contract_holds},
         {"embeds_are_right", embeds_are_right}, {"bad_ids_are_refused", bad_ids_are_refused},
         {"empty_sizes", empty_sizes})
