/* coll_processes.c: ranks are processes that exchange transfers (peers.h). A collective begins with
 * heads: a rank sends each other rank its command, and its data if they are short. Then the rank
 * takes part to the end, unless the world ends or a head shows that a rank has left, aborted or
 * runs another command: ranks fail at the same collective. exchange.h moves longer data. The
 * queue's thread runs collectives; any thread may abort. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/bell.h"
#include "core/base/clock.h"
#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/coll/backend.h"
#include "core/coll/exchange.h"
#include "core/coll/peers.h"

enum head_kind { HEAD_WORK, HEAD_LEFT, HEAD_ABORTED };

/* Followed by short data, or an abort's message. */
struct head {
    uint32_t kind;
    int32_t code; /* HEAD_ABORTED: the error; else 0 */
    uint32_t op, type, root, within;
    uint64_t count;
    uint64_t borders;  /* a hash; 0: the default borders */
    uint64_t sum_type; /* COLL_INT4: of the command; else 0 */
};

/* MPI libraries usually send so few bytes without waiting for the receiver. */
enum { HEAD_BYTES = 3584, SHORT_BYTES = HEAD_BYTES - sizeof(struct head) };
/* how long a closing rank waits for others */
static const int64_t close_ns = INT64_C(3) * 1000000000;

struct processes {
    struct coll base;
    struct coll_peers *peers; /* borrowed */
    int tag;                  /* tag of heads; the next tag is that of data */
    struct coll_exchange exchange;
    /* number of the collective, from 1, for messages */
    uint64_t number;
    unsigned char *heads_out, *heads_in;   /* owned, [world][HEAD_BYTES] */
    struct coll_transfer *transfers;       /* owned: all transfers below */
    struct coll_transfer *out, *in, *last; /* [world] each: heads sent and received, last heads */
    pthread_mutex_t lock;                  /* protects `ended`, `failed` and the order of heads */
    bool ended;                            /* this rank's last head was sent */
    struct core_err failed;
    unsigned char last_head[HEAD_BYTES];
};

static unsigned char *head_of(unsigned char *heads, unsigned rank)
{
    return heads + (size_t)rank * HEAD_BYTES;
}

/* ---- failures ---- */

static int own_failure(struct processes *procs)
{
    pthread_mutex_lock(&procs->lock);
    const struct core_err failed = procs->failed;
    pthread_mutex_unlock(&procs->lock);
    return core_err_first(&failed, 0);
}

/* Keeps the first error for later collectives. Returns `rc`. */
static int fail(struct processes *procs, int rc)
{
    pthread_mutex_lock(&procs->lock);
    if (procs->failed.code == 0) {
        procs->failed = core_err_keep(rc);
    }
    pthread_mutex_unlock(&procs->lock);
    return rc;
}

/* Sends this rank's last head to all others. Under the lock. */
static void send_last(struct processes *procs, const struct head *head, const char *message)
{
    procs->ended = true;
    memcpy(procs->last_head, head, sizeof *head);
    snprintf((char *)procs->last_head + sizeof *head, SHORT_BYTES, "%s", message);
    for (unsigned i = 0; i + 1 < procs->base.world; i++) {
        struct coll_transfer *transfer = &procs->last[coll_other(&procs->base, i)];
        transfer->at = procs->last_head;
        transfer->bytes = sizeof *head + strlen(message) + 1;
        coll_exchange_post(&procs->exchange, transfer, true, coll_other(&procs->base, i),
                           procs->tag);
    }
}

/* ---- heads ---- */

static struct head head_of_work(const struct processes *procs, const struct coll_work *work)
{
    const size_t bytes = (coll_sharers(&procs->base, work) + 1) * sizeof *work->borders;
    return (struct head){
        .kind = HEAD_WORK,
        .op = work->op,
        .type = work->type,
        .root = work->root,
        .within = work->within,
        .count = work->count,
        .borders = work->borders != NULL ? core_hash(work->borders, bytes, 0) : 0,
        .sum_type = work->type == COLL_INT4 ? work->sum_type : 0,
    };
}

static bool is_short(const struct coll_work *work)
{
    return coll_work_bytes(work, work->count) <= SHORT_BYTES && !work->meets;
}

static void part_for(const struct processes *procs, const struct coll_work *work, unsigned to,
                     uint64_t *begin, uint64_t *count)
{
    uint64_t end = 0;
    *begin = 0;
    *count = work->count;
    if (work->op == COLL_GATHER) {
        coll_part(&procs->base, work, procs->base.rank, begin, &end);
        *count = coll_takes_part(&procs->base, work, to) ? end - *begin : 0;
        *begin = 0; /* `from` is only the part */
    } else if (work->op == COLL_REDUCE_SCATTER) {
        coll_part(&procs->base, work, to, begin, &end);
        *count = end - *begin;
    } else if (work->op == COLL_BROADCAST && work->root != procs->base.rank) {
        *count = 0;
    }
}

