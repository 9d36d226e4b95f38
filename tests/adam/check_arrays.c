/* check_arrays.c: casts, axpy, scale, norms and the search for non-finite numbers against the
 * reference, in every variant. */
#include <math.h>
#include <string.h>

#include "cpu_adam/work.h"
#include "tests/adam/check.h"
#include "tests/adam/ref.h"
#include "tests/harness/test.h"

/* The same numbers in a type, at an offset; two copies. */
struct line {
    float x[CHECK_ROOM];
    float y[CHECK_ROOM];
};

static struct line random_line(enum core_vec_type x_type, enum core_vec_type y_type)
{
    struct line line;
    memset(&line, 0, sizeof line);
    for (uint64_t i = 0; i < CHECK_ROOM; i++) {
        ref_store(line.x, x_type, i, check_random_float(true));
        ref_store(line.y, y_type, i, check_random_float(true));
    }
    return line;
}

static void *element(void *x, enum core_vec_type type, uint64_t i)
{
    return (unsigned char *)x + i * (type == CORE_VEC_F32 ? 4 : 2);
}

static void verify_cast(const struct adam_work *work, enum core_vec_type from,
                        enum core_vec_type to)
{
    for (uint64_t size = 0; size <= CHECK_SIZE_MAX; size += check_size_step) {
        const uint64_t into = size * 5 % 67;
        struct line ours = random_line(from, to);
        struct line theirs = ours;
        struct core_vec_cast cast = {.from = element(ours.x, from, into),
                                     .to = element(ours.y, to, into),
                                     .from_type = from,
                                     .to_type = to,
                                     .count = size};
        check_int(adam_work_cast(work, &cast), ==, 0);
        for (uint64_t i = 0; i < size; i++) {
            ref_store(theirs.y, to, into + i, ref_load(theirs.x, from, into + i));
        }
        check_numbers("cast", to, theirs.y, ours.y);
        check_numbers("cast", from, theirs.x, ours.x);
    }
}

static void verify_axpy(const struct adam_work *work, enum core_vec_type type)
{
    for (uint64_t size = 0; size <= CHECK_SIZE_MAX; size += check_size_step) {
        const uint64_t into = size * 5 % 67;
        struct line ours = random_line(type, CORE_VEC_F32);
        struct line theirs = ours;
        const float a = size % 2 == 0 ? 1.0f : -0.37f;
        struct core_vec_axpy axpy = {.y = ours.y + into,
                                     .x = element(ours.x, type, into),
                                     .x_type = type,
                                     .a = a,
                                     .count = size};
        check_int(adam_work_axpy(work, &axpy), ==, 0);
        for (uint64_t i = into; i < into + size; i++) {
            const float x = ref_load(theirs.x, type, i);
            theirs.y[i] = a == 1.0f ? theirs.y[i] + x : fmaf(x, a, theirs.y[i]);
        }
        check_numbers("axpy", CORE_VEC_F32, theirs.y, ours.y);
    }
}

static void verify_scale(const struct adam_work *work, enum core_vec_type type)
{
    for (uint64_t size = 0; size <= CHECK_SIZE_MAX; size += check_size_step) {
        const uint64_t into = size * 5 % 67;
        struct line ours = random_line(type, type);
        struct line theirs = ours;
        struct core_vec_scale scale = {
            .x = element(ours.x, type, into), .type = type, .a = 0.3f, .count = size};
        check_int(adam_work_scale(work, &scale), ==, 0);
        for (uint64_t i = into; i < into + size; i++) {
            ref_store(theirs.x, type, i, ref_load(theirs.x, type, i) * 0.3f);
        }
        check_numbers("scale", type, theirs.x, ours.x);
    }
}

static void verify_norm(const struct adam_work *work, enum core_vec_type type)
{
    for (uint64_t size = 0; size <= CHECK_SIZE_MAX; size += check_size_step) {
        const uint64_t into = size * 5 % 67;
        struct line line = random_line(type, type);
        double sum = 0.0;
        struct core_vec_norm norm = {.x = element(line.x, type, into),
                                     .type = type,
                                     .first = 7 * CORE_VEC_TILE,
                                     .count = size,
                                     .sums = &sum};
        check_int(adam_work_norm(work, &norm), ==, 0);
        const double expected = ref_tile_sum(norm.x, type, size);
        check_true(memcmp(&sum, &expected, sizeof sum) == 0 || (isnan(sum) && isnan(expected)));
    }
}

static void verify_finite(const struct adam_work *work, enum core_vec_type type)
{
    for (uint64_t size = 0; size <= CHECK_SIZE_MAX; size += check_size_step) {
        const uint64_t into = size * 5 % 67;
        struct line line = random_line(type, type);
        struct core_vec_finite finite = {
            .x = element(line.x, type, into), .type = type, .count = size};
        struct adam_finite found;
        check_int(adam_work_finite(work, &finite, &found), ==, 0);
        uint64_t bad = 0;
        uint64_t first = size;
        for (uint64_t i = size; i-- > 0;) {
            if (!isfinite(ref_load(finite.x, type, i))) {
                bad++;
                first = i;
            }
        }
        check_uint(found.bad_count, ==, bad);
        check_uint(found.first_bad, ==, first);
    }
}

static void each_type(void (*verify)(const struct adam_work *work, enum core_vec_type type))
{
    for (int i = 0; i < CHECK_VARIANTS; i++) {
        struct adam_work work;
        adam_work_init(&work, NULL, check_variants[i].mask);
        for (int type = 0; check_present(&check_variants[i]) && type < 3; type++) {
            verify(&work, (enum core_vec_type)type);
        }
    }
}

static void cast_each(const struct adam_work *work, enum core_vec_type from)
{
    for (int to = 0; to < 3; to++) {
        verify_cast(work, from, (enum core_vec_type)to);
    }
}

/* Casts between each two of fp32, bf16 and fp16. */
void check_casts(void)
{
    each_type(cast_each);
}

/* Accumulation: exactly y + x where a is 1. */
void check_axpys(void)
{
    each_type(verify_axpy);
}

void check_scales(void)
{
    each_type(verify_scale);
}

/* A tile's sum has the reference's bits. */
void check_norms(void)
{
    each_type(verify_norm);
}

/* Counts and first places of what is not finite. */
void check_finites(void)
{
    each_type(verify_finite);
}
