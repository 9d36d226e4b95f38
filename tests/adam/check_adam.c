/* check_adam.c: compares the variants with the reference.
 *
 *   check_adam [CASE...]   verifies
 *   check_adam --bench     times the variants on one thread, in nanoseconds per element
 *   check_adam --digest    prints a hash that is the same on every machine */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/cpus.h"
#include "core/base/half.h"
#include "tests/adam/check.h"
#include "tests/adam/ref.h"
#include "tests/harness/test.h"

/* Arrays of an optimizer with memory around them, so that writes out of bounds are found. */
struct room {
    float w32[CHECK_ROOM];
    float g[CHECK_ROOM];
    float m[CHECK_ROOM];
    float v[CHECK_ROOM];
    uint16_t w16[CHECK_ROOM];
    uint16_t lo16[CHECK_ROOM];
    float m_scale[CHECK_ROOM / CORE_UPDATE_Q8_BLOCK];
    float v_scale[CHECK_ROOM / CORE_UPDATE_Q8_BLOCK];
};

static void fill_moment(void *x, enum core_update_type type, bool is_signed, bool with_bad)
{
    if (type == CORE_UPDATE_Q8) {
        for (int i = 0; i < CHECK_ROOM; i++) {
            ((uint8_t *)x)[i] = (uint8_t)check_random_word();
        }
        return;
    }
    for (uint64_t i = 0; i < CHECK_ROOM; i++) {
        const float value = check_random_float(with_bad);
        ref_store(x, type, i, is_signed ? value : fabsf(value));
    }
}

static void fill_room(struct room *room, const struct adam_options *o, bool with_bad)
{
    memset(room, 0, sizeof *room);
    for (uint64_t i = 0; i < CHECK_ROOM; i++) {
        const float p = check_random_float(with_bad);
        room->w32[i] = p;
        if (o->master == CORE_UPDATE_MASTER_SPLIT) {
            room->w16[i] = core_f32_to_bf16_away(p);
            room->lo16[i] = isnan(p) ? 0 : (uint16_t)core_f32_bits(p);
        }
        ref_store(room->g, o->gradients, i, check_random_float(with_bad));
    }
    fill_moment(room->m, o->moments, true, with_bad);
    fill_moment(room->v, o->moments, false, with_bad);
    for (int i = 0; i < CHECK_ROOM / CORE_UPDATE_Q8_BLOCK; i++) {
        room->m_scale[i] = i == 1 ? 0.0f : fabsf(check_random_float(false));
        room->v_scale[i] = i == 1 ? 0.0f : fabsf(check_random_float(false));
    }
}

/* Returns a window `into` elements into the room, at global index `first`. */
static struct adam_arrays window(struct room *room, const struct adam_options *o, size_t into,
                                 uint64_t first)
{
    const size_t g_bytes = o->gradients == CORE_UPDATE_F32 ? 4 : 2;
    const size_t moment_bytes = o->moments == CORE_UPDATE_F32  ? 4
                                : o->moments == CORE_UPDATE_Q8 ? 1
                                                               : 2;
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

/* Checks that bits are equal; all NaN count as equal. */
static void check_rooms(const char *what, const struct adam_options *o, const struct room *a,
                        const struct room *b)
{
    check_floats(what, a->w32, b->w32, CHECK_ROOM);
    check_floats(what, a->m_scale, b->m_scale, CHECK_ROOM / CORE_UPDATE_Q8_BLOCK);
    check_floats(what, a->v_scale, b->v_scale, CHECK_ROOM / CORE_UPDATE_Q8_BLOCK);
    check_numbers(what, o->gradients, a->g, b->g);
    check_numbers(what, o->moments, a->m, b->m);
    check_numbers(what, o->moments, a->v, b->v);
    const bool is_fp16 = o->master == CORE_UPDATE_MASTER_FP16;
    check_numbers(what, is_fp16 ? CORE_UPDATE_FP16 : CORE_UPDATE_BF16, a->w16, b->w16);
    check_memory(a->lo16, b->lo16, sizeof a->lo16);
}

/* Clears the codes of blocks without a finite scale, in `x` and in `y`. */
static void drop_codes(const float *scale, uint8_t *x, uint8_t *y, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (!isfinite(scale[i / CORE_UPDATE_Q8_BLOCK])) {
            x[i] = y[i] = 0;
        }
    }
}

