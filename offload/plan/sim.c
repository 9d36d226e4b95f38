/* sim.c: a fluid simulation. Between two events a command proceeds at the rate of its share of the
 * resources. */
#include "offload/plan/sim.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "core/base/err.h"

/* Least share of the cores' speed that moving and hashing bytes leave. */
static const double cores_left_least = 0.2;

/* A command; those of a queue are adjacent. */
struct item {
    double alone; /* seconds */
    double bytes; /* bytes per second while the command runs alone */
    struct plan_edge edges[PLAN_EDGE_MAX];
    uint32_t index;
    bool reads;
    bool gated;
};

struct row {
    struct item *items; /* owned if `owns`; else the previous row's */
    bool owns;
    uint32_t first[PLAN_Q_COUNT];
    uint32_t count[PLAN_Q_COUNT];
};

struct cursor {
    uint32_t tape;
    uint32_t place; /* commands of the queue that are done in this tape */
    bool running;
    double left; /* seconds of work left at the speed alone */
    double begin;
};

/* Totals when a tape retired. */
struct mark {
    double seconds;
    double queue_seconds[PLAN_Q_COUNT];
    double resource_seconds[PLAN_R_COUNT];
};

struct sim {
    const struct plan_rates *rates; /* borrowed */
    bool device_is_host;
    double byte_cores; /* cores per byte per second of the drives */
    double copy_cores; /* share of the update's speed that a copy costs, per byte per second */
    const struct plan_tape *const *tapes; /* borrowed */
    uint32_t tape_count;
    uint32_t until;                 /* retired tapes at which the simulation ends */
    struct plan_time *const *times; /* borrowed */
    struct cursor cursors[PLAN_Q_COUNT];
    struct row *rows;   /* owned, [tape] */
    uint32_t *reached;  /* owned, [tape * PLAN_Q_COUNT + queue]: commands done */
    uint32_t *left;     /* owned, [tape]: commands not done */
    struct mark *marks; /* owned, [tape] */
    uint32_t retired;   /* retired tapes; they retire in order */
    struct mark now;
};

/* A collective's thread codes this rank's weights, or codes and sums a whole gradient. */
static double pack_seconds(const struct plan_rates *rates, const struct plan_command *command)
{
    enum { WEIGHT_BYTES = 2 }; /* wider weights are not packed */
    const struct plan_operand *from = plan_command_operand(command, PLAN_AS_FROM);
    if (!command->packed || from == NULL || command->within > 0) { /* the group's copy is already
                                                                    * packed */
        return 0;
    }
    if (command->op == PLAN_REDUCE) {
        return rates->code_elements > 0 ? (double)command->elements / rates->code_elements : 0;
    }
    return rates->pack_elements > 0 ? (double)from->bytes / WEIGHT_BYTES / rates->pack_elements : 0;
}

static double together_seconds(const struct plan_rates *rates, const struct plan_command *command)
{
    const bool within = command->op == PLAN_GATHER && command->within > 0 &&
                        rates->within_bytes > 0;
    const double rate = within ? rates->within_bytes : rates->coll_bytes;
    return rate > 0 ? (double)command->bytes / rate : 0;
}

double plan_sim_alone(const struct plan_rates *rates, const struct plan_command *command)
{
    double bytes = (double)command->bytes;
    double elements = (double)command->elements;
    double work = 0;
    bool on_card = command->queue == PLAN_Q_COMPUTE; /* only for sums and updates */
    switch ((enum plan_op)command->op) {
    case PLAN_READ: work = bytes / rates->read_bytes; break;
    case PLAN_WRITE: work = bytes / rates->write_bytes; break;
    case PLAN_H2D: work = bytes / rates->up_bytes; break;
    case PLAN_D2H: work = bytes / rates->down_bytes; break;
    case PLAN_FWD:
    case PLAN_BWD:
        work = command->seconds > 0 ? command->seconds
               : command->work > 0  ? command->work / rates->flops
                                    : 0;
        break;
    case PLAN_ROUND: work = elements / rates->round_elements; break;
    case PLAN_SUMS:
        work = elements / (on_card ? rates->card_sums_elements : rates->sums_elements);
        break;
    case PLAN_UPDATE:
        work = elements / (on_card ? rates->card_update_elements : rates->update_elements);
        break;
    case PLAN_EXPAND:
        work = rates->expand_elements > 0 ? elements / rates->expand_elements : 0;
        break;
    case PLAN_GATHER:
    case PLAN_REDUCE: work = together_seconds(rates, command) + pack_seconds(rates, command); break;
    case PLAN_NORM:
    case PLAN_JOIN:
    case PLAN_OP_COUNT: break;
    }
    return work + rates->command_seconds;
}

