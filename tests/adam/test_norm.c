/* Tests tile sums and their independence of threads and calls. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/cpus.h"
#include "core/base/err.h"
#include "core/base/rng.h"
#include "cpu_adam/norm.h"
#include "tests/adam/ref.h"
#include "tests/harness/test.h"

enum { TILES = 5, COUNT = 4 * CORE_UPDATE_TILE + 12345 };

static float x[COUNT];

static void fill(enum core_update_type type)
{
    for (uint64_t i = 0; i < COUNT; i++) {
        ref_store(x, type, i, core_rng_unit(core_rng_philox(5, 0, i).word[0]) - 0.5f);
    }
}

static double sum_of_squares(const void *array, enum core_update_type type, uint64_t count)
{
    double sum = 0;
    for (uint64_t i = 0; i < count; i++) {
        const double value = (double)ref_load(array, type, i);
        sum += value * value;
    }
    return sum;
}

/* One call for several tiles has the sums of one call per tile, wherever parts begin. */
static void packed_parts(void)
{
    static const uint64_t counts[] = {1, 3, 256, 65274, 5, 70000, 513};
    enum { PARTS = sizeof counts / sizeof counts[0] };
    for (int type = 0; type < 3; type++) {
        const size_t bytes = type == CORE_UPDATE_F32 ? 4 : 2;
        struct adam_norm_piece pieces[PARTS];
        struct adam_norm norm;
        double sums[2][3] = {{0}};
        uint64_t end = 0;
        fill((enum core_update_type)type);
        for (size_t i = 0; i < PARTS; end += counts[i++]) {
            pieces[i] = (struct adam_norm_piece){(char *)x + end * bytes, end, counts[i]};
        }
        adam_norm_init(&norm, NULL, CORE_CPU_ALL);
        struct adam_norm_pieces of = {.list = pieces,
                                      .list_count = PARTS,
                                      .type = (enum core_update_type)type,
                                      .count = end,
                                      .sums = sums[0]};
        check_int(adam_norm_sums_apart(&norm, &of), ==, 0);
        for (uint64_t t = 0; t < 3; t++) {
            of.first = t * CORE_UPDATE_TILE;
            of.count = end - of.first < CORE_UPDATE_TILE ? end - of.first : CORE_UPDATE_TILE;
            of.sums = &sums[1][t];
            check_int(adam_norm_sums_apart(&norm, &of), ==, 0);
            const double right = sum_of_squares((char *)x + of.first * bytes, of.type, of.count);
            check_double(fabs(sums[0][t] - right), <=, 1e-12 * right);
        }
        check_memory(sums[0], sums[1], sizeof sums[0]);
    }
}

/* An array in several parts, with zeros between them, has the sums of the array in one place.
 * Overlaps are refused. */
static void parts_have_the_sums_of_the_whole(void)
{
    static const struct {
        uint64_t first, count;
    } parts[] = {{0, 1}, {256, 70000}, {70400, 16}, {70656, 60000}, {131072, 65536}, {196864, 77}};
    enum { PARTS = sizeof parts / sizeof parts[0], ALL = 4 * CORE_UPDATE_TILE };
    struct core_team *team = NULL;
    check_int(core_team_create(&(struct core_team_options){.count = 3}, &team), ==, 0);
    for (int type = 0; type < 3; type++) {
        const size_t bytes = type == CORE_UPDATE_F32 ? 4 : 2;
        struct adam_norm_piece pieces[PARTS];
        double sums[2][4] = {{0}};
        struct adam_norm norm;
        fill((enum core_update_type)type);
        uint64_t end = 0;
        for (size_t i = 0; i <= PARTS; i++) {
            const uint64_t next = i < PARTS ? parts[i].first : ALL;
            memset((char *)x + end * bytes, 0, (next - end) * bytes);
            end = i < PARTS ? next + parts[i].count : end;
        }
        for (size_t i = 0; i < PARTS; i++) {
            char *apart = malloc(parts[i].count * bytes);
            memcpy(apart, (char *)x + parts[i].first * bytes, parts[i].count * bytes);
            pieces[i] = (struct adam_norm_piece){apart, parts[i].first, parts[i].count};
        }
        adam_norm_init(&norm, team, CORE_CPU_ALL);
        const struct core_squares_args whole = {
            .x = x, .type = (enum core_update_type)type, .count = ALL - 1000, .sums = sums[0]};
        check_int(adam_norm_sums(&norm, &whole), ==, 0);
        const struct adam_norm_pieces apart = {.list = pieces,
                                               .list_count = PARTS,
                                               .type = (enum core_update_type)type,
                                               .count = ALL - 1000,
                                               .sums = sums[1]};
        check_int(adam_norm_sums_apart(&norm, &apart), ==, 0);
        check_memory(sums[0], sums[1], sizeof sums[0]);
        struct adam_norm_pieces second = apart;
        second.first = CORE_UPDATE_TILE;
        second.count = CORE_UPDATE_TILE;
        check_int(adam_norm_sums_apart(&norm, &second), ==, 0);
        check_memory(&sums[0][1], &sums[1][0], sizeof(double));
        pieces[2].first = 70255;
        check_int(adam_norm_sums_apart(&norm, &apart), ==, -EINVAL);
        check_contains(core_err_message(), "begins at element 70255; expected at least 70256");
        for (size_t i = 0; i < PARTS; i++) {
            free((void *)(uintptr_t)pieces[i].x);
        }
    }
    core_team_destroy(team);
}

