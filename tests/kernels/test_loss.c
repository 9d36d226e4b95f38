/* Tests the tiled linear + loss against the reference in double. */
#include "tests/kernels/rig.h"

#include <errno.h>

#include "core/base/err.h"

static struct kern_loss_arguments arguments_of(enum kern_type type, int64_t tokens, int64_t vocab,
                                               int64_t width)
{
    int32_t labels[256];
    for (int64_t t = 0; t < tokens; t++) {
        labels[t] = rig_unit() < 0.2 ? KERN_LABEL_IGNORED : (int32_t)rig_int(0, vocab - 1);
    }
    struct kern_loss_arguments a = {.type = type,
                                    .tokens = tokens,
                                    .vocab = vocab,
                                    .width = width,
                                    .x_stride = width + rig_int(0, 3)};
    a.x = rig_random(type, tokens * a.x_stride, 1.5);
    a.w = rig_random(type, vocab * width, 1.0);
    a.labels = rig_ints(labels, tokens);
    float *scale = rig_random(KERN_F32, 1, 0.0);
    *scale = 0.125f;
    a.scale = rig_ints((const int32_t *)(const void *)scale, 1);
    a.loss = rig_bytes(sizeof *a.loss);
    a.dx_stride = width + 1;
    a.dx = rig_zeros(type, tokens * a.dx_stride);
    a.dw = (struct kern_grad){
        .out = rig_zeros(type, vocab * width), .out_type = type, .first = true, .last = true};
    return a;
}

/* Turns the rows into pairs; the rejected answer of the last of several pairs has no labels. */
static void make_pairs(struct kern_loss_arguments *a, int64_t pairs)
{
    int32_t labels[256];
    const int64_t length = a->tokens / (2 * pairs);
    int32_t gaps[2 * 3] = {0};
    check_int(pairs, <=, 3);
    memcpy(labels, a->labels, (size_t)a->tokens / 2 * sizeof *labels);
    for (int64_t i = 0; i < pairs; i++) {
        gaps[2 * i + 1] = (int32_t)rig_int(1, length - 1);
    }
    for (int64_t t = gaps[2 * pairs - 1]; pairs > 1 && t < length; t++) {
        labels[(pairs - 1) * length + t] = KERN_LABEL_IGNORED;
    }
    memcpy(labels + a->tokens / 2, labels, (size_t)a->tokens / 2 * sizeof *labels);
    a->labels = rig_ints(labels, a->tokens);
    a->gaps = rig_ints(gaps, 2 * pairs);
    a->pairs = pairs;
    a->beta = 0.25;
}

/* Gradients of logits are rounded to the type between two products. */
static struct rig_bound bound_of(enum kern_type type)
{
    static const double noise[] = {128.0, 0x1p16, 0x1p13};
    return (struct rig_bound){2.0, noise[type]};
}

static void check_loss(const struct kern_loss *got, const struct kern_loss *want)
{
    check_int(got->count, ==, want->count);
    check_double(fabs(got->sum - want->sum), <=, 1e-5 * (1.0 + fabs(want->sum)));
    check_int(got->right, ==, want->right);
    check_double(fabs(got->chosen - want->chosen), <=, 1e-5 * (1.0 + fabs(want->chosen)));
    check_double(fabs(got->rejected - want->rejected), <=, 1e-5 * (1.0 + fabs(want->rejected)));
}

static void loss_sizes(void)
{
    for (uint64_t seed = 0; seed < (TEST_SLOW ? 6 : 24); seed++) {
        rig_case(seed);
        const enum kern_type type = (enum kern_type)(seed % 3);
        const int64_t vocab = seed < 3 ? 1100 : rig_int(1, 300);
        struct kern_loss_arguments a = arguments_of(type, seed < 3 ? 40 : rig_int(1, 60), vocab,
                                                    rig_int(1, 50));
        rig_check(KERN_LOSS, &a, bound_of(type), a.dx, a.dw.out, NULL);
        check_loss(rig_fetch(a.loss), a.loss);
        /* Without gradients the loss has the same bits. */
        struct kern_loss before;
        memcpy(&before, rig_fetch(a.loss), sizeof before);
        a.dx = NULL;
        check_int(rig_run(KERN_LOSS, &a), ==, 0);
        check_memory(rig_fetch(a.loss), &before, sizeof before);
    }
}

static void losses_are_right(void)
{
    rig_each(loss_sizes);
}

/* The size of a tile changes only roundings. */
static void tiled_case(void)
{
    static const int64_t tiles[] = {64, 50, 149, 1000};
    for (uint64_t seed = 0; seed < 3 * sizeof tiles / sizeof tiles[0]; seed++) {
        const enum kern_type type = (enum kern_type)(seed % 3);
        rig_case(seed);
        struct kern_loss_arguments a = arguments_of(type, 19, 150, 24);
        a.tile = tiles[seed / 3];
        if (seed % 2 == 1) {
            a.dw.sum = rig_random(KERN_F32, 150 * 24, 1.0);
            a.dw.first = false;
        }
        rig_check(KERN_LOSS, &a, bound_of(type), a.dx, a.dw.out, NULL);
        check_loss(rig_fetch(a.loss), a.loss);
    }
}

