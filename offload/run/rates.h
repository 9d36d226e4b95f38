/* rates.h: the rates of a step's parts on this machine: measured, or from the cache. The caller's
 * thread waits meanwhile. */
#ifndef OFFLOAD_RUN_RATES_H
#define OFFLOAD_RUN_RATES_H

#include "offload/run/options.h"
#include "offload/run/rates_file.h"
#include "offload/run/shapes.h"

/* Finds all rates in the cache of `options`, or measures them and caches those that may be typical.
 * Drives are measured if `options` has stores. Unless an application computes, compute is measured
 * with the model's blocks, within the budgets, in memory that is then freed. */
int run_rates_measure(const struct run_shapes *shapes, const struct run_options *options,
                      struct run_rates *out);

/* Finds only drive_bytes, which a file of rates lacks, because the file may describe another
 * machine. */
int run_rates_weigh(const struct run_shapes *shapes, const struct run_options *options,
                    double drive_bytes[STORE_PATHS_MAX]);

/* Removes the rates that run_rates_measure finds from the cache of `options`. */
void run_rates_forget(const struct run_shapes *shapes, const struct run_options *options);

#endif
