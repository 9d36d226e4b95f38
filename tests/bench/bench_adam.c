/* bench_adam.c: the optimizer, compared with a plain read-modify-write pass over the same bytes.
 *
 *   bench_adam [--n 1e8] [--threads N] [--rounds N] [--quick] [--only NAME] [--python PATH]
 *
 * Prints for each format the medians NAME_gparam_s (1e9 parameters per second), NAME_gb_s and
 * NAME_plain_gb_s (1e9 bytes moved per second, by the step and by the plain pass) and
 * NAME_rmw_ratio. Then compares narrow moments with fp32, split_bf16 with its sums of squares
 * (sums_apart_ratio: before the step, sums_with_ratio: in the step) and, if the interpreter has
 * them, the optimizers of DeepSpeed and torch. --only takes a format, narrow, sums or peers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/team.h"
#include "tests/bench/bench_adam.h"

static const struct bench_format formats[] = {
    {"split_bf16", CORE_UPDATE_ADAMW, CORE_UPDATE_MASTER_SPLIT, CORE_UPDATE_BF16, CORE_UPDATE_F32},
    {"split_bf16_m16", CORE_UPDATE_ADAMW, CORE_UPDATE_MASTER_SPLIT, CORE_UPDATE_BF16,
     CORE_UPDATE_BF16},
    {"split_bf16_m8", CORE_UPDATE_ADAMW, CORE_UPDATE_MASTER_SPLIT, CORE_UPDATE_BF16,
     CORE_UPDATE_Q8},
    {"split_fp32", CORE_UPDATE_ADAMW, CORE_UPDATE_MASTER_SPLIT, CORE_UPDATE_F32, CORE_UPDATE_F32},
    {"bf16_bf16", CORE_UPDATE_ADAMW, CORE_UPDATE_MASTER_BF16, CORE_UPDATE_BF16, CORE_UPDATE_F32},
    {"fp16_fp16", CORE_UPDATE_ADAMW, CORE_UPDATE_MASTER_FP16, CORE_UPDATE_FP16, CORE_UPDATE_F32},
    {"fp32_fp32", CORE_UPDATE_ADAMW, CORE_UPDATE_MASTER_F32, CORE_UPDATE_F32, CORE_UPDATE_F32},
    {"lion_split_bf16", CORE_UPDATE_LION, CORE_UPDATE_MASTER_SPLIT, CORE_UPDATE_BF16,
     CORE_UPDATE_F32},
    {"adagrad_split_bf16", CORE_UPDATE_ADAGRAD, CORE_UPDATE_MASTER_SPLIT, CORE_UPDATE_BF16,
     CORE_UPDATE_F32},
    {"sgd_split_bf16", CORE_UPDATE_SGD, CORE_UPDATE_MASTER_SPLIT, CORE_UPDATE_BF16,
     CORE_UPDATE_F32},
};

static void bench_one(const struct bench_setting *setting, const struct bench_format *format)
{
    struct bench_arena arena;
    double ours[BENCH_ROUNDS_MAX];
    double plain[2][BENCH_ROUNDS_MAX];
    bench_arena_open(&arena, setting, format);
    for (unsigned i = 0; i < setting->rounds; i++) {
        ours[i] = bench_arena_step(&arena);
        plain[0][i] = bench_arena_plain(&arena, false);
        plain[1][i] = bench_arena_plain(&arena, true); /* undoes the first pass */
    }
    const double ours_s = bench_median(ours, setting->rounds);
    const double plain_s = fmin(bench_median(plain[0], setting->rounds),
                                bench_median(plain[1], setting->rounds));
    printf("%s_gparam_s %.4f 1e9_per_s\n", format->name, (double)setting->count / ours_s / 1e9);
    printf("%s_gb_s %.2f 1e9_bytes_per_s\n", format->name,
           bench_arena_moved(&arena) / ours_s / 1e9);
    printf("%s_plain_gb_s %.2f 1e9_bytes_per_s\n", format->name,
           bench_arena_moved(&arena) / plain_s / 1e9);
    printf("%s_rmw_ratio %.4f ratio\n", format->name, plain_s / ours_s);
    fflush(stdout);
    bench_arena_close(&arena);
}

