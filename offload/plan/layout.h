/* layout.h: the buffers of a plan and their offsets, for one choice. Only offload/plan creates a
 * layout; other folders read it. All DEVICE and HOST memory that commands name is in these buffers;
 * plan_layout_taken() returns what a tier needs besides them. Pure; owned by its plan. */
#ifndef OFFLOAD_PLAN_LAYOUT_H
#define OFFLOAD_PLAN_LAYOUT_H

#include "offload/plan/shard.h"

enum { PLAN_SLOT_MAX = 8, PLAN_STATE_SLOT_MAX = 64, PLAN_ACT_TURN = 3, PLAN_ROWS_TURN = 2 };
enum { PLAN_SECTIONS_TURN = 2 };

/* Gradients are summed in fp32: PLAN_SUM_BYTES for each element. Their squares are summed over
 * tiles of PLAN_TILE_ELEMENTS, with a double of PLAN_TILE_SUM_BYTES for each tile. Each block
 * begins a new tile. */
enum { PLAN_SUM_BYTES = 4, PLAN_TILE_ELEMENTS = 65536, PLAN_TILE_SUM_BYTES = 8 };

/* Blocks of very different sizes do not share buffers: the embedding is many times as large as a
 * layer, and the head of a tied model is tiny. Layers do not share buffers with the data blocks
 * that they borrow either, because both are needed at once, and the data block may be much
 * larger. */
enum plan_size { PLAN_SMALL, PLAN_LAYER, PLAN_LARGE, PLAN_LAYER_DATA, PLAN_SIZE_COUNT };

/* For each size, the buffers that blocks of this size share. */
struct plan_ring {
    uint32_t buffers[PLAN_SIZE_COUNT][PLAN_SLOT_MAX];
    uint32_t counts[PLAN_SIZE_COUNT];
};

/* One combination of decisions; the planner tries several. */
struct plan_choice {
    enum plan_acts acts;
    enum plan_order order;
    enum plan_tier grads; /* tier of gradients that wait for the update */
    /* how many of PLAN_SHARE_ALL blocks defer their updates to the next step */
    uint32_t pending_share;
    /* All updates are deferred, but a step may also run its own updates inside backward, into a
     * second generation, which becomes current if the norm changes nothing. */
    bool speculates;
    bool keeps_first; /* spare memory is used for activations before weights and states */
    /* number of blocks, from the first one, whose activations are recomputed even if spare memory
     * could keep them */
    uint32_t recomputed;
    /* the card updates at most this many blocks, from the first one: spare DEVICE memory keeps
     * their states before the weights of other blocks. 0 on the CPU device */
    uint32_t card_blocks;
    /* most slots for the weights of layers, and for those of data blocks that layers borrow; there
     * are never fewer than a command needs at once */
    uint32_t weight_slots;
    uint32_t state_slots;
    /* DEVICE, limit for each size of blocks: slots for fp32 sums, and for whole gradients that are
     * then moved elsewhere */
    uint32_t sum_slots;
    /* limit for each size of blocks: slots for stored gradients whose update follows at once, or
     * that are on their way to STORE */
    uint32_t gradient_slots;
    uint64_t chunk_elements;
};

enum { PLAN_SHARE_ALL = 64 };
enum plan_timing plan_choice_timing(const struct plan_choice *choice);
/* Returns whether the update of a block is deferred to the next step. Such blocks are spread
 * evenly, so that the drive is busy during the whole forward pass. Unless all updates are deferred,
 * those of the first two blocks are not, because forward would only wait for them. */
bool plan_choice_leaves(const struct plan_choice *choice, uint32_t block);

