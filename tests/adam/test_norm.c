/* Proves that tile sums and what is made of them do not depend on threads, chunks or shards, that
 * they are right, and what array work refuses. */
#include <errno.h>
#include <stdlib.h>

#include "core/base/cpus.h"
#include "core/base/err.h"
#include "core/base/rng.h"
#include "cpu_adam/work.h"
#include "tests/adam/ref.h"
#include "tests/harness/test.h"

enum { TILES = 5, COUNT = 4 * CORE_VEC_TILE + 12345 };

static float x[COUNT];
static float y[COUNT];

static void fill(enum core_vec_type type)
{
    for (uint64_t i = 0; i < COUNT; i++) {
        ref_store(x, type, i, core_rng_unit(core_rng_philox(5, 0, i).word[0]) - 0.5f);
    }
}

/* Whole or by the tile, alone or by a team of 64: the same table; its total is right. */
static void tiles_are_the_same(void)
{
    struct core_team *team = NULL;
    check_int(core_team_create(&(struct core_team_options){.count = 64}, &team), ==, 0);
    for (int type = 0; type < 3; type++) {
        struct adam_work alone;
        struct adam_work many;
        double sums[3][TILES] = {{0}};
        const size_t bytes = type == CORE_VEC_F32 ? 4 : 2;
        fill((enum core_vec_type)type);
        adam_work_init(&alone, NULL, 0);
        adam_work_init(&many, team, CORE_CPU_ALL);
        struct core_vec_norm norm = {
            .x = x, .type = (enum core_vec_type)type, .count = COUNT, .sums = sums[0]};
        check_int(adam_work_norm(&alone, &norm), ==, 0);
        norm.sums = sums[1];
        check_int(adam_work_norm(&many, &norm), ==, 0);
        for (uint64_t t = TILES; t-- > 0;) {
            norm.first = t * CORE_VEC_TILE;
            norm.count = t == TILES - 1 ? 12345 : CORE_VEC_TILE;
            norm.x = (const char *)x + norm.first * bytes;
            norm.sums = &sums[2][t];
            check_int(adam_work_norm(&many, &norm), ==, 0);
        }
        check_memory(sums[0], sums[1], sizeof sums[0]);
        check_memory(sums[0], sums[2], sizeof sums[0]);
        long double exact = 0;
        for (uint64_t i = 0; i < COUNT; i++) {
            const double value = (double)ref_load(x, norm.type, i);
            exact += (long double)value * (long double)value;
        }
        check_double(fabs(adam_norm_total(sums[0], TILES) - (double)exact), <=,
                     1e-13 * (double)exact);
        check_uint(adam_norm_bad_tile(sums[0], TILES), ==, TILES);
    }
    core_team_destroy(team);
}

/* The largest finite numbers do not overflow; one infinity marks its tile. */
static void verdict_is_exact(void)
{
    struct adam_work work;
    double sums[TILES];
    adam_work_init(&work, NULL, CORE_CPU_ALL);
    for (uint64_t i = 0; i < COUNT; i++) {
        x[i] = 3.4e38f;
    }
    struct core_vec_norm norm = {.x = x, .type = CORE_VEC_F32, .count = COUNT, .sums = sums};
    check_int(adam_work_norm(&work, &norm), ==, 0);
    check_true(isfinite(adam_norm_total(sums, TILES)));
    x[3 * CORE_VEC_TILE + 17] = -INFINITY;
    check_int(adam_work_norm(&work, &norm), ==, 0);
    check_uint(adam_norm_bad_tile(sums, TILES), ==, 3);
    check_true(!isfinite(adam_norm_total(sums, TILES)));
}

