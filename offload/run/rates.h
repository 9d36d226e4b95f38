/* rates.h: how fast this machine does what a step consists of, measured in about a second, or read
 * from a file that an earlier measurement wrote. The caller's thread waits meanwhile. */
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
    /* Of each store, reading and writing at once; 0 where it was not asked: extents are spread over
     * them in proportion. */
    double drive_bytes[STORE_PATHS_MAX];
};

/* Drives are measured where `options` has stores; compute with the model's own layers, in memory
 * that is given back and within the budgets. What `options->cache` has kept of it counts, and what was measured is kept. */
int run_rates_measure(const struct run_shapes *shapes, const struct run_options *options,
                      struct run_rates *out);

/* Of the drives alone what struct run_rates says of them: for rates that came from a file, which is of
 * no machine in particular. */
int run_rates_weigh(const struct run_shapes *shapes, const struct run_options *options,
                    double drive_bytes[STORE_PATHS_MAX]);

/* Removes what `options->cache` keeps of these. */
void run_rates_forget(const struct run_shapes *shapes, const struct run_options *options);

/* As JSON: docs/plan-json.md. -EINVAL names file and key. */
int run_rates_read(const char *path, struct run_rates *out);
int run_rates_write(const char *path, const struct run_rates *rates);

#endif
