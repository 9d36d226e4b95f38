/* executor.c: the executor's loop, and the waits of compute and the update. */
#include "offload/run/executor.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/err.h"

/* Two tapes under way, and the last retired one, for edges back to it. */
enum { WINDOW = 3, UNDER_WAY_MAX = WINDOW - 1, SPIN_NS = 20000 };

struct tape_state {
    const struct plan_tape *tape; /* borrowed */
    struct core_fence gate;
    uint32_t *index[PLAN_Q_COUNT];           /* into `indices`: the queue's commands */
    struct core_fence *fences[PLAN_Q_COUNT]; /* into `all_fences`: one per command, by place */
    uint32_t *indices;                       /* owned, [commands_max] */
    struct core_fence *all_fences;           /* owned, [commands_max] */
    /* owned, [commands_max]: when a command was submitted, later when it ended; NULL: not
     * watched */
    int64_t *all_ns;
    int64_t *ns[PLAN_Q_COUNT]; /* into `all_ns`, by place */
    uint32_t submitted[PLAN_Q_COUNT];
    uint32_t reached[PLAN_Q_COUNT];
    bool withdrawn; /* no further commands are submitted */
};

struct run_executor {
    struct run_lane lanes[PLAN_Q_COUNT];
    struct core_bell *bell; /* borrowed */
    uint32_t commands_max;
    int64_t stall_limit_ns;
    int64_t spin_ns;
    bool stalled;
    _Atomic uint64_t *pulse; /* borrowed; NULL: no other thread reads it */
    void (*watch)(void *user, uint64_t tape, const struct plan_command *command, int64_t begin_ns,
                  int64_t end_ns);
    void *watch_user;              /* borrowed */
    int64_t done_ns[PLAN_Q_COUNT]; /* time at which the last command was found done */
    struct tape_state tapes[WINDOW];
    uint64_t pushed;  /* tapes pushed; tape n, from 0, is tapes[n % WINDOW] */
    uint64_t retired; /* tapes retired, in order */
    int error;
    struct run_stats stats;
};

/* ---- making, pushing ---- */

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
    executor->spin_ns = options->sleeps ? 0 : SPIN_NS;
    executor->pulse = options->pulse;
    executor->watch = options->watch;
    executor->watch_user = options->watch_user;
    for (int i = 0; i < WINDOW; i++) {
        struct tape_state *state = &executor->tapes[i];
        size_t count = options->commands_max > 0 ? options->commands_max : 1;
        state->indices = calloc(count, sizeof *state->indices);
        state->all_fences = calloc(count, sizeof *state->all_fences);
        state->all_ns = options->watch != NULL ? calloc(count, sizeof *state->all_ns) : NULL;
        if (state->indices == NULL || state->all_fences == NULL ||
            (options->watch != NULL && state->all_ns == NULL)) {
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
        free(executor->tapes[i].indices);
        free(executor->tapes[i].all_fences);
        free(executor->tapes[i].all_ns);
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
        return core_err_set(-EINVAL, "a tape of %u commands is longer than the maximum of %u",
                            tape->count, executor->commands_max);
    }
    struct tape_state *state = &executor->tapes[executor->pushed % WINDOW];
    uint32_t first = 0;
    uint32_t filled[PLAN_Q_COUNT] = {0};
    state->tape = tape;
    state->gate = gate;
    state->withdrawn = false;
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        state->index[q] = state->indices + first;
        state->fences[q] = state->all_fences + first;
        state->ns[q] = state->all_ns != NULL ? state->all_ns + first : NULL;
        state->submitted[q] = 0;
        state->reached[q] = 0;
        first += tape->queue_count[q];
    }
    for (uint32_t i = 0; i < tape->count; i++) {
        uint8_t q = tape->commands[i].queue;
        assert(executor->lanes[q].submit != NULL && tape->commands[i].place == filled[q] + 1);
        state->index[q][filled[q]++] = i;
    }
    executor->pushed++;
    return 0;
}

/* ---- edges between tapes ---- */

/* Sets *n and *place to the tape and place of the command that an edge names; false: no such
 * command. */