static void bench_narrow(const struct bench_setting *setting)
{
    enum { KINDS = 3 };
    struct bench_arena arenas[KINDS];
    double ratios[KINDS][BENCH_ROUNDS_MAX];
    for (int k = 0; k < KINDS; k++) {
        bench_arena_open(&arenas[k], setting, &formats[k]);
        bench_arena_step(&arenas[k]);
    }
    for (unsigned i = 0; i < setting->rounds; i++) {
        double seconds[KINDS];
        for (unsigned turn = 0; turn < KINDS; turn++) {
            const unsigned k = (turn + i) % KINDS;
            seconds[k] = bench_arena_step(&arenas[k]);
        }
        for (int k = 1; k < KINDS; k++) {
            ratios[k][i] = seconds[0] / seconds[k];
        }
    }
    for (int k = 0; k < KINDS; k++) {
        if (k > 0) {
            printf("%s_over_%s %.3f ratio\n", formats[k].name, formats[0].name,
                   bench_median(ratios[k], setting->rounds));
        }
        bench_arena_close(&arenas[k]);
    }
    fflush(stdout);
}

/* Times a step alone, after a pass of sums, and with sums, in turns. */
static void bench_sums(const struct bench_setting *setting)
{
    struct bench_arena arena;
    double ratios[2][BENCH_ROUNDS_MAX];
    double *sums = calloc(setting->count / CORE_UPDATE_TILE + 1, sizeof *sums);
    if (sums == NULL) {
        fprintf(stderr, "bench_adam: no memory for sums\n");
        exit(1);
    }
    bench_arena_open(&arena, setting, &formats[0]);
    (void)bench_arena_step(&arena);
    for (unsigned i = 0; i < setting->rounds; i++) {
        const double alone_s = bench_arena_step(&arena);
        ratios[0][i] = bench_arena_sums(&arena, true, sums) / alone_s;
        ratios[1][i] = bench_arena_sums(&arena, false, sums) / alone_s;
    }
    bench_arena_close(&arena);
    free(sums);
    printf("sums_apart_ratio %.3f ratio\n", bench_median(ratios[0], setting->rounds));
    printf("sums_with_ratio %.3f ratio\n", bench_median(ratios[1], setting->rounds));
    fflush(stdout);
}

static int usage(void)
{
    fprintf(stderr, "bench_adam [--n 1e8] [--threads N] [--rounds N] [--quick] [--only NAME] "
                    "[--python PATH]\n");
    return 2;
}

struct request {
    struct bench_setting setting;
    unsigned threads;
    const char *only;
    const char *python;
};

static int options(int argc, char **argv, struct request *request)
{
    struct bench_setting *setting = &request->setting;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--quick") == 0) {
            setting->count = 8000000;
            setting->rounds = 5;
            continue;
        }
        if (value == NULL) {
            return usage();
        }
        if (strcmp(argv[i], "--n") == 0) {
            setting->count = (uint64_t)strtod(value, NULL);
        } else if (strcmp(argv[i], "--threads") == 0) {
            request->threads = (unsigned)strtoul(value, NULL, 10);
        } else if (strcmp(argv[i], "--rounds") == 0) {
            setting->rounds = (unsigned)strtoul(value, NULL, 10);
        } else if (strcmp(argv[i], "--only") == 0) {
            request->only = value;
        } else if (strcmp(argv[i], "--python") == 0) {
            request->python = value;
        } else {
            return usage();
        }
        i++;
    }
    const bool fits = setting->rounds >= 1 && setting->rounds <= BENCH_ROUNDS_MAX &&
                      setting->count >= BENCH_PIECE;
    return fits ? 0 : usage();
}

int main(int argc, char **argv)
{
    struct request request = {.setting = {.count = 100000000, .rounds = 9}};
    const int code = options(argc, argv, &request);
    if (code != 0) {
        return code;
    }
    const struct bench_setting *setting = &request.setting;
    const char *only = request.only;
    const struct core_team_options team = {.count = request.threads};
    if (core_team_create(&team, &request.setting.team) != 0) {
        fprintf(stderr, "bench_adam: %s\n", core_err_message());
        return 1;
    }
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (only == NULL || strcmp(only, formats[i].name) == 0) {
            bench_one(setting, &formats[i]);
        }
    }
    if (only == NULL || strcmp(only, "narrow") == 0) {
        bench_narrow(setting);
    }
    if (only == NULL || strcmp(only, "sums") == 0) {
        bench_sums(setting);
    }
    if (request.python != NULL && (only == NULL || strcmp(only, "peers") == 0)) {
        bench_adam_against_peers(setting, request.python, &formats[0]);
    }
    core_team_destroy(request.setting.team);
    return 0;
}
