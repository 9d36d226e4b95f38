/* move.h: the commands of a step that move bytes between tiers, and what they share with the step
 * that is being told: the builder, the layout, whose turn each slot is. Pure. */
#ifndef OFFLOAD_PLAN_MOVE_H
#define OFFLOAD_PLAN_MOVE_H

#include "offload/plan/builder.h"
#include "offload/plan/layout.h"

struct plan_step {
    struct plan_builder *builder;       /* borrowed */
    const struct plan_input *input;     /* borrowed */
    const struct plan_choice *choice;   /* borrowed */
    const struct plan_layout *layout;   /* borrowed */
    uint16_t slot_block[PLAN_SLOT_MAX]; /* whose weights a slot holds */
    uint32_t slot_used[PLAN_SLOT_MAX];
    uint32_t clock;
    uint32_t state_turn;
    uint32_t stage_turn;
    uint32_t sum_turn;
    uint16_t sum_of_turn; /* buffer that the block in work sums into */
};

struct plan_command plan_move_command(enum plan_op op, enum plan_queue queue, uint32_t block,
                                      uint32_t micro);

/* Names a range of a buffer; a buffer that the layout does not have (PLAN_NONE) is left out. */
void plan_move_operand(struct plan_command *command, uint16_t buffer, enum plan_access access,
                       uint64_t offset, uint64_t bytes);
void plan_move_whole(const struct plan_step *step, struct plan_command *command, uint16_t buffer,
                     enum plan_access access);

const struct plan_block_layout *plan_move_block(const struct plan_step *step, uint32_t block);
uint64_t plan_move_weight_bytes(const struct plan_step *step, uint32_t block);

int plan_move_copy(struct plan_step *step, enum plan_op op, uint32_t block, uint32_t micro,
                   const struct plan_operand *from, const struct plan_operand *to);

/* Where the block's weights stand for compute; brings them there where they are not. */
int plan_move_weights(struct plan_step *step, uint32_t block, uint16_t *out);

/* Updates a block chunk by chunk. With `to_device` its new weights go up as they appear, which
 * saves the forward its fetch. */
int plan_move_update(struct plan_step *step, uint32_t block, bool to_device);

/* Index of a boundary's buffers in the layout. */
uint32_t plan_move_act_index(const struct plan_step *step, uint32_t boundary, uint32_t micro);

/* Moves a boundary activation between DEVICE and where it waits for backward. */
int plan_move_act(struct plan_step *step, uint32_t boundary, uint32_t micro, bool away);

#endif
