/* engine.h: a training run: ranks, steps, and the loss scale. One thread of each process calls.
 * Ranks are threads of this process, or processes that the first one calls (remote.h, follow.c). */
#ifndef OFFLOAD_RUN_ENGINE_H
#define OFFLOAD_RUN_ENGINE_H

#include "offload/model/files.h"
#include "offload/model/peft.h"
#include "offload/run/checkpoint.h"
#include "offload/run/prepare.h"
#include "offload/run/rank.h"

struct coll_peers;
struct run_engine;
struct store_shelf;

enum { RUN_RANKS_MAX = 64 };

struct run_engine_options {
    const struct run_prepared *prepared; /* borrowed, like the other pointers; prepared from these
                                          * options */
    const struct run_options *options;
    const struct model *model;
    struct model_files *files;
    const char *checkpoint; /* folder to begin from; NULL: the model's files */
    bool *damaged;          /* set to true if the checkpoint cannot be loaded; may be NULL */
    const char *trace;      /* file for a timeline of a few steps; NULL: none */
    /* borrowed: the processes of the ranks; NULL: ranks are threads */
    struct coll_peers *peers;
    bool local; /* machines keep their ranks' parts of checkpoints */
    /* the shelf of `checkpoint`; NULL: machines do not exchange missing parts */
    struct store_shelf *shelf;
    const char *folder;
    /* for other processes, which do not get `frozen_as` */
    const struct model_options *model_options;
    const struct model_peft *peft; /* adapters that the run begins with; NULL: none */
    int (*progress)(void *user, const char *phase, uint64_t done, uint64_t total);
    void *user;
};

/* Creates the ranks, and loads weights and states. */
int run_engine_create(const struct run_engine_options *options, struct run_engine **out);
/* Accepts NULL. Returns false if a thread still uses the engine's options, which must then stay. */
bool run_engine_destroy(struct run_engine *engine);

/* ---- steps ---- */

struct run_step {
    uint64_t step; /* from 1; skipped steps count */
    double loss;
    /* With pairs: mean rewards of chosen and rejected rows, and the share of pairs in which the
     * chosen row has the larger reward. */
    double chosen, rejected, right;
    double norm;
    double loss_scale;
    bool skipped;
    int64_t targets;
    bool guessed; /* the update was made before the norm was known */
    bool guess_right;
    uint64_t guess_bytes; /* bytes that all ranks moved for a wrong guess */
    /* time lost to wrong guesses of this step and the previous one */
    double guess_seconds;
    struct plan_traffic traffic; /* of all ranks, like the next member */
    struct run_moved moved;      /* bytes since the last step */
    struct run_stats stats;      /* of the first rank */
    uint32_t slowest;            /* the rank that waited least for the others */
    /* mean wait of a rank, less the wait of the slowest one */
    double imbalance_seconds;
};

/* Takes a step with `count` micro-batches, assigned rank by rank; a rank without any computes one
 * of padding. */
int run_engine_step(struct run_engine *engine, const struct model_batch *batches, uint32_t count,
                    double lr, struct run_step *out);
/* Sets the betas of later steps. */
void run_engine_betas(struct run_engine *engine, double beta1, double beta2);

/* ---- between steps ---- */

int run_engine_evaluate(struct run_engine *engine, const struct model_batch *batch,
                        struct kern_loss *out);
/* Computes the logits, [vocab], of the token that follows a row of `length` ids. */
int run_engine_logits(struct run_engine *engine, const int32_t *ids, int64_t length, float *out);
/* Does the pending updates, and waits until no work is left. */
int run_engine_drain(struct run_engine *engine);
/* Waits for work that has begun. Does not begin pending updates. */
int run_engine_quiesce(struct run_engine *engine);
/* Drains, then passes a block's working weights to `take`, in order; those in the model's files, if
 * the block is kept in fewer bits. */
int run_engine_weights(struct run_engine *engine, uint32_t block, run_take_weights *take,
                       void *context);
