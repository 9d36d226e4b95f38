/* sim.h: predicts when each command of a sequence of tapes begins and ends. Commands that run at
 * once share resources: the drive (reads and writes, measured alone and mixed), the link of each
 * direction, and the processor cores if compute and update use the same ones. Pure; the same result
 * everywhere. */
#ifndef OFFLOAD_PLAN_SIM_H
#define OFFLOAD_PLAN_SIM_H

#include "offload/plan/types.h"

/* Simulates a sequence of tapes. A tape overlaps the previous one as far as its edges allow, and
 * starts only after the second tape before it has retired. times[t] is the caller's array of
 * tapes[t]->count items, or NULL if the times are not needed. end_seconds[t] is the time at which
 * tape t retired. */
int plan_sim_run(const struct plan_rates *rates, bool device_is_host,
                 const struct plan_tape *const *tapes, uint32_t tape_count,
                 struct plan_time *const *times, double *end_seconds);

/* Returns the seconds that a command takes if nothing else runs. */
double plan_sim_alone(const struct plan_rates *rates, const struct plan_command *command);

/* Simulates a few repetitions of `again`, and predicts one step from the later ones, which are
 * steady. Returns -EDEADLK with a message if commands wait for each other. */
int plan_sim_predict(const struct plan_rates *rates, bool device_is_host,
                     const struct plan_tape *again, struct plan_prediction *out);

#endif
