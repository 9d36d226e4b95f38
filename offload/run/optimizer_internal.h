/* optimizer_internal.h: what an optimizer holds. Only for optimizer.c and optimizer_save.c. */
#ifndef OFFLOAD_RUN_OPTIMIZER_INTERNAL_H
#define OFFLOAD_RUN_OPTIMIZER_INTERNAL_H

#include <pthread.h>

#include "core/base/queue.h"
#include "offload/run/chunks.h"
#include "offload/run/optimizer.h"

struct run_optimizer {
    struct run_options options;
    struct blocks *blocks;        /* owned */
    struct run_lent lent;         /* its blocks and their parts are owned */
    struct run_lent_part **parts; /* owned, [parameters]: in `lent` */
    uint32_t *block_of;           /* owned, [parameters] */
    size_t parameter_count;
    struct run_shapes *shapes; /* owned */
    struct run_rates rates;
    struct plan_input input;
    struct plan *plan; /* owned */
    struct run_application application;
    struct run_rank *rank;     /* owned */
    uint64_t run;              /* the same in all its checkpoints */
    uint64_t before;           /* steps that were closed before the checkpoint that was loaded */
    struct core_queue *worker; /* owned: the thread that drives tapes */

    /* The application's side of a step. */
    struct adam_group *groups;      /* owned, [group_count]: as set now */
    struct adam_group *step_groups; /* owned, [group_count]: of the step whose updates come next */
    uint32_t *group_of;             /* owned, [parameters] */
    uint32_t group_count;
    double loss_scale;
    uint64_t steps;      /* closed */
    bool open;           /* a gradient was submitted since */
    uint64_t *submitted; /* owned, [parameters]: the last step with all its gradients, from 1 */

    /* Between the application and the executor. */
    pthread_mutex_t lock; /* of the next members */
    uint32_t *missing;    /* owned, [blocks]: parameters without their last gradient */
    uint64_t *complete;   /* owned, [blocks]: steps in which the block is complete */
    uint32_t *bwd;        /* owned, ring [2 * blocks]: blocks of BWD commands, in tape order */
    uint64_t bwd_begun, bwd_done;
    struct core_line compute; /* counts BWD commands */
    struct core_line closed;  /* counts steps that were closed */

    /* The worker's and the update's side. */
    struct adam_group *terms; /* owned, [parameters]: of the step that is taken */
    uint64_t *updates;        /* owned, [parameters] */
    uint64_t updated;         /* blocks, in all steps: the value of `done` */
    struct core_line done;    /* counts updated blocks */
    struct core_line settled; /* counts steps whose norm is known */
    struct run_optimizer_result result;
};

/* Waits until nothing runs; after that the caller's thread may use the rank. */
int run_optimizer_quiesce(struct run_optimizer *optimizer);

#endif
