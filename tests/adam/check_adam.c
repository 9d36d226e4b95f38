/* check_adam.c: every variant against the element-by-element reference, for every rule, format,
 * size, alignment and tail, on numbers that include denormals, infinities and NaN.
 *
 *   check_adam [CASE...]      verifies; a line in `variants` adds a variant
 *   check_adam --bench        the same lines, in nanoseconds an element, one thread
 *   check_adam --digest       a hash of what the best variant computes: the same on every machine
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/cpus.h"
#include "core/base/half.h"
#include "core/base/rng.h"
#include "cpu_adam/work.h"
#include "tests/adam/ref.h"
#include "tests/harness/test.h"

static const struct variant {
    const char *name;
    unsigned mask;
} variants[] = {
    {"scalar", 0},
    {"avx2", CORE_CPU_AVX2},
    {"avx512", CORE_CPU_AVX2 | CORE_CPU_AVX512},
    {"neon", CORE_CPU_NEON},
};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STEP_DEFAULT = 17 };
#else
enum { STEP_DEFAULT = 1 };
#endif
enum { SIZE_MAX_CHECKED = 260, ROOM = 1024, BENCH_COUNT = 1 << 16, FORMATS = 4 * 3 * 3 };

static bool present(const struct variant *variant)
{
    struct adam_work work;
    adam_work_init(&work, NULL, variant->mask);
    return strcmp(work.ops.name, variant->name) == 0;
}

/* All arrays of an optimizer with what lies before and behind, so that one comparison sees a write
 * out of bounds. */
struct room {
    float w32[ROOM];
    float g[ROOM];
    float m[ROOM];
    float v[ROOM];
    uint16_t w16[ROOM];
    uint16_t lo16[ROOM];
    float m_scale[ROOM / CORE_VEC_Q8_BLOCK];
    float v_scale[ROOM / CORE_VEC_Q8_BLOCK];
};

/* Between the sizes that are checked; CHECK_ADAM_STEP where the machine is emulated. */
static uint64_t size_step = STEP_DEFAULT;
static uint64_t position;

static uint32_t random_word(void)
{
    return core_rng_philox(7, 1, position++).word[0];
}

/* Set: no numbers that could overflow, so that no NaN arises, whose sign machines choose. */
static bool small_only;

/* Mostly ordinary numbers over 40 binades; sometimes the ends of the format. */
static float random_float(bool with_bad)
{
    static const uint32_t special[] = {0,          0x80000000, 1,          0x80000001, 0x007fffff,
                                       0x00800000, 0x7f7fffff, 0xff7fffff, 0x7f7f8000, 0x477fefff,
                                       0x477ff000, 0x33000001, 0x3f800000, 0x7f800000, 0xff800000,
                                       0x7fc00001, 0xff812345};
    const uint32_t word = random_word();
    if (word % 16 == 0) {
        const uint32_t kinds = small_only ? 6 : with_bad ? 17 : 13;
        return core_f32_from_bits(special[word / 16 % kinds]);
    }
    return core_f32_from_bits((word & 0x807fffff) | (100 + word / 65536 % 40) << 23);
}

static void fill_moment(void *x, enum core_vec_type type, bool is_signed, bool with_bad)
{
    if (type == CORE_VEC_Q8) {
        for (int i = 0; i < ROOM; i++) {
            ((uint8_t *)x)[i] = (uint8_t)random_word();
        }
        return;
    }
    for (uint64_t i = 0; i < ROOM; i++) {
        const float value = random_float(with_bad);
        ref_store(x, type, i, is_signed ? value : fabsf(value));
    }
}

static void fill_room(struct room *room, const struct adam_options *o, bool with_bad)
{
    memset(room, 0, sizeof *room);
    for (uint64_t i = 0; i < ROOM; i++) {
        const float p = random_float(with_bad);
        room->w32[i] = p;
        if (o->master == CORE_VEC_MASTER_SPLIT) {
            room->w16[i] = core_f32_to_bf16_away(p);
            room->lo16[i] = isnan(p) ? 0 : (uint16_t)core_f32_bits(p);
        }
        ref_store(room->g, o->gradients, i, random_float(with_bad));
    }
    fill_moment(room->m, o->moments, true, with_bad);
    fill_moment(room->v, o->moments, false, with_bad);
    for (int i = 0; i < ROOM / CORE_VEC_Q8_BLOCK; i++) {
        room->m_scale[i] = i == 1 ? 0.0f : fabsf(random_float(false));
        room->v_scale[i] = i == 1 ? 0.0f : fabsf(random_float(false));
    }
}

