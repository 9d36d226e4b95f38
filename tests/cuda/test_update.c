/* Tests that updates and tile sums on a card have the bits of cpu_adam, and sums over ranks the
 * bits of fp32 sums in the order of ranks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "cpu_adam/adam.h"
#include "cpu_adam/norm.h"
#include "tests/adam/ref.h"
#include "tests/kernels/rig.h"

enum { ROOM = 1400, SCALES = 8, WORDS_MAX = 17 };

/* Returns ordinary numbers over 40 binades, and sometimes a format's limits. */
static float number(bool with_bad)
{
    static const uint32_t special[WORDS_MAX] = {
        0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000,
        0x33000001, 0x3f800000, 0x477fefff, 0x477ff000, 0x7f7f7fff, 0x7f7f8000,
        0x7f7fffff, 0x7f800000, 0xff800000, 0x7fc00001, 0xff812345};
    if (rig_int(0, 15) == 0) {
        return core_f32_from_bits(special[rig_int(0, with_bad ? 16 : 8)]);
    }
    const uint32_t exponent = (uint32_t)rig_int(100, 139);
    const uint32_t rest = (uint32_t)rig_int(0, 0xffffff);
    return core_f32_from_bits((rest & 1) << 31 | exponent << 23 | rest >> 1);
}

static size_t type_bytes(enum core_update_type type)
{
    return type == CORE_UPDATE_F32 ? 4 : type == CORE_UPDATE_Q8 ? 1 : 2;
}

/* Returns an array with the same numbers in host and device memory. */
static void *numbers(enum core_update_type type, int64_t count, bool with_bad, bool is_signed)
{
    char *values = calloc((size_t)count + 1, 4);
    for (int64_t i = 0; i < count; i++) {
        const float value = number(with_bad);
        if (type == CORE_UPDATE_Q8) {
            values[i] = (char)rig_int(0, 255);
        } else {
            ref_store(values, type, (uint64_t)i, is_signed ? value : fabsf(value));
        }
    }
    const int64_t words = (count * (int64_t)type_bytes(type) + 3) / 4;
    void *array = rig_ints((const int32_t *)(const void *)values, words);
    free(values);
    return array;
}

/* Compares bits; any two NaN are equal. */
static void same(const char *what, enum core_update_type type, const void *array, int64_t count)
{
    const unsigned char *got = rig_fetch(array);
    const unsigned char *want = array;
    const size_t bytes = type_bytes(type);
    for (int64_t i = 0; i < count; i++) {
        const bool equal = memcmp(got + (size_t)i * bytes, want + (size_t)i * bytes, bytes) == 0;
        if (!equal && (type == CORE_UPDATE_Q8 || !isnan(ref_load(got, type, (uint64_t)i)) ||
                       !isnan(ref_load(want, type, (uint64_t)i)))) {
            test_fail(__FILE__, __LINE__, "%s: element %" PRId64 " of %" PRId64 " differs", what, i,
                      count);
        }
    }
}

/* Codes under a scale that is not finite have no meaning. */
static void codes_drop(const struct adam_options *o, void *codes, const float *scale, int64_t into,
                       uint64_t size)
{
    unsigned char *got = (unsigned char *)(uintptr_t)rig_fetch(codes);
    for (uint64_t i = 0; o->moments == CORE_UPDATE_Q8 && i < size; i++) {
        if (!isfinite(scale[i / CORE_UPDATE_Q8_BLOCK])) {
            ((unsigned char *)codes)[(uint64_t)into + i] = got[(uint64_t)into + i];
        }
    }
}

struct arrays {
    struct adam_arrays adam; /* points into the arrays below */
    void *w16, *lo16, *w32, *g, *m, *v, *m_scale, *v_scale;
};

static struct arrays arrays_make(const struct adam_options *o, int64_t into, uint64_t first,
                                 bool with_bad)
{
    struct arrays a = {0};
    a.w16 = numbers(CORE_UPDATE_BF16, ROOM, with_bad, true);
    a.lo16 = numbers(CORE_UPDATE_BF16, ROOM, with_bad, true);
    a.w32 = numbers(CORE_UPDATE_F32, ROOM, with_bad, true);
    a.g = numbers(o->gradients, ROOM, with_bad, true);
    a.m = numbers(o->moments, ROOM, with_bad, true);
    a.v = numbers(o->moments, ROOM, with_bad, false);
    a.m_scale = numbers(CORE_UPDATE_F32, SCALES, false, false);
    a.v_scale = numbers(CORE_UPDATE_F32, SCALES, false, false);
    a.adam = (struct adam_arrays){
        .first = first,
        .count = o->count - first,
        .w16 = (uint16_t *)a.w16 + into,
        .lo16 = (uint16_t *)a.lo16 + into,
        .w32 = (float *)a.w32 + into,
        .g = (char *)a.g + (size_t)into * type_bytes(o->gradients),
        .m = (char *)a.m + (size_t)into * type_bytes(o->moments),
        .v = (char *)a.v + (size_t)into * type_bytes(o->moments),
        .m_scale = a.m_scale,
        .v_scale = a.v_scale,
    };
    return a;
}

