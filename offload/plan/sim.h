/* sim.h: predicts when commands begin and end. Commands share the drive, the links, and the cores
 * if compute and update use the same ones. Pure; equal results on every machine. */
#ifndef OFFLOAD_PLAN_SIM_H
#define OFFLOAD_PLAN_SIM_H

#include "offload/plan/types.h"

/* Simulates tapes. A tape overlaps the previous one, and starts only when the second tape before it
 * has retired. times[t] has tapes[t]->count items of the caller, or is NULL. end_seconds[t]: when
 * tape t retired. */
int plan_sim_run(const struct plan_rates *rates, bool device_is_host,
                 const struct plan_tape *const *tapes, uint32_t tape_count,
                 struct plan_time *const *times, double *end_seconds);

/* Returns the seconds that a command takes if nothing else runs. */
double plan_sim_alone(const struct plan_rates *rates, const struct plan_command *command);

/* Repeats `again` and predicts one steady step. Fails if commands wait for each other. */
int plan_sim_predict(const struct plan_rates *rates, bool device_is_host,
                     const struct plan_tape *again, struct plan_prediction *out);

#endif
