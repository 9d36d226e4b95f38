/* rates.h: the rates at which this machine does the parts of a step: measured, or found in the
 * cache of an earlier run. The caller's thread waits meanwhile. */
#ifndef OFFLOAD_RUN_RATES_H
#define OFFLOAD_RUN_RATES_H

#include "offload/run/options.h"
#include "offload/run/rates_file.h"
#include "offload/run/shapes.h"

/* Finds all rates in the cache of `options`, or by measuring, which fills the cache. Drives are
 * measured if `options` has stores. Compute is measured with the model's own blocks, within the
 * budgets, in memory that is then freed; not if an application computes. */
int run_rates_measure(const struct run_shapes *shapes, const struct run_options *options,
                      struct run_rates *out);

/* Finds only drive_bytes of struct run_rates. A file of rates does not contain them, because it may
 * describe another machine. */
int run_rates_weigh(const struct run_shapes *shapes, const struct run_options *options,
                    double drive_bytes[STORE_PATHS_MAX]);

/* Removes the rates that run_rates_measure finds from the cache of `options`. */
void run_rates_forget(const struct run_shapes *shapes, const struct run_options *options);

#endif
