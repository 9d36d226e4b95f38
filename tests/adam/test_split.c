/* Tests that the split master is lossless: fp32 patterns come back from the pass unchanged; NaN
 * becomes canonical. */
#include <stdlib.h>

#include "core/base/cpus.h"
#include "core/base/half.h"
#include "cpu_adam/adam.h"
#include "tests/harness/test.h"

enum { STRIDE = TEST_SLOW ? 256 : 1 };
enum { PIECE = 1 << 15, CHUNK_COUNT = (int)((UINT64_C(1) << 32) / PIECE) };

struct room {
    uint16_t w16[PIECE];
    uint16_t lo16[PIECE];
    uint16_t w16_before[PIECE];
    uint16_t lo16_before[PIECE];
    float master[PIECE];
    uint16_t g[PIECE];
    float m[PIECE];
};

struct sweep {
    unsigned cpu_without;
    int stride;
    _Atomic int wrong;
};

static void split(struct room *room, uint32_t first)
{
    for (uint32_t i = 0; i < PIECE; i++) {
        uint32_t bits = first + i;
        if ((bits & 0x7fffffffu) > 0x7f800000u) {
            bits = (bits & 0x80000000u) | 0x7fc00000u;
        }
        room->w16_before[i] = (uint16_t)((bits + 0x8000u) >> 16);
        room->lo16_before[i] = (uint16_t)bits;
    }
    memcpy(room->w16, room->w16_before, sizeof room->w16);
    memcpy(room->lo16, room->lo16_before, sizeof room->lo16);
}

/* Returns whether the halves equal those that split() made. */
static bool same_halves(const struct room *room)
{
    return memcmp(room->w16, room->w16_before, sizeof room->w16) == 0 &&
           memcmp(room->lo16, room->lo16_before, sizeof room->lo16) == 0;
}

/* Returns whether adam_state_write() splits like split(). */
static bool writes_halves(struct adam *adam, const struct adam_arrays *arrays, struct room *room,
                          uint32_t first)
{
    for (uint32_t i = 0; i < PIECE; i++) {
        const uint32_t bits = first + i;
        memcpy(&room->master[i], &bits, sizeof bits);
    }
    memset(room->w16, 0xa5, sizeof room->w16);
    memset(room->lo16, 0xa5, sizeof room->lo16);
    return adam_state_write(adam, arrays, ADAM_VALUE_MASTER, 0, PIECE, room->master) == 0 &&
           same_halves(room);
}

static void sweep_part(void *argument, unsigned index, unsigned count)
{
    struct sweep *sweep = argument;
    const struct adam_group group = {.lr = 0.0, .step = 1}; /* p + 0 x m = p */
    const struct adam_options options = {.rule = CORE_UPDATE_SGD,
                                         .master = CORE_UPDATE_MASTER_SPLIT,
                                         .gradients = CORE_UPDATE_BF16,
                                         .count = PIECE,
                                         .groups = &group,
                                         .groups_count = 1,
                                         .cpu_without = sweep->cpu_without};
    struct adam *adam = NULL;
    struct room *room = calloc(1, sizeof *room);
    if (room == NULL || adam_create(&options, &adam) != 0) {
        sweep->wrong++;
        free(room);
        return;
    }
    const struct adam_arrays arrays = {
        .count = PIECE, .w16 = room->w16, .lo16 = room->lo16, .g = room->g, .m = room->m};
    for (int chunk = (int)index; chunk < CHUNK_COUNT; chunk += (int)count * sweep->stride) {
        const uint32_t first = (uint32_t)chunk * PIECE;
        split(room, first);
        const int rc = adam_step(adam, &arrays, 0, PIECE, 1.0, NULL);
        if (rc != 0 || !same_halves(room) ||
            (chunk % 16 == 0 && !writes_halves(adam, &arrays, room, first))) {
            sweep->wrong++;
        }
    }
    adam_destroy(adam);
    free(room);
}

static void sweep(unsigned cpu_without, int stride)
{
    struct core_team *team = NULL;
    struct sweep all = {.cpu_without = cpu_without, .stride = stride};
    check_int(core_team_create(&(struct core_team_options){.name = "split"}, &team), ==, 0);
    core_team_run(team, sweep_part, &all);
    core_team_destroy(team);
    check_int(all.wrong, ==, 0);
}

/* All patterns in the best variant; sanitizers take a part of them. */
static void every_pattern(void)
{
    sweep(0, STRIDE);
}

/* A sample of the patterns in slower variants. */
static void slower_variants(void)
{
    sweep(CORE_CPU_AVX512, 61 * STRIDE);
    sweep(CORE_CPU_ALL, 61 * STRIDE);
}

/* The master is rounded to nearest, with ties away from zero. */
static void working_weight_is_rounded(void)
{
    const uint32_t patterns[] = {0x3f808000, 0x3f807fff, 0xbf808000, 0x7f7f8000,
                                 0xff7fffff, 0x00008000, 0x7f800000, 0x80000000};
    for (size_t i = 0; i < sizeof patterns / sizeof patterns[0]; i++) {
        const float value = core_f32_from_bits(patterns[i]);
        check_uint(core_f32_to_bf16_away(value), ==, (patterns[i] + 0x8000u) >> 16);
    }
}

TEST_MAIN({"every_pattern", every_pattern}, {"slower_variants", slower_variants},
          {"working_weight_is_rounded", working_weight_is_rounded})
