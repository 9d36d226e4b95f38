/* trace.h: writes the measured or simulated timeline of a row of tapes as a Chrome/Perfetto file.
 * Each queue is a row, each command a bar. Text goes to the caller's `put` in pieces. Call begin
 * once, tape for each tape in order, and end once. Pure. */
#ifndef OFFLOAD_PLAN_TRACE_H
#define OFFLOAD_PLAN_TRACE_H

#include "offload/plan/plan.h"

struct plan_trace_sink {
    void (*put)(void *user, const char *text);
    void *user; /* borrowed */
};

void plan_trace_begin(const struct plan_input *input, const struct plan_trace_sink *sink);

/* `times` has an item for each command; a command that ends before it begins is left out. */
void plan_trace_tape(const struct plan_input *input, const struct plan_trace_sink *sink,
                     const struct plan_tape *tape, const struct plan_time *times);

void plan_trace_end(const struct plan_trace_sink *sink);

/* Writes the simulated timeline of the first `steps` steps of a run, and of the drain if an update
 * is pending then. 0 or -ENOMEM. */
int plan_trace_predicted(const struct plan_input *input, const struct plan *plan, uint32_t steps,
                         const struct plan_trace_sink *sink);

#endif
