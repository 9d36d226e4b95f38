/* executor_waits.c: the account of waiting: what compute and the update wait for, and who stands still.
 * The engine's thread. */
#include <errno.h>

#include "core/base/err.h"
#include "offload/run/executor_parts.h"

static enum run_wait wait_for(enum plan_queue blocker)
{
    switch (blocker) {
    case PLAN_Q_READ_WEIGHT:
    case PLAN_Q_READ_STATE:
    case PLAN_Q_READ_ACT: return RUN_WAIT_STORE_READ;
    case PLAN_Q_WRITE_STATE:
    case PLAN_Q_WRITE_CHECKPOINT:
    case PLAN_Q_WRITE_ACT: return RUN_WAIT_STORE_WRITE;
    case PLAN_Q_UPDATE: return RUN_WAIT_UPDATE;
    case PLAN_Q_UP:
    case PLAN_Q_DOWN: return RUN_WAIT_COPY;
    case PLAN_Q_COMPUTE:
    case PLAN_Q_COLL: return RUN_WAIT_IMBALANCE;
    case PLAN_Q_COUNT: break;
    }
    return RUN_WAIT_OTHER;
}

/* The first unreached edge of a command; PLAN_Q_COUNT + 1 where there is none. */
static uint8_t unreached_edge(const struct run_executor *executor, uint64_t n,
                              const struct plan_command *command)
{
    struct core_fence after[PLAN_EDGE_MAX + 1];
    uint8_t blocker = PLAN_Q_COUNT;
    return run_edges_look(executor, n, command, false, after, &blocker) == 0 ? blocker
                                                                             : PLAN_Q_COUNT + 1;
}

/* What a lane waits for at this moment: follows a copy that itself waits for the drive to the
 * drive or to data, so that the cause is named and not its messenger. PLAN_Q_COUNT + 1: it is at work. */
static uint8_t lane_blocker(const struct run_executor *executor, uint8_t q, int hops)
{
    for (uint64_t n = executor->retired; n < executor->pushed; n++) {
        const struct run_tape_state *run = &executor->runs[n % RUN_WINDOW];
        if (run->reached[q] == run->tape->queue_count[q]) {
            continue;
        }
        const struct plan_command *next = &run->tape->commands[run->index[q][run->reached[q]]];
        uint8_t blocker = unreached_edge(executor, n, next);
        if (hops > 0 && (blocker == PLAN_Q_UP || blocker == PLAN_Q_DOWN)) {
            uint8_t behind = lane_blocker(executor, blocker, hops - 1);
            return behind <= PLAN_Q_COUNT ? behind : blocker;
        }
        return blocker;
    }
    return PLAN_Q_COUNT;
}

void run_waits_look(const struct run_executor *executor, uint8_t blockers[2])
{
    blockers[0] = lane_blocker(executor, PLAN_Q_COMPUTE, 2);
    blockers[1] = lane_blocker(executor, PLAN_Q_UPDATE, 2);
}

void run_waits_charge(struct run_executor *executor, const uint8_t blockers[2], int64_t span_ns)
{
    int64_t *waits[] = {executor->stats.compute_wait_ns, executor->stats.update_wait_ns};
    for (int w = 0; w < 2; w++) {
        if (blockers[w] <= PLAN_Q_COUNT) {
            waits[w][wait_for((enum plan_queue)blockers[w])] += span_ns;
        }
    }
}

int run_waits_stalled(const struct run_executor *executor)
{
    for (uint8_t q = 0; q < PLAN_Q_COUNT; q++) {
        uint8_t blocker = lane_blocker(executor, q, 0);
        if (blocker == PLAN_Q_COUNT + 1) {
            return core_err_set(-ETIMEDOUT,
                                "nothing moved for %.1f s: queue %s does not end its "
                                "command",
                                (double)executor->stall_limit_ns / 1e9,
                                plan_queue_name((enum plan_queue)q));
        }
    }
    return core_err_set(-ETIMEDOUT,
                        "nothing moved for %.1f s: all queues wait for each other or "
                        "for data",
                        (double)executor->stall_limit_ns / 1e9);
}

const char *run_wait_name(enum run_wait wait)
{
    static const char *const names[RUN_WAIT_COUNT] = {"store_read", "store_write", "update",
                                                      "copy",       "imbalance",   "other"};
    return names[wait];
}