static void tiles_are_right(void)
{
    rig_each(tiled_case);
}

/* Loss, rewards and gradients of pairs agree with double. */
static void pairs_case(void)
{
    for (uint64_t seed = 0; seed < 9; seed++) {
        const enum kern_type type = (enum kern_type)(seed % 3);
        rig_case(seed);
        const int64_t pairs = rig_int(1, 3);
        struct kern_loss_arguments a = arguments_of(type, 2 * pairs * rig_int(2, 14), 150, 24);
        make_pairs(&a, pairs);
        a.tile = seed < 5 ? 64 : 0;
        rig_check(KERN_LOSS, &a, bound_of(type), a.dx, a.dw.out, NULL);
        check_loss(rig_fetch(a.loss), a.loss);
    }
}

static void pairs_are_right(void)
{
    rig_each(pairs_case);
}

static void smaller_tiles_take_less_scratch(void)
{
    struct kern_loss_arguments a = {.type = KERN_BF16, .tokens = 64, .vocab = 4096, .width = 8};
    size_t before = kern_scratch_bytes(rig_is_card() ? "cuda" : "cpu", KERN_LOSS, &a, 1);
    for (a.tile = 2048; a.tile >= 64; a.tile /= 2) {
        const size_t bytes = kern_scratch_bytes(rig_is_card() ? "cuda" : "cpu", KERN_LOSS, &a, 1);
        check_uint(bytes, <, before);
        before = bytes;
    }
}

/* Launches for parts of w give the bits of one launch, with less scratch. */
static void parts_case(void)
{
    for (uint64_t seed = 0; seed < 6; seed++) {
        const enum kern_type type = (enum kern_type)(seed % 3);
        const size_t width = kern_type_bytes(type);
        rig_case(seed);
        struct kern_loss_arguments a = arguments_of(type, seed < 3 ? 19 : 24, 150, 24);
        struct kern_loss loss;
        if (seed >= 3) {
            make_pairs(&a, 2);
        }
        a.tile = seed < 3 ? 50 : 64;
        a.dw = (struct kern_grad){0};
        check_int(rig_run(KERN_LOSS, &a), ==, 0);
        memcpy(&loss, rig_fetch(a.loss), sizeof loss);
        struct kern_loss_arguments part = a;
        const struct kern_loss_parts parts = kern_loss_parts_of("cpu", &a);
        check_int(parts.rows, ==, a.tile);
        part.loss = rig_bytes(sizeof *part.loss);
        part.dx = rig_zeros(type, a.tokens * a.dx_stride);
        part.state = rig_bytes(parts.state_bytes);
        void *dx = part.dx;
        for (int pass = 0; pass < 2; pass++) {
            for (part.first_row = 0; part.first_row < a.vocab; part.first_row += parts.rows) {
                const int64_t left = a.vocab - part.first_row;
                part.row_count = left < parts.rows ? left : parts.rows;
                part.dx = pass == 0 ? NULL : dx;
                check_uint(kern_scratch_bytes("cpu", KERN_LOSS, &part, 1), <,
                           kern_scratch_bytes("cpu", KERN_LOSS, &a, 1));
                check_int(rig_run(KERN_LOSS, &part), ==, 0);
            }
        }
        check_memory(rig_fetch(part.loss), &loss, sizeof loss);
        check_memory(rig_fetch(dx), rig_fetch(a.dx), (size_t)(a.tokens * a.dx_stride) * width);
    }
}

static void parts_have_the_same_bits(void)
{
    if (rig_is_card()) {
        test_skip("a card computes the loss in one launch");
    }
    rig_each(parts_case);
}

/* The message about a label outside the vocabulary names the token. */
static void bad_labels_are_refused(void)
{
    if (rig_is_card()) {
        test_skip("on a card they must not be: nothing there reads them first");
    }
    rig_open(NULL, 1);
    rig_case(1);
    struct kern_loss_arguments a = arguments_of(KERN_F32, 2, 4, 3);
    const int32_t labels[2] = {KERN_LABEL_IGNORED, 4};
    a.labels = rig_ints(labels, 2);
    check_int(rig_run(KERN_LOSS, &a), ==, -EINVAL);
    check_contains(core_err_message(), "token 1 has label 4");
    rig_close();
}

RIG_MAIN({"losses_are_right", losses_are_right}, {"tiles_are_right", tiles_are_right},
         {"pairs_are_right", pairs_are_right},
         {"smaller_tiles_take_less_scratch", smaller_tiles_take_less_scratch},
         {"parts_have_the_same_bits", parts_have_the_same_bits},
         {"bad_labels_are_refused", bad_labels_are_refused})