static struct head head_from(const struct processes *procs, unsigned rank)
{
    struct head head;
    memcpy(&head, head_of(procs->heads_in, rank), sizeof head);
    return head;
}

static void receive_head(struct processes *procs, unsigned rank)
{
    struct coll_transfer *transfer = &procs->in[rank];
    transfer->at = head_of(procs->heads_in, rank);
    transfer->bytes = HEAD_BYTES;
    coll_exchange_post(&procs->exchange, transfer, false, rank, procs->tag);
}

/* Begins to exchange heads; after a failure, sends none and returns the error. */
static int begin_heads(struct processes *procs, const struct coll_work *work)
{
    const struct head head = head_of_work(procs, work);
    /* The last collective's heads must have been sent. */
    int rc = coll_peers_wait(procs->peers, procs->out, procs->base.world);
    if (rc != 0) {
        return rc;
    }
    for (unsigned i = 0; i + 1 < procs->base.world; i++) {
        receive_head(procs, coll_other(&procs->base, i));
    }
    pthread_mutex_lock(&procs->lock);
    const struct core_err failed = procs->failed;
    for (unsigned i = 0; failed.code == 0 && i + 1 < procs->base.world; i++) {
        const unsigned to = coll_other(&procs->base, i);
        struct coll_transfer *transfer = &procs->out[to];
        uint64_t begin = 0;
        uint64_t count = 0;
        transfer->at = head_of(procs->heads_out, to);
        memcpy(transfer->at, &head, sizeof head);
        if (is_short(work)) {
            part_for(procs, work, to, &begin, &count);
            coll_copy((unsigned char *)transfer->at + sizeof head,
                      (const unsigned char *)work->from + coll_work_bytes(work, begin),
                      coll_work_bytes(work, count));
        }
        transfer->bytes = sizeof head + coll_work_bytes(work, count);
        coll_exchange_post(&procs->exchange, transfer, true, to, procs->tag);
    }
    pthread_mutex_unlock(&procs->lock);
    return core_err_first(&failed, 0);
}

/* Returns the error of a rank that has left, has aborted or sent an invalid head; else 0, and sets
 * *missing to the number of heads that have not arrived. */
static int look_at_heads(struct processes *procs, const struct coll_work *work, unsigned *missing)
{
    *missing = 0;
    for (unsigned r = 0; r < procs->base.world; r++) {
        if (r == procs->base.rank) {
            continue;
        }
        if (!coll_transfer_done(&procs->in[r])) {
            ++*missing;
            continue;
        }
        const struct head head = head_from(procs, r);
        if (procs->in[r].received < sizeof head) {
            return core_err_set(-EPROTO, "rank %u sent a head of %zu bytes; expected %zu", r,
                                procs->in[r].received, sizeof head);
        }
        if (head.kind == HEAD_LEFT) {
            return coll_fail_left(procs->number, work, r);
        }
        if (head.kind == HEAD_ABORTED) {
            char *message = (char *)head_of(procs->heads_in, r);
            coll_peers_end_text(message, HEAD_BYTES, procs->in[r].received);
            return core_err_adopt(head.code < 0 ? head.code : -EPROTO, message + sizeof head);
        }
    }
    return 0;
}

/* Ends the world, because a late rank may still arrive and rely on this one. */
static int end_world(struct processes *procs, const struct coll_work *work, int64_t waited_ns)
{
    struct coll_missing missing = {.count = 0};
    for (unsigned r = 0; r < procs->base.world; r++) {
        if (r != procs->base.rank && !coll_transfer_done(&procs->in[r])) {
            coll_missing_add(&missing, r);
        }
    }
    return coll_peers_fail(procs->peers,
                           coll_fail_missing(procs->number, work, &missing, waited_ns));
}

static int wait_heads(struct processes *procs, const struct coll_work *work)
{
    struct core_bell *bell = coll_peers_bell(procs->peers);
    const int64_t start_ns = core_clock_ran_ns();
    for (int64_t spin_ns = CORE_FENCE_SPIN_NS;; spin_ns = 0) {
        const uint32_t seen = core_bell_look(bell);
        unsigned missing = 0;
        int rc = coll_peers_error(procs->peers);
        if (rc != 0) {
            return rc;
        }
        rc = look_at_heads(procs, work, &missing);
        if (rc != 0 || missing == 0) {
            return rc;
        }
        const int64_t waited_ns = core_clock_ran_ns() - start_ns;
        if (waited_ns >= procs->base.limit_ns) {
            return end_world(procs, work, waited_ns);
        }
        core_bell_spin_sleep(bell, seen, spin_ns,
                             core_clock_beat_ns(procs->base.limit_ns - waited_ns));
    }
}

