/* checkpoint.h: describes a run in a checkpoint's manifest, and compares a run with a manifest. No
 * state; any thread may call. */
#ifndef OFFLOAD_RUN_CHECKPOINT_H
#define OFFLOAD_RUN_CHECKPOINT_H

#include "cpu_adam/adam.h"
#include "offload/run/options.h"
#include "offload/store/checkpoint.h"

/* number of ranks, or processes of an application, that saved */
#define RUN_CHECKPOINT_RANKS "ranks"

struct run_position {
    uint64_t run; /* identity of the run; a resumed run keeps it */
    uint64_t steps;
    uint64_t updates;
    struct run_scale scale;
    uint64_t base;        /* identity of the base model, unless checkpoints contain it (blocks.h) */
    const char *products; /* borrowed from the rank: library, driver and GPU of matrix products;
                           * NULL: the device is the CPU */
};

/* The manifest borrows `blocks`. */
void run_checkpoint_describe(const struct run_options *options, const struct blocks *blocks,
                             const struct run_position *position, struct store_manifest *out);

/* Returns 0 if a run can resume from the checkpoint. Differences that do not prevent that are
 * logged as warnings. */
int run_checkpoint_check(const struct store_manifest *manifest, const struct blocks *blocks,
                         const struct run_options *options);

/* Warns if `products` (run_position) is not the manifest's. */
void run_checkpoint_compare_products(const struct store_manifest *manifest, const char *products);

/* Settings in the newest readable checkpoint of a directory, on which the bits of a resumed run's
 * results depend; 0: unknown. */
struct run_checkpoint_shape {
    unsigned threads; /* threads of each rank */
    uint64_t ranks;
    uint64_t pair_length; /* room of a pair, in tokens; 0: no pairs */
};
struct run_checkpoint_shape run_checkpoint_shape(const char *directory);

/* Looks for readable checkpoints of a run other than `run`. Returns 1 and sets *step to the oldest
 * one's step; 0 if there is none; -errno if the directory cannot be listed. */
int run_checkpoint_find_foreign(const char *directory, uint64_t run, uint64_t *step);

/* Returns an update's arrays as a checkpoint's streams. */
struct store_arrays run_checkpoint_streams(const struct adam_arrays *arrays);

#endif
