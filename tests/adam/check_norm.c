/* check_norm.c: compares tile sums of the variants with the reference. */
#include <math.h>
#include <string.h>

#include "cpu_adam/norm.h"
#include "tests/adam/check.h"
#include "tests/adam/ref.h"
#include "tests/harness/test.h"

static void verify_size(const struct adam_norm *norm, enum core_update_type type, uint64_t size)
{
    const uint64_t into = size * 5 % 67;
    float x[CHECK_ROOM];
    double sum = 0.0;
    for (uint64_t i = 0; i < CHECK_ROOM; i++) {
        ref_store(x, type, i, check_random_float(true));
    }
    const struct core_squares_args of = {.x = (unsigned char *)x +
                                              into * (type == CORE_UPDATE_F32 ? 4 : 2),
                                         .type = type,
                                         .first = 7 * CORE_UPDATE_TILE,
                                         .count = size,
                                         .sums = &sum};
    check_int(adam_norm_sums(norm, &of), ==, 0);
    const double expected = ref_tile_sum(of.x, type, size);
    check_true(memcmp(&sum, &expected, sizeof sum) == 0 || (isnan(sum) && isnan(expected)));
}

void check_norms(void)
{
    for (int i = 0; i < CHECK_VARIANTS; i++) {
        struct adam_norm norm;
        adam_norm_init(&norm, NULL, check_variants[i].mask);
        for (int type = 0; check_present(&check_variants[i]) && type < 3; type++) {
            for (uint64_t size = 0; size <= CHECK_SIZE_MAX; size += check_size_step) {
                verify_size(&norm, (enum core_update_type)type, size);
            }
        }
    }
}
