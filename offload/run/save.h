/* save.h: a rank's lane that puts what updates make into the run's checkpoint while steps go on, on a
 * thread of its own. The rank's thread enters. */
#ifndef OFFLOAD_RUN_SAVE_H
#define OFFLOAD_RUN_SAVE_H

#include "offload/run/executor.h"
#include "offload/run/memory.h"
#include "offload/run/saving.h"
#include "offload/run/update.h"

struct run_save;

struct run_save_options {
    const struct plan_input *input; /* borrowed, as all here */
    const struct plan *plan;
    const struct run_memory *memory;
    const struct run_update *update;
    struct run_saving *saving;
    struct core_bell *bell;
    int64_t stall_limit_ns; /* nothing of it moves for so long: an error */
};

int run_save_create(const struct run_save_options *options, struct run_save **out);
/* Waits for what was handed over. NULL is fine. */
void run_save_destroy(struct run_save *save);
struct run_lane run_save_lane(struct run_save *save);

/* So many more WRITE commands of the lane go to the checkpoint that is open; others go nowhere. */
void run_save_expect(struct run_save *save, uint32_t count);
/* Nothing more is expected: behind the last of these commands, or now where they are handed over, the
 * lane is done. */
int run_save_seal(struct run_save *save);
/* Waits for what was handed over, all of it where the lane was sealed; then nothing is expected. */
int run_save_wait(struct run_save *save);
/* Whether a wait ended because nothing moved: then its thread may still work. */
bool run_save_stuck(const struct run_save *save);

#endif
