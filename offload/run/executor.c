/* executor.c: the loop, and its view of edges as fences. */

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "offload/run/executor_parts.h"

enum { UNDER_WAY_MAX = RUN_WINDOW - 1, SPIN_NS = 20000 };

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
    for (int i = 0; i < RUN_WINDOW; i++) {
        struct run_tape_state *run = &executor->runs[i];
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
    for (int i = 0; i < RUN_WINDOW; i++) {
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
    struct run_tape_state *run = &executor->runs[executor->pushed % RUN_WINDOW];
    uint32_t first = 0;
    uint32_t filled[PLAN_Q_COUNT] = {0};
    run->tape = tape;
    run->gate = gate;
    run->withdrawn = false;
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
        place += executor->runs[n % RUN_WINDOW].tape->queue_count[edge.queue];
    }
    const struct run_tape_state *run = &executor->runs[n % RUN_WINDOW];
    assert(place > 0 && place <= run->tape->queue_count[edge.queue]);
    *submitted = run->submitted[edge.queue] >= place;
    return *submitted ? run->fences[edge.queue][place - 1] : (struct core_fence){0};
}

static bool reads_store(uint8_t queue)
{
    return queue == PLAN_Q_READ_WEIGHT || queue == PLAN_Q_READ_STATE || queue == PLAN_Q_READ_ACT;
}

int run_edges_look(const struct run_executor *executor, uint64_t n,
                   const struct plan_command *command, bool takes_edges,
                   struct core_fence after[PLAN_EDGE_MAX + 1], uint8_t *blocker)
{
    const struct run_tape_state *run = &executor->runs[n % RUN_WINDOW];
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
    after[PLAN_EDGE_MAX] = reads_store(command->queue) ? (struct core_fence){0} : run->gate;
    int state = core_fence_poll(after[PLAN_EDGE_MAX]);
    *blocker = PLAN_Q_COUNT;
    return state == 0 && takes_edges ? 1 : state;
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
        place += executor->runs[n % RUN_WINDOW].tape->queue_count[edge.queue];
    }
    const struct run_tape_state *run = &executor->runs[n % RUN_WINDOW];
    lane_reap(executor, n, edge.queue, (uint32_t)place);
    return run->reached[edge.queue] >= place ? run->ns[edge.queue][place - 1] : 0;
}

/* Tells the watcher of the lane's command that is done. */
static void lane_watch(struct run_executor *executor, uint64_t n, int q)
{
    struct run_tape_state *run = &executor->runs[n % RUN_WINDOW];
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
    struct run_tape_state *run = &executor->runs[n % RUN_WINDOW];
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
    struct run_tape_state *run = &executor->runs[n % RUN_WINDOW];
    const struct run_lane *lane = &executor->lanes[q];
    int moved = 0;
    while (!run->withdrawn && run->submitted[q] < run->tape->queue_count[q]) {
        const struct plan_command *command = &run->tape->commands[run->index[q][run->submitted[q]]];
        struct core_fence after[PLAN_EDGE_MAX + 1];
        uint8_t blocker = PLAN_Q_COUNT;
        int rc = run_edges_look(executor, n, command, lane->takes_edges, after, &blocker);
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

static bool run_retired(const struct run_tape_state *run)
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
    const struct run_tape_state *before = &executor->runs[(n - 1) % RUN_WINDOW];
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
           run_retired(&executor->runs[executor->retired % RUN_WINDOW])) {
        executor->retired++;
        moved = 1;
    }
    return moved;
}

/* What the loop works for. */
struct goal {
    bool (*done)(const struct run_executor *executor, const struct goal *goal);
    uint64_t tape; /* its number, or how many may be left */
    enum plan_queue queue;
    uint32_t place;
};

static bool done_tapes(const struct run_executor *executor, const struct goal *goal)
{
    return executor->pushed - executor->retired <= goal->tape;
}

static bool done_command(const struct run_executor *executor, const struct goal *goal)
{
    return executor->retired > goal->tape ||
           executor->runs[goal->tape % RUN_WINDOW].reached[goal->queue] >= goal->place;
}

/* All that was handed on of a tape. */
static bool done_begun(const struct run_executor *executor, const struct goal *goal)
{
    const struct run_tape_state *run = &executor->runs[goal->tape % RUN_WINDOW];
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        if (run->reached[q] < run->submitted[q]) {
            return false;
        }
    }
    return true;
}

/* Tells whoever waits for this thread that it lives. A counter that others only compare. */
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
            executor->error = run_waits_stalled(executor);
            executor->stalled = true;
            break;
        }
        uint8_t blockers[2];
        run_waits_look(executor, blockers);
        const int64_t now_ns = core_clock_now_ns();
        const int64_t left_ns = moved_ns + limit_ns - ran_ns;
        core_bell_spin_sleep(executor->bell, seen, SPIN_NS,
                             limit_ns > 0 ? core_clock_beat_ns(left_ns) : -1);
        run_waits_charge(executor, blockers, core_clock_now_ns() - now_ns);
    }
    return executor->error;
}

int run_executor_drive(struct run_executor *executor, uint32_t tapes_left)
{
    return drive(executor, &(struct goal){.done = done_tapes, .tape = tapes_left});
}

int run_executor_drive_to(struct run_executor *executor, uint64_t tape, enum plan_queue queue,
                          uint32_t place)
{
    assert(tape < executor->pushed);
    return drive(executor, &(struct goal){done_command, tape, queue, place});
}

int run_executor_withdraw(struct run_executor *executor, uint64_t *read_bytes)
{
    const uint64_t last = executor->pushed - 1;
    const struct run_tape_state *run = &executor->runs[last % RUN_WINDOW];
    uint64_t bytes = 0;
    assert(executor->pushed > executor->retired);
    executor->runs[last % RUN_WINDOW].withdrawn = true;
    int rc = drive(executor, &(struct goal){.done = done_begun, .tape = last});
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        for (uint32_t i = 0; i < run->submitted[q]; i++) {
            bytes += run->tape->commands[run->index[q][i]].bytes;
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