/* Drains, then passes a trained block's fp32 masters to `take`, in order. */
int run_engine_masters(struct run_engine *engine, uint32_t block, run_take_weights *take,
                       void *context);
/* Drains and writes the timeline, if it is wanted and not written yet. */
int run_engine_trace(struct run_engine *engine);
/* Closes the checkpoint of a resumed run, if no state is left in its files. */
int run_engine_release_checkpoint(struct run_engine *engine);

struct run_position run_engine_position(const struct run_engine *engine);

/* Sets *used_bytes to the memory of all processes, and *peak_bytes to the sum of their peaks. The
 * numbers of other processes come from earlier replies. */
void run_engine_memory(const struct run_engine *engine, uint64_t *used_bytes, uint64_t *peak_bytes);

/* ---- in the other processes ---- */

struct run_remote_made;
/* Makes the engine of a process other than the first. Calls of the first process load the
 * weights. */
int run_engine_create_remote(const struct run_engine_options *options,
                             const struct run_remote_made *made, struct run_engine **out);
struct run_rank *run_engine_own(struct run_engine *engine);
/* Returns the checksums of what this rank has read of the base model; NULL: checkpoints contain the
 * base. */
const struct model_sums *run_engine_sums(const struct run_engine *engine);
/* Passes a rank's fp32 masters of a trained block to `take`, in order. */
int run_engine_rank_masters(struct run_rank *rank, uint32_t block, run_take_weights *take,
                            void *context);
struct run_reply;
/* Executes a call below RUN_CALL_RANKS on this process's rank. An error also ends the waits of
 * other ranks. */
int run_engine_serve(struct run_engine *engine, unsigned call, const void *arguments,
                     struct run_reply *reply);

struct run_remote_save;
struct store_checkpoint_write;

/* Opens the checkpoint that another process has begun in `folder`. */
int run_engine_save_join(struct run_engine *engine, const char *folder,
                         struct store_checkpoint_write **out);
/* Begins this machine's part of a checkpoint on a shelf. */
int run_engine_save_lead(struct run_engine *engine, struct store_shelf *shelf,
                         const struct run_remote_save *save, const void *application,
                         struct store_checkpoint_write **out);
/* Writes the rank's part of a block. Call it while no rank works. `leads`: also writes weights that
 * all ranks hold, for run_engine_save_lead. */
int run_engine_save_part(struct run_engine *engine, struct store_checkpoint_write *checkpoint,
                         uint32_t block, bool leads);

/* ---- checkpoints ---- */

struct run_save_options {
    struct store_shelf *shelf; /* borrowed, like the other pointers */
    const char *source;
    uint32_t keep;           /* number of checkpoints to keep */
    const void *application; /* bytes that a resumed run gets back */
    size_t application_bytes;
    const struct aio_backend *recipe; /* back end for the checkpoint's files; NULL: the run's */
};

enum run_save_when {
    /* Announces a checkpoint of the next step, for its updates to write. May wait for an earlier
     * checkpoint. The announced one is removed unless RUN_SAVE_LATER or RUN_SAVE_NOW follows that
     * step. */
    RUN_SAVE_NEXT_STEP,
    /* Saves a checkpoint of the last step. If its update was announced or is wholly pending, that
     * step, the next step or a drain writes the checkpoint; otherwise all states are read out now.
     * Waits for an earlier checkpoint; logs a warning if that one failed. */
    RUN_SAVE_LATER,
    /* Like RUN_SAVE_LATER, and waits until the checkpoint is published. */
    RUN_SAVE_NOW,
};

int run_engine_save(struct run_engine *engine, const struct run_save_options *options,
                    enum run_save_when when);
/* Returns whether a save has begun and not been waited for. */
bool run_engine_save_is_open(const struct run_engine *engine);
/* Waits until the open save has ended. Returns the error that prevented publishing, or 0. */
int run_engine_save_wait(struct run_engine *engine);

#endif
