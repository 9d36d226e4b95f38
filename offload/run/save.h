/* save.h: the lane that writes what updates make into a checkpoint, while steps go on: on a thread of
 * its own, which also finishes the checkpoint. What fails there fails the checkpoint and not the run.
 * The engine's thread enters. */
#ifndef OFFLOAD_RUN_SAVE_H
#define OFFLOAD_RUN_SAVE_H

#include "offload/run/executor.h"
#include "offload/run/memory.h"
#include "offload/run/update.h"
#include "offload/store/checkpoint.h"

struct run_save;

struct run_save_options {
    const struct plan_input *input; /* borrowed, as all here */
    const struct plan *plan;
    const struct run_memory *memory;
    const struct run_update *update;
    struct core_bell *bell;
    int64_t stall_limit_ns; /* nothing of it moves for so long: an error */
};

int run_save_create(const struct run_save_options *options, struct run_save **out);
/* Waits for what was handed over; a checkpoint that was begun and not finished is removed. NULL is
 * fine. */
void run_save_destroy(struct run_save *save);
struct run_lane run_save_lane(struct run_save *save);

/* Takes the checkpoint over: the next `count` WRITE commands of the lane go there, and behind the last
 * one it is finished. With none under way. */
void run_save_begin(struct run_save *save, struct store_checkpoint_write *checkpoint,
                    uint32_t count);
/* Whether one was begun whose end nobody has asked for. */
bool run_save_busy(const struct run_save *save);
/* Waits until it is published, or has failed: that error. All its commands were submitted. 0 where
 * there is none. */
int run_save_wait(struct run_save *save);
/* Whether a wait ended because nothing moved: then its thread may still work. */
bool run_save_stuck(const struct run_save *save);

#endif