/* Indices of the buffers of one block; PLAN_NONE if it has no such buffer of its own. */
struct plan_block_layout {
    uint32_t weights_device; /* resident, or in the application's memory */
    uint32_t weights_host;
    uint32_t weights_store;
    /* HOST: this rank's part of the copy of the weights that its group keeps, in the form in which
     * ranks gather them */
    uint32_t weights_copy;
    uint32_t states_memory; /* the resident chunks */
    uint32_t states_store;
    /* the stored gradient: in HOST; on the CPU device possibly in DEVICE or in the application's
     * memory */
    uint32_t gradient;
    uint32_t gradient_store;
    /* DEVICE: where compute writes the whole gradient, unless it writes it to `gradient` */
    uint32_t gradient_whole;
    uint32_t sum; /* DEVICE: the fp32 sum of the gradient over micro-batches */
    /* DEVICE: slots, used in turn, for the pages of weights that a command needs */
    uint32_t rows[PLAN_ROWS_TURN];
    /* HOST: the same pages on their way from STORE to a GPU */
    uint32_t rows_stages[PLAN_ROWS_TURN];
    uint8_t size;  /* enum plan_size */
    bool by_pages; /* no buffer has room for all of the block's weights, except the buffer where
                    * they are kept: they are brought by rows or sections */
    bool on_card;  /* weights, gradient and states stay in DEVICE memory that the processor cannot
                    * access, and are updated there: `gradient_whole` is the stored gradient */
    bool again;    /* a step needs its weights more than once */
    /* Another block borrows a trained parameter of this one; both uses contribute to its
     * gradient. */
    bool lends;
    uint64_t first_tile; /* index of its first tile sum */
};

struct plan_layout {
    struct plan_buffer *buffers; /* owned */
    uint32_t count;
    uint32_t room;
    uint64_t tier_bytes[PLAN_TIER_COUNT];
    uint64_t checksums_bytes; /* HOST: checksums of pages in STORE, in no buffer of the plan */

    struct plan_block_layout *blocks; /* owned, [block_count] */
    struct plan_block_place *places;  /* owned, [block_count] */
    /* backward ends at this block, because no earlier block is trained */
    uint32_t first_trained;
    /* number of micro-batches (or groups of them) that are between forward and backward at once */
    uint32_t in_flight;
    struct plan_ring weights;
    uint32_t sections[PLAN_SECTIONS_TURN]; /* DEVICE: slots for sections, in turn */
    /* DEVICE: the expanded weights of a section of a block that is kept in fewer bits */
    uint32_t expanded;
    /* HOST: the pages of sections on their way from STORE to a GPU. */
    uint32_t section_stages[PLAN_SECTIONS_TURN];
    struct plan_ring stored; /* DEVICE: weights in fewer bits, on their way to EXPAND */
    struct plan_ring packed; /* DEVICE: packed weights, from GATHER to EXPAND */
    struct plan_ring gradients;
    struct plan_ring gradients_whole;
    struct plan_ring sums;
    /* HOST: one chunk of weights each, on its way from STORE to a GPU; none on the CPU device */
    uint32_t weight_stages[PLAN_STATE_SLOT_MAX];
    uint32_t state_slots[PLAN_STATE_SLOT_MAX];
    uint64_t slot_states_offset;
    uint64_t slot_gradient_offset;
    uint64_t chunk_elements;
    /* DEVICE: fp32 sums of the gradients that borrowing blocks compute for parameters that they
     * borrow */
    uint32_t shared_sum;
    uint32_t codes; /* DEVICE: a whole gradient as codes, while ranks reduce it */
    /* owned, [boundary * in_flight + micro-batch % in_flight]: DEVICE; entries repeat if boundaries
     * take turns in a buffer */
    uint32_t *acts;
    uint32_t *acts_host;  /* owned, like acts; entries may be PLAN_NONE */
    uint32_t *acts_store; /* owned, like acts; entries may be PLAN_NONE */
    /* owned, [block * in_flight + micro-batch % in_flight]; entries may be PLAN_NONE */
    uint32_t *kept;
    uint32_t *out_grads; /* owned, [in_flight]: DEVICE; gradients of boundary activations */
    uint32_t scratch;
    uint32_t tile_sums; /* HOST: sums of squares, one per tile */
    /* DEVICE: tile sums that a GPU computes, before they are copied to HOST */
    uint32_t tile_sums_card;
    /* HOST: the tile sums of all ranks, if each rank computes only those of its shards */
    uint32_t tile_sums_all;
    uint32_t norm; /* HOST: norm, factor, verdict */
};

