/* Tests that cuts, threads and the processor's mode do not change a step; also 16-bit conversions
 * and state. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core/base/cpus.h"
#include "core/base/err.h"
#include "core/base/half.h"
#include "cpu_adam/norm.h"
#include "tests/adam/ref.h"
#include "tests/adam/room.h"
#include "tests/harness/test.h"

static struct room ours;
static struct room theirs;

/* Takes three steps, cut at `cuts`, the last of which is ROOM_COUNT. */
static void run_cut(const struct adam_options *options, struct room *room, const uint64_t *cuts)
{
    struct adam *adam = room_adam(options);
    const struct adam_arrays arrays = room_arrays(room);
    room_fill(room, options);
    for (uint64_t step = 1; step <= 3; step++) {
        struct adam_group group = room_group;
        group.step = step;
        for (size_t i = 0; i < options->groups_count; i++) {
            check_int(adam_group_set(adam, i, &group), ==, 0);
        }
        uint64_t begin = 0;
        for (size_t i = 0; begin < ROOM_COUNT; i++) {
            check_int(adam_step(adam, &arrays, begin, cuts[i], 0.25, NULL), ==, 0);
            begin = cuts[i];
        }
    }
    adam_destroy(adam);
}

static const enum core_update_type moment_types[] = {CORE_UPDATE_F32, CORE_UPDATE_BF16,
                                                     CORE_UPDATE_Q8};

static void cuts_change_nothing(void)
{
    const uint64_t once[] = {ROOM_COUNT};
    const uint64_t odd[] = {1, 64, 65, 300, 4095, 4097, 33333, 65536, ROOM_COUNT};
    const uint64_t even[] = {256, 1024, 4096 + 256, 65536, ROOM_COUNT};
    for (size_t t = 0; t < 3; t++) {
        const struct adam_options options = room_options(moment_types[t]);
        run_cut(&options, &ours, once);
        run_cut(&options, &theirs, moment_types[t] == CORE_UPDATE_Q8 ? even : odd);
        check_memory(&ours, &theirs, sizeof ours);
    }
}

/* A window on part of the arrays gives the result of the whole arrays. */
static void windows_change_nothing(void)
{
    for (size_t t = 0; t < 3; t++) {
        const struct adam_options options = room_options(moment_types[t]);
        struct adam *adam = room_adam(&options);
        const struct adam_arrays all = room_arrays(&theirs);
        room_fill(&ours, &options);
        room_fill(&theirs, &options);
        const uint64_t first = 65536;
        const size_t bytes = moment_types[t] == CORE_UPDATE_F32    ? 4
                             : moment_types[t] == CORE_UPDATE_BF16 ? 2
                                                                   : 1;
        const struct adam_arrays part = {.first = first,
                                         .count = ROOM_COUNT - first,
                                         .w16 = ours.w16 + first,
                                         .lo16 = ours.lo16 + first,
                                         .g = (uint16_t *)(void *)ours.g + first,
                                         .m = (char *)ours.m + first * bytes,
                                         .v = (char *)ours.v + first * bytes,
                                         .m_scale = ours.m_scale + first / CORE_UPDATE_Q8_BLOCK,
                                         .v_scale = ours.v_scale + first / CORE_UPDATE_Q8_BLOCK};
        check_int(adam_step(adam, &part, first, ROOM_COUNT, 1.0, NULL), ==, 0);
        check_int(adam_step(adam, &all, first, ROOM_COUNT, 1.0, NULL), ==, 0);
        check_memory(&ours, &theirs, sizeof ours);
        adam_destroy(adam);
    }
}

static void teams_change_nothing(void)
{
    const uint64_t once[] = {ROOM_COUNT};
    const unsigned sizes[] = {1, 3, 64};
    for (size_t t = 0; t < 3; t++) {
        struct adam_options options = room_options(moment_types[t]);
        run_cut(&options, &ours, once);
        for (size_t s = 0; s < 3; s++) {
            const struct core_team_options team = {.count = sizes[s]};
            check_int(core_team_create(&team, &options.team), ==, 0);
            run_cut(&options, &theirs, once);
            core_team_destroy(options.team);
            check_memory(&ours, &theirs, sizeof ours);
        }
    }
}

