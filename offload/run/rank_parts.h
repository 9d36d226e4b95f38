/* rank_parts.h: what a rank holds; for the files rank*.c only. */
#ifndef OFFLOAD_RUN_RANK_PARTS_H
#define OFFLOAD_RUN_RANK_PARTS_H

#include "core/base/bell.h"
#include "offload/run/collect.h"
#include "offload/run/compute.h"
#include "offload/run/rank.h"
#include "offload/run/save.h"
#include "offload/run/timeline.h"
#include "offload/run/transfer.h"

enum { RANK_IO_QUEUES = 5 }; /* PLAN_Q_READ_WEIGHT and behind */

struct run_rank {
    struct run_rank_options given;
    const struct run_options *options; /* borrowed, as the next four */
    const struct run_shapes *shapes;
    const struct plan_input *input;
    const struct plan *plan;
    const struct model *model;

    struct core_bell bell;     /* of every lane */
    _Atomic uint64_t pulse;    /* grows while this rank gets on; others only compare it */
    struct dev_device *device; /* owned, as all below */
    struct kern_ops *ops;
    struct dev_queue *compute_queue;
    struct dev_queue *up_queue;
    struct dev_queue *down_queue;
    struct run_update *update;
    struct run_memory memory;
    struct run_inputs inputs;
    struct store *store; /* NULL: nothing lies there */
    struct aio_queue *io_queues[RANK_IO_QUEUES];

    struct run_compute compute;
    struct run_copy up;
    struct run_copy down;
    struct run_io io[RANK_IO_QUEUES];
    struct coll *coll; /* owned; NULL: there is one rank */
    struct run_collect collect;
    struct run_save *save; /* owned; NULL: no tape saves */
    struct run_executor *executor;
    struct run_timeline *timeline; /* owned; NULL: not asked for */
    bool traced;                   /* it was written, or could not be */

    enum plan_kind last;   /* the tape begun last; PLAN_KIND_COUNT: none yet */
    enum plan_kind ahead;  /* one is pushed behind it and only reads; PLAN_KIND_COUNT: none is */
    struct core_line gate; /* a tape's other commands wait for its place here: `gates` */
    uint64_t gates;
    bool pending;     /* an update waits for the next step or a drain */
    bool saves;       /* the update that is pending also goes to a checkpoint */
    bool saves_next;  /* the next step's update does */
    bool saved_step;  /* that of the last step with `saves_next` did, or does */
    uint64_t updates; /* done or pending, skipped ones not counted */
    struct plan_traffic traffic;
    struct run_rank *lost; /* in the list of those that could not be destroyed */
};

/* Waits for one of this rank's queues as long as it moves. */
int run_rank_wait(struct run_rank *rank, struct core_fence fence);

#endif
