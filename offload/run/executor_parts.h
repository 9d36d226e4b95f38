/* executor_parts.h: what an executor holds; private to executor*.c. */
#ifndef OFFLOAD_RUN_EXECUTOR_PARTS_H
#define OFFLOAD_RUN_EXECUTOR_PARTS_H

#include "offload/run/executor.h"

/* Tapes that are looked at: the last one that has retired, for edges that point back, and two. */
enum { RUN_WINDOW = 3 };

/* A tape in the window; the oldest of the three has retired and is kept for edges that point back. */
struct run_tape_state {
    const struct plan_tape *tape; /* borrowed from the plan */
    struct core_fence gate;
    uint32_t *index[PLAN_Q_COUNT];           /* into `indices`: the queue's commands in the tape */
    struct core_fence *fences[PLAN_Q_COUNT]; /* into `all_fences`: one a command, by place */
    uint32_t *indices;                       /* owned, [commands_max] */
    struct core_fence *all_fences;           /* owned, [commands_max] */
    int64_t *all_ns; /* owned, [commands_max], where they are watched: handed on, then done */
    int64_t *ns[PLAN_Q_COUNT]; /* into `all_ns`, by place */
    uint32_t submitted[PLAN_Q_COUNT];
    uint32_t reached[PLAN_Q_COUNT];
    bool withdrawn; /* nothing more of it is handed on */
};

struct run_executor {
    struct run_lane lanes[PLAN_Q_COUNT];
    struct core_bell *bell; /* borrowed */
    uint32_t commands_max;
    int64_t stall_limit_ns;
    bool stalled;
    _Atomic uint64_t *pulse; /* borrowed; NULL: nobody looks */
    void (*watch)(void *user, uint64_t tape, const struct plan_command *command, int64_t begin_ns,
                  int64_t end_ns);
    void *watch_user;              /* borrowed */
    int64_t done_ns[PLAN_Q_COUNT]; /* when the lane's last command was seen done */
    struct run_tape_state runs[RUN_WINDOW];
    uint64_t pushed;  /* tapes; runs[n % RUN_WINDOW] is the n-th */
    uint64_t retired; /* tapes, in order */
    int error;
    struct run_stats stats;
};

/* Fills `after` for a command. 1: it may be handed on; 0: not yet, and *blocker is the queue that it
 * waits for (PLAN_Q_COUNT: its data); or the error of a line. */
int run_edges_look(const struct run_executor *executor, uint64_t n,
                   const struct plan_command *command, bool takes_edges,
                   struct core_fence after[PLAN_EDGE_MAX + 1], uint8_t *blocker);

/* What compute and the update wait for now: a queue, PLAN_Q_COUNT for data, more where it works. */
void run_waits_look(const struct run_executor *executor, uint8_t blockers[2]);
void run_waits_charge(struct run_executor *executor, const uint8_t blockers[2], int64_t span_ns);
/* The sentence of a stall. */
int run_waits_stalled(const struct run_executor *executor);

#endif