/* PLAN_R_COUNT: no shared resource. */
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
    case PLAN_Q_WRITE_ACT:
    case PLAN_Q_WRITE_CHECKPOINT: return PLAN_R_DRIVE;
    case PLAN_Q_COLL:
    case PLAN_Q_COUNT: break;
    }
    return PLAN_R_COUNT;
}

static const struct item *item_at(const struct sim *sim, int queue)
{
    const struct cursor *cursor = &sim->cursors[queue];
    const struct row *row = &sim->rows[cursor->tape];
    return &row->items[row->first[queue] + cursor->place];
}

/* Advances to the next tape with commands of the queue. Returns false at the end. */
static bool seek(struct sim *sim, int queue)
{
    struct cursor *cursor = &sim->cursors[queue];
    while (cursor->tape < sim->tape_count) {
        if (cursor->place < sim->rows[cursor->tape].count[queue]) {
            return true;
        }
        cursor->tape++;
        cursor->place = 0;
    }
    return false;
}

static bool edge_holds(const struct sim *sim, uint32_t tape, struct plan_edge edge)
{
    bool back = false;
    uint32_t place = 0;
    return !plan_edge_find(edge, tape > 0 ? sim->tapes[tape - 1] : NULL, &back, &place) ||
           sim->reached[(tape - back) * PLAN_Q_COUNT + edge.queue] >= place;
}

/* Until the previous tape has its norm and updates, a tape may only read; after a speculative tape,
 * not even that. */
static bool begun(const struct sim *sim, uint32_t tape)
{
    return tape <= sim->retired || sim->reached[(tape - 1) * PLAN_Q_COUNT + PLAN_Q_UPDATE] ==
                                       sim->tapes[tape - 1]->queue_count[PLAN_Q_UPDATE];
}

static bool may_start(struct sim *sim, int queue)
{
    if (sim->cursors[queue].running || !seek(sim, queue)) {
        return false;
    }
    uint32_t tape = sim->cursors[queue].tape;
    const struct item *item = item_at(sim, queue);
    if (tape > sim->retired + 1 ||
        (!begun(sim, tape) && (item->gated || sim->tapes[tape - 1]->guesses))) {
        return false;
    }
    for (int e = 0; e < PLAN_EDGE_MAX; e++) {
        if (!edge_holds(sim, tape, item->edges[e])) {
            return false;
        }
    }
    return true;
}

/* Commands per resource, and the cores' speed that is left. */
struct load {
    unsigned users[PLAN_R_COUNT];
    unsigned reads;
    unsigned writes;
    double cores_left;
};

/* Returns a speed relative to the command's speed alone. */
static double drive_speed(const struct sim *sim, int queue, const struct load *load)
{
    double users = load->users[PLAN_R_DRIVE];
    if (load->reads == 0 || load->writes == 0) {
        return 1 / users;
    }
    double alone = item_at(sim, queue)->reads ? sim->rates->read_bytes : sim->rates->write_bytes;
    return sim->rates->mixed_bytes / users / alone;
}

/* Returns a speed relative to the copy's speed alone. */
static double link_speed(const struct sim *sim, int queue, const struct load *load)
{
    const bool up = queue == PLAN_Q_UP;
    const double alone = up ? sim->rates->up_bytes : sim->rates->down_bytes;
    const bool both = load->users[up ? PLAN_R_DOWN : PLAN_R_UP] > 0 && sim->rates->both_bytes > 0;
    return both ? fmin(sim->rates->both_bytes / alone, 1) : 1;
}

static struct load load_of(const struct sim *sim)
{
    struct load load = {.cores_left = 1};
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        enum plan_resource resource = resource_of(sim, (enum plan_queue)q);
        if (!sim->cursors[q].running || resource == PLAN_R_COUNT) {
            continue;
        }
        load.users[resource]++;
        if (resource == PLAN_R_DRIVE) {
            bool reads = item_at(sim, q)->reads;
            load.reads += reads;
            load.writes += !reads;
        }
    }
    double bytes = 0;
    for (int q = PLAN_Q_READ_WEIGHT; sim->byte_cores > 0 && q < PLAN_Q_COUNT; q++) {
        bytes += sim->cursors[q].running ? item_at(sim, q)->bytes * drive_speed(sim, q, &load) : 0;
    }
    double copied = 0;
    for (int q = PLAN_Q_UP; sim->copy_cores > 0 && q <= PLAN_Q_DOWN; q++) {
        copied += sim->cursors[q].running ? item_at(sim, q)->bytes * link_speed(sim, q, &load) : 0;
    }
    /* A team is as slow as the member that shares a core with a drive's thread. */
    load.cores_left = fmax(1 - bytes * sim->byte_cores - copied * sim->copy_cores,
                           cores_left_least);
    return load;
}

