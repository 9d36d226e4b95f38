/* executor.h: runs tapes. Each lane (a queue of the tape) takes its commands in tape order; a
 * command waits for the commands that its edges name. One thread at a time calls. Lanes work on
 * other threads and ring the shared bell. After create the executor allocates nothing. At most two
 * tapes are under way. */
#ifndef OFFLOAD_RUN_EXECUTOR_H
#define OFFLOAD_RUN_EXECUTOR_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/base/fence.h"
#include "offload/plan/tape.h"

struct run_executor;

struct run_lane {
    /* Starts a command; *out is reached when the command is done. Returns -EAGAIN if the lane is
     * full: the executor tries again later. Other errors end the run. */
    int (*submit)(void *context, const struct plan_command *command, struct core_fence *out);
    void *context; /* borrowed */
};

struct run_executor_options {
    struct run_lane lanes[PLAN_Q_COUNT]; /* `submit` is NULL for queues without commands */
    struct core_bell *bell;              /* borrowed: every lane's bell */
    uint32_t commands_max;               /* of the longest tape */
    /* Time without progress before -ETIMEDOUT; 0: no limit. */
    int64_t stall_limit_ns;
    /* Waits sleep at once instead of spinning, to leave processors to the application and the
     * update. */
    bool sleeps;

    /* borrowed: grows while commands start or end; may be NULL */
    _Atomic uint64_t *pulse;

    /* Called by the driving thread when a command is found done: the commands of one queue in
     * order, those of different queues in any order. `tape` is the tape's number. `begin_ns` is the
     * latest of the command's submission, the end of the previous command on its queue, and the
     * ends of the commands that its edges name; `end_ns` is when the executor found it done, by
     * core_clock_now_ns(). NULL: no times are kept. */
    void (*watch)(void *user, uint64_t tape, const struct plan_command *command, int64_t begin_ns,
                  int64_t end_ns);
    void *watch_user; /* borrowed */
};

/* why compute or the update had nothing to do */
enum run_wait {
    RUN_WAIT_STORE_READ,
    RUN_WAIT_STORE_WRITE,
    RUN_WAIT_UPDATE, /* compute waits for the update */
    RUN_WAIT_COPY,
    RUN_WAIT_IMBALANCE, /* the update waits for compute, or either waits for a collective */
    RUN_WAIT_OTHER,     /* for the gate, or no command was left */
    RUN_WAIT_COUNT,
};

struct run_stats {
    int64_t compute_wait_ns[RUN_WAIT_COUNT];
    int64_t update_wait_ns[RUN_WAIT_COUNT];
    int64_t ranks_wait_ns; /* waits for collectives */
    uint64_t commands;
    uint64_t loops;
};

int run_executor_create(const struct run_executor_options *options, struct run_executor **out);
void run_executor_destroy(struct run_executor *executor);

/* Appends a tape, borrowed until the tape after it has retired. Reads of STORE that do not depend
 * on the step's data (plan_command_is_gated) start when their edges allow; other commands also wait
 * for `gate`: the step's data and the verdict on the previous tape. Returns -EAGAIN while two tapes
 * are under way. */
int run_executor_push(struct run_executor *executor, const struct plan_tape *tape,
                      struct core_fence gate);
/* Removes the tape pushed last, whose gate must be closed. Waits for its reads, and sets
 * *read_bytes to their bytes. */
int run_executor_withdraw(struct run_executor *executor, uint64_t *read_bytes);
/* Returns the number of tapes pushed and not withdrawn: the next tape's number. */
uint64_t run_executor_pushed(const struct run_executor *executor);

/* Works until at most `tapes_left` tapes are under way. Returns 0, a lane's error, or -ETIMEDOUT
 * after a stall; after an error, later calls return the same error. */
int run_executor_drive(struct run_executor *executor, uint32_t tapes_left);

/* Like run_executor_drive, but at most until the fence, on a line with the executor's bell, is
 * reached or has failed. */
int run_executor_drive_until(struct run_executor *executor, struct core_fence fence,
                             uint32_t tapes_left);

/* Works until tape number `tape` has done the command at `place`, from 1, of `queue`. */
int run_executor_drive_to(struct run_executor *executor, uint64_t tape, enum plan_queue queue,
                          uint32_t place);

/* Returns whether a stall ended the run, so that a lane may still be executing a command. */
bool run_executor_stalled(const struct run_executor *executor);

/* Returns the counts since create or the last call. */
struct run_stats run_executor_stats_take(struct run_executor *executor);

#endif
