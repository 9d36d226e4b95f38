/* executor.h: runs tapes. A loop without policy: each lane (a queue of the tape, bound to a device,
 * team or drive) takes its commands in tape order, and a command starts when its edges are reached.
 * Only the rank's thread calls. Lanes work on other threads and ring the shared bell. After create
 * nothing is allocated and nothing is locked.
 * At most two tapes are under way: a third starts when the first has retired. */
#ifndef OFFLOAD_RUN_EXECUTOR_H
#define OFFLOAD_RUN_EXECUTOR_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/base/fence.h"
#include "offload/plan/tape.h"

struct run_executor;

/* What executes the commands of a tape's queue. */
struct run_lane {
    /* Starts the command, whose edges are reached. On success *out is reached when the command is
     * done. -EAGAIN: the lane is full; the executor tries again when the bell rings. Any other
     * error ends the run. */
    int (*submit)(void *context, const struct plan_command *command, struct core_fence *out);
    void *context; /* borrowed */
};

struct run_executor_options {
    struct run_lane lanes[PLAN_Q_COUNT]; /* `submit` is NULL for queues without commands */
    struct core_bell *bell;              /* borrowed: the bell of every lane's line */
    uint32_t commands_max;               /* number of commands of the longest tape */
    /* Returns -ETIMEDOUT, with a message that names a queue, if no command starts or ends for this
     * long; 0: no limit. */
    int64_t stall_limit_ns;
    /* Waits sleep at once instead of spinning, so that they leave the processors to the
     * application's threads and to the update, which has further commands in its queue. */
    bool sleeps;

    /* borrowed: incremented whenever a command starts or ends; NULL: no thread reads it */
    _Atomic uint64_t *pulse;

    /* Called when a command is found done, queue by queue in order, on the rank's thread. `tape`
     * counts the pushed tapes, from 0. `begin_ns` is the latest of the command's submission, the
     * end of the previous command on its queue, and the ends of the commands that its edges name;
     * `end_ns` is when the executor found it done. Times are core_clock_now_ns(). NULL: no times
     * are kept. */
    void (*watch)(void *user, uint64_t tape, const struct plan_command *command, int64_t begin_ns,
                  int64_t end_ns);
    void *watch_user; /* borrowed */
};

/* Reasons why compute or the update had nothing to do. */
enum run_wait {
    RUN_WAIT_STORE_READ,
    RUN_WAIT_STORE_WRITE,
    RUN_WAIT_UPDATE, /* compute waits for the update */
    RUN_WAIT_COPY,
    RUN_WAIT_IMBALANCE, /* the update waits for compute, or one of them waits for a collective */
    RUN_WAIT_OTHER,     /* compute or the update waited for data, or for the end of the tape */
    RUN_WAIT_COUNT,
};

struct run_stats {
    int64_t compute_wait_ns[RUN_WAIT_COUNT];
    int64_t update_wait_ns[RUN_WAIT_COUNT];
    int64_t ranks_wait_ns; /* compute, the update or both waited for a collective */
    uint64_t commands;
    uint64_t loops;
};

int run_executor_create(const struct run_executor_options *options, struct run_executor **out);
void run_executor_destroy(struct run_executor *executor);

/* Appends a tape to those under way. Its commands start when their edges allow; all except reads of
 * STORE that do not depend on the step's data (plan_command_is_gated) also wait for `gate`: for the
 * step's data, and for the verdict on the previous tape. Returns -EAGAIN while two are under way.
 * `tape` is borrowed until it has retired. */
int run_executor_push(struct run_executor *executor, const struct plan_tape *tape,
                      struct core_fence gate);
/* Removes the tape pushed last, whose gate must not be reached. Waits for the reads that its
 * commands have started, and sets *read_bytes to the bytes that they moved. */
int run_executor_withdraw(struct run_executor *executor, uint64_t *read_bytes);
/* Returns the number of tapes pushed and not withdrawn, which is the number of the next tape. */
uint64_t run_executor_pushed(const struct run_executor *executor);

/* Works until at most `tapes_left` tapes are under way. Returns 0, the error of the lane that
 * failed, or -ETIMEDOUT after a stall; every later call returns the same error. */
int run_executor_drive(struct run_executor *executor, uint32_t tapes_left);

/* Works like run_executor_drive, but at most until the fence, which is on a line with the
 * executor's bell, is reached or has failed. */
int run_executor_drive_until(struct run_executor *executor, struct core_fence fence,
                             uint32_t tapes_left);

/* Works until tape number `tape` has done the command at `place`, from 1, of `queue`. */
int run_executor_drive_to(struct run_executor *executor, uint64_t tape, enum plan_queue queue,
                          uint32_t place);

/* Returns whether the run ended because no command started or ended, so that a lane may still be
 * executing a command. */
bool run_executor_stalled(const struct run_executor *executor);

/* Returns the counts since create or the last call. */
struct run_stats run_executor_stats_take(struct run_executor *executor);

#endif