/* Several groups of equal scalars give the bits of one group. */
static void runs_change_nothing(void)
{
    const uint64_t once[] = {ROOM_COUNT};
    const struct adam_group groups[] = {room_group, room_group};
    const struct adam_run runs[] = {{0, 1},    {3, 0},     {3, 1},         {300, 1},
                                    {512, 0},  {513, 1},   {8191, 0},      {8192 + 256, 1},
                                    {9000, 0}, {65537, 1}, {ROOM_COUNT, 0}};
    for (size_t t = 0; t < 3; t++) {
        struct adam_options options = room_options(moment_types[t]);
        run_cut(&options, &ours, once);
        options.groups = groups;
        options.groups_count = 2;
        options.runs = runs;
        options.runs_count = sizeof runs / sizeof runs[0];
        run_cut(&options, &theirs, once);
        check_memory(&ours, &theirs, sizeof ours);
    }
}

/* A group whose lr and decay are 0 does not change; the other group does. */
static void groups_are_their_own(void)
{
    struct adam_options options = room_options(CORE_UPDATE_F32);
    struct adam_group groups[] = {room_group, room_group};
    groups[1].lr = 0.0;
    groups[1].decay = 0.0;
    const struct adam_run runs[] = {{1000, 0}, {1010, 1}, {ROOM_COUNT, 0}};
    options.groups = groups;
    options.groups_count = 2;
    options.runs = runs;
    options.runs_count = 3;
    room_fill(&ours, &options);
    room_fill(&theirs, &options);
    struct adam *adam = room_adam(&options);
    const struct adam_arrays arrays = room_arrays(&ours);
    check_int(adam_step(adam, &arrays, 0, ROOM_COUNT, 1.0, NULL), ==, 0);
    for (uint64_t i = 0; i < ROOM_COUNT; i++) {
        const bool is_same = ours.w16[i] == theirs.w16[i] && ours.lo16[i] == theirs.lo16[i];
        check_int(is_same, ==, i >= 1000 && i < 1010);
    }
    adam_destroy(adam);
}

/* A thread's floating-point mode does not change the bits, and is kept. */
static void mode_changes_nothing(void)
{
#if defined(__x86_64__)
    const struct adam_options options = room_options(CORE_UPDATE_F32);
    struct adam *adam = room_adam(&options);
    const uint32_t before = __builtin_ia32_stmxcsr();
    for (int flush = 0; flush < 2; flush++) {
        struct room *room = flush ? &theirs : &ours;
        const struct adam_arrays arrays = room_arrays(room);
        room_fill(room, &options);
        room->v[0] = 1e-40f;
        room->m[1] = -1e-41f;
        __builtin_ia32_ldmxcsr(flush ? before | 0xe040 : before); /* toward zero, FTZ, DAZ */
        const int rc = adam_step(adam, &arrays, 0, ROOM_COUNT, 1e-20, NULL);
        const uint32_t after = __builtin_ia32_stmxcsr();
        __builtin_ia32_ldmxcsr(before);
        check_int(rc, ==, 0);
        check_uint(after & 0xe040, ==, flush ? 0xe040 : before & 0xe040);
    }
    check_memory(&ours, &theirs, sizeof ours);
    adam_destroy(adam);
#else
    test_skip("this machine's mode is not set here");
#endif
}

