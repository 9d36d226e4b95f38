/* test_codes.c: codes of 4 bits. */
#include <float.h>
#include <stdlib.h>

#include "core/base/half.h"
#include "core/coll/codes.h"
#include "tests/harness/test.h"

enum { GROUP_BYTES = 132, NUMBERS = 1500 };

/* Stores a value in an array of `type`, and returns the number that is stored. */
static float keep(enum coll_type type, float value, void *array, size_t i)
{
    if (type == COLL_F32) {
        ((float *)array)[i] = value;
        return value;
    }
    uint16_t *halves = array;
    halves[i] = type == COLL_BF16 ? core_f32_to_bf16(value) : core_f32_to_fp16(value);
    return type == COLL_BF16 ? core_bf16_to_f32(halves[i]) : core_fp16_to_f32(halves[i]);
}

static float scale_of(const unsigned char *group)
{
    float scale;
    memcpy(&scale, group, sizeof scale);
    return scale;
}

/* A decoded number is within half a step of the original; zeros are exact. */
static void bounds(void)
{
    static const enum coll_type types[] = {COLL_F32, COLL_BF16, COLL_FP16};
    static const size_t counts[] = {0, 1, 127, 255, 256, 257, 512, NUMBERS};
    static uint32_t array[NUMBERS];
    static float numbers[NUMBERS + COLL_CODES];
    static unsigned char groups[(NUMBERS / COLL_CODES + 2) * GROUP_BYTES];
    for (size_t t = 0; t < 3; t++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            const size_t count = counts[c];
            const size_t filled = (size_t)coll_codes_groups(count) * COLL_CODES;
            memset(numbers, 0, sizeof numbers);
            for (size_t i = 0; i < count; i++) {
                const float sign = i % 3 == 0 ? -1.0F : 1.0F;
                const float value = (float)(i * 7919 % 1009) * sign * (float)(i / COLL_CODES + 1);
                numbers[i] = keep(types[t], value * 0.01F, array, i);
            }
            memset(groups, 0xa5, sizeof groups);
            coll_codes_encode(types[t], array, count, groups);
            check_uint(groups[filled / COLL_CODES * GROUP_BYTES], ==, 0xa5);
            for (size_t at = 0; at < filled; at += COLL_CODES) {
                const unsigned char *group = groups + at / COLL_CODES * GROUP_BYTES;
                float got[COLL_CODES];
                float most = 0;
                coll_codes_decode(group, got);
                for (size_t i = 0; i < COLL_CODES; i++) {
                    most = fabsf(numbers[at + i]) > most ? fabsf(numbers[at + i]) : most;
                }
                check_double((double)scale_of(group), ==, (double)most);
                for (size_t i = 0; i < COLL_CODES; i++) {
                    const double number = (double)numbers[at + i];
                    const double apart = fabs((double)got[i] - number);
                    check_double(apart, <=, (double)most / 14 * (1 + 1e-5));
                    check_true(fabs(number) < (double)most || apart <= (double)most * 1e-6);
                    check_true(numbers[at + i] != 0 || got[i] == 0);
                }
            }
        }
    }
}

/* A byte has the codes of numbers i and i + 128. Ties go to even codes. */
static void bytes(void)
{
    float numbers[COLL_CODES] = {7, 0.5F, 1.5F, 2.5F, -0.5F, -1.5F, -6.6F};
    unsigned char group[GROUP_BYTES];
    numbers[128] = -7;
    numbers[129] = 3;
    check_uint(coll_type_bytes(COLL_INT4), ==, GROUP_BYTES);
    coll_codes_encode(COLL_F32, numbers, COLL_CODES, group);
    check_double((double)scale_of(group), ==, 7);
    static const unsigned char expected[] = {0x1f, 0xb8, 0x8a, 0x8a, 0x88, 0x86, 0x81, 0x88};
    check_memory(group + 4, expected, sizeof expected);
    check_uint(group[GROUP_BYTES - 1], ==, 0x88);
}

/* A group with a number that is not finite becomes NaN, so that overflow is detected; tiny numbers
 * become zero. */
static void extremes(void)
{
    static const struct {
        float value;
        bool is_nan, is_zero;
    } rows[] = {{NAN, true, false},       {-NAN, true, false},     {INFINITY, true, false},
                {-INFINITY, true, false}, {9e-37F, false, true},   {-1e-44F, false, true},
                {1e-36F, false, false},   {FLT_MAX, false, false}, {-FLT_MAX, false, false}};
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        for (size_t at = 0; at < 3; at++) {
            static float numbers[3 * COLL_CODES];
            static unsigned char groups[3 * GROUP_BYTES];
            for (size_t i = 0; i < 3 * COLL_CODES; i++) {
                numbers[i] = i / COLL_CODES == 1 ? 0 : 7;
            }
            numbers[COLL_CODES + at * 127] = rows[r].value;
            coll_codes_encode(COLL_F32, numbers, 3 * COLL_CODES, groups);
            for (size_t g = 0; g < 3; g++) {
                float got[COLL_CODES];
                coll_codes_decode(groups + g * GROUP_BYTES, got);
                for (size_t i = 0; i < COLL_CODES; i++) {
                    if (g != 1) {
                        check_double((double)got[i], ==, 7);
                    } else if (rows[r].is_nan) {
                        check_true(isnan(got[i]));
                    } else if (rows[r].is_zero || i != at * 127) {
                        check_double((double)got[i], ==, 0);
                    } else {
                        const double value = (double)rows[r].value;
                        check_double(fabs((double)got[i] - value), <=, fabs(value) * 1e-6);
                    }
                }
            }
        }
    }
}

TEST_MAIN({"bounds", bounds}, {"bytes", bytes}, {"extremes", extremes})