/* The window that begins `into` elements into the room, at global index `first`. */
static struct adam_arrays window(struct room *room, const struct adam_options *o, size_t into,
                                 uint64_t first)
{
    const size_t g_bytes = o->gradients == CORE_VEC_F32 ? 4 : 2;
    const size_t moment_bytes = o->moments == CORE_VEC_F32 ? 4 : o->moments == CORE_VEC_Q8 ? 1 : 2;
    return (struct adam_arrays){
        .first = first,
        .count = o->count - first,
        .w16 = room->w16 + into,
        .lo16 = room->lo16 + into,
        .w32 = room->w32 + into,
        .g = (unsigned char *)room->g + into * g_bytes,
        .m = (unsigned char *)room->m + into * moment_bytes,
        .v = (unsigned char *)room->v + into * moment_bytes,
        .m_scale = room->m_scale,
        .v_scale = room->v_scale,
    };
}

static void check_floats(const char *what, const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (core_f32_bits(a[i]) != core_f32_bits(b[i]) && !(isnan(a[i]) && isnan(b[i]))) {
            test_fail(__FILE__, __LINE__, "%s: element %zu is %a, not %a", what, i, (double)b[i],
                      (double)a[i]);
        }
    }
}

static void check_numbers(const char *what, enum core_vec_type type, const void *a, const void *b)
{
    if (type == CORE_VEC_Q8) {
        if (memcmp(a, b, ROOM) != 0) {
            test_fail(__FILE__, __LINE__, "%s: codes differ", what);
        }
        return;
    }
    for (uint64_t i = 0; i < ROOM; i++) {
        const float left = ref_load(a, type, i);
        const float right = ref_load(b, type, i);
        check_floats(what, &left, &right, 1);
    }
}

/* Equal bits; NaN by class. */
static void check_rooms(const char *what, const struct adam_options *o, const struct room *a,
                        const struct room *b)
{
    check_floats(what, a->w32, b->w32, ROOM);
    check_floats(what, a->m_scale, b->m_scale, ROOM / CORE_VEC_Q8_BLOCK);
    check_floats(what, a->v_scale, b->v_scale, ROOM / CORE_VEC_Q8_BLOCK);
    check_numbers(what, o->gradients, a->g, b->g);
    check_numbers(what, o->moments, a->m, b->m);
    check_numbers(what, o->moments, a->v, b->v);
    const bool is_fp16 = o->master == CORE_VEC_MASTER_FP16;
    check_numbers(what, is_fp16 ? CORE_VEC_FP16 : CORE_VEC_BF16, a->w16, b->w16);
    check_memory(a->lo16, b->lo16, sizeof a->lo16);
}

/* Clears the codes of blocks whose scale is not finite, in `x` and `y` alike. */
static void drop_codes(const float *scale, uint8_t *x, uint8_t *y, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (!isfinite(scale[i / CORE_VEC_Q8_BLOCK])) {
            x[i] = y[i] = 0;
        }
    }
}

static const struct adam_group group = {.lr = 1e-3,
                                        .beta1 = 0.9,
                                        .beta2 = 0.99,
                                        .eps = 1e-8,
                                        .decay = 0.1,
                                        .step = 3,
                                        .bias_correction = true};

/* The n-th of the formats: master x gradients x moments. */
static struct adam_options options_of(enum core_vec_rule rule, int n)
{
    static const enum core_vec_type moments[] = {CORE_VEC_F32, CORE_VEC_BF16, CORE_VEC_Q8};
    return (struct adam_options){
        .rule = rule,
        .master = (enum core_vec_master)(n % 4),
        .gradients = (enum core_vec_type)(n / 4 % 3),
        .moments = moments[n / 12],
        .groups = &group,
        .groups_count = 1,
        .seed = UINT64_C(0x1234567890abcdef),
        .number = 5,
    };
}

