/* options.h: the checked and resolved options of a run. Plain data; borrowed strings outlive the
 * run. */
#ifndef OFFLOAD_RUN_OPTIONS_H
#define OFFLOAD_RUN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "cpu_adam/adam.h"
#include "kernels/kern.h"
#include "kernels/table.h"
#include "offload/blocks/blocks.h"
#include "offload/model/model.h"
#include "offload/model/stored.h"
#include "offload/plan/plan.h"
#include "offload/run/scale.h"
#include "offload/store/store.h"

struct run_cache {
    const char *folder; /* NULL: nothing is kept */
    const char *build;  /* build of this library, for which rates were measured */
    bool renew;         /* ignores cached rates and measures again */
};

/* remote.c sends this struct byte by byte; a new pointer needs a line there. */
struct run_options {
    /* "cpu", or the cards of all ranks: "cuda", "cuda:N", "cuda:N,M" (dev_name_of_rank) */
    const char *device;
    unsigned threads; /* for compute and the update */
    /* For plans: slowdown of the slowest rank's own work; 0 means 1. */
    double straggler;
    /* Divisors of rates that a lone rank measured: ranks that share the drives, and threads of all
     * ranks per processor. 0 means 1. */
    double drive_ranks, crowding;
    /* Rates of collectives that processes measured together; 0: measured with threads. */
    double coll_bytes, within_bytes;
    bool numa_off; /* nothing is placed on NUMA nodes */
    /* A folder with another machine's /proc and /sys, by whose nodes memory and threads are placed;
     * NULL: this machine. For tests. */
    const char *topology;
    uint32_t rank, world, stage;
    bool packs;      /* stage 3 gathers weights as codes of 8 bits */
    bool codes;      /* stages 1 to 3 reduce gradients as codes of 4 bits */
    bool fast;       /* a node's ranks add their gradients first; on cards, NCCL adds them */
    uint32_t within; /* stage 3: ranks of a group that has a copy of the weights; 0: no groups */
    uint32_t local;  /* ranks that share a node and the budgets; `world`, unless a plan has several
                     * nodes */
    uint64_t seed;

    /* rows of a micro-batch, two for each pair: see model_shape */
    int64_t rows;
    int64_t pairs; /* pairs of chosen and rejected rows (DPO); 0: rows of tokens */
    double beta;
    int64_t length; /* tokens per row */
    /* With pairs: tokens of each of their two rows, while `length` is for both together
     * (model_batch_pair). */
    int64_t row_length;
    uint32_t micro_batches;
    uint64_t tile_bytes;

    enum kern_type type;
    enum core_update_rule rule;
    enum core_update_type moments;
    bool gradients_fp32;
    enum model_storage base; /* how frozen layers are kept */
    bool keep_base; /* INT8 and NF4: also keeps them in a file beside the store for later runs
                     * (model/kept.h) */
    struct adam_group group; /* `decay` applies to parameters that decay */
    bool decay_all;          /* decay also applies to norms and biases */
    double clip;             /* 0: off */
    bool may_skip;           /* a norm that is not finite skips the step */
    struct run_scale_options scale;

    struct plan_wishes wishes; /* run_shapes_input sets micro_batches, may_clip, may_skip */
    struct plan_budgets budgets;
    /* The card's memory, including other programs'; 0: budgets.device_bytes. */
    uint64_t card_bytes;
    struct store_path stores[STORE_PATHS_MAX];
    unsigned store_count;
    struct model_lora lora; /* adapters, for checkpoints; rank 0: none */
    uint64_t config_hash;   /* hash of the model's configuration, for checkpoints; 0: unknown */
    const char *io;         /* NULL: chosen by probing */
    int64_t io_limit_ns;    /* for one transfer of a drive; 0: the drive's default */
    int64_t stall_limit_ns; /* longest time of a lane without progress; 0: at least half an
                             * hour per micro-batch of a compute command */

    bool guesses_given; /* `guesses` says which steps speculate; false: speculation.h does */
    uint64_t guesses;   /* bit n: step n + 1 speculates */

    struct run_cache cache;
};

/* A step has at most this many groups of micro-batches, unless a plan fits only with more
 * (prepare.c). A command computes one group. */
enum { RUN_OPTIONS_GROUPS = 64 };

/* Fills in the groups of a model's runs for step `step`, with this rate and these betas. */
void run_options_groups(const struct run_options *options, double lr, const double betas[2],
                        uint64_t step, struct adam_group groups[MODEL_GROUP_COUNT]);
/* Returns the bytes per element of each stream. */
struct plan_format run_options_format(const struct run_options *options);
/* Like run_options_format, but with this master and type of gradients. */
struct plan_format run_options_format_of(const struct run_options *options,
                                         enum core_update_master master,
                                         enum core_update_type gradients);
/* Returns the bytes of memory that an element's update reads and writes. States and weights count
 * twice, but weights beside an fp32 master once: they are only written. */
double run_options_touched_bytes(const struct plan_format *format);
/* Returns the back end for files other than the store's; NULL: the first that works. A store in
 * memory gives NULL, too. */
const char *run_options_file_io(const struct run_options *options);
int64_t run_options_stall_ns(const struct run_options *options);
/* Returns the type of weights in a checkpoint. */
enum block_weights run_options_weights(enum kern_type type);
/* Returns the types of gradients and masters for the update. */
enum core_update_type run_options_gradients(const struct run_options *options);
enum core_update_master run_options_master(const struct run_options *options);

#endif