/* Lays out `choice`. `places` says which data is resident, and is copied. Returns 0 or -ENOMEM. */
int plan_layout_create(const struct plan_input *input, const struct plan_choice *choice,
                       const struct plan_block_place *places, struct plan_layout **out);
void plan_layout_destroy(struct plan_layout *layout);

/* A range of a buffer. `buffer` is PLAN_NONE if there is none. */
struct plan_piece {
    uint32_t buffer;
    uint64_t offset;
    uint64_t bytes;
};

/* A chunk of a block's weights, states or gradient. */
struct plan_chunk {
    uint64_t first; /* element of the block */
    uint64_t count;
    struct plan_piece kept; /* where it is kept between uses; in STORE: the chunk's extent */
};

/* Finds where chunk `index` of a block's shard is kept. `stream` is PLAN_W16 for working weights,
 * PLAN_MASTER for the states, PLAN_G for a gradient that waits in STORE. For weights that are in
 * both HOST and DEVICE, the place is in HOST. `kept.buffer` is PLAN_NONE if the plan keeps no such
 * chunk; this includes gradients that wait in other tiers. */
struct plan_chunk plan_chunk_at(const struct plan_input *input, const struct plan_layout *layout,
                                enum plan_stream stream, uint32_t block, uint64_t index);

/* Returns the bytes of a tier that the runtime takes besides the plan's buffers, including data of
 * the application. */
uint64_t plan_layout_taken(const struct plan_input *input, const struct plan_layout *layout,
                           enum plan_tier tier);

/* Returns the number of entries in use of `slots`: state_slots or weight_stages of a layout. */
uint32_t plan_layout_slots(const uint32_t slots[PLAN_STATE_SLOT_MAX]);

/* Returns the distance in bytes between the beginnings of two successive resident chunks of a
 * block's states. */
uint64_t plan_layout_state_stride(const struct plan_input *input, uint64_t chunk_elements,
                                  uint32_t block);

/* Returns the scratch bytes of a block's temporaries; recomputed activations are stored after
 * them. */
uint64_t plan_layout_temporary_bytes(const struct plan_block_shape *shape);

/* Returns the block whose weights are brought to `block` by sections: itself or a block that it
 * borrows. PLAN_NONE: none. */
uint32_t plan_layout_sectioned(const struct plan_input *input, const struct plan_layout *layout,
                               uint32_t block);

/* For a block that is brought by pages: returns the slot through which its weights pass when a run
 * begins and ends, if they are in STORE and the device is the host. */
uint32_t plan_layout_page_slot(const struct plan_layout *layout, uint32_t block);

/* Returns the bytes of a block's kept activations, for all micro-batches of a group. */
uint64_t plan_layout_kept_bytes(const struct plan_input *input, uint32_t block);

/* Returns whether compute reads a block's weights, kept in fewer bits, where they are kept; else
 * they pass through a slot. */
bool plan_layout_reaches_stored(const struct plan_input *input, const struct plan_layout *layout,
                                uint32_t block);

/* Returns whether gradients of several micro-batches are summed in buffers other than the stored
 * gradients; the result is the same for all blocks. */
bool plan_layout_has_sums(const struct plan_input *input);

/* Returns whether compute writes whole gradients to other buffers than those in which gradients
 * wait for the update. This is so if the update cannot access DEVICE memory, or if each rank keeps
 * only its shard of the gradients (ZeRO stages 2 and 3). */
bool plan_layout_moves_gradients(const struct plan_input *input);

/* Returns whether a GPU computes the sums of squares of all gradients: its rate is known, and there
 * is one rank. With several ranks, its compute queue would wait for each reduction. */
bool plan_layout_sums_on_card(const struct plan_input *input);

/* Returns which element of a block is the first one in the buffer of its stored gradient. */
uint64_t plan_layout_gradient_first(const struct plan_input *input, uint32_t block);

/* Returns the number of elements of the trained parameter that a block borrows; 0: none. */
uint64_t plan_layout_shared(const struct plan_input *input, uint32_t block);

#endif
