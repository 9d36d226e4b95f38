/* check_common.c: variants, random numbers and comparison. */
#include "tests/adam/check.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/base/cpus.h"
#include "core/base/half.h"
#include "core/base/rng.h"
#include "cpu_adam/norm.h"
#include "tests/adam/ref.h"
#include "tests/harness/test.h"

const struct check_variant check_variants[CHECK_VARIANTS] = {
    {"scalar", 0},
    {"avx2", CORE_CPU_AVX2},
    {"avx512", CORE_CPU_AVX2 | CORE_CPU_AVX512},
    {"neon", CORE_CPU_NEON},
};

bool check_present(const struct check_variant *variant)
{
    struct adam_norm work;
    adam_norm_init(&work, NULL, variant->mask);
    return strcmp(work.ops.name, variant->name) == 0;
}

uint64_t check_size_step = TEST_SLOW ? 17 : 1;
bool check_small_only;
static uint64_t position;

uint32_t check_random_word(void)
{
    return core_rng_philox(7, 1, position++).word[0];
}

float check_random_float(bool with_bad)
{
    static const uint32_t special[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff,
                                       0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f7f8000, 0x477fefff,
                                       0x477ff000, 0x33000001, 0x3f800000, 0x7f800000, 0xff800000,
                                       0x7fc00001, 0xff812345};
    const uint32_t word = check_random_word();
    if (word % 16 == 0) {
        const uint32_t kinds = check_small_only ? 6 : with_bad ? 17 : 13;
        return core_f32_from_bits(special[word / 16 % kinds]);
    }
    return core_f32_from_bits((word & 0x807fffff) | (100 + word / 65536 % 40) << 23);
}

void check_floats(const char *what, const float *a, const float *b, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (core_f32_bits(a[i]) != core_f32_bits(b[i]) && !(isnan(a[i]) && isnan(b[i]))) {
            test_fail(__FILE__, __LINE__, "%s: element %" PRIu64 " is %a, not %a", what, i,
                      (double)b[i], (double)a[i]);
        }
    }
}

void check_numbers(const char *what, enum core_update_type type, const void *a, const void *b)
{
    if (type == CORE_UPDATE_Q8) {
        if (memcmp(a, b, CHECK_ROOM) != 0) {
            test_fail(__FILE__, __LINE__, "%s: codes differ", what);
        }
        return;
    }
    for (uint64_t i = 0; i < CHECK_ROOM; i++) {
        const float left = ref_load(a, type, i);
        const float right = ref_load(b, type, i);
        check_floats(what, &left, &right, 1);
    }
}
