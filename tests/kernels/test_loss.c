/* Proves the chunked linear + cross-entropy against the reference in double, whole and by tiles. */
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

/* The gradients of logits are stored in the type between products: one more rounding. */
static struct rig_bound bound_of(enum kern_type type)
{
    static const double noise[] = {128.0, 0x1p16, 0x1p13};
    return (struct rig_bound){2.0, noise[type]};
}

static void check_loss(const struct kern_loss *got, const struct kern_loss *want)
{
    check_int(got->count, ==, want->count);
    check_double(fabs(got->sum - want->sum), <=, 1e-5 * (1.0 + fabs(want->sum)));
}

static void loss_sizes(void)
{
    for (uint64_t seed = 0; seed < (RIG_SANITIZED ? 6 : 24); seed++) {
        rig_case(seed);
        const enum kern_type type = (enum kern_type)(seed % 3);
        const int64_t vocab = seed < 3 ? 1100 : rig_int(1, 300); /* 1100 is three tiles */
        struct kern_loss_arguments a = arguments_of(type, seed < 3 ? 40 : rig_int(1, 60), vocab,
                                                    rig_int(1, 50));
        rig_check(KERN_LOSS, &a, bound_of(type), a.dx, a.dw.out, NULL);
        check_loss(rig_fetch(a.loss), a.loss);
        /* The loss alone has the same bits. */
        struct kern_loss before;
        memcpy(&before, rig_fetch(a.loss), sizeof before);
        a.dx = NULL;
        check_int(rig_run(KERN_LOSS, &a), ==, 0);
        check_memory(rig_fetch(a.loss), &before, sizeof before);
    }
}

/* Summed loss, count, dx and dw agree with double. */
static void losses_are_right(void)
{
    rig_each(loss_sizes);
}

static void one_tiled(enum kern_type type)
{
    const int64_t tokens = 37;
    const int64_t vocab = 150;
    const int64_t width = 24;
    const int64_t step = 64;
    const struct kern_loss_arguments a = arguments_of(type, tokens, vocab, width);
    float *maxima = rig_zeros(KERN_F32, tokens);
    float *sums = rig_zeros(KERN_F32, tokens);
    float *picked = rig_zeros(KERN_F32, tokens);
    float *dx_sum = rig_zeros(KERN_F32, tokens * width);
    const size_t bytes = kern_type_bytes(type);
    for (int64_t begin = 0; begin < vocab; begin += step) {
        const int64_t n = begin + step < vocab ? step : vocab - begin;
        const struct kern_loss_stats_arguments s = {.type = type,
                                                    .tokens = tokens,
                                                    .n = n,
                                                    .width = width,
                                                    .begin = begin,
                                                    .vocab = vocab,
                                                    .x = a.x,
                                                    .x_stride = a.x_stride,
                                                    .w = (const char *)a.w +
                                                         (size_t)(begin * width) * bytes,
                                                    .labels = a.labels,
                                                    .maxima = maxima,
                                                    .sums = sums,
                                                    .picked = picked,
                                                    .first = begin == 0};
        rig_check(KERN_LOSS_STATS, &s, (struct rig_bound){2.0, 64.0}, maxima, sums, picked, NULL);
    }
    const struct kern_loss_sum_arguments sum = {tokens, a.labels, maxima, sums, picked, a.loss};
    rig_check(KERN_LOSS_SUM, &sum, bound_of(type), NULL);
    check_loss(rig_fetch(a.loss), a.loss);
    for (int64_t begin = 0; begin < vocab; begin += step) {
        const int64_t n = begin + step < vocab ? step : vocab - begin;
        struct kern_loss_grad_arguments g = {.type = type,
                                             .tokens = tokens,
                                             .n = n,
                                             .width = width,
                                             .begin = begin,
                                             .x = a.x,
                                             .x_stride = a.x_stride,
                                             .w = (const char *)a.w +
                                                  (size_t)(begin * width) * bytes,
                                             .labels = a.labels,
                                             .maxima = maxima,
                                             .sums = sums,
                                             .scale = a.scale,
                                             .dx_sum = dx_sum,
                                             .first = begin == 0,
                                             .last = begin + n == vocab,
                                             .dx = a.dx,
                                             .dx_stride = a.dx_stride,
                                             .dw = a.dw};
        g.dw.out = (char *)a.dw.out + (size_t)(begin * width) * bytes;
        rig_check(KERN_LOSS_GRAD, &g, bound_of(type), g.last ? a.dx : (void *)dx_sum, NULL);
    }
    rig_compare("dw of all tiles", a.dw.out, bound_of(type));
    /* And both sides are the gradients of the whole. */
    rig_reference(KERN_LOSS, &a);
    rig_compare("dw of the whole", a.dw.out, bound_of(type));
    rig_compare("dx of the whole", a.dx, bound_of(type));
}

static void tiled_case(void)
{
    for (int type = 0; type < 3; type++) {
        rig_case((uint64_t)type);
        one_tiled((enum kern_type)type);
    }
}

/* By tiles: statistics, sum and gradients each agree, and together they are the whole. */
static void tiles_are_right(void)
{
    rig_each(tiled_case);
}

/* A label outside the vocabulary is an error that names the token. */
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
    check_contains(core_err_sentence(), "token 1 has label 4");
    rig_close();
}

RIG_MAIN({"losses_are_right", losses_are_right}, {"tiles_are_right", tiles_are_right},
         {"bad_labels_are_refused", bad_labels_are_refused})