static void nonfinite_is_reported(void)
{
    const struct adam_options options = room_options(CORE_UPDATE_F32);
    struct adam *adam = room_adam(&options);
    struct adam_arrays arrays = room_arrays(&ours);
    unsigned nonfinite = 99;
    room_fill(&ours, &options);
    check_int(adam_step(adam, &arrays, 0, ROOM_COUNT, 1.0, &nonfinite), ==, 0);
    check_uint(nonfinite, ==, 0);
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++) {
        room_fill(&ours, &options);
        ref_store(ours.g, CORE_UPDATE_BF16, 69999 - (uint64_t)k, bad[k]);
        theirs = ours;
        double sums[2];
        struct adam_norm squares;
        adam_norm_init(&squares, NULL, CORE_CPU_ALL);
        const struct core_squares_args norm = {
            .x = ours.g, .type = CORE_UPDATE_BF16, .count = ROOM_COUNT, .sums = sums};
        check_int(adam_norm_sums(&squares, &norm), ==, 0);
        check_true(!isfinite(adam_norm_total(sums, 2)));
        check_uint(adam_norm_bad_tile(sums, 2), ==, 1);
        check_memory(&ours, &theirs, sizeof ours);
        check_int(adam_step(adam, &arrays, 0, ROOM_COUNT, 1.0, &nonfinite), ==, 0);
        check_uint(nonfinite & CORE_NONFINITE_GRADIENT, ==, CORE_NONFINITE_GRADIENT);
    }
    adam_destroy(adam);
}

/* After a step, NaN weights of one sign have one pattern. */
static void nan_has_one_pattern(void)
{
    static const uint64_t places[] = {5, 300, ROOM_COUNT - 1};
    for (size_t k = 0; k < 3 * sizeof moment_types / sizeof *moment_types; k++) {
        const struct adam_options options = room_options(moment_types[k / 3]);
        const struct adam_arrays arrays = room_arrays(&ours);
        const uint64_t at = places[k % 3];
        const uint16_t sign = k % 2 == 0 ? 0x8000 : 0;
        struct adam *adam = room_adam(&options);
        unsigned nonfinite = 0;
        room_fill(&ours, &options);
        ours.w16[at] = sign | 0x7fc1;
        ours.lo16[at] = 0x1234;
        check_int(adam_step(adam, &arrays, 0, ROOM_COUNT, 1.0, &nonfinite), ==, 0);
        check_uint(nonfinite & CORE_NONFINITE_MASTER, ==, CORE_NONFINITE_MASTER);
        check_uint(ours.w16[at], ==, sign | 0x7fc0u);
        check_uint(ours.lo16[at], ==, 0);
        adam_destroy(adam);
    }
}

/* An fp16 working weight that overflows is reported, although its master is finite. */
static void working_overflow_is_reported(void)
{
    struct adam_options options = room_options(CORE_UPDATE_F32);
    options.master = CORE_UPDATE_MASTER_FP16;
    struct adam *adam = room_adam(&options);
    const struct adam_arrays arrays = room_arrays(&ours);
    unsigned met = 0;
    room_fill(&ours, &options);
    ours.w32[7] = 70000.0f;
    check_int(adam_step(adam, &arrays, 0, ROOM_COUNT, 1.0, &met), ==, 0);
    check_uint(met, ==, CORE_NONFINITE_WORKING);
    check_uint(ours.w16[7], ==, 0x7c00);
    adam_destroy(adam);
}

/* Returns a master at the tie after a pattern, or next to that tie. */
static float master_at(bool fp16, uint32_t pattern, int side)
{
    uint32_t bits = pattern << 16 | 0x8000;
    if (fp16) {
        const float low = core_fp16_to_f32((uint16_t)pattern);
        const float high = core_fp16_to_f32((uint16_t)(pattern + 1));
        const bool is_last = (pattern & 0x7fff) == 0x7bff;
        bits = core_f32_bits(isfinite(low) && isfinite(high) ? (low + high) / 2
                             : is_last                       ? copysignf(65520.0f, low)
                                                             : low);
    }
    return core_f32_from_bits(bits + (uint32_t)side);
}

static float widen(bool fp16, uint16_t half)
{
    return fp16 ? core_fp16_to_f32(half) : core_bf16_to_f32(half);
}

