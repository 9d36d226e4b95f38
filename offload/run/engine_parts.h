/* engine_parts.h: what an engine holds, and how it asks its ranks; for the files engine*.c only. */
#ifndef OFFLOAD_RUN_ENGINE_PARTS_H
#define OFFLOAD_RUN_ENGINE_PARTS_H

#include "offload/run/engine.h"
#include "offload/run/speculation.h"

struct coll_meeting;
struct core_queue;
struct run_saving;

/* A rank and what the last order to all ranks left with it. */
struct run_engine_worker {
    struct run_options options;
    struct run_prepared *planned; /* owned; NULL: the engine's own is used */
    struct core_queue *queue;     /* owned; NULL: there is one rank */
    struct run_rank *rank;        /* owned */
    int64_t targets;              /* of what was fed */
    struct run_result result;
    struct kern_loss loss;
};

enum { RUN_ENGINE_ARGUMENT_BYTES = 128 };

/* What every rank does; `arguments` are the same for all. */
typedef int run_engine_work(struct run_engine *engine, struct run_engine_worker *member,
                            const void *arguments);

struct run_engine_job {
    run_engine_work *work;
    struct run_engine *engine;
    const void *arguments; /* the engine's copy: a rank that does not answer may yet look at it */
};

struct run_engine {
    struct run_engine_options given;
    struct run_engine_worker *members; /* owned, [world] */
    uint32_t world;
    struct coll_meeting *meeting; /* owned; NULL: there is one rank */
    struct run_scale scale;
    double betas[2];                     /* of the next step */
    uint64_t run;                        /* the same in all its checkpoints */
    double drive_bytes[STORE_PATHS_MAX]; /* a second, of each store; 0: unknown */
    struct run_speculation guess;
    uint64_t steps;
    struct run_engine_job asked;
    _Alignas(16) unsigned char arguments[RUN_ENGINE_ARGUMENT_BYTES]; /* of what was asked last */
    bool lost; /* a rank did not answer: its thread may still use all of this */
    struct run_engine *next_lost;
    struct run_saving *saving; /* owned; NULL: no tape saves */
    bool defers;               /* the next step does not guess */
    int error;                 /* of the call after which nothing can go on */
};

/* Waits for all; the first rank's error is returned: one that fails tells the others its sentence,
 * so that any of them names the cause. `arguments` are copied. */
int run_engine_call_ranks(struct run_engine *engine, run_engine_work *work, const void *arguments,
                          size_t arguments_bytes);

#endif
