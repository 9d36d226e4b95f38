/* bench_adam.c: the optimizer beside a plain read-modify-write pass over the same bytes.
 *
 *   bench_adam [--n 1e8] [--threads N] [--rounds N] [--quick] [--only NAME] [--peer COMMAND]
 *
 * For each format, in turns within one run, medians: NAME_gparam_s (1e9 parameters a second),
 * NAME_gb_s (1e9 bytes moved a second), NAME_rmw_ratio (time of the plain pass over ours; the plain
 * pass in the faster of two orders). --peer runs a command that prints `name value` lines in
 * parameters a second (1e9) and adds split_bf16's ratio to each. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/work.h"

enum { ROUNDS_MAX = 101, PIECE = 1 << 14 };

static const struct format {
    const char *name;
    enum core_vec_rule rule;
    enum core_vec_master master;
    enum core_vec_type gradients;
    enum core_vec_type moments;
} formats[] = {
    {"split_bf16", CORE_VEC_ADAMW, CORE_VEC_MASTER_SPLIT, CORE_VEC_BF16, CORE_VEC_F32},
    {"split_bf16_m16", CORE_VEC_ADAMW, CORE_VEC_MASTER_SPLIT, CORE_VEC_BF16, CORE_VEC_BF16},
    {"split_bf16_m8", CORE_VEC_ADAMW, CORE_VEC_MASTER_SPLIT, CORE_VEC_BF16, CORE_VEC_Q8},
    {"split_fp32", CORE_VEC_ADAMW, CORE_VEC_MASTER_SPLIT, CORE_VEC_F32, CORE_VEC_F32},
    {"bf16_bf16", CORE_VEC_ADAMW, CORE_VEC_MASTER_BF16, CORE_VEC_BF16, CORE_VEC_F32},
    {"fp16_fp16", CORE_VEC_ADAMW, CORE_VEC_MASTER_FP16, CORE_VEC_FP16, CORE_VEC_F32},
    {"fp32_fp32", CORE_VEC_ADAMW, CORE_VEC_MASTER_F32, CORE_VEC_F32, CORE_VEC_F32},
    {"lion_split_bf16", CORE_VEC_LION, CORE_VEC_MASTER_SPLIT, CORE_VEC_BF16, CORE_VEC_F32},
    {"adagrad_split_bf16", CORE_VEC_ADAGRAD, CORE_VEC_MASTER_SPLIT, CORE_VEC_BF16, CORE_VEC_F32},
    {"sgd_split_bf16", CORE_VEC_SGD, CORE_VEC_MASTER_SPLIT, CORE_VEC_BF16, CORE_VEC_F32},
};

struct setting {
    uint64_t count;
    unsigned rounds;
    const char *only;
    const char *peer;
    struct core_team *team; /* owned by main */
};

struct stream {
    void *base; /* owned mapping; NULL where the format has none */
    uint64_t bytes;
};

struct arena {
    const struct setting *setting;
    struct stream streams[ADAM_STREAMS];
    bool interleaved; /* of the plain pass */
    _Atomic uint64_t sink;
};

static double median(double *values, unsigned count)
{
    for (unsigned i = 1; i < count; i++) {
        for (unsigned k = i; k > 0 && values[k] < values[k - 1]; k--) {
            const double swap = values[k];
            values[k] = values[k - 1];
            values[k - 1] = swap;
        }
    }
    return values[count / 2];
}

#if defined(__x86_64__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default"), noinline))
#else
#define WIDE __attribute__((noinline))
#endif

WIDE static void modify(uint64_t *x, uint64_t words)
{
    for (uint64_t i = 0; i < words; i++) {
        x[i] ^= UINT64_C(0x0000000000010000);
    }
}

WIDE static uint64_t read_all(const uint64_t *x, uint64_t words)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < words; i++) {
        sum += x[i];
    }
    return sum;
}

static void plain_stream(struct arena *arena, int stream, uint64_t begin, uint64_t end)
{
    const struct stream *s = &arena->streams[stream];
    const uint64_t words = s->bytes / 8;
    const uint64_t count = arena->setting->count;
    uint64_t *x = (uint64_t *)s->base + (uint64_t)((double)words / (double)count * (double)begin);
    const uint64_t share = (uint64_t)((double)words / (double)count * (double)(end - begin));
    if (s->base == NULL) {
        return;
    }
    if (stream == ADAM_G) {
        arena->sink += read_all(x, share);
    } else {
        modify(x, share);
    }
}

