/* timeline.h: records when each command of a few tapes began and ended, and writes a file for
 * Chrome's or Perfetto's viewer afterwards, with the same names as the simulated one. The thread of
 * the rank; nothing is allocated between create and write. */
#ifndef OFFLOAD_RUN_TIMELINE_H
#define OFFLOAD_RUN_TIMELINE_H

#include "offload/plan/plan.h"

struct run_timeline;

/* Records `tapes` tapes from the number `first` on (0: the first that is pushed), each of at most
 * `commands_max` commands. */
int run_timeline_create(uint64_t first, uint32_t tapes, uint32_t commands_max,
                        struct run_timeline **out);
void run_timeline_destroy(struct run_timeline *timeline);

/* A tape was pushed, or the last one was withdrawn; `tape` outlives the timeline. */
void run_timeline_push(struct run_timeline *timeline, const struct plan_tape *tape);
void run_timeline_withdraw(struct run_timeline *timeline);

/* For the executor's options; `user` is the timeline. */
void run_timeline_watch(void *user, uint64_t tape, const struct plan_command *command,
                        int64_t begin_ns, int64_t end_ns);

/* Writes what was recorded. The tapes have retired. */
int run_timeline_write(const struct run_timeline *timeline, const struct plan_input *input,
                       const char *path);

/* Writes the simulated timeline of `steps` steps. */
int run_timeline_predict(const struct plan_input *input, const struct plan *plan, uint32_t steps,
                         const char *path);

#endif
