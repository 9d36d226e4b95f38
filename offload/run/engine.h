/* engine.h: a training run: the ranks of this process, the optimizer's schedule of steps, the loss
 * scale. The application's thread enters; each rank beyond the first has a thread of its own. */
#ifndef OFFLOAD_RUN_ENGINE_H
#define OFFLOAD_RUN_ENGINE_H

#include "offload/model/files.h"
#include "offload/run/prepare.h"
#include "offload/run/rank.h"

struct run_engine;

enum { RUN_RANKS_MAX = 64 };

struct run_engine_options {
    const struct run_prepared *planned; /* borrowed, as all here; made for these options */
    const struct run_options *options;
    const struct model *model;
    const struct model_files *files;
    const char *checkpoint; /* its folder, to begin from; NULL: the files */
    bool *damaged;          /* set where reading the checkpoint is what failed; may be NULL */
    const char *trace;      /* a file for the timeline of a few steps; NULL: none */
    int (*progress)(void *user, const char *phase, uint64_t done, uint64_t total);
    void *user;
};

/* Takes memory and storage and loads the weights. */
int run_engine_create(const struct run_engine_options *options, struct run_engine **out);
/* NULL is fine. False: a thread still works with what the engine was given; all of it must stay. */
bool run_engine_destroy(struct run_engine *engine);

struct run_step {
    uint64_t step; /* from 1, skipped ones too */
    double loss;
    double norm;
    double loss_scale; /* this step's */
    bool skipped;
    int64_t targets;
    bool guessed; /* the update was made ahead of the norm */
    bool guess_right;
    uint64_t guess_bytes;        /* moved for nothing by all ranks */
    double guess_seconds;        /* lost to wrong guesses, this one and the one before */
    struct plan_traffic traffic; /* of all ranks */
    struct run_stats stats;      /* of the first rank */
};

/* `count` micro-batches, rank after rank; fewer than world x micro_batches are filled up. */
int run_engine_step(struct run_engine *engine, const struct model_batch *batches, uint32_t count,
                    double lr, struct run_step *out);
/* From the next step on; those of the options until then. */
void run_engine_betas(struct run_engine *engine, double beta1, double beta2);
int run_engine_evaluate(struct run_engine *engine, const struct model_batch *batch,
                        struct kern_loss *out);

/* Logits of the token behind one row of `length` ids: [vocab]. */
int run_engine_logits(struct run_engine *engine, const int32_t *ids, int64_t length, float *out);

/* Does what is pending on all ranks and waits for everything. */
int run_engine_drain(struct run_engine *engine);
/* Writes the timeline of the options; 0 where they have none. */
int run_engine_trace(struct run_engine *engine);
/* Lets go of the files of the checkpoint that the run resumed from, once nothing is left in them. */
int run_engine_release_checkpoint(struct run_engine *engine);

/* The working weights of a block, in order, drained before. */
int run_engine_weights(struct run_engine *engine, uint32_t block, run_take_weights *take,
                       void *context);

/* What a run is besides its weights and states. */
struct run_position {
    uint64_t run; /* a number of its own, which resuming keeps */
    uint64_t steps;
    uint64_t updates;
    struct run_scale scale;
    const char *products; /* what computes a card's matrix products; NULL: the device is the CPU.
                             Borrowed from the engine */
};
struct run_position run_engine_position(const struct run_engine *engine);
/* What it was made with. */
const struct run_engine_options *run_engine_given(const struct run_engine *engine);

/* Waits for what all ranks have begun, and begins nothing. */
int run_engine_quiesce(struct run_engine *engine);
/* The next step does not guess: its update is to go to a checkpoint. */
void run_engine_defer_next(struct run_engine *engine);
/* The checkpoint that the run writes while steps go on; NULL: its plan has no tapes that save. */
struct run_saving *run_engine_saving(struct run_engine *engine);

uint32_t run_engine_world(const struct run_engine *engine);
/* One rank, for its states; NULL beyond the last. After run_engine_drain. */
struct run_rank *run_engine_rank(struct run_engine *engine, uint32_t rank);

#endif
