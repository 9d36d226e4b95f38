/* fetch.h: the commands that bring working weights to compute. Pure. */
#ifndef OFFLOAD_PLAN_FETCH_H
#define OFFLOAD_PLAN_FETCH_H

#include "offload/plan/move.h"

/* Sets *out to the DEVICE buffer with the block's weights; adds commands that fill it, if
 * needed. */
int plan_fetch_weights(struct plan_step *step, uint32_t block, uint32_t *out);

/* Like plan_fetch_weights; if compute needs only rows of the block, *out is the slot with those of
 * `micro`. */
int plan_fetch_rows(struct plan_step *step, uint32_t block, uint32_t micro, struct plan_piece *out);

/* Brings a section's weights to a slot, expanded if the block is stored in fewer bits. Sets *out to
 * the part of the slot that the section uses. */
int plan_fetch_section(struct plan_step *step, uint32_t block, const struct model_section *section,
                       struct plan_piece *out);

/* Returns the weight slot that has the block, or PLAN_NONE. */
uint32_t plan_fetch_held(struct plan_step *step, uint32_t block);

/* Gives the block a weight slot. The caller fills the whole slot, or calls plan_fetch_forget()
 * after use. */
uint32_t plan_fetch_claim(struct plan_step *step, uint32_t block);

/* Records that no slot has the whole block any more. */
void plan_fetch_forget(struct plan_step *step, uint32_t block);

/* Gathers the block's weights in the buffer `whole`, which has this rank's part at its offset.
 * Packed weights are expanded into another slot, because `whole` is still being written to
 * STORE. */
int plan_fetch_gather(struct plan_step *step, uint32_t block, uint32_t whole);

/* Adds a READ or WRITE (`op`) of a chunk of working weights between STORE and `memory`. */
int plan_fetch_chunk_move(struct plan_step *step, enum plan_op op, uint32_t block, uint64_t index,
                          struct plan_piece memory);

#endif