/* Returns a speed relative to the command's speed alone. */
static double speed(const struct sim *sim, int queue, const struct load *load)
{
    enum plan_resource resource = resource_of(sim, (enum plan_queue)queue);
    if (resource == PLAN_R_COUNT) {
        return 1;
    }
    if (resource == PLAN_R_DRIVE) {
        return drive_speed(sim, queue, load);
    }
    if (resource == PLAN_R_UP || resource == PLAN_R_DOWN) {
        return link_speed(sim, queue, load) / load->users[resource];
    }
    return (resource == PLAN_R_CORES ? load->cores_left : 1) / load->users[resource];
}

static void start_all(struct sim *sim)
{
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        if (may_start(sim, q)) {
            struct cursor *cursor = &sim->cursors[q];
            cursor->running = true;
            cursor->begin = sim->now.seconds;
            cursor->left = item_at(sim, q)->alone;
        }
    }
}

static void finish(struct sim *sim, int queue)
{
    struct cursor *cursor = &sim->cursors[queue];
    uint32_t tape = cursor->tape;
    if (sim->times != NULL && sim->times[tape] != NULL) {
        sim->times[tape][item_at(sim, queue)->index] = (struct plan_time){
            .begin_seconds = cursor->begin, .end_seconds = sim->now.seconds};
    }
    sim->reached[tape * PLAN_Q_COUNT + (uint32_t)queue]++;
    sim->left[tape]--;
    cursor->running = false;
    cursor->place++;
    while (sim->retired < sim->tape_count && sim->left[sim->retired] == 0) {
        sim->marks[sim->retired++] = sim->now;
    }
}

/* Advances to the end of the next command. Returns false if nothing runs. */
static bool advance(struct sim *sim)
{
    struct load load = load_of(sim);
    double speeds[PLAN_Q_COUNT] = {0};
    double span = HUGE_VAL;
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        if (sim->cursors[q].running) {
            speeds[q] = speed(sim, q, &load);
            double needs = sim->cursors[q].left / speeds[q];
            span = needs < span ? needs : span;
        }
    }
    if (isinf(span)) {
        return false;
    }
    for (int r = 0; r < PLAN_R_COUNT; r++) {
        sim->now.resource_seconds[r] += load.users[r] > 0 ? span : 0;
    }
    sim->now.resource_seconds[PLAN_R_CORES] += load.users[PLAN_R_CORES] == 0
                                                   ? span * (1 - load.cores_left)
                                                   : 0;
    sim->now.seconds += span;
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        sim->now.queue_seconds[q] += sim->cursors[q].running ? span : 0;
    }
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        struct cursor *cursor = &sim->cursors[q];
        if (!cursor->running) {
            continue;
        }
        double done = span * speeds[q];
        cursor->left = cursor->left - done > cursor->left * 1e-12 ? cursor->left - done : 0;
        if (cursor->left <= 1e-12) {
            finish(sim, q);
        }
    }
    return true;
}

static int make_row(const struct sim *sim, const struct plan_tape *tape, struct row *row)
{
    uint32_t filled[PLAN_Q_COUNT] = {0};
    uint32_t first = 0;
    row->items = malloc((tape->count > 0 ? tape->count : 1) * sizeof *row->items);
    if (row->items == NULL) {
        return core_err_set(-ENOMEM, "no memory to simulate %u commands", tape->count);
    }
    row->owns = true;
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        row->first[q] = first;
        row->count[q] = tape->queue_count[q];
        first += tape->queue_count[q];
    }
    for (uint32_t i = 0; i < tape->count; i++) {
        const struct plan_command *command = &tape->commands[i];
        uint8_t q = command->queue;
        struct item *item = &row->items[row->first[q] + filled[q]++];
        *item = (struct item){.alone = plan_sim_alone(sim->rates, command),
                              .index = i,
                              .reads = command->op == PLAN_READ,
                              .gated = plan_command_is_gated(command)};
        item->bytes = item->alone > 0 ? (double)command->bytes / item->alone : 0;
        for (int e = 0; e < PLAN_EDGE_MAX; e++) {
            item->edges[e] = command->edges[e];
        }
    }
    return 0;
}

static int make_rows(struct sim *sim)
{
    int rc = 0;
    for (uint32_t t = 0; rc == 0 && t < sim->tape_count; t++) {
        sim->left[t] = sim->tapes[t]->count;
        if (t > 0 && sim->tapes[t] == sim->tapes[t - 1]) {
            sim->rows[t] = sim->rows[t - 1];
            sim->rows[t].owns = false;
        } else {
            rc = make_row(sim, sim->tapes[t], &sim->rows[t]);
        }
    }
    return rc;
}

