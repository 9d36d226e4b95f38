/* engine_internal.h: the state of an engine, and how it creates and calls ranks. Only for
 * engine*.c. */
#ifndef OFFLOAD_RUN_ENGINE_INTERNAL_H
#define OFFLOAD_RUN_ENGINE_INTERNAL_H

#include "offload/run/engine.h"
#include "offload/run/remote.h"
#include "offload/run/speculation.h"

struct coll_meeting;
struct core_queue;
struct model_kept;
struct run_checkpoint_writer;

/* A rank, its thread, and the last call's results; of another process, only results. */
struct run_engine_worker {
    struct run_options options;
    struct run_prepared *prepared; /* owned; NULL: the engine's plan is used */
    struct core_queue *queue;      /* owned: the rank's thread; NULL: the caller's thread works */
    struct run_rank *rank;         /* owned; NULL: in another process */
    int64_t targets;
    struct run_result result;
    struct kern_loss loss;
    struct plan_traffic traffic;
    struct run_moved moved;
    struct run_stats stats;
    /* hash of the checksums of the engine's checkpoint */
    uint64_t sums_hash;
    uint64_t used_bytes, peak_bytes; /* of the rank's process; 0: this process */
};

enum { RUN_ENGINE_ARGUMENT_BYTES = 128 };

/* What one rank does in a call. All ranks get the same `arguments`. */
typedef int run_engine_work(struct run_engine *engine, struct run_engine_worker *worker,
                            const void *arguments);

struct run_engine_job {
    enum run_call call;
    struct run_engine *engine;
    /* copied: a rank that does not return may still read the arguments */
    const void *arguments;
};

struct run_engine {
    struct run_engine_options given;
    /* borrowed, static, [RUN_CALL_RANKS]: the work of a rank in each call */
    run_engine_work *const *works;
    struct run_engine_worker *workers; /* owned, [world] */
    uint32_t world;
    struct coll_meeting *meeting; /* owned; NULL: this process has only one rank */
    /* owned, RUN_PIECE_BYTES, for data of other processes; may be NULL */
    void *piece;
    struct run_scale scale;
    double betas[2]; /* betas of the next step */
    uint64_t run;
    /* owned: checksums of the base that ranks have read; NULL: not needed, or no longer */
    struct model_sums *sums;
    struct model_kept *kept;             /* owned: the file of the base; NULL: none */
    uint64_t base;                       /* identity of the base model, unless checkpoints contain
                                          * it */
    double drive_bytes[STORE_PATHS_MAX]; /* bytes per second of each store; 0: unknown */
    struct run_speculation speculation;
    uint64_t steps;
    struct run_engine_job job;
    _Alignas(16) unsigned char arguments[RUN_ENGINE_ARGUMENT_BYTES];
    bool called; /* the other processes were called to create an engine */
    bool lost;   /* a rank did not return and may still use this struct */
    struct run_engine *next_lost;
    struct run_checkpoint_writer *writer; /* owned; NULL: updates write no checkpoints */
    bool defers;                          /* the next step does not speculate */
    int error;                            /* the error that ended the run; 0: none */
};

/* ---- engine_call.c ---- */

/* Calls all ranks and waits. A failing rank ends the waits of the others. */
int run_engine_call_ranks(struct run_engine *engine, enum run_call call, const void *arguments,
                          size_t arguments_bytes);
/* Waits for another process's reply, and copies the results to its worker. */
int run_engine_wait_remote(struct run_engine *engine, uint32_t index, struct run_reply *reply);

/* ---- engine_base.c: for models whose checkpoints do not contain the base ---- */

/* Opens the file that keeps the base beside the first store. The first process begins a missing
 * file. */
int run_engine_base_open(struct run_engine *engine);
void run_engine_base_close(struct run_engine *engine);
/* Removes the kept file if `rc`, the result of a call that read it, and the message say that its
 * data does not match its checksums. */
void run_engine_base_check(const struct run_engine *engine, int rc);
/* Computes the base's identity, or takes it from the kept file. Returns -EINVAL if the checkpoint
 * or the initial adapters name another identity. Otherwise finishes a kept file that was begun. */
int run_engine_base_identify(struct run_engine *engine);

/* ---- engine_save.c ---- */

/* Returns the first rank on a rank's machine, which begins the machine's part of checkpoints; 0 if
 * machines share the folder of checkpoints. */
uint32_t run_engine_leader_of(const struct run_engine *engine, uint32_t rank);

/* ---- engine_parts.c ---- */

/* Returns -EBADMSG if a rank's checkpoint has other checksums than the first rank's: machines may
 * have different checkpoints at one path. */
int run_engine_compare_checkpoint(const struct run_engine *engine, uint32_t rank,
                                  uint64_t sums_hash, uint64_t first_hash);
/* With `local`, gives each machine the ranges of the checkpoint that it needs and lacks. Returns
 * -ENODATA if no machine has them. */
int run_engine_complete_parts(struct run_engine *engine);

/* ---- engine_make.c ---- */

/* Makes all ranks and loads them. After an error the engine can only be destroyed. */
int run_engine_make(struct run_engine *engine);
/* `run` is the run's number. */
int run_engine_make_rank(struct run_engine *engine, uint32_t index, uint64_t run);
run_engine_work run_engine_load_rank;

#endif
