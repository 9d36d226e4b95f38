/* Tests, on the emulated card and cuBLASLt, which algorithm computes a product. */
#include <stdlib.h>

#include "core/base/log.h"
#include "kernels/table.h"
#include "tests/cuda/card.h"
#include "tests/harness/heard.h"
#include "tests/kernels/rig.h"

enum { FIRST_PROPOSAL = 40, SHAPES_MAX = 1024 };

static void linear_over(int64_t n, int64_t k)
{
    struct kern_linear_arguments y = {
        .type = KERN_BF16, .m = 4, .n = n, .k = k, .x_stride = k, .y_stride = n};
    rig_case((uint64_t)n);
    y.x = rig_random(KERN_BF16, 4 * k, 1.0);
    y.w = rig_random(KERN_BF16, n * k, 1.0);
    y.y = rig_zeros(KERN_BF16, 4 * n);
    rig_check(KERN_LINEAR, &y, (struct rig_bound){2.0, 64.0}, y.y, NULL);
}

/* Returns the number of calls of the heuristic during a product. */
static unsigned asked_by(int64_t n, int64_t k)
{
    const unsigned before = card_lt_asked;
    linear_over(n, k);
    return card_lt_asked - before;
}

/* Wider tiles are used if `logits_bytes` are enough for them. */
static void tiles_of_logits_are_wide_enough(void)
{
    enum { TOKENS = 32768, WORDS = 4096 };
    const uint64_t wide = (uint64_t)TOKENS * WORDS * sizeof(float);
    struct kern_loss_arguments a = {
        .type = KERN_BF16, .tokens = TOKENS, .vocab = 128256, .width = 4096};
    const size_t narrow = kern_scratch_bytes("cuda", KERN_LOSS, &a, 1);
    a.logits_bytes = wide - 1;
    check_uint(kern_scratch_bytes("cuda", KERN_LOSS, &a, 1), ==, narrow);
    a.logits_bytes = wide;
    check_uint(kern_scratch_bytes("cuda", KERN_LOSS, &a, 1) - narrow, ==, wide / 2);
}

static void shapes_are_asked_once(void)
{
    rig_open(NULL, 1);
    check_uint(asked_by(8, 8), ==, 1);
    check_uint(asked_by(16, 8), ==, 1);
    check_uint(asked_by(8, 16), ==, 1);
    check_uint(asked_by(8, 8), ==, 0);
    check_uint(asked_by(8, 16), ==, 0);
    rig_close();
    rig_open(NULL, 1);
    check_uint(asked_by(8, 8), ==, 1);
    rig_close();
}

/* The library's proposal depends on strides and alignments. */
static void strides_and_alignments_are_asked_alone(void)
{
    rig_open(NULL, 1);
    rig_case(1);
    struct kern_linear_arguments y = {
        .type = KERN_BF16, .m = 4, .n = 8, .k = 8, .x_stride = 8, .y_stride = 8};
    const uint16_t *x = rig_random(KERN_BF16, 4 * 16 + 16, 1.0);
    y.x = x;
    y.w = rig_random(KERN_BF16, 8 * 8, 1.0);
    y.y = rig_zeros(KERN_BF16, 4 * 16);
    const struct {
        int64_t x_stride, y_stride;
        int skip; /* elements before x */
        unsigned asked;
    } rows[] = {{8, 8, 0, 1}, {16, 8, 0, 1}, {8, 16, 0, 1}, {8, 8, 2, 1},
                {8, 8, 8, 0}, {16, 8, 0, 0}, {8, 16, 0, 0}, {8, 8, 2, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const unsigned before = card_lt_asked;
        y.x = x + rows[i].skip;
        y.x_stride = rows[i].x_stride;
        y.y_stride = rows[i].y_stride;
        check_int(rig_run(KERN_LINEAR, &y), ==, 0);
        check_uint(card_lt_asked - before, ==, rows[i].asked);
    }
    rig_close();
}

static void the_first_proposal_is_taken(void)
{
    rig_open(NULL, 1);
    linear_over(8, 8);
    check_uint(card_lt_algorithm, ==, FIRST_PROPOSAL);
    card_lt_first_is_bad = true;
    linear_over(16, 8);
    check_uint(card_lt_algorithm, ==, FIRST_PROPOSAL + 1);
    card_lt_first_is_bad = false;
    linear_over(16, 8);
    check_uint(card_lt_algorithm, ==, FIRST_PROPOSAL + 1);
    rig_close();
}

/* A product computed without the library is right and reported by one warning. */
static void shapes_without_an_algorithm_warn_once(void)
{
    test_listen(CORE_LOG_WARN);
    rig_open(NULL, 1);
    linear_over(8, 7);
    check_uint(asked_by(8, 7), ==, 0);
    linear_over(16, 5);
    rig_close();
    check_int(test_heard_lines(""), ==, 1);
    check_contains(test_heard(),
                   "no algorithm for a product of 4 x 8 over 7 bf16 elements (strides 7, 7, 8)");
    test_listen_end();
}

static void the_oldest_shape_is_replaced(void)
{
    rig_open(NULL, 1);
    rig_case(1);
    struct kern_linear_arguments y = {.type = KERN_BF16, .m = 1, .k = 8, .x_stride = 8};
    y.x = rig_random(KERN_BF16, 8, 1.0);
    y.w = rig_random(KERN_BF16, (SHAPES_MAX + 1) * 8, 1.0);
    y.y = rig_zeros(KERN_BF16, SHAPES_MAX + 1);
    const unsigned before = card_lt_asked;
    for (y.n = 1; y.n <= SHAPES_MAX + 1; y.n++) {
        y.y_stride = y.n;
        check_int(rig_run(KERN_LINEAR, &y), ==, 0);
    }
    check_uint(card_lt_asked - before, ==, SHAPES_MAX + 1);
    y.n = y.y_stride = SHAPES_MAX;
    check_int(rig_run(KERN_LINEAR, &y), ==, 0);
    check_uint(card_lt_asked - before, ==, SHAPES_MAX + 1);
    y.n = y.y_stride = 1;
    check_int(rig_run(KERN_LINEAR, &y), ==, 0);
    check_uint(card_lt_asked - before, ==, SHAPES_MAX + 2);
    rig_close();
}

/* TIDE_PRODUCTS=plain leaves the library out. */
static void products_can_be_plain(void)
{
    setenv("TIDE_PRODUCTS", "plain", 1);
    rig_open(NULL, 1);
    unsetenv("TIDE_PRODUCTS");
    const unsigned before = card_lt_asked;
    linear_over(16, 5);
    check_uint(card_lt_asked, ==, before);
    rig_close();
}

RIG_MAIN({"tiles_of_logits_are_wide_enough", tiles_of_logits_are_wide_enough},
         {"shapes_are_asked_once", shapes_are_asked_once},
         {"strides_and_alignments_are_asked_alone", strides_and_alignments_are_asked_alone},
         {"the_first_proposal_is_taken", the_first_proposal_is_taken},
         {"shapes_without_an_algorithm_warn_once", shapes_without_an_algorithm_warn_once},
         {"the_oldest_shape_is_replaced", the_oldest_shape_is_replaced},
         {"products_can_be_plain", products_can_be_plain})