static struct core_update_args update_of(const struct adam_options *o, const struct arrays *a)
{
    struct core_update_args u = {
        .rule = o->rule,
        .master = o->master,
        .gradients = o->gradients,
        .moments = o->moments,
        .first = a->adam.first,
        .count = a->adam.count,
        .w16 = a->adam.w16,
        .lo16 = a->adam.lo16,
        .w32 = a->adam.w32,
        .g = a->adam.g,
        .m = a->adam.m,
        .v = a->adam.v,
        .m_scale = a->adam.m_scale,
        .v_scale = a->adam.v_scale,
        .seed = o->seed,
        .stream = o->groups[0].step << 32 | o->number,
    };
    check_int(adam_scalars(o->rule, &o->groups[0], 0.5, &u.scalars), ==, 0);
    return u;
}

static void one_size(const struct adam_options *options, uint64_t size, int64_t into,
                     uint64_t first, bool with_bad)
{
    struct adam_options o = *options;
    unsigned met = 0;
    struct adam *adam = NULL;
    rig_case(size * 31 + (uint64_t)into);
    o.count = first + size;
    const struct arrays a = arrays_make(&o, into, first, with_bad);
    uint32_t *card_met = rig_zeros(KERN_F32, 2);
    const struct kern_update_arguments update = {update_of(&o, &a), card_met};
    check_int(rig_run(KERN_UPDATE, &update), ==, 0);
    check_int(adam_create(&o, &adam), ==, 0);
    check_int(adam_step(adam, &a.adam, first, first + size, 0.5, &met), ==, 0);
    adam_destroy(adam);
    char what[160];
    snprintf(what, sizeof what, "%s %s, gradients %s, moments %s, %d elements at %d",
             adam_rule_name(o.rule), adam_master_name(o.master), adam_type_name(o.gradients),
             adam_type_name(o.moments), (int)size, (int)into);
    same(what, o.master == CORE_UPDATE_MASTER_FP16 ? CORE_UPDATE_FP16 : CORE_UPDATE_BF16, a.w16,
         ROOM);
    same(what, CORE_UPDATE_BF16, a.lo16, ROOM);
    same(what, CORE_UPDATE_F32, a.w32, ROOM);
    codes_drop(&o, a.m, a.m_scale, into, size);
    codes_drop(&o, a.v, a.v_scale, into, size);
    same(what, o.moments, a.m, ROOM);
    same(what, o.moments, a.v, ROOM);
    same(what, CORE_UPDATE_F32, a.m_scale, SCALES);
    same(what, CORE_UPDATE_F32, a.v_scale, SCALES);
    check_uint(*(const uint32_t *)rig_fetch(card_met), ==, met);
}

/* Compares whole and partial groups, aligned and unaligned. */
static void one_format(enum core_update_rule rule, int n)
{
    const struct adam_options o = ref_options(rule, n);
    const bool q8 = o.moments == CORE_UPDATE_Q8;
    const uint64_t base = UINT64_C(0x300000000); /* beyond element 2^32 */
    const bool with_bad = n % 3 == 1 && !q8;
    const uint64_t sizes[] = {1, 3, 255, 256, 257, 700, 1024};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const uint64_t first = base + (q8 ? 0 : sizes[i] * 13 % 256);
        one_size(&o, sizes[i], 0, first, with_bad);
        one_size(&o, sizes[i], 8, base, with_bad);
        one_size(&o, sizes[i], (int64_t)(sizes[i] % 7) + 1, first, with_bad);
    }
}

static void updates(enum core_update_rule rule)
{
    rig_open(NULL, 1);
    for (int n = 0; n < REF_FORMATS; n += TEST_SLOW ? 5 : 1) {
        one_format(rule, n);
    }
    rig_close();
}

static void adam(void)
{
    updates(CORE_UPDATE_ADAM);
}

static void adamw(void)
{
    updates(CORE_UPDATE_ADAMW);
}

static void lion(void)
{
    updates(CORE_UPDATE_LION);
}

static void adagrad(void)
{
    updates(CORE_UPDATE_ADAGRAD);
}

static void sgd(void)
{
    updates(CORE_UPDATE_SGD);
}

/* An update that begins within a block of 8-bit moments is refused, and so is an unknown format. */
static void bad_updates_are_refused(void)
{
    struct kern_update_arguments a = {
        .update = {.moments = CORE_UPDATE_Q8, .first = 5, .count = 1}};
    rig_open(NULL, 1);
    rig_case(1);
    check_int(rig_run(KERN_UPDATE, &a), ==, -EINVAL);
    check_contains(core_err_message(), "within a block of 256");
    rig_close();
    rig_open(NULL, 1);
    a.update.moments = CORE_UPDATE_FP16;
    check_int(rig_run(KERN_UPDATE, &a), ==, -EINVAL);
    check_contains(core_err_message(), "op update has no rule");
    rig_close();
}

