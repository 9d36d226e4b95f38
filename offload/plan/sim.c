/* sim.c: a fluid simulation: between two events every running command goes on at the rate that its
 * share of the resources gives it. */
#include "offload/plan/sim.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "core/base/err.h"

/* The command that a queue is at, in the row of tapes. */
struct cursor {
    uint32_t tape;
    uint32_t index; /* in the tape; its count when the queue has no more commands there */
    bool running;
    double left; /* seconds of work alone */
    double begin;
};

struct sim {
    const struct plan_rates *rates; /* borrowed */
    bool device_is_host;
    const struct plan_tape *const *tapes; /* borrowed */
    uint32_t tape_count;
    struct plan_time *const *times; /* borrowed */
    double *end_seconds;            /* borrowed */
    struct cursor cursors[PLAN_Q_COUNT];
    uint32_t *reached; /* owned, [tape * PLAN_Q_COUNT + queue]: commands done */
    uint32_t *left;    /* owned, [tape]: commands not done */
    uint32_t retired;  /* tapes done, in order */
    double now;
    double queue_seconds[PLAN_Q_COUNT];
    double resource_seconds[PLAN_R_COUNT];
    double counted_from; /* only what happens between these two is counted above */
    double counted_to;
};

double plan_sim_alone(const struct plan_rates *rates, const struct plan_command *command)
{
    double bytes = (double)command->bytes;
    double elements = (double)command->elements;
    double work = 0;
    switch ((enum plan_op)command->op) {
    case PLAN_READ: work = bytes / rates->read_bytes; break;
    case PLAN_WRITE: work = bytes / rates->write_bytes; break;
    case PLAN_H2D: work = bytes / rates->up_bytes; break;
    case PLAN_D2H: work = bytes / rates->down_bytes; break;
    case PLAN_FWD:
    case PLAN_BWD:
        work = command->seconds > 0 ? command->seconds : command->work / rates->flops;
        break;
    case PLAN_ROUND: work = elements / rates->round_elements; break;
    case PLAN_SUMS: work = elements / rates->sums_elements; break;
    case PLAN_UPDATE: work = elements / rates->update_elements; break;
    case PLAN_GATHER:
    case PLAN_REDUCE: work = rates->coll_bytes > 0 ? bytes / rates->coll_bytes : 0; break;
    case PLAN_NORM:
    case PLAN_JOIN:
    case PLAN_OP_COUNT: break;
    }
    return work + rates->command_seconds;
}

/* What a queue's commands use; PLAN_R_COUNT for nothing that is shared. */
static enum plan_resource resource_of(const struct sim *sim, enum plan_queue queue)
{
    switch (queue) {
    case PLAN_Q_COMPUTE: return sim->rates->shared_cores ? PLAN_R_CORES : PLAN_R_COMPUTE;
    case PLAN_Q_UPDATE: return PLAN_R_CORES;
    case PLAN_Q_UP: return sim->device_is_host ? PLAN_R_CORES : PLAN_R_UP;
    case PLAN_Q_DOWN: return sim->device_is_host ? PLAN_R_CORES : PLAN_R_DOWN;
    case PLAN_Q_READ_WEIGHT:
    case PLAN_Q_READ_STATE:
    case PLAN_Q_READ_ACT:
    case PLAN_Q_WRITE_STATE:
    case PLAN_Q_WRITE_ACT: return PLAN_R_DRIVE;
    case PLAN_Q_COLL:
    case PLAN_Q_COUNT: break;
    }
    return PLAN_R_COUNT;
}

static const struct plan_command *command_at(const struct sim *sim, int queue)
{
    const struct cursor *cursor = &sim->cursors[queue];
    return &sim->tapes[cursor->tape]->commands[cursor->index];
}

/* Moves a cursor to the queue's next command at or behind (tape, index); false at the end. */
static bool seek(struct sim *sim, int queue)
{
    struct cursor *cursor = &sim->cursors[queue];
    while (cursor->tape < sim->tape_count) {
        const struct plan_tape *tape = sim->tapes[cursor->tape];
        while (cursor->index < tape->count && tape->commands[cursor->index].queue != queue) {
            cursor->index++;
        }
        if (cursor->index < tape->count) {
            return true;
        }
        cursor->tape++;
        cursor->index = 0;
    }
    return false;
}

