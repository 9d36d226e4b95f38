/* coll_local.c: ranks are threads of one process that read each other's arrays. In each step of a
 * collective, a rank waits for all others. The thread of a rank's queue runs collectives; any
 * thread may abort. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/coll/backend.h"

/* The published state of a rank. Other ranks read `work` after they have acquired `step`, until the
 * collective's last step. */
struct seat {
    _Alignas(64) _Atomic uint64_t step; /* steps that the rank has reached */
    /* the rank uses arrays of others (work_begin) */
    _Atomic bool working;
    _Atomic bool taken;
    _Atomic bool left; /* whether the rank has closed */
    struct coll_work work;
};

struct coll_meeting {
    unsigned world;
    struct core_bell bell; /* rung on a step, after work, on leaving and on failure */
    pthread_mutex_t lock;  /* protects the message */
    _Atomic int error;     /* 0, or the -errno that ended all ranks; released after the message */
    char message[CORE_LINE_MESSAGE_BYTES];
    struct seat seats[]; /* [world] */
};

struct local {
    struct coll base;
    struct coll_meeting *meeting; /* borrowed */
    const void **arrays;          /* owned, [world]: scratch for sums */
    uint64_t step;                /* steps of this rank */
    uint64_t number;              /* number of the collective, from 1, for messages */
};

int coll_meeting_create(unsigned world, struct coll_meeting **out)
{
    if (world == 0 || world > COLL_WORLD_MAX) {
        return core_err_set(-EINVAL, "world size %u is out of range 1..%d", world, COLL_WORLD_MAX);
    }
    size_t bytes = sizeof(struct coll_meeting) + world * sizeof(struct seat);
    struct coll_meeting *meeting = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (meeting == NULL) {
        return core_err_set(-ENOMEM, "out of memory for %u ranks", world);
    }
    memset(meeting, 0, bytes);
    meeting->world = world;
    core_bell_init(&meeting->bell);
    pthread_mutex_init(&meeting->lock, NULL);
    *out = meeting;
    return 0;
}

void coll_meeting_destroy(struct coll_meeting *meeting)
{
    if (meeting != NULL) {
        pthread_mutex_destroy(&meeting->lock);
        free(meeting);
    }
}

/* ---- Failure: the first one ends all ranks. ---- */

static int meeting_error(struct coll_meeting *meeting)
{
    int error = atomic_load_explicit(&meeting->error, memory_order_acquire);
    return error == 0 ? 0 : core_err_adopt(error, meeting->message);
}

/* Ends the meeting with this thread's error, if it has not ended. Returns the meeting's error. */
static int meeting_fail(struct coll_meeting *meeting, int code)
{
    pthread_mutex_lock(&meeting->lock);
    if (atomic_load_explicit(&meeting->error, memory_order_relaxed) == 0) {
        snprintf(meeting->message, sizeof meeting->message, "%s", core_err_message());
        atomic_store_explicit(&meeting->error, code, memory_order_seq_cst); /* see work_begin */
    }
    pthread_mutex_unlock(&meeting->lock);
    core_bell_ring(&meeting->bell);
    return meeting_error(meeting);
}

static int fail_missing(struct local *local, const struct coll_work *work, int64_t waited_ns)
{
    struct coll_meeting *meeting = local->meeting;
    struct coll_missing missing = {.count = 0};
    for (unsigned r = 0; r < meeting->world; r++) {
        if (atomic_load_explicit(&meeting->seats[r].step, memory_order_acquire) < local->step) {
            coll_missing_add(&missing, r);
        }
    }
    return meeting_fail(meeting, coll_fail_missing(local->number, work, &missing, waited_ns));
}

/* ---- Steps ---- */

static unsigned first_missing(const struct coll_meeting *meeting, uint64_t step)
{
    unsigned r = 0;
    while (r < meeting->world &&
           atomic_load_explicit(&meeting->seats[r].step, memory_order_acquire) >= step) {
        r++;
    }
    return r;
}

/* Enters the next step and waits for all ranks. */
static int next_step(struct local *local, const struct coll_work *work)
{
    struct coll_meeting *meeting = local->meeting;
    local->step++;
    atomic_store_explicit(&meeting->seats[local->base.rank].step, local->step,
                          memory_order_release);
    core_bell_ring(&meeting->bell);
    int64_t start_ns = core_clock_ran_ns();
    for (int64_t spin_ns = CORE_FENCE_SPIN_NS;; spin_ns = 0) {
        uint32_t seen = core_bell_look(&meeting->bell);
        int rc = meeting_error(meeting);
        if (rc != 0) {
            return rc;
        }
        unsigned missing = first_missing(meeting, local->step);
        if (missing == meeting->world) {
            return 0;
        }
        /* The rank may have entered the step, and then left the meeting, since its step was
         * read. */
        if (atomic_load_explicit(&meeting->seats[missing].left, memory_order_acquire) &&
            first_missing(meeting, local->step) == missing) {
            return meeting_fail(meeting, coll_fail_left(local->number, work, missing));
        }
        int64_t waited_ns = core_clock_ran_ns() - start_ns;
        if (waited_ns >= local->base.limit_ns) {
            return fail_missing(local, work, waited_ns);
        }
        core_bell_spin_sleep(&meeting->bell, seen, spin_ns,
                             core_clock_beat_ns(local->base.limit_ns - waited_ns));
    }
}