static void sim_fini(struct sim *sim)
{
    for (uint32_t t = 0; sim->rows != NULL && t < sim->tape_count; t++) {
        if (sim->rows[t].owns) {
            free(sim->rows[t].items);
        }
    }
    free(sim->rows);
    free(sim->reached);
    free(sim->left);
    free(sim->marks);
}

/* The caller calls sim_fini, even after an error. */
static int run(struct sim *sim)
{
    const struct plan_rates *rates = sim->rates;
    size_t rows = sim->tape_count;
    sim->byte_cores = (rates->hash_bytes > 0 ? 1 / rates->hash_bytes : 0) +
                      (rates->io_bytes > 0 ? 1 / rates->io_bytes : 0);
    sim->copy_cores = rates->memory_bytes > 0 && !sim->device_is_host ? 1 / rates->memory_bytes : 0;
    sim->rows = calloc(rows, sizeof *sim->rows);
    sim->reached = calloc(rows * PLAN_Q_COUNT, sizeof *sim->reached);
    sim->left = calloc(rows, sizeof *sim->left);
    sim->marks = calloc(rows, sizeof *sim->marks);
    if (sim->rows == NULL || sim->reached == NULL || sim->left == NULL || sim->marks == NULL) {
        return core_err_set(-ENOMEM, "no memory to simulate %u tapes", sim->tape_count);
    }
    int rc = make_rows(sim);
    if (rc != 0) {
        return rc;
    }
    do {
        start_all(sim);
    } while (sim->retired < sim->until && advance(sim));
    if (sim->retired < sim->until) {
        return core_err_set(-EDEADLK, "tape %u cannot end: %u of its commands wait for each other",
                            sim->retired, sim->left[sim->retired]);
    }
    return 0;
}

int plan_sim_run(const struct plan_rates *rates, bool device_is_host,
                 const struct plan_tape *const *tapes, uint32_t tape_count,
                 struct plan_time *const *times, double *end_seconds)
{
    struct sim sim = {.rates = rates,
                      .device_is_host = device_is_host,
                      .tapes = tapes,
                      .tape_count = tape_count,
                      .until = tape_count,
                      .times = times};
    int rc = run(&sim);
    for (uint32_t t = 0; rc == 0 && t < tape_count; t++) {
        end_seconds[t] = sim.marks[t].seconds;
    }
    sim_fini(&sim);
    return rc;
}

static void count_bytes(const struct plan_tape *tape, struct plan_prediction *out)
{
    const struct plan_traffic traffic = plan_tape_traffic(tape);
    out->store_read_bytes = traffic.store_read_bytes;
    out->store_write_bytes = traffic.store_write_bytes;
    out->up_bytes = traffic.up_bytes;
    out->down_bytes = traffic.down_bytes;
    out->gather_bytes = traffic.gather_bytes;
    out->reduce_bytes = traffic.reduce_bytes;
    out->gather_between_bytes = traffic.gather_between_bytes;
    out->reduce_between_bytes = traffic.reduce_between_bytes;
}

static struct plan_prediction between(const struct mark *from, const struct mark *to, double steps)
{
    struct plan_prediction made = {.step_seconds = (to->seconds - from->seconds) / steps};
    for (int q = 0; q < PLAN_Q_COUNT; q++) {
        made.queue_seconds[q] = (to->queue_seconds[q] - from->queue_seconds[q]) / steps;
    }
    for (int r = 0; r < PLAN_R_COUNT; r++) {
        made.resource_seconds[r] = (to->resource_seconds[r] - from->resource_seconds[r]) / steps;
        if (made.resource_seconds[r] > made.resource_seconds[made.bottleneck]) {
            made.bottleneck = (enum plan_resource)r;
        }
    }
    return made;
}

int plan_sim_predict(const struct plan_rates *rates, bool device_is_host,
                     const struct plan_tape *again, struct plan_prediction *out)
{
    /* Overlapping tapes settle into a period of one or two tapes, so two are averaged. */
    enum { FROM = 1, STEPS = 2, TO = FROM + STEPS, ROW = TO + 2 };
    const struct plan_tape *tapes[ROW] = {NULL};
    for (int t = 0; t < ROW; t++) {
        tapes[t] = again;
    }
    struct sim sim = {.rates = rates,
                      .device_is_host = device_is_host,
                      .tapes = tapes,
                      .tape_count = ROW,
                      .until = TO + 1};
    int rc = run(&sim);
    if (rc == 0) {
        *out = between(&sim.marks[FROM], &sim.marks[TO], STEPS);
        count_bytes(again, out);
    }
    sim_fini(&sim);
    return rc;
}