static bool edge_holds(const struct sim *sim, uint32_t tape, struct plan_edge edge)
{
    if (edge.queue == PLAN_Q_COUNT) {
        return true;
    }
    if (edge.count > 0) {
        return sim->reached[tape * PLAN_Q_COUNT + edge.queue] >= (uint32_t)edge.count;
    }
    if (tape == 0) {
        return true;
    }
    int64_t before = (int64_t)sim->tapes[tape - 1]->queue_count[edge.queue] + edge.count;
    return (int64_t)sim->reached[(tape - 1) * PLAN_Q_COUNT + edge.queue] >= before;
}

static bool may_start(struct sim *sim, int queue)
{
    if (sim->cursors[queue].running || !seek(sim, queue)) {
        return false;
    }
    uint32_t tape = sim->cursors[queue].tape;
    if (tape > sim->retired + 1) {
        return false;
    }
    const struct plan_command *command = command_at(sim, queue);
    for (int e = 0; e < PLAN_EDGE_MAX; e++) {
        if (!edge_holds(sim, tape, command->edges[e])) {
            return false;
        }
    }
    return true;
}

struct load {
    unsigned users[PLAN_R_COUNT];
    unsigned reads;
    unsigned writes;
};

static struct load load_of(const struct sim *sim)
{
    struct load load = {{0}, 0, 0};
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        enum plan_resource resource = resource_of(sim, (enum plan_queue)q);
        if (!sim->cursors[q].running || resource == PLAN_R_COUNT) {
            continue;
        }
        load.users[resource]++;
        if (resource == PLAN_R_DRIVE) {
            bool reads = command_at(sim, q)->op == PLAN_READ;
            load.reads += reads;
            load.writes += !reads;
        }
    }
    return load;
}

/* How fast a running command goes, 1 being its speed alone. */
static double speed(const struct sim *sim, int queue, const struct load *load)
{
    enum plan_resource resource = resource_of(sim, (enum plan_queue)queue);
    if (resource == PLAN_R_COUNT) {
        return 1;
    }
    double users = load->users[resource];
    if (resource != PLAN_R_DRIVE || load->reads == 0 || load->writes == 0) {
        return 1 / users;
    }
    bool reads = command_at(sim, queue)->op == PLAN_READ;
    double alone = reads ? sim->rates->read_bytes : sim->rates->write_bytes;
    return sim->rates->mixed_bytes / users / alone;
}

static void start_all(struct sim *sim)
{
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        if (may_start(sim, q)) {
            struct cursor *cursor = &sim->cursors[q];
            cursor->running = true;
            cursor->begin = sim->now;
            cursor->left = plan_sim_alone(sim->rates, command_at(sim, q));
        }
    }
}

static void finish(struct sim *sim, int queue)
{
    struct cursor *cursor = &sim->cursors[queue];
    uint32_t tape = cursor->tape;
    if (sim->times != NULL && sim->times[tape] != NULL) {
        sim->times[tape][cursor->index] = (struct plan_time){.begin_seconds = cursor->begin,
                                                             .end_seconds = sim->now};
    }
    sim->reached[tape * PLAN_Q_COUNT + (uint32_t)queue]++;
    sim->left[tape]--;
    cursor->running = false;
    cursor->index++;
    while (sim->retired < sim->tape_count && sim->left[sim->retired] == 0) {
        sim->end_seconds[sim->retired++] = sim->now;
    }
}

/* Lets time pass until the next command ends. False when nothing runs. */
static bool advance(struct sim *sim)
{
    struct load load = load_of(sim);
    double speeds[PLAN_Q_COUNT] = {0};
    double span = HUGE_VAL;
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        if (sim->cursors[q].running) {
            speeds[q] = speed(sim, q, &load);
            span = fmin(span, sim->cursors[q].left / speeds[q]);
        }
    }
    if (isinf(span)) {
        return false;
    }
    double counted = fmin(sim->now + span, sim->counted_to) - fmax(sim->now, sim->counted_from);
    counted = fmax(counted, 0);
    for (int r = 0; r < PLAN_R_COUNT; r++) {
        sim->resource_seconds[r] += load.users[r] > 0 ? counted : 0;
    }
    sim->now += span;
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        struct cursor *cursor = &sim->cursors[q];
        if (!cursor->running) {
            continue;
        }
        sim->queue_seconds[q] += counted;
        double done = span * speeds[q];
        cursor->left = cursor->left - done > cursor->left * 1e-12 ? cursor->left - done : 0;
        if (cursor->left <= 1e-12) {
            finish(sim, q);
        }
    }
    return true;
}