/* Stream after stream, or all streams piece by piece. */
static void plain_part(void *argument, unsigned index, unsigned count)
{
    struct arena *arena = argument;
    uint64_t begin;
    uint64_t end;
    core_team_share(arena->setting->count, PIECE, index, count, &begin, &end);
    const uint64_t piece = arena->interleaved ? PIECE : end - begin;
    for (uint64_t i = begin; i < end; i += piece) {
        for (int s = 0; s < ADAM_STREAMS; s++) {
            plain_stream(arena, s, i, end - i < piece ? end : i + piece);
        }
    }
}

static void touch_part(void *argument, unsigned index, unsigned count)
{
    struct arena *arena = argument;
    uint64_t begin;
    uint64_t end;
    core_team_share(arena->setting->count, PIECE, index, count, &begin, &end);
    for (int s = 0; s < ADAM_STREAMS; s++) {
        const struct stream *stream = &arena->streams[s];
        const double each = (double)stream->bytes / (double)arena->setting->count;
        const uint64_t first = (uint64_t)((double)begin * each);
        const uint64_t last = (uint64_t)((double)end * each);
        if (stream->base != NULL) {
            memset((char *)stream->base + first, 0, last - first);
        }
    }
    uint16_t *w16 = arena->streams[ADAM_W16].base;
    float *w32 = arena->streams[ADAM_W32].base;
    for (uint64_t i = begin; i < end; i++) {
        if (w32 != NULL) {
            w32[i] = 0.02f;
        } else if (w16 != NULL) {
            w16[i] = 0x3ca4;
        }
    }
}

