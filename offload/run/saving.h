/* saving.h: the one checkpoint that a run is writing, and the lanes of its ranks that put chunks into it.
 * The engine's thread opens, seals and closes it while no rank works; the lanes' threads put and finish.
 * What fails here fails the checkpoint, and not the run. */
#ifndef OFFLOAD_RUN_SAVING_H
#define OFFLOAD_RUN_SAVING_H

#include "offload/store/checkpoint.h"

struct run_saving;

int run_saving_create(struct run_saving **out);
/* No lane has anything under way. A checkpoint that was not finished is removed. NULL is fine. */
void run_saving_destroy(struct run_saving *saving);

/* Takes the checkpoint of a step over, to which so many lanes contribute. None is open. */
void run_saving_open(struct run_saving *saving, struct store_checkpoint_write *checkpoint,
                     uint64_t step, uint32_t lanes);
/* Whether there is one whose end nobody has asked for. */
bool run_saving_is_open(const struct run_saving *saving);
/* Whether that one is of this step, and nobody has said yet that it is wanted. */
bool run_saving_awaits(const struct run_saving *saving, uint64_t step);
/* It is wanted, and this is what its manifest says of the run; what `manifest` owns is taken over.
 * Before the last lane is done. */
void run_saving_tell(struct run_saving *saving, struct store_manifest *manifest);

/* On the lanes' threads: a range; and that a lane has put all of its own. Behind the last lane it is
 * finished. */
void run_saving_put(struct run_saving *saving, uint32_t block, uint64_t first, uint64_t count,
                    const struct store_arrays *arrays);
void run_saving_lane_done(struct run_saving *saving);

/* All lanes are done, or nothing of them is under way: 0 where it has its name or was not wanted, or why
 * it is not there. -ECANCELED: a lane was not done. None is open afterwards. */
int run_saving_close(struct run_saving *saving);

#endif