static bool same(const struct head *a, const struct head *b)
{
    return a->op == b->op && (a->op == COLL_BARRIER || a->type == b->type) &&
           a->count == b->count && a->root == b->root && a->within == b->within &&
           a->borders == b->borders && a->sum_type == b->sum_type;
}

static struct coll_work work_of(const struct head *head)
{
    return (struct coll_work){.op = (enum coll_op)head->op,
                              .type = (enum coll_type)head->type,
                              .root = head->root,
                              .within = head->within,
                              .count = head->count,
                              .sum_type = (enum coll_type)head->sum_type};
}

/* Ranks find the same first rank whose command differs from rank 0's. */
static int compare_heads(struct processes *procs, const struct coll_work *work)
{
    const struct head own = head_of_work(procs, work);
    const struct head first = procs->base.rank == 0 ? own : head_from(procs, 0);
    for (unsigned r = 1; r < procs->base.world; r++) {
        const struct head head = r == procs->base.rank ? own : head_from(procs, r);
        if (!same(&first, &head)) {
            const struct coll_work a = work_of(&first);
            const struct coll_work b = work_of(&head);
            return coll_fail_differs(procs->number, &a, r, &b);
        }
    }
    return 0;
}

/* ---- short data, which came with the heads ---- */

static void sum_short(struct processes *procs, const struct coll_work *work, uint64_t begin,
                      uint64_t count, void *to)
{
    for (unsigned r = 0; r < procs->base.world; r++) {
        procs->exchange.arrays[r] = r == procs->base.rank
                                        ? (const unsigned char *)work->from +
                                              coll_work_bytes(work, begin)
                                        : head_of(procs->heads_in, r) + sizeof(struct head);
    }
    if (count > 0) {
        const struct coll_terms terms = {
            .from = procs->exchange.arrays, .ranks = procs->base.world, .count = count};
        coll_work_sum(work, &terms, to);
        for (unsigned r = 0; r < procs->base.world; r++) {
            coll_exchange_received(&procs->exchange, work->op, r,
                                   r == procs->base.rank ? 0 : coll_work_bytes(work, count));
        }
    }
}

static void gather_short(struct processes *procs, const struct coll_work *work)
{
    for (unsigned r = 0; r < procs->base.world; r++) {
        uint64_t begin;
        uint64_t end;
        if (!coll_takes_part(&procs->base, work, r)) {
            continue;
        }
        coll_part(&procs->base, work, r, &begin, &end);
        const bool own = r == procs->base.rank;
        coll_copy((unsigned char *)work->to + coll_work_bytes(work, begin),
                  own ? work->from
                      : (const void *)(head_of(procs->heads_in, r) + sizeof(struct head)),
                  coll_work_bytes(work, end - begin));
        coll_exchange_received(&procs->exchange, work->op, r,
                               own ? 0 : coll_work_bytes(work, end - begin));
    }
}

static void finish_short(struct processes *procs, const struct coll_work *work)
{
    uint64_t begin;
    uint64_t end;
    coll_part(&procs->base, work, procs->base.rank, &begin, &end);
    const bool root = work->root == procs->base.rank;
    switch (work->op) {
    case COLL_GATHER: gather_short(procs, work); break;
    case COLL_REDUCE_SCATTER: sum_short(procs, work, begin, end - begin, work->to); break;
    case COLL_ALL_REDUCE: sum_short(procs, work, 0, work->count, work->to); break;
    case COLL_BROADCAST:
        coll_copy(work->to,
                  root ? work->from
                       : (const void *)(head_of(procs->heads_in, work->root) + sizeof(struct head)),
                  coll_work_bytes(work, work->count));
        coll_exchange_received(&procs->exchange, work->op, work->root,
                               root ? 0 : coll_work_bytes(work, work->count));
        break;
    case COLL_BARRIER:
    case COLL_OPS: break;
    }
}

/* ---- a collective ---- */

static int processes_run(struct coll *base, const struct coll_work *work)
{
    struct processes *procs = (struct processes *)base;
    int rc = own_failure(procs);
    if (rc != 0) {
        return rc;
    }
    procs->number++;
    rc = begin_heads(procs, work);
    if (rc == 0) {
        rc = wait_heads(procs, work);
    }
    if (rc == 0) {
        rc = compare_heads(procs, work);
    }
    if (rc != 0) {
        return fail(procs, rc);
    }
    if (work->meets) {
        return 0;
    }
    if (is_short(work)) {
        finish_short(procs, work);
        return 0;
    }
    rc = coll_exchange_run(&procs->exchange, work);
    return rc != 0 ? fail(procs, rc) : 0;
}

