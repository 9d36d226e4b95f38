/* sim.h: predicts when each command of a row of tapes begins and ends.
 * Commands that run at once share what they use: the drive (reads and writes, measured alone and
 * mixed), the link of each direction, the processor cores where compute and update take the same
 * ones. Pure; the same result everywhere. */
#ifndef OFFLOAD_PLAN_SIM_H
#define OFFLOAD_PLAN_SIM_H

#include "offload/plan/types.h"

/* Runs tapes[0 .. tape_count - 1] one after another, each as far into the one before as its edges
 * allow and the rates say, but never before the last but one has retired. times[t] has tapes[t]->count items, the
 * caller's; it may be NULL for tapes nobody asks about. *end_seconds has tape_count items: when
 * each tape has retired. */
int plan_sim_run(const struct plan_rates *rates, bool device_is_host,
                 const struct plan_tape *const *tapes, uint32_t tape_count,
                 struct plan_time *const *times, double *end_seconds);

/* Seconds that a command takes alone. */
double plan_sim_alone(const struct plan_rates *rates, const struct plan_command *command);

/* Simulates `again` over and over until its time has settled; fills `out` with what one more costs.
 * -EDEADLK where commands wait for each other. */
int plan_sim_predict(const struct plan_rates *rates, bool device_is_host,
                     const struct plan_tape *again, struct plan_prediction *out);

#endif