static void verify_size(const struct adam_options *options, const struct room *start, unsigned mask,
                        uint64_t size)
{
    static struct room ours;
    static struct room theirs;
    struct adam_options o = *options;
    const bool is_q8 = o.moments == CORE_VEC_Q8;
    const size_t into = is_q8 ? size % 3 * 8 : size * 7 % 131;
    const uint64_t base = UINT64_C(0x300000000); /* beyond element 2^32 */
    const uint64_t first = base + (is_q8 ? 0 : size * 13 % 256);
    o.count = first + size;
    o.cpu_without = CORE_CPU_ALL & ~mask;
    ours = *start;
    theirs = *start;
    struct adam *adam = NULL;
    unsigned met = 0;
    check_int(adam_create(&o, &adam), ==, 0);
    struct adam_arrays arrays = window(&ours, &o, into, first);
    check_int(adam_step(adam, &arrays, first, first + size, 0.5, &met), ==, 0);
    adam_destroy(adam);
    arrays = window(&theirs, &o, into, first);
    const unsigned expected = ref_step(&o, &arrays, first, first + size, 0.5);
    if (is_q8) {
        drop_codes(theirs.m_scale, (uint8_t *)ours.m + into, (uint8_t *)theirs.m + into, size);
        drop_codes(theirs.v_scale, (uint8_t *)ours.v + into, (uint8_t *)theirs.v + into, size);
    }
    char what[128];
    snprintf(what, sizeof what, "%s %s, gradients %s, moments %s, %d elements, mask %x",
             adam_rule_name(o.rule), adam_master_name(o.master), adam_type_name(o.gradients),
             adam_type_name(o.moments), (int)size, mask);
    check_rooms(what, &o, &theirs, &ours);
    check_uint(met, ==, expected);
}

static void verify_rule(enum core_vec_rule rule)
{
    static struct room start;
    for (int n = 0; n < FORMATS; n++) {
        const struct adam_options o = options_of(rule, n);
        fill_room(&start, &o, n % 3 == 1 && o.moments != CORE_VEC_Q8);
        for (int i = 0; i < VARIANTS; i++) {
            const uint64_t rare = rule == CORE_VEC_ADAMW ? size_step : 5 * size_step;
            for (uint64_t size = 0; present(&variants[i]) && size <= SIZE_MAX_CHECKED;
                 size += size < 20 ? size_step : rare) {
                verify_size(&o, &start, variants[i].mask, size);
            }
            for (uint64_t size = 511; present(&variants[i]) && size <= 771; size += 130) {
                verify_size(&o, &start, variants[i].mask, size);
            }
        }
    }
}

/* Each rule: four weight formats x three of gradients x three of moments, sizes 0 to 260 at
 * changing alignments (all of AdamW, every fifth of the others), in every variant, equals the
 * reference. */
static void update_adam(void)
{
    verify_rule(CORE_VEC_ADAM);
}

static void update_adamw(void)
{
    verify_rule(CORE_VEC_ADAMW);
}

static void update_lion(void)
{
    verify_rule(CORE_VEC_LION);
}

static void update_adagrad(void)
{
    verify_rule(CORE_VEC_ADAGRAD);
}

static void update_sgd(void)
{
    verify_rule(CORE_VEC_SGD);
}

/* The same numbers in a type, at an offset; two copies. */
struct line {
    float x[ROOM];
    float y[ROOM];
};

