/* test_sum.c: compares sums over ranks with sums of single elements. */
#include <stdlib.h>

#include "core/base/half.h"
#include "core/coll/codes.h"
#include "core/coll/sum.h"
#include "tests/harness/test.h"

static float widen(enum coll_type type, const void *from, size_t i)
{
    switch (type) {
    case COLL_F32: return ((const float *)from)[i];
    case COLL_BF16: return core_bf16_to_f32(((const uint16_t *)from)[i]);
    case COLL_FP16: return core_fp16_to_f32(((const uint16_t *)from)[i]);
    case COLL_F64:
    case COLL_BYTE:
    case COLL_INT4:
    case COLL_TYPES: break;
    }
    return 0;
}

/* Compares an element with the sum in rank order; all NaN are equal. */
static void check_element(enum coll_type type, const void *const *from, unsigned ranks,
                          size_t source, const void *to, size_t i)
{
    float sum = widen(type, from[0], source);
    for (unsigned r = 1; r < ranks; r++) {
        sum += widen(type, from[r], source);
    }
    float got = widen(type, to, i);
    if (isnan(sum)) {
        check_true(isnan(got));
        return;
    }
    float rounded = sum;
    if (type == COLL_BF16) {
        rounded = core_bf16_to_f32(core_f32_to_bf16(sum));
    } else if (type == COLL_FP16) {
        rounded = core_fp16_to_f32(core_f32_to_fp16(sum));
    }
    check_uint(core_f32_bits(got), ==, core_f32_bits(rounded));
}

enum { RANKS = 5, COUNT = 5000 };

static uint32_t random_word(uint32_t *state)
{
    *state = *state * 1664525U + 1013904223U;
    return *state >> 8 ^ *state << 13;
}

/* Sums have the bits of adding element by element, also with infinities and subnormals; NaN gives
 * NaN. */
static void random_bits(void)
{
    static const enum coll_type types[] = {COLL_F32, COLL_BF16, COLL_FP16};
    static const size_t counts[] = {0, 1, 7, 1023, 1024, 1025, 2048, 4999};
    uint32_t *arrays[RANKS];
    uint32_t *to = malloc(COUNT * 4 + 8);
    uint32_t state = 1;
    check_true(to != NULL);
    for (size_t r = 0; r < RANKS; r++) {
        arrays[r] = malloc(COUNT * 4);
        check_true(arrays[r] != NULL);
        for (size_t i = 0; i < COUNT; i++) {
            arrays[r][i] = random_word(&state);
        }
    }
    const void *from[RANKS];
    for (size_t r = 0; r < RANKS; r++) {
        from[r] = arrays[r];
    }
    for (size_t t = 0; t < 3; t++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            for (unsigned ranks = 1; ranks <= RANKS; ranks++) {
                coll_sum(types[t], from, ranks, 1, counts[c], to);
                for (size_t i = 0; i < counts[c]; i++) {
                    check_element(types[t], from, ranks, 1 + i, to, i);
                }
            }
        }
    }
    for (size_t r = 0; r < RANKS; r++) {
        free(arrays[r]);
    }
    free(to);
}

static void in_place(void)
{
    enum { VALUES = 65536 };
    uint16_t *a = malloc(2 * VALUES);
    uint16_t *b = malloc(2 * VALUES);
    uint16_t *kept = malloc(2 * VALUES);
    check_true(a != NULL && b != NULL && kept != NULL);
    for (size_t step = 0; step < 65536; step += 4099) {
        for (size_t i = 0; i < VALUES; i++) {
            a[i] = kept[i] = (uint16_t)i;
            b[i] = (uint16_t)(i + step);
        }
        coll_sum(COLL_BF16, (const void *[]){a, b}, 2, 0, VALUES, a);
        for (size_t i = 0; i < VALUES; i++) {
            check_element(COLL_BF16, (const void *[]){kept, b}, 2, i, a, i);
        }
    }
    free(a);
    free(b);
    free(kept);
}

/* Sums are computed in fp64 or fp32, in rank order. */
static void order(void)
{
    double big[] = {1e16, 1e16};
    double one[] = {1, 1};
    double minus[] = {-1e16, -1e16};
    double sums[2];
    coll_sum(COLL_F64, (const void *[]){big, minus, one}, 3, 0, 2, sums);
    check_double(sums[0], ==, 1);
    coll_sum(COLL_F64, (const void *[]){one, big, minus}, 3, 1, 1, sums);
    check_double(sums[0], ==, 0);
    double fine[] = {0x1p-40, 0x1p-40}; /* lost in fp32 */
    coll_sum(COLL_F64, (const void *[]){one, fine}, 2, 0, 2, sums);
    check_double(sums[1], ==, 1 + 0x1p-40);
    float f_big = 1e8F;
    float f_one = 1;
    float f_minus = -1e8F;
    float sum;
    coll_sum(COLL_F32, (const void *[]){&f_big, &f_minus, &f_one}, 3, 0, 1, &sum);
    check_double((double)sum, ==, 1);
    coll_sum(COLL_F32, (const void *[]){&f_one, &f_big, &f_minus}, 3, 0, 1, &sum);
    check_double((double)sum, ==, 0);
}

/* Codes are summed in rank order, and no more numbers are written than requested. */
static void codes(void)
{
    enum { GROUPS = 3, NUMBERS = GROUPS * COLL_CODES, SOME = 2 * COLL_CODES - 56 };
    static const float values[] = {1e8F, -1e8F, 1};
    static float numbers[NUMBERS];
    static unsigned char groups[3][NUMBERS];
    static float sums[NUMBERS];
    for (size_t r = 0; r < 3; r++) {
        for (size_t i = 0; i < NUMBERS; i++) {
            numbers[i] = i < COLL_CODES ? 5 : values[r];
        }
        coll_codes_encode(COLL_F32, numbers, NUMBERS, groups[r]);
    }
    for (size_t i = 0; i < NUMBERS; i++) {
        sums[i] = -3;
    }
    coll_sum_codes(COLL_F32, (const void *[]){groups[0], groups[1], groups[2]}, 3, 1, SOME, sums);
    for (size_t i = 0; i < NUMBERS; i++) {
        check_double((double)sums[i], ==, i < SOME ? 1 : -3);
    }
    coll_sum_codes(COLL_F32, (const void *[]){groups[2], groups[0], groups[1]}, 3, 1, SOME, sums);
    check_double((double)sums[0], ==, 0);
    coll_sum_codes(COLL_F32, (const void *[]){groups[0], groups[1], groups[2]}, 3, 0, 1, sums);
    check_double((double)sums[0], ==, 15);
    uint16_t half[2] = {0, 7};
    coll_sum_codes(COLL_BF16, (const void *[]){groups[0], groups[2]}, 2, 2, 1, half);
    check_uint(half[0], ==, core_f32_to_bf16(1e8F));
    check_uint(half[1], ==, 7);
}

TEST_MAIN({"random_bits", random_bits}, {"in_place", in_place}, {"order", order}, {"codes", codes})
