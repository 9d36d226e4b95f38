/* update.h: the commands that update a block, and those that send its gradient to STORE until then.
 * Private to offload/plan; pure. */
#ifndef OFFLOAD_PLAN_UPDATE_H
#define OFFLOAD_PLAN_UPDATE_H

#include "offload/plan/move.h"

/* Updates a block chunk by chunk. `to_device`: its forward follows, so updated chunks also go to
 * the weight slot if that saves a fetch. Weights in DEVICE are always updated there, too. */
int plan_update_block(struct plan_step *step, uint32_t block, bool to_device);

/* Reads states in STORE into slots without fetched chunks, for a later update. Only for plans whose
 * updates read no weights or gradients from STORE. Sets *full if there are too few slots; else
 * leaves it unchanged. */
int plan_update_fetch(struct plan_step *step, uint32_t block, bool *full);

/* Sends a block's gradient to STORE until the update. */
int plan_update_put_gradient(struct plan_step *step, uint32_t block);

#endif
