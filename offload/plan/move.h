/* move.h: the commands that move bytes between tiers, and the state of a step while its commands
 * are added. Pure. */
#ifndef OFFLOAD_PLAN_MOVE_H
#define OFFLOAD_PLAN_MOVE_H

#include "offload/plan/builder.h"
#include "offload/plan/layout.h"

/* A ring's next buffer for each size of blocks. */
struct plan_turns {
    uint32_t next[PLAN_SIZE_COUNT];
};

/* A chunk that was read into a state slot before its update was added. */
struct plan_fetched {
    uint32_t index;
    uint32_t block; /* PLAN_NONE: the slot holds none */
};

struct plan_step {
    struct plan_builder *builder;                        /* borrowed */
    const struct plan_input *input;                      /* borrowed */
    const struct plan_choice *choice;                    /* borrowed */
    const struct plan_layout *layout;                    /* borrowed */
    uint32_t slot_block[PLAN_SIZE_COUNT][PLAN_SLOT_MAX]; /* block in each slot */
    uint32_t slot_used[PLAN_SIZE_COUNT][PLAN_SLOT_MAX];
    bool guesses; /* the step's own updates run inside backward, before the norm is known */
    bool ahead;   /* commands added now belong to an update before the norm is known */
    bool sums;    /* updates added now also sum the squares of their gradients */
    uint32_t clock;
    struct plan_fetched fetched[PLAN_STATE_SLOT_MAX]; /* by state slot */
    uint32_t fetches_lost; /* chunks that lost their slot before their update */
    uint32_t state_turn;
    uint32_t stage_turn;
    uint32_t rows_turn;
    uint32_t section_turn;
    struct plan_turns stored_turns;
    struct plan_turns packed_turns;
    struct plan_turns sum_turns;
    struct plan_turns gradient_turns;
    struct plan_turns whole_turns;
    bool saves_pending; /* chunks of the pending update also go to a checkpoint */
    bool saves_own;     /* chunks of the step's own update also go to a checkpoint */
    bool saves;         /* chunks that are updated now go to a checkpoint */
    uint32_t sum;       /* this member and the next two: buffers of the block in backward */
    uint32_t gradient;
    uint32_t gradient_whole;
    /* owned, [block_count]: whether the group has a copy of the block's weights; NULL: no
     * copies. */
    bool *copied;
};

/* Returns a step without commands. */
struct plan_step plan_move_begin(struct plan_builder *builder, const struct plan_input *input,
                                 const struct plan_choice *choice,
                                 const struct plan_layout *layout);

/* Adds a command and marks it if it belongs to an update ahead of its norm. */
int plan_move_add(struct plan_step *step, struct plan_command *command);

struct plan_command plan_move_command(enum plan_op op, enum plan_queue queue, uint32_t block,
                                      uint32_t micro);

/* Adds an operand; a piece without a buffer or without bytes is left out. */
void plan_move_operand(struct plan_command *command, enum plan_role role, enum plan_access access,
                       struct plan_piece piece);
/* Return the first bytes of a buffer, or all of them. */
struct plan_piece plan_move_part(uint32_t buffer, uint64_t bytes);
struct plan_piece plan_move_whole(const struct plan_step *step, uint32_t buffer);

const struct plan_block_layout *plan_move_block(const struct plan_step *step, uint32_t block);
uint64_t plan_move_weight_bytes(const struct plan_step *step, uint32_t block);

/* Returns the block's own buffer, or the next one of the ring. */
uint32_t plan_move_turn(const struct plan_step *step, const struct plan_ring *ring,
                        struct plan_turns *turns, uint32_t block, uint32_t own);

/* Adds a collective over the array of `block`, or over the tile sums (PLAN_NONE). GATHER moves from
 * this rank's part to the whole; REDUCE moves from the whole. */
int plan_move_together(struct plan_step *step, enum plan_op op, uint32_t block,
                       struct plan_piece from, struct plan_piece to);

/* Returns the bytes of a block's gathered weights that come from other nodes. */
uint64_t plan_move_gathered_between(const struct plan_step *step, uint32_t block);

int plan_move_copy(struct plan_step *step, enum plan_op op, uint32_t block, struct plan_piece from,
                   struct plan_piece to);

/* Returns the layout's index of a boundary's buffers or of kept activations. */
uint32_t plan_move_act_index(const struct plan_step *step, uint32_t block, uint32_t micro);

/* Moves a boundary activation between DEVICE and the tier where it waits. */
int plan_move_act(struct plan_step *step, uint32_t boundary, uint32_t micro, bool away);

#endif