static int run(struct sim *sim)
{
    uint64_t rows = sim->tape_count;
    sim->reached = calloc(rows * PLAN_Q_COUNT, sizeof *sim->reached);
    sim->left = calloc(rows, sizeof *sim->left);
    int rc = 0;
    if (sim->reached == NULL || sim->left == NULL) {
        rc = core_err_set(-ENOMEM, "no memory to simulate %u tapes", sim->tape_count);
        goto leave;
    }
    for (uint32_t t = 0; t < sim->tape_count; t++) {
        sim->left[t] = sim->tapes[t]->count;
    }
    do {
        start_all(sim);
    } while (advance(sim));
    if (sim->retired < sim->tape_count) {
        rc = core_err_set(-EDEADLK, "tape %u cannot end: %u of its commands wait for each other",
                          sim->retired, sim->left[sim->retired]);
    }
leave:
    free(sim->reached);
    free(sim->left);
    return rc;
}

int plan_sim_run(const struct plan_rates *rates, bool device_is_host,
                 const struct plan_tape *const *tapes, uint32_t tape_count,
                 struct plan_time *const *times, double *end_seconds)
{
    struct sim sim = {.rates = rates,
                      .device_is_host = device_is_host,
                      .tapes = tapes,
                      .tape_count = tape_count,
                      .times = times,
                      .end_seconds = end_seconds};
    return run(&sim);
}

static void count_bytes(const struct plan_tape *tape, struct plan_prediction *out)
{
    for (uint32_t i = 0; i < tape->count; i++) {
        const struct plan_command *command = &tape->commands[i];
        out->store_read_bytes += command->op == PLAN_READ ? command->bytes : 0;
        out->store_write_bytes += command->op == PLAN_WRITE ? command->bytes : 0;
        out->up_bytes += command->op == PLAN_H2D ? command->bytes : 0;
        out->down_bytes += command->op == PLAN_D2H ? command->bytes : 0;
    }
}

int plan_sim_predict(const struct plan_rates *rates, bool device_is_host,
                     const struct plan_tape *first, const struct plan_tape *again,
                     struct plan_prediction *out)
{
    /* Tapes that overlap settle into a rhythm of one or two: an even number is averaged, after
     * some to settle and with one behind them to contend with. */
    enum { FROM = 2, STEPS = 4, TO = FROM + STEPS, ROW = TO + 2 };
    const struct plan_tape *tapes[ROW] = {first};
    double ends[ROW] = {0};
    for (int t = 1; t < ROW; t++) {
        tapes[t] = again;
    }
    struct sim fresh = {.rates = rates,
                        .device_is_host = device_is_host,
                        .tapes = tapes,
                        .tape_count = ROW,
                        .end_seconds = ends};
    struct sim sim = fresh;
    int rc = run(&sim);
    if (rc != 0) {
        return rc;
    }
    sim = fresh;
    sim.counted_from = ends[FROM];
    sim.counted_to = ends[TO];
    rc = run(&sim);
    if (rc != 0) {
        return rc;
    }
    struct plan_prediction made = {.step_seconds = (ends[TO] - ends[FROM]) / STEPS};
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        made.queue_seconds[q] = sim.queue_seconds[q] / STEPS;
    }
    for (int r = 0; r < PLAN_R_COUNT; r++) {
        made.resource_seconds[r] = sim.resource_seconds[r] / STEPS;
    }
    for (int r = 1; r < PLAN_R_COUNT; r++) {
        if (made.resource_seconds[r] > made.resource_seconds[made.bottleneck]) {
            made.bottleneck = (enum plan_resource)r;
        }
    }
    count_bytes(again, &made);
    *out = made;
    return 0;
}
