/* rates.h: how fast this machine does the parts of a step: measured in about a second, found in the
 * cache of an earlier run, or read from a file. The caller's thread waits meanwhile. */
#ifndef OFFLOAD_RUN_RATES_H
#define OFFLOAD_RUN_RATES_H

#include "offload/run/options.h"
#include "offload/run/shapes.h"

struct run_rates {
    struct plan_rates machine;
    /* Seconds that a block of each kind takes alone, [enum model_block_kind]; 0: from flops. */
    double forward_seconds[3];
    double recompute_seconds[3];
    double backward_seconds[3];
    /* Of each store, reading and writing at once; 0: not measured. Extents are spread over stores in
     * proportion. */
    double drive_bytes[STORE_PATHS_MAX];
};

/* Finds all rates: in the cache of `options`, or by measuring, which fills the cache. Drives are
 * measured if `options` has stores; compute with the model's own blocks, in memory that is freed
 * again and within the budgets. */
int run_rates_measure(const struct run_shapes *shapes, const struct run_options *options,
                      struct run_rates *out);

/* Finds only drive_bytes of struct run_rates, which a file of rates does not have: it may be of another
 * machine. */
int run_rates_weigh(const struct run_shapes *shapes, const struct run_options *options,
                    double drive_bytes[STORE_PATHS_MAX]);

/* Removes these rates from the cache of `options`. */
void run_rates_forget(const struct run_shapes *shapes, const struct run_options *options);

/* The directory itself, or its nearest parent that exists: a store is created and removed with each
 * run. */
enum { RUN_RATES_PATH_BYTES = 4096 };
void run_rates_nearest(const char *directory, char path[RUN_RATES_PATH_BYTES]);

/* A file of all rates in JSON: docs/plan-json.md. -EINVAL names the file and the key. */
int run_rates_read(const char *path, struct run_rates *out);
int run_rates_write(const char *path, const struct run_rates *rates);

#endif
