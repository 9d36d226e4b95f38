/* room.h: arrays of an optimizer of 70,000 parameters, and its description. */
#ifndef TESTS_ADAM_ROOM_H
#define TESTS_ADAM_ROOM_H

#include "cpu_adam/adam.h"

enum { ROOM_COUNT = 70000 };

struct room {
    float w32[ROOM_COUNT];
    float g[ROOM_COUNT];
    float m[ROOM_COUNT];
    float v[ROOM_COUNT];
    uint16_t w16[ROOM_COUNT];
    uint16_t lo16[ROOM_COUNT];
    float m_scale[ROOM_COUNT / CORE_UPDATE_Q8_BLOCK + 1];
    float v_scale[ROOM_COUNT / CORE_UPDATE_Q8_BLOCK + 1];
};

/* lr 1e-2, decay 0.01, step 1 */
extern const struct adam_group room_group;

/* Weights are in [-1/2, 1/2], gradients small and moments zero. */
void room_fill(struct room *room, const struct adam_options *options);
struct adam_arrays room_arrays(struct room *room);
/* Returns options for AdamW on split masters with bf16 gradients. */
struct adam_options room_options(enum core_update_type moments);
/* Fails the case if the optimizer cannot be created. */
struct adam *room_adam(const struct adam_options *options);

#endif
