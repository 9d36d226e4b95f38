/* test_numbers.c: tests figures computed from samples. */
#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "tests/harness/test.h"
#include "tools/ds_nvme_bench/stats.h"
#include "tools/ds_nvme_bench/sweep.h"
#include "tools/ds_nvme_bench/verify.h"
#include "tools/ds_nvme_bench/wear.h"

static void median(void)
{
    const double odd[] = {5, 1, 3};
    const double even[] = {4, 1, 3, 2};
    check_double(bench_median(odd, 3), ==, 3);
    check_double(bench_median(even, 4), ==, 2.5);
    check_double(bench_median(odd, 1), ==, 5);
}

/* The interval contains the median, is reproducible, and ignores an outlier. */
static void interval(void)
{
    const double same[] = {2, 2, 2, 2, 2};
    const double wild[] = {10, 11, 9, 10, 12, 8, 10, 11, 1000};
    struct bench_interval narrow = bench_median_interval(same, 5);
    check_double(narrow.low, ==, 2);
    check_double(narrow.high, ==, 2);
    struct bench_interval once = bench_median_interval(wild, 9);
    struct bench_interval again = bench_median_interval(wild, 9);
    check_double(once.low, ==, again.low);
    check_double(once.high, ==, again.high);
    check_double(once.low, <=, 10);
    check_double(once.high, >=, 10);
    check_double(once.high, <=, 12);
    check_double(once.low, >=, 8);
}

/* A drive that slows down has a trend; noise has none. */
static void trend(void)
{
    const double falls[] = {10, 9.6, 9.1, 8.4, 8.0, 7.5, 7.1, 6.4};
    const double level[] = {10, 9, 10.5, 9.5, 10, 9.2, 10.4, 9.8};
    int likely = 0;
    check_double(bench_trend(falls, 8, &likely), <, -0.3);
    check_int(likely, ==, 1);
    bench_trend(level, 8, &likely);
    check_int(likely, ==, 0);
    bench_trend(level, 2, &likely);
    check_int(likely, ==, 0);
}

static struct bench_sweep *sweep; /* result of one case; freed by the next case */

static void begin(void)
{
    free(sweep);
    sweep = calloc(1, sizeof *sweep);
    check_true(sweep != NULL);
}

/* Adds a point with six samples: `level`, multiplied by the drive's speed in each round (NULL:
 * 1). */
static void add(enum bench_op op, uint32_t block, uint32_t depth, double level, const double *round)
{
    struct bench_point *point = &sweep->points[sweep->count++];
    point->params = (struct bench_params){
        .op = op, .block_bytes = block, .depth = depth, .threads = 1};
    point->count = 6;
    for (unsigned i = 0; i < 6; i++) {
        point->samples[i] = level * (round != NULL ? round[i] : 1);
    }
    point->median = bench_median(point->samples, 6);
    point->interval = bench_median_interval(point->samples, 6);
}

/* On a steady drive, the smallest setting that is nearly the best is recommended. */
static void smallest_that_is_good(void)
{
    begin();
    add(BENCH_READ, 128 << 10, 4, 1.0, NULL);
    add(BENCH_READ, 1 << 20, 4, 2.97, NULL);
    add(BENCH_READ, 1 << 20, 32, 3.0, NULL);
    bench_sweep_recommend(sweep);
    check_int(sweep->recommendation.block_bytes, ==, 1 << 20);
    check_int(sweep->recommendation.depth, ==, 4);
    check_true(sweep->recommendation.confident);
    check_double(sweep->recommendation.score, >, 0.98);
    check_double(fabs(sweep->recommendation.gain - 3), <, 1e-9);
    check_contains(sweep->recommendation.reason, "smallest setting within 2 %");
    check_double(bench_sweep_best(sweep, BENCH_READ), ==, 3.0);
    check_true(bench_sweep_find(sweep, BENCH_READ, 1 << 20, 32, 1) == &sweep->points[2]);
    check_true(bench_sweep_find(sweep, BENCH_WRITE, 1 << 20, 32, 1) == NULL);
}

