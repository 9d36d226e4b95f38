/* rank_internal.h: the state of a rank. Only for the rank's files and, through chunks.h, the
 * optimizer. */
#ifndef OFFLOAD_RUN_RANK_INTERNAL_H
#define OFFLOAD_RUN_RANK_INTERNAL_H

#include "core/base/bell.h"
#include "core/dev/dev.h"
#include "offload/plan/trace.h"
#include "offload/run/checkpoint_writer.h"
#include "offload/run/lane_compute.h"
#include "offload/run/lane_move.h"
#include "offload/run/rank.h"

enum { RANK_IO_QUEUES = 5 }; /* PLAN_Q_READ_WEIGHT and the next four */

/* state of the last step's update */
enum run_pending {
    RUN_PENDING_NONE,
    RUN_PENDING_DEFERRED, /* the update, or its deferred part, is left to the next step or a
                           * drain */
    RUN_PENDING_SAVED,    /* like DEFERRED; also goes to the checkpoint */
    RUN_PENDING_COUNT,
};

/* which step's update goes to the checkpoint */
enum run_saved {
    RUN_SAVED_NONE,
    RUN_SAVED_NEXT,
    RUN_SAVED_LAST, /* the last step's update, already in the checkpoint or pending */
};

struct run_rank {
    struct run_rank_options given;
    const struct run_options *options; /* borrowed, like the next five members */
    const struct run_shapes *shapes;
    const struct plan_input *input;
    const struct plan *plan;
    const struct run_application *application; /* NULL: the device computes */
    const struct blocks *blocks;

    struct core_bell bell; /* bell of every lane */
    /* grows with this rank's progress; other threads only compare it */
    _Atomic uint64_t pulse;
    struct dev_device *device; /* owned, like the pointers below except `lost` */
    struct kern_ops *ops;
    struct dev_queue *compute_queue;
    struct dev_queue *up_queue;
    struct dev_queue *down_queue;
    struct run_update *update;
    struct run_place place;
    struct run_memory memory;
    struct run_inputs inputs;
    struct store *store; /* NULL: nothing is kept there */
    struct aio_queue *io_queues[RANK_IO_QUEUES];

    struct run_compute compute;
    struct model_binding binding; /* owned arrays: of the block being submitted */
    struct run_copy up;
    struct run_copy down;
    struct run_io io[RANK_IO_QUEUES];
    struct coll *coll; /* owned; NULL: only one rank */
    struct run_collect collect;
    struct run_checkpoint_lane *checkpoint_lane; /* owned; NULL: updates write no checkpoints */
    struct run_executor *executor;
    struct plan_trace *trace; /* owned; NULL: no timeline was requested */
    struct dev_timing timing; /* sends the times of ops to the timeline */
    bool times_ops;           /* the device was asked for the times of ops */
    bool traced;              /* the timeline was written, or could not be */

    enum plan_kind last;   /* tape released last; PLAN_KIND_COUNT: none yet */
    enum plan_kind ahead;  /* tape pushed in advance, which only reads STORE until its release;
                            * PLAN_KIND_COUNT: none */
    struct core_line gate; /* gated commands of a tape (plan_command_is_gated) wait until this line
                            * reaches the tape's number */
    uint64_t gates;        /* tapes released */
    enum run_pending pending;
    enum run_saved saved;
    uint64_t updates; /* updates done or pending; skipped steps have none */
    struct plan_traffic traffic;
    /* what drives had moved at the last run_rank_moved_take() */
    struct run_moved moved;
    struct run_rank *lost; /* next rank that could not be destroyed */
};

/* Waits for a fence of this rank's queues while its queue makes progress. */
int run_rank_wait(struct run_rank *rank, struct core_fence fence);

#endif