static void verify_size(const struct adam_options *options, const struct room *start, unsigned mask,
                        uint64_t size)
{
    static struct room ours;
    static struct room theirs;
    struct adam_options o = *options;
    const bool is_q8 = o.moments == CORE_UPDATE_Q8;
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

/* Checks a rule in the variants and formats, at many sizes and changing alignments. */
static void verify_rule(enum core_update_rule rule)
{
    static struct room start;
    for (int n = 0; n < REF_FORMATS; n++) {
        const struct adam_options o = ref_options(rule, n);
        fill_room(&start, &o, n % 3 == 1 && o.moments != CORE_UPDATE_Q8);
        for (int i = 0; i < CHECK_VARIANTS; i++) {
            const uint64_t rare = rule == CORE_UPDATE_ADAMW ? check_size_step : 5 * check_size_step;
            for (uint64_t size = 0; check_present(&check_variants[i]) && size <= CHECK_SIZE_MAX;
                 size += size < 20 ? check_size_step : rare) {
                verify_size(&o, &start, check_variants[i].mask, size);
            }
            for (uint64_t size = 511; check_present(&check_variants[i]) && size <= 771;
                 size += 130) {
                verify_size(&o, &start, check_variants[i].mask, size);
            }
        }
    }
}

static void update_adam(void)
{
    verify_rule(CORE_UPDATE_ADAM);
}

static void update_adamw(void)
{
    verify_rule(CORE_UPDATE_ADAMW);
}

static void update_lion(void)
{
    verify_rule(CORE_UPDATE_LION);
}

static void update_adagrad(void)
{
    verify_rule(CORE_UPDATE_ADAGRAD);
}

static void update_sgd(void)
{
    verify_rule(CORE_UPDATE_SGD);
}

/* Prints which variants this machine can check; the scalar variant is always one of them. */
static void variants_present(void)
{
    for (int i = 0; i < CHECK_VARIANTS; i++) {
        test_note("%s: %s", check_variants[i].name,
                  check_present(&check_variants[i]) ? "checked" : "not here");
    }
    check_true(check_present(&check_variants[0]));
}

static uint64_t digest_add(uint64_t digest, const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    for (size_t i = 0; i < bytes; i++) {
        digest = (digest ^ byte[i]) * UINT64_C(0x100000001b3);
    }
    return digest;
}

/* Prints one hash over rules and formats. */
static int digest(void)
{
    static struct room room;
    uint64_t all = 0;
    check_small_only = true;
    for (int n = 0; n < CORE_UPDATE_RULES * REF_FORMATS; n++) {
        struct adam_options o = ref_options((enum core_update_rule)(n % CORE_UPDATE_RULES),
                                            n / CORE_UPDATE_RULES);
        o.count = 400;
        struct adam *adam = NULL;
        fill_room(&room, &o, false);
        for (int i = 0; i < CHECK_ROOM / CORE_UPDATE_Q8_BLOCK; i++) {
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
        {"norms", check_norms},
    };
    const char *step = getenv("CHECK_ADAM_STEP");
    if (step != NULL && strtoul(step, NULL, 10) > 0) {
        check_size_step = strtoul(step, NULL, 10);
    }
    if (argc == 2 && strcmp(argv[1], "--bench") == 0) {
        return check_bench();
    }
    if (argc == 2 && strcmp(argv[1], "--digest") == 0) {
        return digest();
    }
    return test_main(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