static bool find_edge(const struct run_executor *executor, struct plan_edge edge, uint64_t *n,
                      uint32_t *place)
{
    bool back = false;
    if (!plan_edge_find(edge, *n > 0 ? executor->tapes[(*n - 1) % WINDOW].tape : NULL, &back,
                        place)) {
        return false;
    }
    *n -= back;
    assert(*place <= executor->tapes[*n % WINDOW].tape->queue_count[edge.queue]);
    return true;
}

/* Returns 1 if the command may start, 0 if it must wait, or a line's error. Sets *blocker to the
 * queue waited for; PLAN_Q_COUNT: the gate. */
static int poll_edges(const struct run_executor *executor, uint64_t n,
                      const struct plan_command *command, uint8_t *blocker)
{
    for (int e = 0; e < PLAN_EDGE_MAX; e++) {
        const struct plan_edge edge = command->edges[e];
        uint64_t of = n;
        uint32_t place = 0;
        if (!find_edge(executor, edge, &of, &place)) {
            continue;
        }
        const struct tape_state *state = &executor->tapes[of % WINDOW];
        const bool submitted = state->submitted[edge.queue] >= place;
        int reached = submitted ? core_fence_poll(state->fences[edge.queue][place - 1]) : 0;
        if (reached <= 0) {
            *blocker = edge.queue;
            return reached;
        }
    }
    *blocker = PLAN_Q_COUNT;
    return plan_command_is_gated(command) ? core_fence_poll(executor->tapes[n % WINDOW].gate) : 1;
}

/* ---- waits ---- */

enum { AT_WORK = PLAN_Q_COUNT + 1 };

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

/* Returns the queue that a lane waits for, directly or through copies; AT_WORK; or PLAN_Q_COUNT:
 * the gate, or no commands left. */
static uint8_t lane_blocker(const struct run_executor *executor, uint8_t q, int hops)
{
    for (uint64_t n = executor->retired; n < executor->pushed; n++) {
        const struct tape_state *state = &executor->tapes[n % WINDOW];
        if (state->reached[q] == state->tape->queue_count[q]) {
            continue;
        }
        const struct plan_command *next =
            &state->tape->commands[state->index[q][state->reached[q]]];
        uint8_t blocker = PLAN_Q_COUNT;
        if (poll_edges(executor, n, next, &blocker) != 0) {
            return AT_WORK;
        }
        if (hops > 0 && (blocker == PLAN_Q_UP || blocker == PLAN_Q_DOWN)) {
            uint8_t cause = lane_blocker(executor, blocker, hops - 1);
            return cause <= PLAN_Q_COUNT ? cause : blocker;
        }
        return blocker;
    }
    return PLAN_Q_COUNT;
}

static void find_blockers(const struct run_executor *executor, uint8_t blockers[2])
{
    blockers[0] = lane_blocker(executor, PLAN_Q_COMPUTE, 2);
    blockers[1] = lane_blocker(executor, PLAN_Q_UPDATE, 2);
}

static void charge_wait(struct run_executor *executor, const uint8_t blockers[2], int64_t span_ns)
{
    int64_t *waits[] = {executor->stats.compute_wait_ns, executor->stats.update_wait_ns};
    for (int w = 0; w < 2; w++) {
        if (blockers[w] <= PLAN_Q_COUNT) {
            waits[w][wait_for((enum plan_queue)blockers[w])] += span_ns;
        }
    }
    if (blockers[0] == PLAN_Q_COLL || blockers[1] == PLAN_Q_COLL) {
        executor->stats.ranks_wait_ns += span_ns;
    }
}

static int report_stall(const struct run_executor *executor)
{
    for (uint8_t q = 0; q < PLAN_Q_COUNT; q++) {
        uint8_t blocker = lane_blocker(executor, q, 0);
        if (blocker == AT_WORK) {
            return core_err_set(
                -ETIMEDOUT, "no progress for %.1f s: queue %s does not finish its command",
                (double)executor->stall_limit_ns / 1e9, plan_queue_name((enum plan_queue)q));
        }
    }
    return core_err_set(-ETIMEDOUT,
                        "no progress for %.1f s: all queues wait for each other or "
                        "for data",
                        (double)executor->stall_limit_ns / 1e9);
}

/* ---- the executor's loop ---- */

static int lane_reap(struct run_executor *executor, uint64_t n, int q, uint32_t place);

