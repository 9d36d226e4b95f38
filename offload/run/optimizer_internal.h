/* optimizer_internal.h: the state of an optimizer. Only for optimizer*.c. */
#ifndef OFFLOAD_RUN_OPTIMIZER_INTERNAL_H
#define OFFLOAD_RUN_OPTIMIZER_INTERNAL_H

#include <pthread.h>

#include "core/base/queue.h"
#include "offload/plan/flow.h"
#include "offload/run/chunks.h"
#include "offload/run/optimizer.h"

struct run_optimizer {
    struct run_options options;
    struct blocks *whole;  /* owned: whole blocks of all parameters */
    struct blocks *blocks; /* owned: this process's share; `whole` if it has all */
    uint32_t *whole_of;    /* owned, [blocks]: their indices in `whole` */
    struct run_lent lent;  /* owns the blocks and their parts */
    /* owned, [parameters]: parts in `lent`; NULL: this process has no part */
    struct run_lent_part **parts;
    uint32_t *block_of; /* owned, [parameters]; valid if there is a part */
    size_t parameter_count;
    struct run_shapes *shapes; /* owned */
    struct run_rates rates;
    struct plan_input input;
    struct plan *plan;                   /* owned */
    struct plan_flow *flow;              /* owned */
    struct run_optimizer_device *device; /* owned; NULL: host memory */
    void *stream;                        /* borrowed: the application's stream for copies */
    struct run_application application;
    uint32_t world;
    uint32_t rank_index; /* rank of this process */
    int (*sum)(void *user, double *values, size_t count);
    void *sum_user;
    uint64_t *first_tiles;     /* owned, [blocks]: a block's first tile in `tiles` */
    uint64_t tile_count;       /* number of tiles in a run of one process */
    double *tiles;             /* owned, [tile_count]: sums of squares, for total_of_all() */
    struct run_rank *rank;     /* owned */
    uint64_t run;              /* identity of the run, as in its checkpoints */
    uint64_t before;           /* the run's step is `before` + `steps` */
    struct core_queue *worker; /* owned: the thread that drives tapes */

    /* Written by the application's thread. */
    struct adam_group *groups; /* owned, [group_count]: the current settings */
    /* owned, [group_count]: settings that the worker reads for a step's updates */
    struct adam_group *step_groups;
    uint32_t *group_of; /* owned, [parameters] */
    uint32_t group_count;
    double loss_scale;
    uint64_t steps;      /* number of closed steps */
    bool open;           /* a gradient was submitted after the last close */
    uint64_t *submitted; /* owned, [parameters]: last step, from 1, with all gradients */
    uint32_t *missing;   /* owned, [blocks]: parameters without their last gradient */

    /* Written by the application's thread, read by the worker. A block becomes ready once per step:
     * with its last gradient, or when the step is closed. */
    uint64_t handed;          /* blocks handed to the worker in all steps */
    uint32_t *ready;          /* owned, ring [2 * blocks]: two steps' ready blocks, written before
                               * `arrived` */
    struct core_line arrived; /* counts ready blocks, in all steps */
    /* The worker drives tapes until another block is ready, which must ring the rank's bell.
     * Sequentially consistent, like `arrived`. */
    _Atomic bool awaits_ready;
    struct core_line closed; /* counts steps that were closed */

    /* Used by the worker. */
    uint64_t step; /* from 1 */
    /* owned, [blocks]: order of ready blocks in the previous step */
    uint32_t *order;
    uint64_t *taken;          /* owned, [blocks]: last step that put the block on a tape */
    uint32_t expected;        /* place in `order` of the next block to fetch */
    uint32_t lost;            /* plan_flow_lost() when this step began */
    struct adam_group *terms; /* owned, [parameters]: settings in the worker's step */

    /* Written by the worker and the update, read by the application's thread. */
    pthread_mutex_t lock;      /* protects `given_back_count` */
    uint64_t given_back_count; /* the value of `given_back` */
    uint64_t *updates;         /* owned, [parameters] */
    /* owned, [blocks]: steps that gave the block back; changes before `given_back` */
    _Atomic uint64_t *times_given_back;
    struct core_line given_back; /* counts blocks given back in all steps */
    struct core_line settled;    /* counts steps whose norm is known */
    struct run_optimizer_result result;
};

/* Returns whether updates run during the backward pass instead of after the norm. */
bool run_optimizer_inside(const struct run_optimizer *optimizer);

/* ---- optimizer_blocks.c ---- */

/* Lists the blocks of all parameters and this process's shares. */
int run_optimizer_make_blocks(struct run_optimizer *optimizer,
                              const struct run_optimizer_options *options);
/* Returns the elements of a block that one process has; they begin and end at cuts. */
struct plan_span run_optimizer_share_of(uint64_t elements, uint32_t world, uint32_t rank);
/* Lists the blocks with a process's share, and the elements of that share. Returns -EINVAL if there
 * are none. */
int run_optimizer_share_blocks(const struct blocks *whole, uint32_t world, uint32_t rank,
                               struct blocks **out);

/* ---- optimizer_step.c ---- */

/* Fills `terms` with the settings of each parameter's group and the number of its next update. */
void run_optimizer_fill_terms(struct run_optimizer *optimizer);
/* Gives a block back, `updated` or not: the application may use its weights and reuse its
 * gradients. */
void run_optimizer_give_back(struct run_optimizer *optimizer, uint32_t block, bool updated);
/* Takes a step from its first gradient on. Runs on the worker's thread. */
int run_optimizer_take_step(struct run_optimizer *optimizer, uint64_t step);

/* ---- optimizer_device.c ---- */

struct run_optimizer_device;

/* Allocates host memory for weights and gradients, and copies the weights there. Call it between
 * the rank's creation and its load. */
int run_optimizer_device_open(struct run_optimizer *optimizer, const char *name);
/* Returns the bytes of that memory. */
uint64_t run_optimizer_device_bytes(const struct run_optimizer *optimizer);
/* Waits for all copies; does not free the update's memory. Accepts NULL, like the next function. */
void run_optimizer_device_stop(struct run_optimizer_device *device);
void run_optimizer_device_close(struct run_optimizer_device *device);

/* Queues a gradient's copy to host memory on the application's stream, and points *gradient to it.
 * `waits`: also waits. */
int run_optimizer_device_take(struct run_optimizer *optimizer, size_t parameter, bool waits,
                              const char **gradient);
/* Notes that the host's weights of a parameter are newer than the device's. */
void run_optimizer_device_note(struct run_optimizer *optimizer, size_t parameter);
/* Queues the copy of newer weights to the device, unless the parameter has a last gradient of an
 * open step. */
int run_optimizer_device_show(struct run_optimizer *optimizer, size_t parameter);
/* Copies weights that the application wrote on the device to host memory, and waits. */
int run_optimizer_device_read(struct run_optimizer *optimizer, size_t parameter);
/* Waits for copies from and to the host's arrays of a block. Runs on the worker's thread. */
int run_optimizer_device_wait(struct run_optimizer *optimizer, uint32_t block);

/* ---- optimizer.c ---- */

/* Returns the error that has ended the optimizer, or 0. */
int run_optimizer_check_alive(struct run_optimizer *optimizer);
/* Waits until no work runs; the caller's thread may then use the rank. */
int run_optimizer_quiesce(struct run_optimizer *optimizer);

#endif