static int arena_fill(struct arena *arena, const struct adam *adam, const struct format *format)
{
    const struct setting *setting = arena->setting;
    for (int s = 0; s < ADAM_STREAMS; s++) {
        struct stream *stream = &arena->streams[s];
        stream->bytes = adam_stream_bytes(adam, (enum adam_stream)s, setting->count);
        if (stream->bytes == 0) {
            continue;
        }
        stream->base = mmap(NULL, stream->bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (stream->base == MAP_FAILED) {
            stream->base = NULL;
            return -1;
        }
        madvise(stream->base, stream->bytes, MADV_HUGEPAGE);
    }
    core_team_run(setting->team, touch_part, arena);
    uint32_t word = 1;
    for (uint64_t i = 0; i < setting->count; i++) {
        word = word * 1664525u + 1013904223u;
        const uint32_t sign = word & 0x80000000u;
        const uint32_t bits = sign | (0x3a000000u + (word >> 8 & 0xffffffu));
        if (format->gradients == CORE_VEC_F32) {
            ((uint32_t *)arena->streams[ADAM_G].base)[i] = bits;
        } else {
            ((uint16_t *)arena->streams[ADAM_G].base)[i] = (uint16_t)(sign >> 16 | 0x1000u |
                                                                      (word >> 8 & 0x3ffu));
        }
        if (format->gradients == CORE_VEC_BF16) {
            ((uint16_t *)arena->streams[ADAM_G].base)[i] = (uint16_t)(bits >> 16);
        }
    }
    return 0;
}

static void arena_free(struct arena *arena)
{
    for (int s = 0; s < ADAM_STREAMS; s++) {
        if (arena->streams[s].base != NULL) {
            munmap(arena->streams[s].base, arena->streams[s].bytes);
        }
    }
}

static double plain_seconds(struct arena *arena, bool interleaved)
{
    arena->interleaved = interleaved;
    const int64_t start_ns = core_clock_now_ns();
    core_team_run(arena->setting->team, plain_part, arena);
    return (double)(core_clock_now_ns() - start_ns) * 1e-9;
}

static double step_seconds(struct adam *adam, const struct arena *arena)
{
    const struct stream *s = arena->streams;
    const struct adam_arrays arrays = {
        .count = arena->setting->count,
        .w16 = s[ADAM_W16].base,
        .lo16 = s[ADAM_LO16].base,
        .w32 = s[ADAM_W32].base,
        .g = s[ADAM_G].base,
        .m = s[ADAM_M].base,
        .v = s[ADAM_V].base,
        .m_scale = s[ADAM_M_SCALE].base,
        .v_scale = s[ADAM_V_SCALE].base,
    };
    const int64_t start_ns = core_clock_now_ns();
    if (adam_step(adam, &arrays, 0, arrays.count, 1.0, NULL) != 0) {
        fprintf(stderr, "bench_adam: %s\n", core_err_sentence());
        return (double)NAN;
    }
    return (double)(core_clock_now_ns() - start_ns) * 1e-9;
}

static double bytes_moved(const struct arena *arena)
{
    double bytes = 0.0;
    for (int s = 0; s < ADAM_STREAMS; s++) {
        bytes += (double)arena->streams[s].bytes * (s == ADAM_G ? 1.0 : 2.0);
    }
    return bytes;
}

/* Returns parameters a second (1e9), or 0. */
static double bench_format(const struct setting *setting, const struct format *format)
{
    struct arena arena = {.setting = setting};
    const struct adam_group group = {.lr = 1e-3,
                                     .beta1 = 0.9,
                                     .beta2 = 0.999,
                                     .eps = 1e-8,
                                     .decay = 0.01,
                                     .step = 10,
                                     .bias_correction = true};
    const struct adam_options options = {.rule = format->rule,
                                         .master = format->master,
                                         .gradients = format->gradients,
                                         .moments = format->moments,
                                         .count = setting->count,
                                         .groups = &group,
                                         .groups_count = 1,
                                         .seed = 1,
                                         .team = setting->team};
    struct adam *adam = NULL;
    double ours[ROUNDS_MAX] = {0};
    double plain[2][ROUNDS_MAX] = {{0}};
    double rate = 0.0;
    if (adam_create(&options, &adam) != 0 || arena_fill(&arena, adam, format) != 0) {
        fprintf(stderr, "bench_adam: %s\n", core_err_sentence());
        goto out;
    }
    for (unsigned i = 0; i < setting->rounds; i++) {
        ours[i] = step_seconds(adam, &arena);
        plain[0][i] = plain_seconds(&arena, false);
        plain[1][i] = plain_seconds(&arena, true); /* turns back what the first turned */
    }
    const double ours_s = median(ours, setting->rounds);
    const double plain_s = fmin(median(plain[0], setting->rounds),
                                median(plain[1], setting->rounds));
    rate = (double)setting->count / ours_s / 1e9;
    printf("%s_gparam_s %.4f 1e9_per_s\n", format->name, rate);
    printf("%s_gb_s %.2f 1e9_bytes_per_s\n", format->name, bytes_moved(&arena) / ours_s / 1e9);
    printf("%s_rmw_ratio %.4f ratio\n", format->name, plain_s / ours_s);
    fflush(stdout);
out:
    arena_free(&arena);
    adam_destroy(adam);
    return rate;
}

static void bench_peer(const char *command, double rate)
{
    FILE *pipe = popen(command, "r");
    char line[256];
    while (pipe != NULL && fgets(line, sizeof line, pipe) != NULL) {
        char name[128];
        double value;
        if (sscanf(line, "%127s %lf", name, &value) == 2 && value > 0.0 &&
            strstr(name, "gparam_s") != NULL) {
            printf("%s %.4f 1e9_per_s\n", name, value);
            printf("split_bf16_over_%s %.3f ratio\n", name, rate / value);
        }
    }
    if (pipe != NULL) {
        pclose(pipe);
    }
}

static int usage(void)
{
    fprintf(stderr, "bench_adam [--n 1e8] [--threads N] [--rounds N] [--quick] [--only NAME] "
                    "[--peer COMMAND]\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct setting setting = {.count = 100000000, .rounds = 9};
    unsigned threads = 0;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--quick") == 0) {
            setting.count = 8000000;
            setting.rounds = 5;
            continue;
        }
        if (value == NULL) {
            return usage();
        }
        if (strcmp(argv[i], "--n") == 0) {
            setting.count = (uint64_t)strtod(value, NULL);
        } else if (strcmp(argv[i], "--threads") == 0) {
            threads = (unsigned)strtoul(value, NULL, 10);
        } else if (strcmp(argv[i], "--rounds") == 0) {
            setting.rounds = (unsigned)strtoul(value, NULL, 10);
        } else if (strcmp(argv[i], "--only") == 0) {
            setting.only = value;
        } else if (strcmp(argv[i], "--peer") == 0) {
            setting.peer = value;
        } else {
            return usage();
        }
        i++;
    }
    if (setting.rounds < 1 || setting.rounds > ROUNDS_MAX || setting.count < PIECE) {
        return usage();
    }
    if (adam_team_create(argv, threads, &setting.team) != 0) {
        fprintf(stderr, "bench_adam: %s\n", core_err_sentence());
        return 1;
    }
    double split = 0.0;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        if (setting.only == NULL || strcmp(setting.only, formats[i].name) == 0) {
            const double rate = bench_format(&setting, &formats[i]);
            split = i == 0 ? rate : split;
            if (i > 0 && i < 3 && split > 0.0) {
                printf("%s_over_split_bf16 %.3f ratio\n", formats[i].name, rate / split);
            }
        }
    }
    if (setting.peer != NULL) {
        bench_peer(setting.peer, split);
    }
    core_team_destroy(setting.team);
    return 0;
}
