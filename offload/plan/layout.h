/* layout.h: the buffers of a plan and their offsets, for one choice. Only offload/plan creates
 * layouts. Each address in DEVICE or HOST that a command names is in one of these buffers;
 * plan_layout_taken() returns what a tier needs besides. Pure; owned by its plan. */
#ifndef OFFLOAD_PLAN_LAYOUT_H
#define OFFLOAD_PLAN_LAYOUT_H

#include "offload/plan/shard.h"

enum { PLAN_SLOT_MAX = 8, PLAN_STATE_SLOT_MAX = 64, PLAN_ACT_TURN = 3, PLAN_ROWS_TURN = 2 };
enum { PLAN_SECTIONS_TURN = 2 };

/* Sums of gradients are fp32: PLAN_SUM_BYTES per element. Squares are summed by tiles of
 * PLAN_TILE_ELEMENTS into a double (PLAN_TILE_SUM_BYTES). A block begins a new tile. */
enum { PLAN_SUM_BYTES = 4, PLAN_TILE_ELEMENTS = 65536, PLAN_TILE_SUM_BYTES = 8 };

/* Blocks of very different sizes do not share buffers: an embedding can be many times as large as a
 * layer. Layers and the data blocks that they borrow do not share buffers, because a command needs
 * both. */
enum plan_size { PLAN_SMALL, PLAN_LAYER, PLAN_LARGE, PLAN_LAYER_DATA, PLAN_SIZE_COUNT };

/* For each size, the buffers that its blocks share. */
struct plan_ring {
    uint32_t buffers[PLAN_SIZE_COUNT][PLAN_SLOT_MAX];
    uint32_t counts[PLAN_SIZE_COUNT];
};

/* One combination of decisions; the planner tries several. */
struct plan_choice {
    enum plan_acts acts;
    enum plan_order order;
    enum plan_tier grads; /* tier of gradients that wait for the update */
    /* of PLAN_SHARE_ALL blocks, how many defer their updates to the next step */
    uint32_t pending_share;
    /* Updates are deferred, or run inside backward into a second generation, which becomes current
     * if the norm changes nothing. */
    bool speculates;
    bool keeps_first; /* spare memory goes to activations before weights and states */
    /* number of first blocks whose activations are recomputed even if they would fit */
    uint32_t recomputed;
    /* The card updates at most this many first blocks, whose states come before other weights in
     * spare DEVICE memory. 0 on the CPU device */
    uint32_t card_blocks;
    /* limit for each size: slots for weights; a command always gets as many as it needs */
    uint32_t weight_slots;
    uint32_t state_slots;
    /* DEVICE, limit for each size: slots for fp32 sums, and for whole gradients that are moved
     * elsewhere */
    uint32_t sum_slots;
    /* limit for each size: slots for stored gradients whose update follows immediately, or that go
     * to STORE */
    uint32_t gradient_slots;
    uint64_t chunk_elements;
};

enum { PLAN_SHARE_ALL = 64 };
enum plan_timing plan_choice_timing(const struct plan_choice *choice);
/* Returns whether a block's update is deferred to the next step. Such blocks are spread evenly, to
 * keep the drive busy during forward. The first two are deferred only with all others, because
 * forward would wait for their updates. */
bool plan_choice_leaves(const struct plan_choice *choice, uint32_t block);

/* Indices of a block's own buffers; PLAN_NONE: none. */
struct plan_block_layout {
    uint32_t weights_device; /* resident, or in the application's memory */
    uint32_t weights_host;
    uint32_t weights_store;
    /* HOST: this rank's part of its group's copy of the weights, as ranks gather them */
    uint32_t weights_copy;
    uint32_t states_memory; /* resident chunks */
    uint32_t states_store;
    /* stored gradient: in HOST; on the CPU device possibly in DEVICE or the application's memory */
    uint32_t gradient;
    uint32_t gradient_store;
    /* DEVICE: the whole gradient, unless compute writes it to `gradient` */
    uint32_t gradient_whole;
    uint32_t sum; /* DEVICE: fp32 sum over micro-batches */
    /* DEVICE: slots, in turn, for the pages of weights that a command needs */
    uint32_t rows[PLAN_ROWS_TURN];
    /* HOST: those pages on their way from STORE to a GPU */
    uint32_t rows_stages[PLAN_ROWS_TURN];
    uint8_t size;  /* enum plan_size */
    bool by_pages; /* a step brings rows or sections of the weights */
    bool on_card;  /* a card keeps and updates weights, gradient and states in its own memory;
                    * `gradient_whole` is then the stored gradient */
    bool again;    /* a step needs its weights more than once */
    /* Another block borrows a trained parameter of this one; both add to its gradient. */
    bool lends;
    uint64_t first_tile; /* index of its first tile sum */
};

struct plan_layout {
    struct plan_buffer *buffers; /* owned */
    uint32_t count;
    uint32_t room;
    uint64_t tier_bytes[PLAN_TIER_COUNT];
    uint64_t checksums_bytes; /* HOST, outside the plan's buffers: checksums of pages in STORE */

