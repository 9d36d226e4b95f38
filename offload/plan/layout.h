/* layout.h: which buffers a plan has and where they lie, for one candidate of decisions.
 * Every byte of DEVICE and HOST that a step uses is one of these buffers, so the sum over a tier is
 * what the tier needs, exactly and at every command. Pure; owned by its plan. */
#ifndef OFFLOAD_PLAN_LAYOUT_H
#define OFFLOAD_PLAN_LAYOUT_H

#include "offload/plan/plan.h"

enum { PLAN_SLOT_MAX = 8, PLAN_ALIGN_BYTES = 4096, PLAN_ACT_TURN = 3 };

/* What the layout makes room for and the step fills: an fp32 gradient sum an element, and one sum of
 * squares a tile. */
enum { PLAN_SUM_BYTES = 4, PLAN_TILE_ELEMENTS = 65536, PLAN_TILE_SUM_BYTES = 16 };

/* The decisions that a candidate consists of; the planner tries several. */
struct plan_choice {
    enum plan_acts acts;
    enum plan_order order;
    enum plan_timing timing;
    uint32_t weight_slots;
    uint32_t state_slots;
    uint32_t gradient_slots; /* fp32 sums in turn */
    uint64_t chunk_elements;
};

/* Buffer indices of one block; PLAN_NONE where it has no such buffer. */
struct plan_block_layout {
    uint16_t weights_device; /* resident */
    uint16_t weights_host;
    uint16_t weights_store;
    uint16_t states_host; /* the resident chunks, by stream: master, m, v one after another */
    uint16_t states_store;
    uint16_t grads_host;
    uint16_t sum; /* fp32 gradient sum of its own where it cannot take turns */
};

struct plan_layout {
    struct plan_buffer *buffers; /* owned */
    uint32_t count;
    uint32_t room;
    uint64_t tier_bytes[PLAN_TIER_COUNT];

    struct plan_block_layout *blocks; /* owned, [block_count] */
    struct plan_block_place *places;  /* owned, [block_count] */
    uint16_t weight_slots[PLAN_SLOT_MAX];
    uint16_t weight_stages[PLAN_SLOT_MAX]; /* HOST, a chunk each; none on the CPU device */
    uint16_t state_slots[PLAN_SLOT_MAX];   /* HOST: w16, master, m, v of a chunk */
    uint16_t sums[PLAN_SLOT_MAX];          /* DEVICE: fp32 */
    uint16_t rounded;                      /* DEVICE: gradient type, before it goes down */
    uint16_t *acts;       /* owned, [boundary * micro]: DEVICE; repeats where slots take turns */
    uint16_t *acts_host;  /* owned, the same, or PLAN_NONE */
    uint16_t *acts_store; /* owned, the same, or PLAN_NONE */
    uint16_t *kept;       /* owned, [block * micro], or PLAN_NONE */
    uint16_t *out_grads;  /* owned, [2 * micro] */
    uint16_t scratch;
    uint16_t tile_sums; /* HOST: sums of squares */
    uint16_t norm;      /* HOST: norm, factor, verdict */
};

/* Lays out `choice`, with weights and states in the least of memory: `places` decides what is
 * resident and is copied. 0 or -ENOMEM. */
int plan_layout_create(const struct plan_input *input, const struct plan_choice *choice,
                       const struct plan_block_place *places, struct plan_layout **out);
void plan_layout_destroy(struct plan_layout *layout);

uint64_t plan_chunk_count(const struct plan_input *input, uint32_t block, uint64_t chunk_elements);
/* Elements of one chunk: the last one of a block may be short. */
uint64_t plan_chunk_size(const struct plan_input *input, uint32_t block, uint64_t chunk_elements,
                         uint64_t chunk);
/* Bytes an element of what the optimizer keeps beside the working weight. */
uint32_t plan_state_bytes(const struct plan_format *format);

#endif
