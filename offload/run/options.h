/* options.h: what a run is asked for, checked and resolved: what the public options mean to the
 * rooms below. Plain data; borrowed strings outlive the run. */
#ifndef OFFLOAD_RUN_OPTIONS_H
#define OFFLOAD_RUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu_adam/adam.h"
#include "kernels/kern.h"
#include "kernels/table.h"
#include "offload/plan/plan.h"
#include "offload/run/scale.h"
#include "offload/store/store.h"

/* Where measured rates are kept between runs. */
struct run_cache {
    const char *folder; /* NULL: nowhere */
    const char *build;  /* of this library; rates of another one do not count */
    bool renew;         /* whatever is kept is measured again */
};

struct run_options {
    const char *device; /* "cpu", "cuda:N" */
    unsigned threads;   /* of compute and of the update */
    uint32_t rank, world, stage;
    uint64_t seed;

    int64_t rows;   /* of a micro-batch */
    int64_t length; /* tokens a row */
    uint32_t micro_batches;
    uint64_t tile_bytes;

    enum kern_type type;
    enum core_vec_rule rule;
    enum core_vec_type moments;
    bool gradients_fp32;
    struct adam_group group; /* decay is that of the parameters that have any */
    bool decay_all;          /* also norms and biases */
    double clip;             /* 0: off */
    bool may_skip;           /* a norm that is not finite skips the step */
    struct run_scale_options scale;

    struct plan_wishes wishes; /* micro_batches, may_clip and may_skip are filled in */
    struct plan_budgets budgets;
    struct store_path stores[STORE_PATHS_MAX];
    unsigned store_count;
    const char *io;         /* NULL: chosen by probing */
    int64_t io_limit_ns;    /* of one block's I/O; 0: the drive's own */
    int64_t stall_limit_ns; /* nothing of a lane moves for so long: an error; 0: half an hour, for a
                               command of compute is a layer over all rows of a micro-batch */

    bool
        guesses_given; /* which steps' updates go ahead of their norms: those of `guesses`; else the
                           policy of speculation.h decides */
    uint64_t guesses;  /* bit n: step n + 1 */

    const struct plan_rates *rates; /* NULL: measured */
    struct run_cache cache;
};

/* Groups that the micro-batches of a step are made into where they are more: a command does a group. */
enum { RUN_OPTIONS_GROUPS = 64 };

/* Bytes an element of each stream. */
struct plan_format run_options_format(const struct run_options *options);
/* The back end for files that are no store: where that one is memory, whichever works. */
const char *run_options_file_io(const struct run_options *options);
int64_t run_options_stall_ns(const struct run_options *options);
/* In the words of the update. */
enum core_vec_type run_options_gradients(const struct run_options *options);
enum core_vec_master run_options_master(const struct run_options *options);

#endif
