/* Tests the 16-bit conversions, Philox and XXH3. */
#include <stdlib.h>

#include "core/base/half.h"
#include "core/base/hash.h"
#include "core/base/rng.h"
#include "tests/harness/test.h"

/* A bf16 survives the conversion to fp32 and back; a NaN stays a NaN. */
static void bf16_round_trip(void)
{
    for (uint32_t pattern = 0; pattern < 65536; pattern++) {
        float wide = core_bf16_to_f32((uint16_t)pattern);
        check_uint(core_f32_bits(wide), ==, pattern << 16);
        uint16_t expected = (uint16_t)pattern;
        if (isnan(wide)) {
            expected = (uint16_t)((pattern & 0x8000) | CORE_BF16_NAN);
        }
        check_uint(core_f32_to_bf16(wide), ==, expected);
        check_uint(core_f32_to_bf16_away(wide), ==, expected);
    }
}

/* Numbers near the middle of two neighbours are rounded to nearest; ties go to even, or away from
 * zero. */
static void bf16_ties(void)
{
    for (uint32_t pattern = 0; pattern < 0x7f80; pattern++) {
        uint32_t low = pattern << 16;
        uint32_t even = pattern + (pattern & 1);
        check_uint(core_f32_to_bf16(core_f32_from_bits(low | 0x7fff)), ==, pattern);
        check_uint(core_f32_to_bf16(core_f32_from_bits(low | 0x8000)), ==, even);
        check_uint(core_f32_to_bf16(core_f32_from_bits(low | 0x8001)), ==, pattern + 1);
        check_uint(core_f32_to_bf16_away(core_f32_from_bits(low | 0x7fff)), ==, pattern);
        check_uint(core_f32_to_bf16_away(core_f32_from_bits(low | 0x8000)), ==, pattern + 1);
        uint32_t minus = 0x80000000u | low | 0x8000;
        check_uint(core_f32_to_bf16_away(core_f32_from_bits(minus)), ==, 0x8000u + pattern + 1);
    }
}

/* Computes the value from the definition of fp16. */
static double fp16_value(uint32_t pattern)
{
    int exponent = (int)(pattern >> 10 & 31);
    double fraction = (double)(pattern & 1023);
    double size = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
    return pattern & 0x8000 ? -size : size;
}

static void fp16_round_trip(void)
{
    for (uint32_t pattern = 0; pattern < 65536; pattern++) {
        float wide = core_fp16_to_f32((uint16_t)pattern);
        uint32_t size = pattern & 0x7fff;
        if (size > 0x7c00) {
            check_true(isnan(wide));
            check_uint(core_f32_to_fp16(wide), ==, (pattern & 0x8000) | CORE_FP16_NAN);
            continue;
        }
        if (size == 0x7c00) {
            check_true(isinf(wide));
        } else {
            check_double(wide, ==, fp16_value(pattern));
        }
        check_uint(core_f32_to_fp16(wide), ==, pattern);
    }
}

static void fp16_ties(void)
{
    for (uint32_t pattern = 0; pattern < 0x7bff; pattern++) {
        float middle = (float)((fp16_value(pattern) + fp16_value(pattern + 1)) / 2);
        uint32_t even = pattern + (pattern & 1);
        check_uint(core_f32_to_fp16(middle), ==, even);
        check_uint(core_f32_to_fp16(nextafterf(middle, 0)), ==, pattern);
        check_uint(core_f32_to_fp16(nextafterf(middle, INFINITY)), ==, pattern + 1);
        check_uint(core_f32_to_fp16(-middle), ==, 0x8000 | even);
    }
    check_uint(core_f32_to_fp16(65519.996f), ==, 0x7bff);
    check_uint(core_f32_to_fp16(65520.0f), ==, 0x7c00);
    check_uint(core_f32_to_fp16(1e30f), ==, 0x7c00);
    check_uint(core_f32_to_fp16(0x1p-25f), ==, 0);
    check_uint(core_f32_to_fp16(1e-45f), ==, 0);
}

