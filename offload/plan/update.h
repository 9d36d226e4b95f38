/* update.h: the commands that update a block, and those that write its gradient to STORE, where it
 * waits for the update. Private to offload/plan; pure. */
#ifndef OFFLOAD_PLAN_UPDATE_H
#define OFFLOAD_PLAN_UPDATE_H

#include "offload/plan/move.h"

/* Updates a block chunk by chunk. `to_device` says that its forward follows: updated chunks then
 * also go to the weight slot, if that saves forward a fetch. Weights that are resident in DEVICE
 * are always updated there, too. */
int plan_update_block(struct plan_step *step, uint32_t block, bool to_device);

/* Reads the states of a block's chunks that are in STORE into state slots that hold no fetched
 * chunks, for an update that is added later. Call it only if updates do not read weights or
 * gradients from STORE. Sets *full to true if there are too few slots; otherwise leaves it
 * unchanged. */
int plan_update_fetch(struct plan_step *step, uint32_t block, bool *full);

/* Sends a block's gradient to STORE, where it waits for the update. */
int plan_update_put_gradient(struct plan_step *step, uint32_t block);

#endif
