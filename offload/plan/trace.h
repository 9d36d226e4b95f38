/* trace.h: timelines for Chrome's or Perfetto's viewer, simulated or measured. A queue is a row, a
 * command a bar (except JOIN); measured timelines can also have a row of the compute queue's ops.
 * One thread uses a recorder; a second one may report ops. Nothing is allocated between create and
 * write. */
#ifndef OFFLOAD_PLAN_TRACE_H
#define OFFLOAD_PLAN_TRACE_H

#include "offload/plan/plan.h"

struct plan_trace;

/* Creates a recorder for `tapes` tapes from number `first` on (0: the first tape pushed), of at
 * most `commands_max` commands. */
int plan_trace_create(uint64_t first, uint32_t tapes, uint32_t commands_max,
                      struct plan_trace **out);
void plan_trace_destroy(struct plan_trace *trace);

/* Report that a tape was pushed, or the last one withdrawn. `tape` outlives the recorder. */
void plan_trace_push(struct plan_trace *trace, const struct plan_tape *tape);
void plan_trace_withdraw(struct plan_trace *trace);

/* Records when a command ran. A callback of the executor; `user` is the recorder. */
void plan_trace_watch(void *user, uint64_t tape, const struct plan_command *command,
                      int64_t begin_ns, int64_t end_ns);

/* Returns whether to report ops: from the first recorded tape's push until later pushes show that
 * the recorded tapes have retired. */
bool plan_trace_wants_ops(const struct plan_trace *trace);
enum { PLAN_TRACE_OPS_MAX = 1 << 18 };

/* Records one op, up to PLAN_TRACE_OPS_MAX. A callback for dev_queue_time; `user` is the recorder;
 * `op` outlives it. One thread at a time. */
void plan_trace_op(void *user, const char *op, int64_t begin_ns, int64_t end_ns);

/* Writes the recorded timeline, without commands that never ran. The tapes must have retired. An
 * incomplete regular file is removed. */
int plan_trace_write(const struct plan_trace *trace, const struct plan_input *input,
                     const char *path);

/* Writes the simulated timeline of a run's first `steps` steps, with the drain of a pending
 * update. */
int plan_trace_predict(const struct plan_input *input, const struct plan *plan, uint32_t steps,
                       const char *path);

#endif