/* The search finds the first of several across the shares of a team. */
static void first_bad_is_found(void)
{
    struct core_team *team = NULL;
    struct adam_work work;
    struct adam_finite found;
    check_int(core_team_create(&(struct core_team_options){.count = 7}, &team), ==, 0);
    adam_work_init(&work, team, CORE_CPU_ALL);
    fill(CORE_VEC_F32);
    const struct core_vec_finite finite = {.x = x, .type = CORE_VEC_F32, .count = COUNT};
    check_int(adam_work_finite(&work, &finite, &found), ==, 0);
    check_uint(found.bad_count, ==, 0);
    check_uint(found.first_bad, ==, COUNT);
    x[COUNT - 1] = NAN;
    x[200001] = INFINITY;
    x[200000] = NAN;
    check_int(adam_work_finite(&work, &finite, &found), ==, 0);
    check_uint(found.bad_count, ==, 3);
    check_uint(found.first_bad, ==, 200000);
    core_team_destroy(team);
}

/* Cast, axpy and scale on a team have the bits of one thread. */
static void teams_change_nothing(void)
{
    struct core_team *team = NULL;
    static float once[COUNT];
    check_int(core_team_create(&(struct core_team_options){.count = 5}, &team), ==, 0);
    for (int threads = 0; threads < 2; threads++) {
        struct adam_work work;
        adam_work_init(&work, threads == 0 ? NULL : team, CORE_CPU_ALL);
        fill(CORE_VEC_F32);
        const struct core_vec_cast cast = {.from = x,
                                           .to = y,
                                           .from_type = CORE_VEC_F32,
                                           .to_type = CORE_VEC_BF16,
                                           .count = COUNT};
        const struct core_vec_axpy axpy = {
            .y = x, .x = y, .x_type = CORE_VEC_BF16, .a = 0.5f, .count = COUNT};
        const struct core_vec_scale scale = {
            .x = x, .type = CORE_VEC_F32, .a = 3.0f, .count = COUNT};
        check_int(adam_work_cast(&work, &cast), ==, 0);
        check_int(adam_work_axpy(&work, &axpy), ==, 0);
        check_int(adam_work_scale(&work, &scale), ==, 0);
        if (threads == 0) {
            memcpy(once, x, sizeof once);
        }
    }
    check_memory(once, x, sizeof once);
    core_team_destroy(team);
}

/* Misaligned, overlapping, missing arrays and types without numbers. */
static void bad_input_is_refused(void)
{
    struct adam_work work;
    double sum = 0;
    struct adam_finite found;
    adam_work_init(&work, NULL, CORE_CPU_ALL);
    struct core_vec_norm norm = {
        .x = x, .type = CORE_VEC_F32, .first = 64, .count = 10, .sums = &sum};
    check_int(adam_work_norm(&work, &norm), ==, -EINVAL);
    check_contains(core_err_sentence(), "64");
    norm.first = 0;
    norm.sums = NULL;
    check_int(adam_work_norm(&work, &norm), ==, -EINVAL);
    norm.x = (char *)x + 1;
    check_int(adam_work_norm(&work, &norm), ==, -EINVAL);
    struct core_vec_cast cast = {.from = x, .to = x + 1, .count = 10};
    check_int(adam_work_cast(&work, &cast), ==, -EINVAL);
    check_contains(core_err_sentence(), "overlapping");
    cast.to = NULL;
    check_int(adam_work_cast(&work, &cast), ==, -EINVAL);
    cast.to = y;
    cast.to_type = CORE_VEC_Q8;
    check_int(adam_work_cast(&work, &cast), ==, -EINVAL);
    struct core_vec_axpy axpy = {.y = x, .x = x, .a = 1.0f, .count = 10};
    check_int(adam_work_axpy(&work, &axpy), ==, -EINVAL);
    struct core_vec_scale scale = {.x = NULL, .count = 10};
    check_int(adam_work_scale(&work, &scale), ==, -EINVAL);
    struct core_vec_finite finite = {.x = x, .count = UINT64_MAX};
    check_int(adam_work_finite(&work, &finite, &found), ==, -EINVAL);
    scale.count = 0;
    check_int(adam_work_scale(&work, &scale), ==, 0);
}

TEST_MAIN({"tiles_are_the_same", tiles_are_the_same}, {"verdict_is_exact", verdict_is_exact},
          {"first_bad_is_found", first_bad_is_found},
          {"teams_change_nothing", teams_change_nothing},
          {"bad_input_is_refused", bad_input_is_refused})
