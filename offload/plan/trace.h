/* trace.h: timelines as files for Chrome's or Perfetto's viewer: the simulated one of a plan, and the
 * measured one of a few tapes of a run, with the same names. Each queue is a row, each command a bar.
 * A recorder is used by its rank's thread; nothing is allocated between create and write. */
#ifndef OFFLOAD_PLAN_TRACE_H
#define OFFLOAD_PLAN_TRACE_H

#include "offload/plan/plan.h"

/* Records when each command of some tapes began and ended. */
struct plan_trace;

/* Records `tapes` tapes from the number `first` on (0: the first that is pushed), each of at most
 * `commands_max` commands. */
int plan_trace_create(uint64_t first, uint32_t tapes, uint32_t commands_max,
                      struct plan_trace **out);
void plan_trace_destroy(struct plan_trace *trace);

/* Tell the recorder that a tape was pushed, or that the tape pushed last was withdrawn. `tape`
 * outlives the recorder. */
void plan_trace_push(struct plan_trace *trace, const struct plan_tape *tape);
void plan_trace_withdraw(struct plan_trace *trace);

/* Records one command. A callback for the executor's options; `user` is the recorder. */
void plan_trace_watch(void *user, uint64_t tape, const struct plan_command *command,
                      int64_t begin_ns, int64_t end_ns);

/* Writes what was recorded; commands that never ran are left out. All tapes must have retired. If
 * the file cannot be written completely, it is removed. */
int plan_trace_write(const struct plan_trace *trace, const struct plan_input *input,
                     const char *path);

/* Writes the simulated timeline of the first `steps` steps of a run, and of the drain if an update
 * is pending then. */
int plan_trace_predict(const struct plan_input *input, const struct plan *plan, uint32_t steps,
                       const char *path);

#endif