static struct line random_line(enum core_vec_type x_type, enum core_vec_type y_type)
{
    struct line line;
    memset(&line, 0, sizeof line);
    for (uint64_t i = 0; i < ROOM; i++) {
        ref_store(line.x, x_type, i, random_float(true));
        ref_store(line.y, y_type, i, random_float(true));
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
    for (uint64_t size = 0; size <= SIZE_MAX_CHECKED; size += size_step) {
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
    for (uint64_t size = 0; size <= SIZE_MAX_CHECKED; size += size_step) {
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
    for (uint64_t size = 0; size <= SIZE_MAX_CHECKED; size += size_step) {
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
    for (uint64_t size = 0; size <= SIZE_MAX_CHECKED; size += size_step) {
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
    for (uint64_t size = 0; size <= SIZE_MAX_CHECKED; size += size_step) {
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
    for (int i = 0; i < VARIANTS; i++) {
        struct adam_work work;
        adam_work_init(&work, NULL, variants[i].mask);
        for (int type = 0; present(&variants[i]) && type < 3; type++) {
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
static void casts(void)
{
    each_type(cast_each);
}

/* Accumulation: exactly y + x where a is 1. */
static void axpys(void)
{
    each_type(verify_axpy);
}

static void scales(void)
{
    each_type(verify_scale);
}

/* A tile's sum has the reference's bits. */
static void norms(void)
{
    each_type(verify_norm);
}

/* Counts and first places of what is not finite. */
static void finites(void)
{
    each_type(verify_finite);
}

/* Which variants this machine could check. */
static void variants_present(void)
{
    for (int i = 0; i < VARIANTS; i++) {
        test_note("%s: %s", variants[i].name, present(&variants[i]) ? "checked" : "not here");
    }
    check_true(present(&variants[0]));
}

struct bench_room {
    float x[4][BENCH_COUNT];
    uint16_t half[2][BENCH_COUNT];
    float scale[2][BENCH_COUNT / CORE_VEC_Q8_BLOCK];
};

static void bench_update(const struct variant *variant, const struct adam_options *options,
                         struct bench_room *b)
{
    struct adam_options o = *options;
    o.count = BENCH_COUNT;
    o.cpu_without = CORE_CPU_ALL & ~variant->mask;
    struct adam *adam = NULL;
    if (adam_create(&o, &adam) != 0) {
        return;
    }
    memset(b, 0, sizeof *b);
    for (uint64_t i = 0; i < BENCH_COUNT; i++) {
        ref_store(b->x[1], o.gradients, i, (float)(random_word() % 2001) * 1e-6f - 1e-3f);
    }
    struct adam_arrays a = {.count = BENCH_COUNT,
                            .w16 = b->half[0],
                            .lo16 = b->half[1],
                            .w32 = b->x[0],
                            .g = b->x[1],
                            .m = b->x[2],
                            .v = b->x[3],
                            .m_scale = b->scale[0],
                            .v_scale = b->scale[1]};
    int64_t best_ns = INT64_MAX;
    for (int k = 0; k < 15; k++) {
        const int64_t start_ns = core_clock_now_ns();
        adam_step(adam, &a, 0, BENCH_COUNT, 1.0, NULL);
        const int64_t took_ns = core_clock_now_ns() - start_ns;
        best_ns = took_ns < best_ns ? took_ns : best_ns;
    }
    printf("%s_%s_%s_%s_%s %.3f ns\n", adam_rule_name(o.rule), adam_master_name(o.master),
           adam_type_name(o.gradients), adam_type_name(o.moments), variant->name,
           (double)best_ns / BENCH_COUNT);
    adam_destroy(adam);
}

static int bench(void)
{
    struct bench_room *room = malloc(sizeof *room);
    for (int rule = 0; room != NULL && rule < CORE_VEC_RULES; rule++) {
        for (int n = 0; n < FORMATS; n++) {
            const struct adam_options o = options_of((enum core_vec_rule)rule, n);
            for (int i = 0; i < VARIANTS; i++) {
                if (present(&variants[i])) {
                    bench_update(&variants[i], &o, room);
                }
            }
        }
    }
    free(room);
    return 0;
}

static uint64_t digest_add(uint64_t digest, const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++) {
        digest = (digest ^ byte[i]) * UINT64_C(0x100000001b3);
    }
    return digest;
}

/* One hash over all rules and formats. */
static int digest(void)
{
    static struct room room;
    uint64_t all = 0;
    small_only = true;
    for (int n = 0; n < CORE_VEC_RULES * FORMATS; n++) {
        struct adam_options o = options_of((enum core_vec_rule)(n % CORE_VEC_RULES),
                                           n / CORE_VEC_RULES);
        o.count = 400;
        struct adam *adam = NULL;
        fill_room(&room, &o, false);
        for (int i = 0; i < ROOM / CORE_VEC_Q8_BLOCK; i++) {
            room.m_scale[i] = room.v_scale[i] = 0.25f;
        }
        const struct adam_arrays arrays = window(&room, &o, 0, 0);
        unsigned met = 0;
        if (adam_create(&o, &adam) != 0 || adam_step(adam, &arrays, 0, 400, 0.5, &met) != 0) {
            return 1;
        }
        adam_destroy(adam);
        all = digest_add(all, &room, sizeof room);
    }
    printf("%016" PRIx64 "\n", all);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct test_case cases[] = {
        {"variants_present", variants_present},
        {"update_adam", update_adam},
        {"update_adamw", update_adamw},
        {"update_lion", update_lion},
        {"update_adagrad", update_adagrad},
        {"update_sgd", update_sgd},
        {"casts", casts},
        {"axpys", axpys},
        {"scales", scales},
        {"norms", norms},
        {"finites", finites},
    };
    const char *step = getenv("CHECK_ADAM_STEP");
    if (step != NULL && strtoul(step, NULL, 10) > 0) {
        size_step = strtoul(step, NULL, 10);
    }
    if (argc == 2 && strcmp(argv[1], "--bench") == 0) {
        return bench();
    }
    if (argc == 2 && strcmp(argv[1], "--digest") == 0) {
        return digest();
    }
    return test_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