    struct plan_block_layout *blocks; /* owned, [block_count] */
    struct plan_block_place *places;  /* owned, [block_count] */
    /* the first trained block, where backward ends */
    uint32_t first_trained;
    /* micro-batches (or groups of them) between forward and backward at the same time */
    uint32_t in_flight;
    struct plan_ring weights;
    uint32_t sections[PLAN_SECTIONS_TURN]; /* DEVICE: slots for sections, in turn */
    /* DEVICE: a section's expanded weights */
    uint32_t expanded;
    /* HOST: a section's pages on their way from STORE to a GPU. */
    uint32_t section_stages[PLAN_SECTIONS_TURN];
    struct plan_ring stored; /* DEVICE: stored weights on their way to EXPAND */
    struct plan_ring packed; /* DEVICE: packed weights, from GATHER to EXPAND */
    struct plan_ring gradients;
    struct plan_ring gradients_whole;
    struct plan_ring sums;
    /* HOST: slots for a chunk of weights on its way from STORE to a GPU; none on the CPU device */
    uint32_t weight_stages[PLAN_STATE_SLOT_MAX];
    uint32_t state_slots[PLAN_STATE_SLOT_MAX];
    uint64_t slot_states_offset;
    uint64_t slot_gradient_offset;
    uint64_t chunk_elements;
    /* DEVICE: fp32 sums of what borrowing blocks add to gradients of borrowed parameters */
    uint32_t shared_sum;
    uint32_t codes; /* DEVICE: a gradient as codes, while ranks reduce it */
    /* owned, [boundary * in_flight + micro-batch % in_flight]: DEVICE; boundaries that take turns
     * have equal entries */
    uint32_t *acts;
    uint32_t *acts_host;  /* owned, like acts; entries may be PLAN_NONE */
    uint32_t *acts_store; /* owned, like acts; entries may be PLAN_NONE */
    /* owned, [block * in_flight + micro-batch % in_flight]; entries may be PLAN_NONE */
    uint32_t *kept;
    uint32_t *out_grads; /* owned, [in_flight]: DEVICE; gradients of boundary activations */
    uint32_t scratch;
    uint32_t tile_sums; /* HOST: sums of squares, one per tile */
    /* DEVICE: tile sums of a GPU, before they go to HOST */
    uint32_t tile_sums_card;
    /* HOST: tile sums of all ranks, if a rank computes only those of its shards */
    uint32_t tile_sums_all;
    uint32_t norm; /* HOST: norm, factor, verdict */
};

/* Lays out `choice` with the resident data of `places`, which is copied. */
int plan_layout_create(const struct plan_input *input, const struct plan_choice *choice,
                       const struct plan_block_place *places, struct plan_layout **out);
void plan_layout_destroy(struct plan_layout *layout);

/* A range of a buffer; `buffer` PLAN_NONE: none. */
struct plan_piece {
    uint32_t buffer;
    uint64_t offset;
    uint64_t bytes;
};

/* A chunk of a block's weights, states or gradient. */
struct plan_chunk {
    uint64_t first; /* element of the block */
    uint64_t count;
    struct plan_piece kept; /* where it is kept between uses; in STORE: its extent */
};

/* Finds where chunk `index` of a block's shard is kept. `stream`: PLAN_W16 for working weights,
 * PLAN_MASTER for states, PLAN_G for a gradient in STORE. Weights in both HOST and DEVICE are found
 * in HOST. `kept.buffer` is PLAN_NONE if the plan keeps no such chunk. */
struct plan_chunk plan_chunk_at(const struct plan_input *input, const struct plan_layout *layout,
                                enum plan_stream stream, uint32_t block, uint64_t index);

/* Returns a tier's bytes that the runtime takes besides the plan's buffers, including data of the
 * application. */
uint64_t plan_layout_taken(const struct plan_input *input, const struct plan_layout *layout,
                           enum plan_tier tier);

/* Returns how many of `slots` (state_slots or weight_stages) exist. */
uint32_t plan_layout_slots(const uint32_t slots[PLAN_STATE_SLOT_MAX]);

/* Returns the distance in bytes between successive resident chunks of states. */
uint64_t plan_layout_state_stride(const struct plan_input *input, uint64_t chunk_elements,
                                  uint32_t block);

/* Returns the bytes of a block's temporaries, which recomputed activations follow. */
uint64_t plan_layout_temporary_bytes(const struct plan_block_shape *shape);

/* Returns the block, this one or a borrowed one, whose weights are brought to `block` by sections;
 * PLAN_NONE: none. */
uint32_t plan_layout_sectioned(const struct plan_input *input, const struct plan_layout *layout,
                               uint32_t block);

/* Returns the slot through which the weights of a block by pages go to and from STORE when a run
 * begins and ends; only on the CPU device. */
uint32_t plan_layout_page_slot(const struct plan_layout *layout, uint32_t block);

/* Returns the bytes of a block's kept activations for a group of micro-batches. */
uint64_t plan_layout_kept_bytes(const struct plan_input *input, uint32_t block);

/* Returns whether compute reads a block's stored weights in place; else they pass through a
 * slot. */
bool plan_layout_reaches_stored(const struct plan_input *input, const struct plan_layout *layout,
                                uint32_t block);

/* Returns whether gradients of micro-batches are summed in fp32 buffers of their own: those of all
 * blocks, or of none. */
bool plan_layout_has_sums(const struct plan_input *input);

/* Returns whether compute writes gradients to `gradient_whole`, not `gradient`: on a GPU, and if
 * ranks keep shards of gradients (ZeRO stages 2 and 3). */
bool plan_layout_moves_gradients(const struct plan_input *input);

/* Returns whether a GPU sums the squares of gradients: its rate is known and there is one rank.
 * With several ranks its compute queue would wait for reductions. */
bool plan_layout_sums_on_card(const struct plan_input *input);

/* Returns the block's element at which the buffer of its stored gradient begins. */
uint64_t plan_layout_gradient_first(const struct plan_input *input, uint32_t block);

/* Returns the elements of the trained parameter that a block borrows; 0: none. */
uint64_t plan_layout_shared(const struct plan_input *input, uint32_t block);

#endif
