/* executor.c: the loop, its view of edges as fences, and the account of waiting. */
#include "offload/run/executor.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/err.h"

enum { UNDER_WAY_MAX = 2, WINDOW = UNDER_WAY_MAX + 1, SPIN_NS = 20000 };

/* A tape in the window; the oldest of the three has retired and is kept for edges that point back. */
struct run {
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
    struct run runs[WINDOW];
    uint64_t pushed;  /* tapes; runs[n % WINDOW] is the n-th */
    uint64_t retired; /* tapes, in order */
    int error;
    struct run_stats stats;
};

int run_executor_create(const struct run_executor_options *options, struct run_executor **out)
{
    struct run_executor *executor = calloc(1, sizeof *executor);
    if (executor == NULL) {
        return core_err_set(-ENOMEM, "no memory for an executor");
    }
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        executor->lanes[q] = options->lanes[q];
    }
    executor->bell = options->bell;
    executor->commands_max = options->commands_max;
    executor->stall_limit_ns = options->stall_limit_ns;
    executor->pulse = options->pulse;
    executor->watch = options->watch;
    executor->watch_user = options->watch_user;
    for (int i = 0; i < WINDOW; i++) {
        struct run *run = &executor->runs[i];
        size_t count = options->commands_max > 0 ? options->commands_max : 1;
        run->indices = calloc(count, sizeof *run->indices);
        run->all_fences = calloc(count, sizeof *run->all_fences);
        run->all_ns = options->watch != NULL ? calloc(count, sizeof *run->all_ns) : NULL;
        if (run->indices == NULL || run->all_fences == NULL ||
            (options->watch != NULL && run->all_ns == NULL)) {
            run_executor_destroy(executor);
            return core_err_set(-ENOMEM, "no memory for %zu commands of a tape", count);
        }
    }
    *out = executor;
    return 0;
}

void run_executor_destroy(struct run_executor *executor)
{
    if (executor == NULL) {
        return;
    }
    for (int i = 0; i < WINDOW; i++) {
        free(executor->runs[i].indices);
        free(executor->runs[i].all_fences);
        free(executor->runs[i].all_ns);
    }
    free(executor);
}

int run_executor_push(struct run_executor *executor, const struct plan_tape *tape,
                      struct core_fence gate)
{
    if (executor->error != 0) {
        return executor->error;
    }
    if (executor->pushed - executor->retired >= UNDER_WAY_MAX) {
        return -EAGAIN;
    }
    if (tape->count > executor->commands_max) {
        return core_err_set(-EINVAL, "a tape of %u commands is longer than the %u made room for",
                            tape->count, executor->commands_max);
    }
    struct run *run = &executor->runs[executor->pushed % WINDOW];
    uint32_t first = 0;
    uint32_t filled[PLAN_Q_COUNT] = {0};
    run->tape = tape;
    run->gate = gate;
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        run->index[q] = run->indices + first;
        run->fences[q] = run->all_fences + first;
        run->ns[q] = run->all_ns != NULL ? run->all_ns + first : NULL;
        run->submitted[q] = 0;
        run->reached[q] = 0;
        first += tape->queue_count[q];
    }
    for (uint32_t i = 0; i < tape->count; i++) {
        uint8_t q = tape->commands[i].queue;
        assert(executor->lanes[q].submit != NULL && tape->commands[i].place == filled[q] + 1);
        run->index[q][filled[q]++] = i;
    }
    executor->pushed++;
    return 0;
}

/* ---- edges ---- */

/* The fence of an edge of the n-th tape. *submitted tells whether there is one yet. */
static struct core_fence edge_fence(const struct run_executor *executor, uint64_t n,
                                    struct plan_edge edge, bool *submitted)
{
    *submitted = true;
    if (edge.queue == PLAN_Q_COUNT) {
        return (struct core_fence){0};
    }
    int64_t place = edge.count;
    if (place <= 0) {
        if (n == 0) {
            return (struct core_fence){0};
        }
        n--;
        place += executor->runs[n % WINDOW].tape->queue_count[edge.queue];
    }
    const struct run *run = &executor->runs[n % WINDOW];
    assert(place > 0 && place <= run->tape->queue_count[edge.queue]);
    *submitted = run->submitted[edge.queue] >= place;
    return *submitted ? run->fences[edge.queue][place - 1] : (struct core_fence){0};
}

/* Fills `after` for a command. 1: it may be handed on; 0: not yet, and *blocker is the queue that it
 * waits for (PLAN_Q_COUNT: its data); or the error of a line. */
static int edges_look(const struct run_executor *executor, uint64_t n,
                      const struct plan_command *command, bool takes_edges,
                      struct core_fence after[PLAN_EDGE_MAX + 1], uint8_t *blocker)
{
    const struct run *run = &executor->runs[n % WINDOW];
    for (int e = 0; e < PLAN_EDGE_MAX; e++) {
        bool submitted = false;
        after[e] = edge_fence(executor, n, command->edges[e], &submitted);
        int state = submitted ? core_fence_poll(after[e]) : 0;
        if (state < 0) {
            return state;
        }
        if (!submitted || (state == 0 && !takes_edges)) {
            *blocker = command->edges[e].queue;
            return 0;
        }
    }
    bool gated = command->queue == PLAN_Q_COMPUTE;
    after[PLAN_EDGE_MAX] = gated ? run->gate : (struct core_fence){0};
    int state = core_fence_poll(after[PLAN_EDGE_MAX]);
    *blocker = PLAN_Q_COUNT;
    return state == 0 && takes_edges ? 1 : state;
}