/* Candidates are the fastest settings, then others that are nearly as fast. The score of a setting
 * is that of its worst operation. */
static void candidates(void)
{
    struct bench_params picked[BENCH_CANDIDATES_MAX];
    begin();
    add(BENCH_READ, 1 << 20, 8, 3.0, NULL);
    add(BENCH_READ, 2 << 20, 4, 2.99, NULL);
    add(BENCH_READ, 4 << 20, 2, 2.98, NULL);
    add(BENCH_READ, 1 << 20, 2, 2.7, NULL);
    add(BENCH_READ, 1 << 20, 4, 2.8, NULL);
    add(BENCH_READ, 1 << 20, 16, 2.6, NULL);
    add(BENCH_READ, 128 << 10, 64, 1.0, NULL);
    check_uint(bench_sweep_pick(sweep, picked), ==, 6);
    check_uint(picked[0].depth, ==, 8);
    check_uint(picked[1].block_bytes, ==, 2 << 20);
    check_uint(picked[2].block_bytes, ==, 4 << 20);
    check_uint(picked[3].depth, ==, 16);
    check_uint(picked[4].depth, ==, 2);
    check_uint(picked[5].depth, ==, 4);
    add(BENCH_WRITE, 1 << 20, 8, 1.0, NULL);
    add(BENCH_WRITE, 1 << 20, 16, 2.0, NULL);
    check_double(fabs(bench_sweep_score(sweep, &picked[0]) - 0.5), <, 1e-9);
    check_double(fabs(bench_sweep_score(sweep, &picked[3]) - 2.6 / 3), <, 1e-9);
}

/* The fastest reader that writes badly is not recommended. */
static void all_operations(void)
{
    begin();
    add(BENCH_READ, 1 << 20, 8, 3.0, NULL);
    add(BENCH_WRITE, 1 << 20, 8, 1.0, NULL);
    add(BENCH_READ, 1 << 20, 32, 2.9, NULL);
    add(BENCH_WRITE, 1 << 20, 32, 2.0, NULL);
    add(BENCH_READ, 4 << 20, 32, 3.0, NULL); /* no candidate without a sample of writing */
    bench_sweep_recommend(sweep);
    check_int(sweep->recommendation.depth, ==, 32);
    check_int(sweep->recommendation.block_bytes, ==, 1 << 20);
    check_contains(sweep->recommendation.reason, "no setting is within 2 % of the best of every "
                                                 "operation; this one comes closest and reaches ");
    check_true(strstr(sweep->recommendation.reason, "smallest") == NULL);
}

/* If the drive's speed changes between rounds, the better setting is found by comparing samples
 * within rounds. */
static void drift_cancels(void)
{
    const double round[] = {1.0, 1.5, 0.8, 1.2, 0.7, 1.4};
    begin();
    add(BENCH_READ, 256 << 10, 8, 0.90, round);
    add(BENCH_READ, 1 << 20, 32, 1.00, round);
    sweep->points[0].samples[1] = 1.9; /* an outlier */
    bench_sweep_recommend(sweep);
    check_int(sweep->recommendation.block_bytes, ==, 1 << 20);
    check_true(!sweep->recommendation.confident);
}

/* If noise hides the best setting, the smallest with at least 8 MiB in flight is recommended. */
static void robust_when_unsure(void)
{
    const double round[] = {1.0, 1.5, 0.8, 1.2, 0.7, 1.4};
    begin();
    add(BENCH_READ, 256 << 10, 4, 1.0, round);
    add(BENCH_READ, 1 << 20, 64, 1.0, round);
    add(BENCH_READ, 1 << 20, 16, 1.0, round);
    bench_sweep_recommend(sweep);
    check_int(sweep->recommendation.depth, ==, 16);
    check_contains(sweep->recommendation.reason, "not steady");
    check_true(!sweep->recommendation.confident);
}