static bool is_same(float a, float b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Variants convert as half.h does. */
static void halves_are_converted_exactly(void)
{
    enum { PATTERNS = 1 << 16 };
    static const unsigned without[] = {0, CORE_CPU_AVX512, CORE_CPU_ALL};
    const struct adam_group group = {.lr = 0.0, .step = 1}; /* m becomes g, and p stays */
    for (int i = 0; i < 18; i++) {
        const bool fp16 = i / 3 % 2 == 1;
        struct adam_options options = room_options(CORE_UPDATE_F32);
        options.rule = CORE_UPDATE_SGD;
        options.master = fp16 ? CORE_UPDATE_MASTER_FP16 : CORE_UPDATE_MASTER_BF16;
        options.gradients = fp16 ? CORE_UPDATE_FP16 : CORE_UPDATE_BF16;
        options.groups = &group;
        options.cpu_without = without[i / 6];
        struct adam *adam = room_adam(&options);
        const struct adam_arrays arrays = room_arrays(&ours);
        memset(&ours, 0, sizeof ours);
        for (uint32_t k = 0; k < PATTERNS; k++) {
            const uint16_t pattern = (uint16_t)k;
            memcpy((unsigned char *)ours.g + 2 * (size_t)k, &pattern, sizeof pattern);
            ours.w32[k] = master_at(fp16, k, i % 3 - 1);
        }
        check_int(adam_step(adam, &arrays, 0, ROOM_COUNT, 1.0, NULL), ==, 0);
        for (uint32_t k = 0; k < PATTERNS; k++) {
            const float g = widen(fp16, (uint16_t)k);
            const float p = isfinite(g) ? master_at(fp16, k, i % 3 - 1) : ours.w32[k];
            const uint16_t rounded = fp16 ? core_f32_to_fp16(p) : core_f32_to_bf16(p);
            const bool nan = isnan(p) && isnan(widen(fp16, ours.w16[k]));
            if (!is_same(ours.m[k], g) || !is_same(ours.w32[k], p) ||
                (ours.w16[k] != rounded && !nan)) {
                test_fail(__FILE__, __LINE__, "%s %04x: %a became %a, and %a %04x instead of %04x",
                          fp16 ? "fp16" : "bf16", k, (double)g, (double)ours.m[k], (double)p,
                          ours.w16[k], rounded);
            }
        }
        adam_destroy(adam);
    }
}

/* With eps 0, a v of 0 leaves the weight unchanged instead of NaN. */
static void zero_over_zero_is_zero(void)
{
    struct adam_group group = room_group;
    group.eps = 0.0;
    group.decay = 0.0;
    const enum core_update_rule rules[] = {CORE_UPDATE_ADAM, CORE_UPDATE_ADAMW,
                                           CORE_UPDATE_ADAGRAD};
    for (int k = 0; k < 3; k++) {
        struct adam_options options = room_options(CORE_UPDATE_F32);
        options.rule = rules[k];
        options.groups = &group;
        struct adam *adam = room_adam(&options);
        const struct adam_arrays arrays = room_arrays(&ours);
        unsigned met = 1;
        room_fill(&ours, &options);
        memset(ours.g, 0, sizeof ours.g);
        theirs = ours;
        check_int(adam_step(adam, &arrays, 0, ROOM_COUNT, 1.0, &met), ==, 0);
        check_uint(met, ==, 0);
        check_memory(&ours, &theirs, sizeof ours);
        adam_destroy(adam);
    }
}

/* State is read as the reference decodes it (8-bit moments: within 2^-22), and writing it back
 * restores weights and moments. */
static void state_write_restores_bits(void)
{
    static float x[ROOM_COUNT];
    static float y[ROOM_COUNT];
    for (size_t t = 0; t < 3; t++) {
        const struct adam_options options = room_options(moment_types[t]);
        struct adam *adam = room_adam(&options);
        const struct adam_arrays arrays = room_arrays(&ours);
        room_fill(&ours, &options);
        ref_read(&options, &arrays, ADAM_VALUE_MASTER, 0, ROOM_COUNT, x);
        check_memory(x, ours.w32, sizeof x);
        check_int(adam_step(adam, &arrays, 0, ROOM_COUNT, 1.0, NULL), ==, 0);
        theirs = ours;
        for (int value = ADAM_VALUE_MASTER; value <= ADAM_VALUE_V; value++) {
            const enum adam_value which = (enum adam_value)value;
            ref_read(&options, &arrays, which, 0, ROOM_COUNT, x);
            check_int(adam_state_read(adam, &arrays, which, 0, ROOM_COUNT, y), ==, 0);
            for (uint64_t i = 0; i < ROOM_COUNT; i++) {
                check_double(fabsf(x[i] - y[i]), <=, t == 2 ? fabsf(x[i]) * 0x1p-22f : 0);
            }
            check_int(adam_state_write(adam, &arrays, which, 0, ROOM_COUNT, x), ==, 0);
            ref_read(&options, &arrays, which, 0, ROOM_COUNT, y);
            for (uint64_t i = 0; i < ROOM_COUNT; i++) {
                check_double(fabsf(x[i] - y[i]), <=, fabsf(x[i]) * 0x1p-22f);
            }
        }
        check_memory(ours.m, theirs.m, sizeof ours.m);
        check_memory(ours.v, theirs.v, sizeof ours.v);
        check_memory(ours.w16, theirs.w16, sizeof ours.w16);
        check_memory(ours.lo16, theirs.lo16, sizeof ours.lo16);
        adam_destroy(adam);
    }
    struct adam_options options = room_options(CORE_UPDATE_F32);
    options.rule = CORE_UPDATE_LION;
    struct adam *adam = room_adam(&options);
    const struct adam_arrays arrays = room_arrays(&ours);
    check_int(adam_state_write(adam, &arrays, ADAM_VALUE_V, 0, ROOM_COUNT, x), ==, -ENOTSUP);
    check_int(adam_state_read(adam, &arrays, ADAM_VALUE_V, 0, ROOM_COUNT, x), ==, -ENOTSUP);
    check_contains(core_err_message(), "lion");
    adam_destroy(adam);
}

/* A range past element 2^32 is updated like a short array. The mapped arrays stay
 * almost untouched. */
static void range_beyond_four_billion(void)
{
    enum { SIZE = 1000 };
    const uint64_t count = (UINT64_C(1) << 32) + 70000;
    const uint64_t begin = (UINT64_C(1) << 32) + 12345;
    struct adam_options options = room_options(CORE_UPDATE_F32);
    options.count = count;
    const size_t bytes[5] = {2, 2, 2, 4, 4};
    void *map[5];
    for (int i = 0; i < 5; i++) {
        map[i] = mmap(NULL, count * bytes[i], PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map[i] == MAP_FAILED) {
            test_skip("no address space of %zu bytes", (size_t)count * bytes[i]);
        }
    }
    struct adam *adam = room_adam(&options);
    const struct adam_arrays arrays = {
        .count = count, .w16 = map[0], .lo16 = map[1], .g = map[2], .m = map[3], .v = map[4]};
    room_fill(&ours, &options);
    memcpy((uint16_t *)map[0] + begin, ours.w16, SIZE * 2);
    memcpy((uint16_t *)map[1] + begin, ours.lo16, SIZE * 2);
    memcpy((uint16_t *)map[2] + begin, ours.g, SIZE * 2);
    const struct adam_arrays expected = {.first = begin,
                                         .count = SIZE,
                                         .w16 = ours.w16,
                                         .lo16 = ours.lo16,
                                         .g = ours.g,
                                         .m = ours.m,
                                         .v = ours.v};
    check_int(adam_step(adam, &arrays, begin, begin + SIZE, 1.0, NULL), ==, 0);
    check_uint(ref_step(&options, &expected, begin, begin + SIZE, 1.0), ==, 0);
    check_memory((uint16_t *)map[0] + begin, ours.w16, SIZE * 2);
    check_memory((uint16_t *)map[1] + begin, ours.lo16, SIZE * 2);
    check_memory((float *)map[3] + begin, ours.m, SIZE * 4);
    check_memory((float *)map[4] + begin, ours.v, SIZE * 4);
    adam_destroy(adam);
    for (int i = 0; i < 5; i++) {
        munmap(map[i], count * bytes[i]);
    }
}

/* A step with sums gives the bits of a step without sums, and the sums of a separate pass. */
static void sums_come_with_the_step(void)
{
    static const enum core_update_type gradients[] = {CORE_UPDATE_F32, CORE_UPDATE_BF16,
                                                      CORE_UPDATE_FP16};
    static const struct adam_run runs[] = {{4097, 0}, {ROOM_COUNT, 1}};
    static const unsigned without[] = {0, CORE_CPU_AVX512, CORE_CPU_ALL};
    enum { TILES = (ROOM_COUNT + CORE_UPDATE_TILE - 1) / CORE_UPDATE_TILE };
    const struct adam_group both[] = {room_group, room_group};
    const struct core_team_options two = {.count = 2};
    for (size_t k = 0; k < 3 * 3 * 3 * 2; k++) {
        struct adam_options options = room_options(moment_types[k % 3]);
        options.gradients = gradients[k / 3 % 3];
        options.cpu_without = without[k / 9 % 3];
        options.groups = both;
        options.groups_count = 2;
        options.runs = runs;
        options.runs_count = 2;
        if (k >= 27) {
            check_int(core_team_create(&two, &options.team), ==, 0);
        }
        struct adam *adam = room_adam(&options);
        struct adam_norm norm;
        double sums[TILES];
        double expected[TILES];
        const struct adam_arrays arrays = room_arrays(&ours);
        const struct adam_arrays alone = room_arrays(&theirs);
        room_fill(&ours, &options);
        room_fill(&theirs, &options);
        const struct core_squares_args of = {
            .x = ours.g, .type = options.gradients, .count = ROOM_COUNT, .sums = expected};
        adam_norm_init(&norm, NULL, CORE_CPU_ALL);
        check_int(adam_norm_sums(&norm, &of), ==, 0);
        check_int(adam_step_sums(adam, &arrays, 0.25, sums), ==, 0);
        check_int(adam_step(adam, &alone, 0, ROOM_COUNT, 0.25, NULL), ==, 0);
        check_memory(sums, expected, sizeof sums);
        check_memory(&ours, &theirs, sizeof ours);
        struct adam_arrays late = arrays;
        late.first = 256;
        late.count -= 256;
        check_int(adam_step_sums(adam, &late, 0.25, sums), ==, -EINVAL);
        check_int(adam_step_sums(adam, &arrays, 0.25, NULL), ==, -EINVAL);
        adam_destroy(adam);
        core_team_destroy(options.team);
    }
}

TEST_MAIN({"cuts_change_nothing", cuts_change_nothing},
          {"sums_come_with_the_step", sums_come_with_the_step},
          {"windows_change_nothing", windows_change_nothing},
          {"teams_change_nothing", teams_change_nothing},
          {"runs_change_nothing", runs_change_nothing},
          {"groups_are_their_own", groups_are_their_own},
          {"mode_changes_nothing", mode_changes_nothing},
          {"nonfinite_is_reported", nonfinite_is_reported},
          {"nan_has_one_pattern", nan_has_one_pattern},
          {"working_overflow_is_reported", working_overflow_is_reported},
          {"halves_are_converted_exactly", halves_are_converted_exactly},
          {"zero_over_zero_is_zero", zero_over_zero_is_zero},
          {"state_write_restores_bits", state_write_restores_bits},
          {"range_beyond_four_billion", range_beyond_four_billion})