static void one_line(enum core_update_type type, uint64_t size, int64_t into)
{
    struct adam_norm alone;
    adam_norm_init(&alone, NULL, 0);
    rig_case(size * 7 + (uint64_t)into);
    const int64_t room = (int64_t)size + 16;
    char *x = numbers(type, room, true, true);
    char *at = x + (size_t)into * type_bytes(type);
    double *sums = rig_zeros(KERN_F64, 8);

    const struct core_squares_args norm = {at, type, 7 * CORE_UPDATE_TILE, size, sums};
    check_int(rig_run(KERN_SQUARES, &norm), ==, 0);
    check_int(adam_norm_sums(&alone, &norm), ==, 0);
    const double *card = rig_fetch(sums);
    for (uint64_t t = 0; t * CORE_UPDATE_TILE < size; t++) {
        check_true(memcmp(&card[t], &sums[t], sizeof *card) == 0 ||
                   (isnan(card[t]) && isnan(sums[t])));
    }
}

/* Compares types, tails, alignments, and more than one tile. */
static void lines(void)
{
    const uint64_t sizes[] = {1, 7, 8, 31, 33, 255, 260, 2048, 2049, 5000};
    rig_open(NULL, 1);
    for (int type = 0; type < 3; type++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            one_line((enum core_update_type)type, sizes[i], 0);
            one_line((enum core_update_type)type, sizes[i], 1 + (int64_t)i % 5);
        }
        one_line((enum core_update_type)type, 2 * CORE_UPDATE_TILE + 77, type);
    }
    rig_close();
}

static float widened(enum core_update_type type, const void *x, uint64_t i)
{
    return type == CORE_UPDATE_F32    ? ((const float *)x)[i]
           : type == CORE_UPDATE_BF16 ? core_bf16_to_f32(((const uint16_t *)x)[i])
                                      : core_fp16_to_f32(((const uint16_t *)x)[i]);
}

static void one_sum(enum core_update_type type, uint64_t count, uint64_t into)
{
    enum { RANKS = 4, OWN = 2, STRIDE = ROOM };
    rig_case(count * 11 + into);
    const size_t width = type_bytes(type);
    char *own = numbers(type, ROOM, false, true);
    char *others = numbers(type, (RANKS - 1) * STRIDE, false, true);
    char *before = malloc(ROOM * width);
    memcpy(before, own, ROOM * width);
    const struct core_sum_args sum = {.type = type,
                                      .ranks = RANKS,
                                      .own = OWN,
                                      .from = own + into * width,
                                      .others = others + into * width,
                                      .stride = STRIDE,
                                      .count = count,
                                      .to = own + into * width};
    check_int(rig_run(KERN_SUM, &sum), ==, 0);
    const char *card = rig_fetch(own);
    for (uint64_t i = 0; i < ROOM; i++) {
        float expected = 0;
        for (uint64_t rank = 0; rank < RANKS; rank++) {
            const uint64_t at = (rank < OWN ? rank : rank - 1) * STRIDE + i;
            const float next = rank == OWN ? widened(type, before, i) : widened(type, others, at);
            expected = rank == 0 ? next : expected + next;
        }
        const bool summed = i >= into && i < into + count;
        const uint32_t bits = !summed                   ? core_f32_bits(widened(type, before, i))
                              : type == CORE_UPDATE_F32 ? core_f32_bits(expected)
                              : type == CORE_UPDATE_BF16
                                  ? core_f32_bits(core_bf16_to_f32(core_f32_to_bf16(expected)))
                                  : core_f32_bits(core_fp16_to_f32(core_f32_to_fp16(expected)));
        check_uint(core_f32_bits(widened(type, card, i)), ==, bits);
    }
    free(before);
}

/* Sums over ranks are added in fp32 in the order of ranks and rounded once; neighbours do not
 * change. */
static void sums(void)
{
    const uint64_t counts[] = {1, 7, 8, 300, 1024, 1300};
    rig_open(NULL, 1);
    for (int type = 0; type < 3; type++) {
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            one_sum((enum core_update_type)type, counts[i], 0);
            one_sum((enum core_update_type)type, counts[i], 1 + i);
        }
    }
    rig_close();
}

static void bad_lines_are_refused(void)
{
    const struct core_squares_args norm = {.first = 3, .count = 1};
    const struct core_squares_args codes = {.type = CORE_UPDATE_Q8, .count = 1};
    rig_open(NULL, 1);
    rig_case(1);
    check_int(rig_run(KERN_SQUARES, &norm), ==, -EINVAL);
    check_contains(core_err_message(), "within a tile");
    rig_close();
    rig_open(NULL, 1);
    check_int(rig_run(KERN_SQUARES, &codes), ==, -EINVAL);
    check_contains(core_err_message(), "op squares takes fp32, bf16 and fp16");
    rig_close();
}

RIG_MAIN({"adam", adam}, {"adamw", adamw}, {"lion", lion}, {"adagrad", adagrad}, {"sgd", sgd},
         {"bad_updates_are_refused", bad_updates_are_refused}, {"lines", lines}, {"sums", sums},
         {"bad_lines_are_refused", bad_lines_are_refused})