static void nothing_measured(void)
{
    begin();
    bench_sweep_recommend(sweep);
    check_int(sweep->recommendation.block_bytes, ==, 0);
    check_double(bench_sweep_best(sweep, BENCH_RW), ==, 0);
    free(sweep);
    sweep = NULL;
}

/* 12 of the 26 bytes that a step moves per parameter are written. */
static void wear(void)
{
    struct bench_wear wear = bench_wear_of(1e9, 2.6e9, 1036.8e12);
    check_double(fabs(wear.step_seconds - 10), <, 1e-9);
    check_double(wear.step_read_bytes, ==, 14e9);
    check_double(wear.step_write_bytes, ==, 12e9);
    check_double(fabs(wear.day_write_bytes - 103.68e12), <, 1e3);
    check_double(fabs(wear.life_days - 10), <, 1e-6);
    check_double(bench_wear_of(1e9, 0, 1e12).life_days, ==, 0);
    check_double(bench_wear_of(1e9, 1e9, 0).life_days, ==, 0);
}

/* Sizes of models are parsed; other text is refused with an example. */
static void params(void)
{
    static const struct {
        const char *text;
        double value;
    } good[] = {{"7B", 7e9}, {"350m", 350e6}, {"1.1e9", 1.1e9}, {"2T", 2e12}, {"1k", 1000}};
    static const char *const bad[] = {"", "B", "7X", "-1B", "0", "7BB", "nan", "inf", "1e300"};
    double value = 0;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        check_int(bench_params_parse(good[i].text, &value), ==, 0);
        check_double(fabs(value / good[i].value - 1), <, 1e-12);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_int(bench_params_parse(bad[i], &value), ==, -EINVAL);
        check_contains(core_err_message(), "such as 7B");
    }
}

enum { PIECE = 4096, BYTES = 64 * PIECE };
static unsigned char memory[BYTES] __attribute__((aligned(PIECE)));

/* A changed bit is found, with the offset of its piece. */
static void wrong_bit(void)
{
    uint64_t first = 7;
    bench_verify_fill(3, 1, 1 << 20, memory, BYTES);
    check_uint(bench_verify_compare(3, 1, 1 << 20, memory, BYTES, &first), ==, 0);
    check_uint(first, ==, 7);
    for (unsigned at = 0; at < BYTES; at += 4099) {
        memory[at] ^= (unsigned char)(1 << at % 8);
        check_uint(bench_verify_compare(3, 1, 1 << 20, memory, BYTES, &first), ==, 1);
        check_uint(first, ==, (1 << 20) + at / PIECE * PIECE);
        memory[at] ^= (unsigned char)(1 << at % 8);
    }
}

/* Stale, misdirected, torn and lost pieces are found. */
static void wrong_piece(void)
{
    uint64_t first = 0;
    bench_verify_fill(3, 2, 0, memory, BYTES);
    bench_verify_fill(3, 1, 5 * PIECE, memory + 5 * PIECE, PIECE);
    bench_verify_fill(3, 2, 99 * PIECE, memory + 9 * PIECE, PIECE);
    bench_verify_fill(3, 1, 20 * PIECE + 512, memory + 20 * PIECE + 512, PIECE - 512);
    memset(memory + 40 * PIECE, 0, PIECE);
    bench_verify_fill(4, 2, 50 * PIECE, memory + 50 * PIECE, PIECE);
    check_uint(bench_verify_compare(3, 2, 0, memory, BYTES, &first), ==, 5);
    check_uint(first, ==, 5 * PIECE);
}

TEST_MAIN({"median", median}, {"interval", interval}, {"trend", trend},
          {"smallest_that_is_good", smallest_that_is_good}, {"candidates", candidates},
          {"all_operations", all_operations}, {"drift_cancels", drift_cancels},
          {"robust_when_unsure", robust_when_unsure}, {"nothing_measured", nothing_measured},
          {"wear", wear}, {"params", params}, {"wrong_bit", wrong_bit},
          {"wrong_piece", wrong_piece})
