/* trace.h: timelines as files for Chrome's or Perfetto's viewer: the simulated timeline of a plan,
 * and the measured timeline of a few tapes of a run, with the same names. Each queue is a row, each
 * command except JOIN a bar. The measured timeline has one more row, with a bar for each op of the
 * compute queue. A recorder is used by its rank's thread, except that one other thread reports ops;
 * nothing is allocated between create and write. */
#ifndef OFFLOAD_PLAN_TRACE_H
#define OFFLOAD_PLAN_TRACE_H

#include "offload/plan/plan.h"

/* Records when each command of some tapes began and ended. */
struct plan_trace;

/* Creates a recorder of `tapes` tapes from tape number `first` on (0: the first one pushed), each
 * with at most `commands_max` commands. */
int plan_trace_create(uint64_t first, uint32_t tapes, uint32_t commands_max,
                      struct plan_trace **out);
void plan_trace_destroy(struct plan_trace *trace);

/* Tell the recorder that a tape was pushed, or that the last one was withdrawn. `tape` outlives the
 * recorder. */
void plan_trace_push(struct plan_trace *trace, const struct plan_tape *tape);
void plan_trace_withdraw(struct plan_trace *trace);

/* Records when a command of tape number `tape` ran. A callback for the executor's options; `user`
 * is the recorder. */
void plan_trace_watch(void *user, uint64_t tape, const struct plan_command *command,
                      int64_t begin_ns, int64_t end_ns);

/* Returns whether ops are to be reported: from the push of the first recorded tape until so many
 * later tapes were pushed that all recorded ones must have retired. */
bool plan_trace_wants_ops(const struct plan_trace *trace);
enum { PLAN_TRACE_OPS_MAX = 1 << 18 };

/* Records one op. A callback for dev_queue_time; `user` is the recorder, and the string `op`
 * outlives it. Only the first PLAN_TRACE_OPS_MAX ops are kept. Called by one thread at a time. */
void plan_trace_op(void *user, const char *op, int64_t begin_ns, int64_t end_ns);

/* Writes the recorded timeline; commands that never ran are left out. All tapes must have retired.
 * If the file cannot be written completely, it is removed if it is a regular file. */
int plan_trace_write(const struct plan_trace *trace, const struct plan_input *input,
                     const char *path);

/* Writes the simulated timeline of the first `steps` steps of a run, and of the drain if an update
 * is then pending. */
int plan_trace_predict(const struct plan_input *input, const struct plan *plan, uint32_t steps,
                       const char *path);

#endif