/* Sums do not depend on calls or threads, and their total is right. */
static void tiles_are_the_same(void)
{
    struct core_team *team = NULL;
    check_int(core_team_create(&(struct core_team_options){.count = 64}, &team), ==, 0);
    for (int type = 0; type < 3; type++) {
        struct adam_norm alone;
        struct adam_norm many;
        double sums[3][TILES] = {{0}};
        const size_t bytes = type == CORE_UPDATE_F32 ? 4 : 2;
        fill((enum core_update_type)type);
        adam_norm_init(&alone, NULL, 0);
        adam_norm_init(&many, team, CORE_CPU_ALL);
        struct core_squares_args norm = {
            .x = x, .type = (enum core_update_type)type, .count = COUNT, .sums = sums[0]};
        check_int(adam_norm_sums(&alone, &norm), ==, 0);
        norm.sums = sums[1];
        check_int(adam_norm_sums(&many, &norm), ==, 0);
        for (uint64_t t = TILES; t-- > 0;) {
            norm.first = t * CORE_UPDATE_TILE;
            norm.count = t == TILES - 1 ? 12345 : CORE_UPDATE_TILE;
            norm.x = (const char *)x + norm.first * bytes;
            norm.sums = &sums[2][t];
            check_int(adam_norm_sums(&many, &norm), ==, 0);
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

/* Large finite numbers do not overflow; an infinity makes its tile's sum not finite. */
static void nonfinite_is_exact(void)
{
    struct adam_norm work;
    double sums[TILES];
    adam_norm_init(&work, NULL, CORE_CPU_ALL);
    for (uint64_t i = 0; i < COUNT; i++) {
        x[i] = 3.4e38f;
    }
    struct core_squares_args norm = {.x = x, .type = CORE_UPDATE_F32, .count = COUNT, .sums = sums};
    check_int(adam_norm_sums(&work, &norm), ==, 0);
    check_true(isfinite(adam_norm_total(sums, TILES)));
    x[3 * CORE_UPDATE_TILE + 17] = -INFINITY;
    check_int(adam_norm_sums(&work, &norm), ==, 0);
    check_uint(adam_norm_bad_tile(sums, TILES), ==, 3);
    x[CORE_UPDATE_TILE] = NAN;
    check_int(adam_norm_sums(&work, &norm), ==, 0);
    check_uint(adam_norm_bad_tile(sums, TILES), ==, 3);
    check_true(!isfinite(adam_norm_total(sums, TILES)));
}

static void refuse(struct core_squares_args of, const char *word)
{
    struct adam_norm norm;
    adam_norm_init(&norm, NULL, CORE_CPU_ALL);
    check_int(adam_norm_sums(&norm, &of), ==, -EINVAL);
    check_contains(core_err_message(), word);
}

static void bad_input_is_refused(void)
{
    double sum = 7.0;
    const struct core_squares_args good = {
        .x = x, .type = CORE_UPDATE_F32, .count = 10, .sums = &sum};
    struct core_squares_args of = good;
    of.first = 64;
    refuse(of, "element 64");
    of = good;
    of.sums = NULL;
    refuse(of, "no array of sums");
    of = good;
    of.x = (char *)x + 1;
    refuse(of, "not aligned to 4");
    of.x = NULL;
    refuse(of, "not aligned");
    of = good;
    of.type = CORE_UPDATE_Q8;
    refuse(of, "expected fp32");
    of = good;
    of.count = UINT64_MAX;
    refuse(of, "address space");
    check_double(sum, ==, 7.0);
    of = (struct core_squares_args){.type = CORE_UPDATE_F32};
    struct adam_norm norm;
    adam_norm_init(&norm, NULL, CORE_CPU_ALL);
    check_int(adam_norm_sums(&norm, &of), ==, 0);
}

TEST_MAIN({"tiles_are_the_same", tiles_are_the_same}, {"packed_parts", packed_parts},
          {"parts_have_the_sums_of_the_whole", parts_have_the_sums_of_the_whole},
          {"nonfinite_is_exact", nonfinite_is_exact},
          {"bad_input_is_refused", bad_input_is_refused})
