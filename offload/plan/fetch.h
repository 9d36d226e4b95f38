/* fetch.h: the commands that bring working weights to compute. Pure. */
#ifndef OFFLOAD_PLAN_FETCH_H
#define OFFLOAD_PLAN_FETCH_H

#include "offload/plan/move.h"

/* Where the block's weights stand for compute; brings them there where they are not. */
int plan_fetch_weights(struct plan_step *step, uint32_t block, uint16_t *out);

/* The weight slot that holds the block already, or PLAN_NONE. */
uint16_t plan_fetch_held(struct plan_step *step, uint32_t block);

/* A weight slot for the block, with nothing brought there: what will write all of it comes next. */
uint16_t plan_fetch_claim(struct plan_step *step, uint32_t block);

/* The slot of the block, if any, no longer holds it whole. */
void plan_fetch_forget(struct plan_step *step, uint32_t block);

/* Brings all ranks' parts of the block's weights together at `whole`, where this rank's part stands
 * at its place. */
int plan_fetch_gather(struct plan_step *step, uint32_t block, uint16_t whole);

/* READ or WRITE of a chunk of working weights at `memory`. */
int plan_fetch_chunk_move(struct plan_step *step, enum plan_op op, uint32_t block, uint64_t index,
                          struct plan_piece memory);

#endif
