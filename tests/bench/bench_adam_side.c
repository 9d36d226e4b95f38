/* bench_adam_side.c: arrays on huge pages, with a step and a plain pass. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/clock.h"
#include "core/base/cpus.h"
#include "core/base/err.h"
#include "core/base/team.h"
#include "cpu_adam/norm.h"
#include "tests/bench/bench_adam.h"

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "bench_adam: %s\n", what);
    exit(1);
}

double bench_median(double *values, unsigned count)
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

static void plain_stream(struct bench_arena *arena, int stream, uint64_t begin, uint64_t end)
{
    const struct bench_stream *s = &arena->streams[stream];
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

/* Modifies stream by stream or, if interleaved, a piece of each stream in turn. */
static void plain_part(void *argument, unsigned index, unsigned count)
{
    struct bench_arena *arena = argument;
    uint64_t begin;
    uint64_t end;
    core_team_share(arena->setting->count, BENCH_PIECE, index, count, &begin, &end);
    const uint64_t piece = arena->interleaved ? BENCH_PIECE : end - begin;
    for (uint64_t i = begin; i < end; i += piece) {
        for (int s = 0; s < ADAM_STREAMS; s++) {
            plain_stream(arena, s, i, end - i < piece ? end : i + piece);
        }
    }
}

static void touch_part(void *argument, unsigned index, unsigned count)
{
    struct bench_arena *arena = argument;
    uint64_t begin;
    uint64_t end;
    core_team_share(arena->setting->count, BENCH_PIECE, index, count, &begin, &end);
    for (int s = 0; s < ADAM_STREAMS; s++) {
        const struct bench_stream *stream = &arena->streams[s];
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

static void arena_fill(struct bench_arena *arena, const struct bench_format *format)
{
    const struct bench_setting *setting = arena->setting;
    const struct adam_options options = {.rule = format->rule,
                                         .master = format->master,
                                         .gradients = format->gradients,
                                         .moments = format->moments};
    for (int s = 0; s < ADAM_STREAMS; s++) {
        struct bench_stream *stream = &arena->streams[s];
        stream->bytes = adam_stream_bytes(&options, (enum adam_stream)s, setting->count);
        if (stream->bytes == 0) {
            continue;
        }
        stream->base = mmap(NULL, stream->bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (stream->base == MAP_FAILED) {
            die("no memory");
        }
        madvise(stream->base, stream->bytes, MADV_HUGEPAGE);
    }
    core_team_run(setting->team, touch_part, arena);
    uint32_t word = 1;
    for (uint64_t i = 0; i < setting->count; i++) {
        word = word * 1664525u + 1013904223u;
        const uint32_t sign = word & 0x80000000u;
        const uint32_t bits = sign | (0x3a000000u + (word >> 8 & 0xffffffu));
        if (format->gradients == CORE_UPDATE_F32) {
            ((uint32_t *)arena->streams[ADAM_G].base)[i] = bits;
        } else {
            ((uint16_t *)arena->streams[ADAM_G].base)[i] = (uint16_t)(sign >> 16 | 0x1000u |
                                                                      (word >> 8 & 0x3ffu));
        }
        if (format->gradients == CORE_UPDATE_BF16) {
            ((uint16_t *)arena->streams[ADAM_G].base)[i] = (uint16_t)(bits >> 16);
        }
    }
}

void bench_arena_open(struct bench_arena *arena, const struct bench_setting *setting,
                      const struct bench_format *format)
{
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
    *arena = (struct bench_arena){.setting = setting};
    if (adam_create(&options, &arena->adam) != 0) {
        die(core_err_message());
    }
    arena_fill(arena, format);
}

void bench_arena_close(struct bench_arena *arena)
{
    for (int s = 0; s < ADAM_STREAMS; s++) {
        if (arena->streams[s].base != NULL) {
            munmap(arena->streams[s].base, arena->streams[s].bytes);
        }
    }
    adam_destroy(arena->adam);
}

double bench_arena_plain(struct bench_arena *arena, bool interleaved)
{
    arena->interleaved = interleaved;
    const int64_t start_ns = core_clock_now_ns();
    core_team_run(arena->setting->team, plain_part, arena);
    return (double)(core_clock_now_ns() - start_ns) * 1e-9;
}

static struct adam_arrays arrays_of(const struct bench_arena *arena)
{
    const struct bench_stream *s = arena->streams;
    return (struct adam_arrays){
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
}

double bench_arena_step(struct bench_arena *arena)
{
    const struct adam_arrays arrays = arrays_of(arena);
    const int64_t start_ns = core_clock_now_ns();
    if (adam_step(arena->adam, &arrays, 0, arrays.count, 1.0, NULL) != 0) {
        die(core_err_message());
    }
    return (double)(core_clock_now_ns() - start_ns) * 1e-9;
}

double bench_arena_sums(struct bench_arena *arena, bool apart, double *sums)
{
    const struct adam_arrays arrays = arrays_of(arena);
    const struct core_squares_args squares = {
        .x = arrays.g, .type = CORE_UPDATE_BF16, .count = arrays.count, .sums = sums};
    struct adam_norm norm;
    int rc = 0;
    adam_norm_init(&norm, arena->setting->team, CORE_CPU_ALL);
    const int64_t start_ns = core_clock_now_ns();
    if (apart) {
        rc = adam_norm_sums(&norm, &squares);
        rc = rc != 0 ? rc : adam_step(arena->adam, &arrays, 0, arrays.count, 1.0, NULL);
    } else {
        rc = adam_step_sums(arena->adam, &arrays, 1.0, sums);
    }
    if (rc != 0) {
        die(core_err_message());
    }
    return (double)(core_clock_now_ns() - start_ns) * 1e-9;
}

double bench_arena_moved(const struct bench_arena *arena)
{
    double bytes = 0.0;
    for (int s = 0; s < ADAM_STREAMS; s++) {
        bytes += (double)arena->streams[s].bytes * (s == ADAM_G ? 1.0 : 2.0);
    }
    return bytes;
}
