/* room.c: see room.h. */
#include "tests/adam/room.h"

#include <string.h>

#include "core/base/half.h"
#include "core/base/rng.h"
#include "tests/adam/ref.h"
#include "tests/harness/test.h"

const struct adam_group room_group = {.lr = 1e-2,
                                      .beta1 = 0.9,
                                      .beta2 = 0.999,
                                      .eps = 1e-8,
                                      .decay = 0.01,
                                      .step = 1,
                                      .bias_correction = true};

void room_fill(struct room *room, const struct adam_options *o)
{
    memset(room, 0, sizeof *room);
    for (uint64_t i = 0; i < ROOM_COUNT; i++) {
        const struct core_rng_words words = core_rng_philox(3, 0, i);
        const float p = core_rng_unit(words.word[0]) - 0.5f;
        room->w32[i] = p;
        room->w16[i] = core_f32_to_bf16_away(p);
        room->lo16[i] = (uint16_t)core_f32_bits(p);
        ref_store(room->g, o->gradients, i, (core_rng_unit(words.word[1]) - 0.5f) * 1e-2f);
    }
}

struct adam_arrays room_arrays(struct room *room)
{
    return (struct adam_arrays){.count = ROOM_COUNT,
                                .w16 = room->w16,
                                .lo16 = room->lo16,
                                .w32 = room->w32,
                                .g = room->g,
                                .m = room->m,
                                .v = room->v,
                                .m_scale = room->m_scale,
                                .v_scale = room->v_scale};
}

struct adam_options room_options(enum core_update_type moments)
{
    return (struct adam_options){.rule = CORE_UPDATE_ADAMW,
                                 .master = CORE_UPDATE_MASTER_SPLIT,
                                 .gradients = CORE_UPDATE_BF16,
                                 .moments = moments,
                                 .count = ROOM_COUNT,
                                 .groups = &room_group,
                                 .groups_count = 1,
                                 .seed = 11,
                                 .number = 2};
}

struct adam *room_adam(const struct adam_options *options)
{
    struct adam *adam = NULL;
    check_int(adam_create(options, &adam), ==, 0);
    return adam;
}