/* Arrays are converted like their elements, even at odd addresses. */
static void arrays_are_their_elements(void)
{
    enum { HALVES = 1 << 16, EACH = 4 };
    static unsigned char room[EACH * HALVES * 4 + 1];
    static float wide[EACH * HALVES];
    static uint16_t halves[EACH * HALVES];
    for (uint32_t i = 0; i < HALVES; i++) {
        const uint16_t half = (uint16_t)i;
        memcpy(room + 1 + 2 * i, &half, 2);
    }
    core_bf16_widen(room + 1, HALVES, wide);
    for (uint32_t i = 0; i < HALVES; i++) {
        check_uint(core_f32_bits(wide[i]), ==, core_f32_bits(core_bf16_to_f32((uint16_t)i)));
    }
    core_fp16_widen(room + 1, HALVES, wide);
    for (uint32_t i = 0; i < HALVES; i++) {
        check_uint(core_f32_bits(wide[i]), ==, core_f32_bits(core_fp16_to_f32((uint16_t)i)));
    }
    static const uint32_t low[EACH] = {0, 0x7fff, 0x8000, 0x8001};
    for (uint32_t i = 0; i < EACH * HALVES; i++) {
        const uint32_t bits = i / EACH << 16 | low[i % EACH];
        memcpy(room + 1 + 4 * i, &bits, 4);
    }
    core_bf16_narrow(room + 1, EACH * HALVES, halves);
    for (uint32_t i = 0; i < EACH * HALVES; i++) {
        const float value = core_f32_from_bits(i / EACH << 16 | low[i % EACH]);
        check_uint(halves[i], ==, core_f32_to_bf16(value));
    }
    core_fp16_narrow(room + 1, EACH * HALVES, halves);
    for (uint32_t i = 0; i < EACH * HALVES; i++) {
        const float value = core_f32_from_bits(i / EACH << 16 | low[i % EACH]);
        check_uint(halves[i], ==, core_f32_to_fp16(value));
    }
}

/* Known answers of Random123. */
static void philox_vectors(void)
{
    struct core_rng_words zero = core_rng_philox(0, 0, 0);
    const uint32_t zero_answer[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    check_memory(zero.word, zero_answer, sizeof zero_answer);
    struct core_rng_words ones = core_rng_philox(UINT64_MAX, UINT64_MAX, UINT64_MAX);
    const uint32_t ones_answer[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    check_memory(ones.word, ones_answer, sizeof ones_answer);
    struct core_rng_words pi = core_rng_philox(0x299f31d0a4093822, 0x0370734413198a2e,
                                               0x85a308d3243f6a88);
    const uint32_t pi_answer[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    check_memory(pi.word, pi_answer, sizeof pi_answer);
    check_double(core_rng_unit(0), ==, 0.0);
    check_double(core_rng_unit(UINT32_MAX), <, 1.0);
}

/* The hash of empty input has its published value; seed, length and content change a hash. */
static void hash_vectors(void)
{
    check_uint(core_hash("", 0, 0), ==, 0x2d06800538d394c2);
    unsigned char data[4096] = {0};
    uint64_t plain = core_hash(data, sizeof data, 7);
    check_true(plain != core_hash(data, sizeof data, 8));
    check_true(plain != core_hash(data, sizeof data - 1, 7));
    data[4095] = 1;
    check_true(plain != core_hash(data, sizeof data, 7));
    check_true(core_hash_seed(1, 2, 3, 4) != core_hash_seed(1, 2, 4, 3));
}

TEST_MAIN({"bf16_round_trip", bf16_round_trip}, {"bf16_ties", bf16_ties},
          {"fp16_round_trip", fp16_round_trip}, {"fp16_ties", fp16_ties},
          {"arrays_are_their_elements", arrays_are_their_elements},
          {"philox_vectors", philox_vectors}, {"hash_vectors", hash_vectors})