/* ---- the account of waiting ---- */

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
    return edges_look(executor, n, command, false, after, &blocker) == 0 ? blocker
                                                                         : PLAN_Q_COUNT + 1;
}

/* What a lane waits for at this moment: follows a copy that itself waits for the drive to the
 * drive, so that the cause is named and not its messenger. PLAN_Q_COUNT + 1: it is at work. */
static uint8_t lane_blocker(const struct run_executor *executor, uint8_t q, int hops)
{
    for (uint64_t n = executor->retired; n < executor->pushed; n++) {
        const struct run *run = &executor->runs[n % WINDOW];
        if (run->reached[q] == run->tape->queue_count[q]) {
            continue;
        }
        const struct plan_command *next = &run->tape->commands[run->index[q][run->reached[q]]];
        uint8_t blocker = unreached_edge(executor, n, next);
        if (hops > 0 && (blocker == PLAN_Q_UP || blocker == PLAN_Q_DOWN)) {
            uint8_t behind = lane_blocker(executor, blocker, hops - 1);
            return behind < PLAN_Q_COUNT ? behind : blocker;
        }
        return blocker;
    }
    return PLAN_Q_COUNT;
}

/* What the two watched lanes wait for now. */
static void waits_look(const struct run_executor *executor, uint8_t blockers[2])
{
    blockers[0] = lane_blocker(executor, PLAN_Q_COMPUTE, 2);
    blockers[1] = lane_blocker(executor, PLAN_Q_UPDATE, 2);
}

static void waits_charge(struct run_executor *executor, const uint8_t blockers[2], int64_t span_ns)
{
    int64_t *waits[] = {executor->stats.compute_wait_ns, executor->stats.update_wait_ns};
    for (int w = 0; w < 2; w++) {
        if (blockers[w] <= PLAN_Q_COUNT) {
            waits[w][wait_for((enum plan_queue)blockers[w])] += span_ns;
        }
    }
}

/* ---- the loop ---- */

static int lane_reap(struct run_executor *executor, uint64_t n, int q, uint32_t place);

/* When the command that an edge of the n-th tape names was done. The lane that waited for it is
 * done, so it is done too, and noted first. */
static int64_t edge_done_ns(struct run_executor *executor, uint64_t n, struct plan_edge edge)
{
    int64_t place = edge.count;
    if (edge.queue == PLAN_Q_COUNT || (place <= 0 && n == 0)) {
        return 0;
    }
    if (place <= 0) {
        n--;
        place += executor->runs[n % WINDOW].tape->queue_count[edge.queue];
    }
    const struct run *run = &executor->runs[n % WINDOW];
    lane_reap(executor, n, edge.queue, (uint32_t)place);
    return run->reached[edge.queue] >= place ? run->ns[edge.queue][place - 1] : 0;
}

/* Tells the watcher of the lane's command that is done. */
static void lane_watch(struct run_executor *executor, uint64_t n, int q)
{
    struct run *run = &executor->runs[n % WINDOW];
    uint32_t place = run->reached[q];
    const struct plan_command *command = &run->tape->commands[run->index[q][place]];
    int64_t begin_ns = run->ns[q][place];
    begin_ns = executor->done_ns[q] > begin_ns ? executor->done_ns[q] : begin_ns;
    for (int e = 0; e < PLAN_EDGE_MAX; e++) {
        int64_t done_ns = edge_done_ns(executor, n, command->edges[e]);
        begin_ns = done_ns > begin_ns ? done_ns : begin_ns;
    }
    int64_t end_ns = core_clock_now_ns();
    run->ns[q][place] = end_ns;
    executor->done_ns[q] = end_ns;
    executor->watch(executor->watch_user, n, command, begin_ns, end_ns);
}

/* Notes how far a lane has come, up to `place`. 1 where it moved, or the error of its line. */
static int lane_reap(struct run_executor *executor, uint64_t n, int q, uint32_t place)
{
    struct run *run = &executor->runs[n % WINDOW];
    int moved = 0;
    while (run->reached[q] < run->submitted[q] && run->reached[q] < place) {
        int state = core_fence_poll(run->fences[q][run->reached[q]]);
        if (state <= 0) {
            return state < 0 ? state : moved;
        }
        if (executor->watch != NULL) {
            lane_watch(executor, n, q);
        }
        run->reached[q]++;
        moved = 1;
    }
    return moved;
}

