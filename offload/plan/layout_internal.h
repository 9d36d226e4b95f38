/* layout_internal.h: declarations that the files of a layout share. Private to offload/plan;
 * pure. */
#ifndef OFFLOAD_PLAN_LAYOUT_INTERNAL_H
#define OFFLOAD_PLAN_LAYOUT_INTERNAL_H

#include "offload/plan/layout.h"

/* ---- layout_buffers.c ---- */

struct plan_buffer_kind {
    const char *name;
    enum plan_tier tier;
    enum plan_consumer consumer;
    bool twice; /* in two generations */
};

/* Adds a buffer and sets *out to its index; 0 bytes add none and leave *out unchanged. */
int plan_layout_add(struct plan_layout *layout, const char *name, enum plan_tier tier,
                    enum plan_consumer consumer, uint64_t bytes, uint32_t *out);
/* Adds a block's buffer, with kind->twice also its twin for the other generation. */
int plan_layout_add_of_block(struct plan_layout *layout, const struct plan_input *input,
                             uint32_t block, const struct plan_buffer_kind *kind, uint64_t bytes,
                             uint32_t *out);
/* Adds counts[size] buffers of bytes[size] for each size. */
int plan_layout_add_ring(struct plan_layout *layout, const struct plan_buffer_kind *kind,
                         const uint64_t bytes[PLAN_SIZE_COUNT],
                         const uint32_t counts[PLAN_SIZE_COUNT], struct plan_ring *out);
/* Returns the bytes of the extents of `chunks` chunks; the last chunk may be short. */
uint64_t plan_extents_bytes(uint64_t chunks, uint64_t chunk_bytes, uint64_t last_bytes);

/* ---- layout_look.c ---- */

/* Returns the block whose weights a block can use by sections; PLAN_NONE: none. */
uint32_t plan_layout_source(const struct plan_input *input, uint32_t block);

/* ---- layout_slots.c, layout_gradients.c ---- */

/* Call these after the buffers where weights and states are kept have been added. */
int plan_layout_add_slots(struct plan_layout *layout, const struct plan_input *input,
                          const struct plan_choice *choice);
int plan_layout_add_gradients(struct plan_layout *layout, const struct plan_input *input,
                              const struct plan_choice *choice);

#endif
