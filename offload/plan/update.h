/* update.h: the commands that update a block, and those that send its gradient to STORE until then.
 * Private to offload/plan; pure. */
#ifndef OFFLOAD_PLAN_UPDATE_H
#define OFFLOAD_PLAN_UPDATE_H

#include "offload/plan/move.h"

/* Updates a block chunk by chunk. With `to_device` each updated chunk is also copied to the DEVICE
 * buffer of the weights, so that forward need not fetch them. */
int plan_update_block(struct plan_step *step, uint32_t block, bool to_device);

/* Reads a block's chunks in STORE into state slots that hold no fetched chunks, for an update that
 * is added later. Call it only if updates do not read weights or gradients from STORE. If there are
 * too few slots, sets *full, which it does not change otherwise. */
int plan_update_fetch(struct plan_step *step, uint32_t block, bool *full);

/* Sends a block's gradient to STORE, where it waits for the update. */
int plan_update_put_gradient(struct plan_step *step, uint32_t block);

#endif