/* Returns when the command that an edge names was found done, or 0 if there is none. The command
 * with the edge must be done. */
static int64_t edge_done_ns(struct run_executor *executor, uint64_t n, struct plan_edge edge)
{
    uint32_t place = 0;
    if (!find_edge(executor, edge, &n, &place)) {
        return 0;
    }
    const struct tape_state *state = &executor->tapes[n % WINDOW];
    for (uint64_t m = executor->retired; m < n; m++) {
        lane_reap(executor, m, edge.queue, UINT32_MAX);
    }
    lane_reap(executor, n, edge.queue, place);
    return state->reached[edge.queue] >= place ? state->ns[edge.queue][place - 1] : 0;
}

static void lane_watch(struct run_executor *executor, uint64_t n, int q)
{
    struct tape_state *state = &executor->tapes[n % WINDOW];
    uint32_t place = state->reached[q];
    const struct plan_command *command = &state->tape->commands[state->index[q][place]];
    int64_t begin_ns = state->ns[q][place];
    begin_ns = executor->done_ns[q] > begin_ns ? executor->done_ns[q] : begin_ns;
    for (int e = 0; e < PLAN_EDGE_MAX; e++) {
        int64_t done_ns = edge_done_ns(executor, n, command->edges[e]);
        begin_ns = done_ns > begin_ns ? done_ns : begin_ns;
    }
    int64_t end_ns = core_clock_now_ns();
    state->ns[q][place] = end_ns;
    executor->done_ns[q] = end_ns;
    executor->watch(executor->watch_user, n, command, begin_ns, end_ns);
}

/* Counts the lane's ended commands up to `place`, after those of the tape before. Returns 1 if
 * there are new ones, 0 if not, or the line's error. */
static int lane_reap(struct run_executor *executor, uint64_t n, int q, uint32_t place)
{
    struct tape_state *state = &executor->tapes[n % WINDOW];
    const struct tape_state *before = &executor->tapes[(n - 1) % WINDOW];
    int moved = 0;
    if (n > executor->retired && before->reached[q] < before->submitted[q]) {
        return 0;
    }
    while (state->reached[q] < state->submitted[q] && state->reached[q] < place) {
        int reached = core_fence_poll(state->fences[q][state->reached[q]]);
        if (reached <= 0) {
            return reached < 0 ? reached : moved;
        }
        if (executor->watch != NULL) {
            lane_watch(executor, n, q);
        }
        state->reached[q]++;
        moved = 1;
    }
    return moved;
}

/* Submits commands that may start. Returns 1 if there were any, 0 if not, or an error. */
static int lane_feed(struct run_executor *executor, uint64_t n, int q)
{
    struct tape_state *state = &executor->tapes[n % WINDOW];
    const struct run_lane *lane = &executor->lanes[q];
    int moved = 0;
    while (!state->withdrawn && state->submitted[q] < state->tape->queue_count[q]) {
        const struct plan_command *command =
            &state->tape->commands[state->index[q][state->submitted[q]]];
        uint8_t blocker = PLAN_Q_COUNT;
        int rc = poll_edges(executor, n, command, &blocker);
        if (rc <= 0) {
            return rc < 0 ? rc : moved;
        }
        if (executor->watch != NULL) {
            state->ns[q][state->submitted[q]] = core_clock_now_ns();
        }
        rc = lane->submit(lane->context, command, &state->fences[q][state->submitted[q]]);
        if (rc != 0) {
            return rc == -EAGAIN ? moved : rc;
        }
        state->submitted[q]++;
        executor->stats.commands++;
        moved = 1;
    }
    return moved;
}

static bool tape_retired(const struct tape_state *state)
{
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        if (state->reached[q] < state->tape->queue_count[q]) {
            return false;
        }
    }
    return true;
}

/* A lane starts a tape after submitting its commands in the previous one. */
static bool lane_open(const struct run_executor *executor, uint64_t n, int q)
{
    if (n == executor->retired) {
        return true;
    }
    const struct tape_state *before = &executor->tapes[(n - 1) % WINDOW];
    return before->submitted[q] == before->tape->queue_count[q];
}