static int processes_abort(struct coll *base, int code)
{
    struct processes *procs = (struct processes *)base;
    const struct coll_peer *self = coll_peers_at(procs->peers, base->rank);
    core_err_prefix(code, "rank %u on %s", base->rank, self->host);
    pthread_mutex_lock(&procs->lock);
    if (procs->failed.code == 0) {
        const struct head head = {.kind = HEAD_ABORTED, .code = code};
        procs->failed = core_err_keep(code);
        send_last(procs, &head, procs->failed.message);
    }
    const struct core_err failed = procs->failed;
    pthread_mutex_unlock(&procs->lock);
    return core_err_first(&failed, 0);
}

static int processes_end(struct coll *base, int code)
{
    struct processes *procs = (struct processes *)base;
    if (code == 0) {
        return coll_peers_error(procs->peers);
    }
    core_err_prefix(code, "rank %u on %s", base->rank,
                    coll_peers_at(procs->peers, base->rank)->host);
    return coll_peers_fail(procs->peers, code);
}

/* ---- open and close ---- */

static void free_processes(struct processes *procs)
{
    if (procs == NULL) {
        return;
    }
    coll_exchange_fini(&procs->exchange);
    free(procs->heads_out);
    free(procs->heads_in);
    free(procs->transfers);
    free(procs);
}

/* Receives a rank's heads until its last one or `until_ns`, so that none stays in the transport. */
static void drain_heads(struct processes *procs, unsigned rank, int64_t until_ns)
{
    struct core_bell *bell = coll_peers_bell(procs->peers);
    struct coll_transfer *in = &procs->in[rank];
    while (!coll_transfer_done(in) || head_from(procs, rank).kind == HEAD_WORK) {
        const int state = atomic_load_explicit(&in->state, memory_order_acquire);
        const uint32_t seen = core_bell_look(bell);
        if (state != COLL_TRANSFER_POSTED) {
            receive_head(procs, rank);
        } else if (core_clock_now_ns() >= until_ns || coll_peers_error(procs->peers) != 0) {
            coll_peers_withdraw(procs->peers, in);
            return;
        } else if (!coll_transfer_done(in)) {
            (void)core_bell_sleep(bell, seen, CORE_CLOCK_BEAT_NS);
        }
    }
}

static void processes_close(struct coll *base)
{
    struct processes *procs = (struct processes *)base;
    const struct head left = {.kind = HEAD_LEFT};
    const int64_t until_ns = core_clock_now_ns() + close_ns;
    pthread_mutex_lock(&procs->lock);
    if (!procs->ended) {
        send_last(procs, &left, "");
    }
    pthread_mutex_unlock(&procs->lock);
    for (unsigned i = 0; i + 1 < base->world; i++) {
        drain_heads(procs, coll_other(&procs->base, i), until_ns);
    }
    /* After these waits no transfer uses a buffer. */
    (void)coll_peers_wait(procs->peers, procs->out, base->world);
    (void)coll_peers_wait(procs->peers, procs->last, base->world);
    pthread_mutex_destroy(&procs->lock);
    free_processes(procs);
}

static struct processes *alloc_processes(const struct coll *base, struct coll_peers *peers)
{
    enum { KINDS = 3 };
    struct processes *procs = calloc(1, sizeof *procs);
    if (procs == NULL) {
        return NULL;
    }
    const size_t world = base->world;
    procs->base = *base;
    procs->peers = peers;
    procs->tag = coll_peers_tags(peers, 2);
    procs->heads_out = calloc(world, HEAD_BYTES);
    procs->heads_in = calloc(world, HEAD_BYTES);
    procs->transfers = calloc(KINDS * world, sizeof *procs->transfers);
    if (procs->heads_out == NULL || procs->heads_in == NULL || procs->transfers == NULL ||
        coll_exchange_init(&procs->exchange, &procs->base, peers, procs->tag + 1) != 0) {
        free_processes(procs);
        return NULL;
    }
    procs->out = procs->transfers;
    procs->in = procs->out + world;
    procs->last = procs->in + world;
    return procs;
}

static int processes_open(const struct coll_options *options, struct coll *base, struct coll **out)
{
    struct coll_peers *peers = options->peers;
    if (peers == NULL || coll_peers_world(peers) != base->world ||
        coll_peers_rank(peers) != base->rank) {
        return core_err_set(-EINVAL, "rank %u of %u is not this process's rank", base->rank,
                            base->world);
    }
    struct processes *procs = alloc_processes(base, peers);
    if (procs == NULL) {
        return core_err_set(-ENOMEM, "no memory for rank %u of %u", base->rank, base->world);
    }
    pthread_mutex_init(&procs->lock, NULL);
    *out = &procs->base;
    return 0;
}

const struct coll_backend coll_backend_processes = {
    .kind = "processes",
    .open = processes_open,
    .close = processes_close,
    .run = processes_run,
    .abort = processes_abort,
    .end = processes_end,
};