static bool same_borders(const struct coll *coll, const struct coll_work *a,
                         const struct coll_work *b)
{
    for (unsigned r = 0; r < coll_sharers(coll, a); r++) {
        uint64_t begins[2];
        uint64_t ends[2];
        coll_part(coll, a, r, &begins[0], &ends[0]);
        coll_part(coll, b, r, &begins[1], &ends[1]);
        if (begins[0] != begins[1] || ends[0] != ends[1]) {
            return false;
        }
    }
    return true;
}

static bool matches(const struct coll *coll, const struct coll_work *a, const struct coll_work *b)
{
    bool parts = a->op == COLL_GATHER || a->op == COLL_REDUCE_SCATTER;
    return a->op == b->op && (a->op == COLL_BARRIER || a->type == b->type) &&
           a->count == b->count && a->root == b->root && a->within == b->within &&
           (a->type != COLL_INT4 || a->sum_type == b->sum_type) &&
           (!parts || (a->borders == NULL && b->borders == NULL) || same_borders(coll, a, b));
}

/* Ranks find the same first rank whose command differs from rank 0's. */
static int check_match(struct local *local)
{
    struct coll_meeting *meeting = local->meeting;
    const struct coll_work *first = &meeting->seats[0].work;
    for (unsigned r = 1; r < meeting->world; r++) {
        const struct coll_work *other = &meeting->seats[r].work;
        if (!matches(&local->base, first, other)) {
            return meeting_fail(meeting, coll_fail_differs(local->number, first, r, other));
        }
    }
    return 0;
}

/* ---- Work: a rank reads arrays of others only between begin and end. ---- */

/* Returns 0 if this rank may read others' arrays, or the error that ended all ranks. In the total
 * order of the accesses, a failing rank sees `working`, or this rank sees `error`. */
static int work_begin(struct local *local)
{
    struct coll_meeting *meeting = local->meeting;
    struct seat *seat = &meeting->seats[local->base.rank];
    atomic_store_explicit(&seat->working, true, memory_order_seq_cst);
    if (atomic_load_explicit(&meeting->error, memory_order_seq_cst) == 0) {
        return 0;
    }
    atomic_store_explicit(&seat->working, false, memory_order_release);
    core_bell_ring(&meeting->bell);
    return meeting_error(meeting);
}

static void work_end(struct local *local)
{
    struct coll_meeting *meeting = local->meeting;
    atomic_store_explicit(&meeting->seats[local->base.rank].working, false, memory_order_release);
    core_bell_ring(&meeting->bell);
}

/* After a failure, waits until no rank reads arrays of others. These ranks only copy and add, so
 * the wait is short. */
static void wait_for_readers(struct coll_meeting *meeting)
{
    for (unsigned r = 0; r < meeting->world;) {
        uint32_t seen = core_bell_look(&meeting->bell);
        if (atomic_load_explicit(&meeting->seats[r].working, memory_order_seq_cst)) {
            core_bell_sleep(&meeting->bell, seen, -1);
        } else {
            r++;
        }
    }
}

static void received(struct local *local, enum coll_op op, uint64_t bytes)
{
    atomic_fetch_add_explicit(&local->base.received_bytes[op], bytes, memory_order_relaxed);
}

static void gather(struct local *local, const struct coll_work *work)
{
    for (unsigned r = 0; r < local->base.world; r++) {
        uint64_t at;
        if (!coll_takes_part(&local->base, work, r)) {
            continue;
        }
        const uint64_t bytes = coll_part_bytes(&local->base, work, r, &at);
        coll_copy((unsigned char *)work->to + at, local->meeting->seats[r].work.from, bytes);
        received(local, work->op, r == local->base.rank ? 0 : bytes);
    }
}

static void sum_part(struct local *local, const struct coll_work *work, uint64_t begin,
                     uint64_t end, void *to)
{
    unsigned world = local->base.world;
    for (unsigned r = 0; r < world; r++) {
        local->arrays[r] = local->meeting->seats[r].work.from;
    }
    if (end > begin) {
        const struct coll_terms terms = {
            .from = local->arrays, .ranks = world, .first = begin, .count = end - begin};
        coll_work_sum(work, &terms, to);
        received(local, work->op, (world - 1) * (end - begin) * coll_type_bytes(work->type));
    }
}