/* Looks at all lanes once. Returns 1 after progress, 0 without, or an error. */
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
           tape_retired(&executor->tapes[executor->retired % WINDOW])) {
        executor->retired++;
        moved = 1;
    }
    return moved;
}

/* The condition on which the loop ends. */
struct goal {
    bool (*done)(const struct run_executor *executor, const struct goal *goal);
    uint64_t tape; /* number of a tape, or of tapes that may be left */
    enum plan_queue queue;
    uint32_t place;
    struct core_fence fence;
};

static bool done_tapes(const struct run_executor *executor, const struct goal *goal)
{
    return executor->pushed - executor->retired <= goal->tape;
}

static bool done_fence(const struct run_executor *executor, const struct goal *goal)
{
    return done_tapes(executor, goal) || core_fence_poll(goal->fence) != 0;
}

static bool done_command(const struct run_executor *executor, const struct goal *goal)
{
    return executor->retired > goal->tape ||
           executor->tapes[goal->tape % WINDOW].reached[goal->queue] >= goal->place;
}

static bool done_submitted(const struct run_executor *executor, const struct goal *goal)
{
    const struct tape_state *state = &executor->tapes[goal->tape % WINDOW];
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        if (state->reached[q] < state->submitted[q]) {
            return false;
        }
    }
    return true;
}

static void note_pulse(const struct run_executor *executor)
{
    if (executor->pulse != NULL) {
        atomic_fetch_add_explicit(executor->pulse, 1, memory_order_relaxed);
    }
}

static int drive(struct run_executor *executor, const struct goal *goal)
{
    int64_t moved_ns = core_clock_ran_ns();
    int64_t limit_ns = executor->stall_limit_ns;
    while (executor->error == 0) {
        uint32_t seen = core_bell_look(executor->bell);
        int rc = turn(executor);
        if (rc < 0) {
            executor->error = rc;
            break;
        }
        if (goal->done(executor, goal)) {
            break;
        }
        int64_t ran_ns = core_clock_ran_ns();
        if (rc > 0) {
            moved_ns = ran_ns;
            note_pulse(executor);
            continue;
        }
        if (limit_ns > 0 && ran_ns - moved_ns >= limit_ns) {
            executor->error = report_stall(executor);
            executor->stalled = true;
            break;
        }
        uint8_t blockers[2];
        find_blockers(executor, blockers);
        const int64_t now_ns = core_clock_now_ns();
        const int64_t left_ns = moved_ns + limit_ns - ran_ns;
        core_bell_spin_sleep(executor->bell, seen, executor->spin_ns,
                             limit_ns > 0 ? core_clock_beat_ns(left_ns) : -1);
        charge_wait(executor, blockers, core_clock_now_ns() - now_ns);
    }
    return executor->error;
}

int run_executor_drive(struct run_executor *executor, uint32_t tapes_left)
{
    return drive(executor, &(struct goal){.done = done_tapes, .tape = tapes_left});
}

int run_executor_drive_until(struct run_executor *executor, struct core_fence fence,
                             uint32_t tapes_left)
{
    return drive(executor, &(struct goal){.done = done_fence, .tape = tapes_left, .fence = fence});
}

int run_executor_drive_to(struct run_executor *executor, uint64_t tape, enum plan_queue queue,
                          uint32_t place)
{
    assert(tape < executor->pushed);
    return drive(executor, &(struct goal){
                               .done = done_command, .tape = tape, .queue = queue, .place = place});
}

int run_executor_withdraw(struct run_executor *executor, uint64_t *read_bytes)
{
    const uint64_t last = executor->pushed - 1;
    const struct tape_state *state = &executor->tapes[last % WINDOW];
    uint64_t bytes = 0;
    assert(executor->pushed > executor->retired);
    executor->tapes[last % WINDOW].withdrawn = true;
    int rc = drive(executor, &(struct goal){.done = done_submitted, .tape = last});
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        for (uint32_t i = 0; i < state->submitted[q]; i++) {
            bytes += state->tape->commands[state->index[q][i]].bytes;
        }
    }
    if (rc == 0) {
        executor->pushed--;
        *read_bytes = bytes;
    }
    return rc;
}

uint64_t run_executor_pushed(const struct run_executor *executor)
{
    return executor->pushed;
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
