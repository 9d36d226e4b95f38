/* checkpoint.h: describes a run in a checkpoint's manifest, and compares a run with the manifest of
 * another. Keeps no state; any thread may call. */
#ifndef OFFLOAD_RUN_CHECKPOINT_H
#define OFFLOAD_RUN_CHECKPOINT_H

#include "cpu_adam/adam.h"
#include "offload/run/options.h"
#include "offload/store/checkpoint.h"

/* The parameter of a manifest that says how many ranks, or processes of an application, saved. */
#define RUN_CHECKPOINT_RANKS "ranks"

/* What a manifest records about a run besides its options, weights and states. */
struct run_position {
    uint64_t run; /* random number of the run; a resumed run keeps it */
    uint64_t steps;
    uint64_t updates;
    struct run_scale scale;
    uint64_t base;        /* identity of the base model, if checkpoints do not contain it
                           * (blocks.h) */
    const char *products; /* the library that computes a GPU's matrix products, with driver and GPU;
                           * NULL: the device is the CPU. Borrowed from the rank */
};

/* Fills in the manifest of a run. The manifest borrows `blocks`. */
void run_checkpoint_describe(const struct run_options *options, const struct blocks *blocks,
                             const struct run_position *position, struct store_manifest *out);

/* Returns 0 if a run with these options and blocks can resume from a checkpoint, or -EINVAL if
 * formats or blocks differ; the message names the difference. If a difference only changes the bits
 * of results, logs a warning and returns 0. */
int run_checkpoint_check(const struct store_manifest *manifest, const struct blocks *blocks,
                         const struct run_options *options);

/* Warns that results may not be identical if `products` (run_position) names another library,
 * driver or GPU than the manifest does. */
void run_checkpoint_compare_products(const struct store_manifest *manifest, const char *products);

/* The values that a resumed run takes from the newest readable checkpoint in a directory, because
 * they change the bits of results; zeros: there is no checkpoint. */
struct run_checkpoint_shape {
    unsigned threads; /* threads of each rank */
    uint64_t ranks;
    uint64_t pair_length; /* tokens that a pair has room for; 0: no pairs */
};
struct run_checkpoint_shape run_checkpoint_shape(const char *directory);

/* Looks in a directory for checkpoints of another run than `run`. Returns 1 and sets *step to the
 * step of the oldest one; 0 if there is none; -errno if the directory cannot be listed. Checkpoints
 * that cannot be read are not counted. */
int run_checkpoint_find_foreign(const char *directory, uint64_t run, uint64_t *step);

/* Converts the arrays of an update's window to a checkpoint's streams. */
struct store_arrays run_checkpoint_streams(const struct adam_arrays *arrays);

#endif