/* Copies the parts of other ranks; `to` has this rank's. */
static void take_sums(struct local *local, const struct coll_work *work)
{
    size_t type_bytes = coll_type_bytes(work->type);
    for (unsigned r = 0; r < local->base.world; r++) {
        if (r == local->base.rank) {
            continue;
        }
        uint64_t begin;
        uint64_t end;
        coll_part(&local->base, work, r, &begin, &end);
        coll_copy((unsigned char *)work->to + begin * type_bytes,
                  (unsigned char *)local->meeting->seats[r].work.to + begin * type_bytes,
                  (end - begin) * type_bytes);
        received(local, work->op, (end - begin) * type_bytes);
    }
}

static void broadcast(struct local *local, const struct coll_work *work)
{
    uint64_t bytes = work->count * coll_type_bytes(work->type);
    coll_copy(work->to, local->meeting->seats[work->root].work.from, bytes);
    received(local, work->op, work->root == local->base.rank ? 0 : bytes);
}

static void do_work(struct local *local, const struct coll_work *work)
{
    uint64_t begin;
    uint64_t end;
    coll_part(&local->base, work, local->base.rank, &begin, &end);
    size_t type_bytes = coll_type_bytes(work->type);
    switch (work->op) {
    case COLL_GATHER: gather(local, work); break;
    case COLL_REDUCE_SCATTER: sum_part(local, work, begin, end, work->to); break;
    case COLL_ALL_REDUCE:
        sum_part(local, work, begin, end, (unsigned char *)work->to + begin * type_bytes);
        break;
    case COLL_BROADCAST: broadcast(local, work); break;
    case COLL_BARRIER:
    case COLL_OPS: break;
    }
}

/* An all-reduce also copies the others' sums and takes a third step. */
static int run_steps(struct local *local, const struct coll_work *work)
{
    int rc = next_step(local, work);
    if (rc == 0) {
        rc = check_match(local);
    }
    if (rc == 0) {
        rc = work_begin(local);
    }
    if (rc != 0) {
        return rc;
    }
    if (!work->meets) {
        do_work(local, work);
    }
    work_end(local);
    rc = next_step(local, work);
    if (rc != 0 || work->op != COLL_ALL_REDUCE || work->meets) {
        return rc;
    }
    rc = work_begin(local);
    if (rc != 0) {
        return rc;
    }
    take_sums(local, work);
    work_end(local);
    return next_step(local, work);
}

static int local_run(struct coll *base, const struct coll_work *work)
{
    struct local *local = (struct local *)base;
    int rc = meeting_error(local->meeting);
    if (rc != 0) {
        return rc;
    }
    local->number++;
    local->meeting->seats[base->rank].work = *work;
    rc = run_steps(local, work);
    if (rc != 0) {
        wait_for_readers(local->meeting);
    }
    return rc;
}

static int local_abort(struct coll *base, int code)
{
    struct local *local = (struct local *)base;
    core_err_prefix(code, "rank %u", base->rank);
    return meeting_fail(local->meeting, code);
}

static int local_end(struct coll *base, int code)
{
    return code != 0 ? local_abort(base, code) : meeting_error(((struct local *)base)->meeting);
}

/* ---- Open and close ---- */

static void local_close(struct coll *base)
{
    struct local *local = (struct local *)base;
    atomic_store_explicit(&local->meeting->seats[base->rank].left, true, memory_order_release);
    core_bell_ring(&local->meeting->bell);
    free(local->arrays);
    free(local);
}

static int local_open(const struct coll_options *options, struct coll *base, struct coll **out)
{
    struct coll_meeting *meeting = options->meeting;
    if (meeting == NULL || meeting->world != base->world) {
        return core_err_set(-EINVAL, "rank %u of %u needs the meeting of its %u ranks", base->rank,
                            base->world, base->world);
    }
    struct local *local = calloc(1, sizeof *local);
    const void **arrays = calloc(base->world, sizeof *arrays);
    if (local == NULL || arrays == NULL) {
        free(local);
        free(arrays);
        return core_err_set(-ENOMEM, "no memory for rank %u of %u", base->rank, base->world);
    }
    if (atomic_exchange_explicit(&meeting->seats[base->rank].taken, true, memory_order_acq_rel)) {
        free(local);
        free(arrays);
        return core_err_set(-EEXIST, "rank %u of %u is open already", base->rank, base->world);
    }
    local->base = *base;
    local->meeting = meeting;
    local->arrays = arrays;
    *out = &local->base;
    return 0;
}

const struct coll_backend coll_backend_local = {
    .kind = "local",
    .open = local_open,
    .close = local_close,
    .run = local_run,
    .abort = local_abort,
    .end = local_end,
};