/* Hands on as many commands of a lane as may start. 1 where there were any, or an error. */
static int lane_feed(struct run_executor *executor, uint64_t n, int q)
{
    struct run *run = &executor->runs[n % WINDOW];
    const struct run_lane *lane = &executor->lanes[q];
    int moved = 0;
    while (run->submitted[q] < run->tape->queue_count[q]) {
        const struct plan_command *command = &run->tape->commands[run->index[q][run->submitted[q]]];
        struct core_fence after[PLAN_EDGE_MAX + 1];
        uint8_t blocker = PLAN_Q_COUNT;
        int rc = edges_look(executor, n, command, lane->takes_edges, after, &blocker);
        if (rc <= 0) {
            return rc < 0 ? rc : moved;
        }
        if (executor->watch != NULL) {
            run->ns[q][run->submitted[q]] = core_clock_now_ns();
        }
        rc = lane->submit(lane->context, command, after, &run->fences[q][run->submitted[q]]);
        if (rc != 0) {
            return rc == -EAGAIN ? moved : rc;
        }
        run->submitted[q]++;
        executor->stats.commands++;
        moved = 1;
    }
    return moved;
}

static bool run_retired(const struct run *run)
{
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        if (run->reached[q] < run->tape->queue_count[q]) {
            return false;
        }
    }
    return true;
}

/* A lane goes on to a tape when it has handed on all of the tape before. */
static bool lane_open(const struct run_executor *executor, uint64_t n, int q)
{
    if (n == executor->retired) {
        return true;
    }
    const struct run *before = &executor->runs[(n - 1) % WINDOW];
    return before->submitted[q] == before->tape->queue_count[q];
}

/* One look at everything. 1 where anything moved, 0 where all wait, or an error. */
static int turn(struct run_executor *executor)
{
    int moved = 0;
    executor->stats.loops++;
    for (uint64_t n = executor->retired; n < executor->pushed; n++) {
        for (int q = 0; q < PLAN_Q_COUNT; q++) {
            int rc = lane_reap(executor, n, q, UINT32_MAX);
            moved |= rc > 0;
            if (rc >= 0 && lane_open(executor, n, q)) {
                rc = lane_feed(executor, n, q);
                moved |= rc > 0;
            }
            if (rc < 0) {
                return rc;
            }
        }
    }
    while (executor->retired < executor->pushed &&
           run_retired(&executor->runs[executor->retired % WINDOW])) {
        executor->retired++;
        moved = 1;
    }
    return moved;
}

static int stalled(const struct run_executor *executor)
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

static bool done_tapes(const struct run_executor *executor, uint64_t tapes_left, uint64_t place)
{
    (void)place;
    return executor->pushed - executor->retired <= tapes_left;
}

static bool done_command(const struct run_executor *executor, uint64_t queue, uint64_t place)
{
    return executor->pushed == executor->retired ||
           executor->runs[(executor->pushed - 1) % WINDOW].reached[queue] >= place;
}

/* Tells whoever waits for this thread that it lives. A counter that others only compare. */
static void note_pulse(const struct run_executor *executor)
{
    if (executor->pulse != NULL) {
        atomic_fetch_add_explicit(executor->pulse, 1, memory_order_relaxed);
    }
}

static int drive(struct run_executor *executor,
                 bool (*done)(const struct run_executor *, uint64_t, uint64_t), uint64_t a,
                 uint64_t b)
{
    int64_t moved_ns = core_clock_now_ns();
    int64_t limit_ns = executor->stall_limit_ns > 0 ? executor->stall_limit_ns : -1;
    while (executor->error == 0) {
        uint32_t seen = core_bell_look(executor->bell);
        int rc = turn(executor);
        if (rc < 0) {
            executor->error = rc;
            break;
        }
        if (done(executor, a, b)) {
            break;
        }
        int64_t now_ns = core_clock_now_ns();
        if (rc > 0) {
            moved_ns = now_ns;
            note_pulse(executor);
            continue;
        }
        if (limit_ns > 0 && now_ns - moved_ns >= limit_ns) {
            executor->error = stalled(executor);
            executor->stalled = true;
            break;
        }
        uint8_t blockers[2];
        waits_look(executor, blockers);
        core_bell_spin_sleep(executor->bell, seen, SPIN_NS, limit_ns);
        waits_charge(executor, blockers, core_clock_now_ns() - now_ns);
    }
    return executor->error;
}

int run_executor_drive(struct run_executor *executor, uint32_t tapes_left)
{
    return drive(executor, done_tapes, tapes_left, 0);
}

int run_executor_drive_to(struct run_executor *executor, enum plan_queue queue, uint32_t place)
{
    return drive(executor, done_command, queue, place);
}

bool run_executor_stalled(const struct run_executor *executor)
{
    return executor->stalled;
}

struct run_stats run_executor_stats_take(struct run_executor *executor)
{
    struct run_stats stats = executor->stats;
    executor->stats = (struct run_stats){0};
    return stats;
}

const char *run_wait_name(enum run_wait wait)
{
    static const char *const names[RUN_WAIT_COUNT] = {"store_read", "store_write", "update",
                                                      "copy",       "imbalance",   "other"};
    return names[wait];
}
