/* coll_processes.c: ranks are processes that exchange transfers (peers.h), over MPI or TCP. A
 * collective begins with a head from each rank to each other rank: the command, and its data if
 * they are short. After a rank has sent its head, it takes part in the collective to the end,
 * unless the head of another rank reports that this other rank has left or aborted. So data are
 * sent only to ranks that will receive them, and all ranks fail at the same collective. Longer data
 * follow: each rank sends the parts to their owners, who add them in the order of ranks with the
 * code that ranks as threads use; or groups of ranks add first. If another back end moves the data
 * (coll_work.meets), ranks only exchange heads. The thread of the coll's queue enters, and any
 * thread that aborts. */
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
#include "core/coll/peers.h"
#include "core/coll/sum.h"

enum head_kind { HEAD_WORK, HEAD_LEFT, HEAD_ABORTED };

/* Short data, or the message of an abort, follow the head. */
struct head {
    uint32_t kind;
    int32_t code; /* ABORTED */
    uint32_t op, type, root, within;
    uint64_t count;
    uint64_t borders; /* a hash of the borders */
};

/* A transfer of HEAD_BYTES is below the size up to which MPI libraries send without waiting for the
 * receiver. */
enum { HEAD_BYTES = 3584, SHORT_BYTES = HEAD_BYTES - sizeof(struct head) };
/* Sums are computed by pieces, of which two are in flight. The pieces of all ranks take at most
 * PIECES_BYTES. */
enum { PIECES_BYTES = 8 << 20, PIECE_MIN = 64 << 10, PIECE_MAX = 1 << 20, TURNS = 2 };
/* Longer transfers are cut to this size. */
static const uint64_t transfer_max = UINT64_C(64) << 20;
/* The time for which a rank that closes waits for the others to close. */
static const int64_t close_ns = INT64_C(3) * 1000000000;

/* The transfers of one turn: one in each direction with every other rank. */
struct turn {
    struct coll_transfer *out, *in; /* [world] */
    unsigned char *pieces;          /* [world][piece_bytes]: pieces that were received */
};

struct processes {
    struct coll base;
    struct coll_peers *peers; /* borrowed */
    int tag;                  /* tag of heads; the next tag is that of data */
    size_t piece_bytes;
    /* number of the collective, counted from 1, for messages */
    uint64_t number;
    unsigned char *heads_out, *heads_in;   /* owned, [world][HEAD_BYTES] */
    struct coll_transfer *transfers;       /* owned: the transfers of the following arrays */
    struct coll_transfer *out, *in, *last; /* [world]: heads, and the head of leaving */
    struct turn turns[TURNS];
    const void **arrays;  /* owned, [world]: for sums */
    pthread_mutex_t lock; /* protects the next two members and the order of heads */
    bool ended;           /* the last head of this rank was sent */
    struct core_err failed;
    unsigned char last_head[HEAD_BYTES];
};

static uint64_t bytes_of(const struct coll_work *work, uint64_t count)
{
    return count * coll_type_bytes(work->type);
}

static unsigned char *head_of(unsigned char *heads, unsigned rank)
{
    return heads + (size_t)rank * HEAD_BYTES;
}

static void received(struct processes *procs, enum coll_op op, unsigned from, uint64_t bytes)
{
    const char *own = coll_peers_at(procs->peers, procs->base.rank)->host;
    const bool far = strcmp(coll_peers_at(procs->peers, from)->host, own) != 0;
    atomic_fetch_add_explicit(&procs->base.received_bytes[op], bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&procs->base.far_bytes[op], far ? bytes : 0, memory_order_relaxed);
}

static void copy(void *to, const void *from, uint64_t bytes)
{
    if (bytes > 0 && to != from) {
        memmove(to, from, bytes);
    }
}

/* ---- transfers ---- */

static void post(struct processes *procs, struct coll_transfer *transfer, bool sends, unsigned peer,
                 int tag)
{
    transfer->sends = sends;
    transfer->peer = peer;
    transfer->tag = tag;
    coll_peers_post(procs->peers, transfer);
}

/* Begins to send a part of an array to another rank; sends nothing if the part has 0 bytes. */
static void send_data(struct processes *procs, struct coll_transfer *transfer, unsigned to,
                      const void *from, uint64_t bytes)
{
    atomic_store_explicit(&transfer->state, COLL_TRANSFER_FREE, memory_order_relaxed);
    transfer->at = (void *)(uintptr_t)from;
    transfer->bytes = bytes;
    if (bytes > 0) {
        post(procs, transfer, true, to, procs->tag + 1);
    }
}

static void receive_data(struct processes *procs, struct coll_transfer *transfer, unsigned from,
                         void *to, uint64_t bytes)
{
    atomic_store_explicit(&transfer->state, COLL_TRANSFER_FREE, memory_order_relaxed);
    transfer->at = to;
    transfer->bytes = bytes;
    if (bytes > 0) {
        post(procs, transfer, false, from, procs->tag + 1);
    }
}

static int wait_turn(struct processes *procs, const struct turn *turn)
{
    int rc = coll_peers_wait(procs->peers, turn->in, procs->base.world);
    return rc != 0 ? rc : coll_peers_wait(procs->peers, turn->out, procs->base.world);
}

/* Returns the i-th other rank, counted from this one, so that not all ranks send to the same rank
 * first. */
static unsigned other(const struct processes *procs, unsigned i)
{
    return (procs->base.rank + 1 + i) % procs->base.world;
}

/* ---- failures ---- */

static int own_failure(struct processes *procs)
{
    pthread_mutex_lock(&procs->lock);
    const struct core_err failed = procs->failed;
    pthread_mutex_unlock(&procs->lock);
    return core_err_first(&failed, 0);
}

/* Keeps this thread's error for all later collectives. */
static int fail(struct processes *procs, int rc)
{
    pthread_mutex_lock(&procs->lock);
    if (procs->failed.code == 0) {
        procs->failed = core_err_keep(rc);
    }
    pthread_mutex_unlock(&procs->lock);
    return rc;
}

/* Sends the last head of this rank to all others. The caller holds the lock. */
static void send_last(struct processes *procs, const struct head *head, const char *message)
{
    procs->ended = true;
    memcpy(procs->last_head, head, sizeof *head);
    snprintf((char *)procs->last_head + sizeof *head, SHORT_BYTES, "%s", message);
    for (unsigned i = 0; i + 1 < procs->base.world; i++) {
        struct coll_transfer *transfer = &procs->last[other(procs, i)];
        transfer->at = procs->last_head;
        transfer->bytes = sizeof *head + strlen(message) + 1;
        post(procs, transfer, true, other(procs, i), procs->tag);
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
    };
}

/* Returns whether the data of a collective are sent with the heads. */
static bool is_short(const struct coll_work *work)
{
    return bytes_of(work, work->count) <= SHORT_BYTES && !work->meets;
}

/* Returns the elements that a rank sends to another one in its head, or to the owner of a part. */
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
    post(procs, transfer, false, rank, procs->tag);
}

/* Begins to exchange heads, unless this rank has aborted. */
static int begin_heads(struct processes *procs, const struct coll_work *work)
{
    const struct head head = head_of_work(procs, work);
    int rc = coll_peers_wait(procs->peers, procs->out,
                             procs->base.world); /* the command of the last collective */
    if (rc != 0) {
        return rc;
    }
    for (unsigned i = 0; i + 1 < procs->base.world; i++) {
        receive_head(procs, other(procs, i));
    }
    pthread_mutex_lock(&procs->lock);
    const struct core_err failed = procs->failed;
    for (unsigned i = 0; failed.code == 0 && i + 1 < procs->base.world; i++) {
        const unsigned to = other(procs, i);
        struct coll_transfer *transfer = &procs->out[to];
        uint64_t begin = 0;
        uint64_t count = 0;
        transfer->at = head_of(procs->heads_out, to);
        memcpy(transfer->at, &head, sizeof head);
        if (is_short(work)) {
            part_for(procs, work, to, &begin, &count);
            copy((unsigned char *)transfer->at + sizeof head,
                 (const unsigned char *)work->from + bytes_of(work, begin), bytes_of(work, count));
        }
        transfer->bytes = sizeof head + bytes_of(work, count);
        post(procs, transfer, true, to, procs->tag);
    }
    pthread_mutex_unlock(&procs->lock);
    return core_err_first(&failed, 0);
}

/* Reads the heads that have arrived. Returns the error of a rank that has left or aborted; *missing
 * is the number of ranks without a head. */
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
        const char *message = (const char *)head_of(procs->heads_in, r) + sizeof head;
        if (head.kind == HEAD_LEFT) {
            return coll_fail_left(procs->number, work, r);
        }
        if (head.kind == HEAD_ABORTED) {
            return core_err_adopt(head.code, message);
        }
    }
    return 0;
}

/* A rank that is late may still arrive and rely on this one, so the whole world ends. */
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
           a->borders == b->borders;
}

static struct coll_work work_of(const struct head *head)
{
    return (struct coll_work){.op = (enum coll_op)head->op,
                              .type = (enum coll_type)head->type,
                              .root = head->root,
                              .within = head->within,
                              .count = head->count};
}

/* All ranks find the same first rank whose command differs from rank 0's. */
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

/* Sums elements [begin, begin + count) of this rank and those that the other ranks sent. */
static void sum_short(struct processes *procs, const struct coll_work *work, uint64_t begin,
                      uint64_t count, void *to)
{
    for (unsigned r = 0; r < procs->base.world; r++) {
        procs->arrays[r] = r == procs->base.rank
                               ? (const unsigned char *)work->from + bytes_of(work, begin)
                               : head_of(procs->heads_in, r) + sizeof(struct head);
    }
    if (count > 0) {
        const struct coll_terms terms = {
            .from = procs->arrays, .ranks = procs->base.world, .count = count};
        coll_work_sum(work, &terms, to);
        for (unsigned r = 0; r < procs->base.world; r++) {
            received(procs, work->op, r, r == procs->base.rank ? 0 : bytes_of(work, count));
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
        copy((unsigned char *)work->to + bytes_of(work, begin),
             own ? work->from : (const void *)(head_of(procs->heads_in, r) + sizeof(struct head)),
             bytes_of(work, end - begin));
        received(procs, work->op, r, own ? 0 : bytes_of(work, end - begin));
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
        copy(work->to,
             root ? work->from
                  : (const void *)(head_of(procs->heads_in, work->root) + sizeof(struct head)),
             bytes_of(work, work->count));
        received(procs, work->op, work->root, root ? 0 : bytes_of(work, work->count));
        break;
    case COLL_BARRIER:
    case COLL_OPS: break;
    }
}

/* ---- longer data ---- */

/* Returns the `index`-th piece of a part. */
static uint64_t piece_of(uint64_t bytes, uint64_t piece_bytes, uint64_t index, uint64_t *at)
{
    *at = index * piece_bytes < bytes ? index * piece_bytes : bytes;
    return bytes - *at < piece_bytes ? bytes - *at : piece_bytes;
}

/* Returns the bytes of rank r's part, and where it begins. */
static uint64_t part_bytes(const struct processes *procs, const struct coll_work *work, unsigned r,
                           uint64_t *at)
{
    uint64_t begin;
    uint64_t end;
    coll_part(&procs->base, work, r, &begin, &end);
    *at = bytes_of(work, begin);
    return bytes_of(work, end - begin);
}

static uint64_t longest_part(const struct processes *procs, const struct coll_work *work)
{
    uint64_t longest = 0;
    for (unsigned r = 0; r < procs->base.world; r++) {
        uint64_t at;
        const uint64_t bytes = part_bytes(procs, work, r, &at);
        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

/* Sends this rank's part to all ranks and receives their parts at the right places. */
static int gather_long(struct processes *procs, const struct coll_work *work, const void *own)
{
    const struct turn *turn = &procs->turns[0];
    const uint64_t longest = longest_part(procs, work);
    uint64_t own_at;
    const uint64_t own_bytes = part_bytes(procs, work, procs->base.rank, &own_at);
    int rc = 0;
    for (uint64_t done = 0; rc == 0 && done < longest; done += transfer_max) {
        for (unsigned i = 0; i + 1 < procs->base.world; i++) {
            const unsigned r = other(procs, i);
            uint64_t at;
            uint64_t from;
            if (!coll_takes_part(&procs->base, work, r)) {
                receive_data(procs, &turn->in[r], r, NULL, 0);
                send_data(procs, &turn->out[r], r, NULL, 0);
                continue;
            }
            const uint64_t bytes = part_bytes(procs, work, r, &at);
            const uint64_t in = piece_of(bytes, transfer_max, done / transfer_max, &from);
            receive_data(procs, &turn->in[r], r, (unsigned char *)work->to + at + from, in);
            received(procs, work->op, r, in);
            const uint64_t out = piece_of(own_bytes, transfer_max, done / transfer_max, &from);
            send_data(procs, &turn->out[r], r, (const unsigned char *)own + from, out);
        }
        rc = wait_turn(procs, turn);
    }
    copy((unsigned char *)work->to + own_at, own, own_bytes);
    return rc;
}

/* Returns the size of a piece of a sum, which has whole elements. */
static uint64_t sum_piece_bytes(const struct processes *procs, const struct coll_work *work)
{
    return procs->piece_bytes - procs->piece_bytes % coll_type_bytes(work->type);
}

/* Begins to exchange the `index`-th piece of every part with its owner. */
static void begin_pieces(struct processes *procs, const struct coll_work *work, uint64_t index)
{
    const struct turn *turn = &procs->turns[index % TURNS];
    uint64_t at;
    uint64_t from;
    const uint64_t own = part_bytes(procs, work, procs->base.rank, &at);
    const uint64_t piece = sum_piece_bytes(procs, work);
    const uint64_t in = piece_of(own, piece, index, &from);
    for (unsigned i = 0; i + 1 < procs->base.world; i++) {
        const unsigned r = other(procs, i);
        receive_data(procs, &turn->in[r], r, turn->pieces + r * procs->piece_bytes, in);
        received(procs, work->op, r, in);
    }
    for (unsigned i = 0; i + 1 < procs->base.world; i++) {
        const unsigned r = other(procs, i);
        const uint64_t bytes = part_bytes(procs, work, r, &at);
        const uint64_t out = piece_of(bytes, piece, index, &from);
        send_data(procs, &turn->out[r], r, (const unsigned char *)work->from + at + from, out);
    }
}

static void sum_piece(struct processes *procs, const struct coll_work *work, uint64_t index,
                      void *to)
{
    const struct turn *turn = &procs->turns[index % TURNS];
    uint64_t at;
    uint64_t from;
    const uint64_t own = part_bytes(procs, work, procs->base.rank, &at);
    const uint64_t bytes = piece_of(own, sum_piece_bytes(procs, work), index, &from);
    for (unsigned r = 0; r < procs->base.world; r++) {
        procs->arrays[r] = r == procs->base.rank ? (const unsigned char *)work->from + at + from
                                                 : turn->pieces + r * procs->piece_bytes;
    }
    if (bytes > 0) {
        const uint64_t width = coll_type_bytes(work->type);
        const struct coll_terms terms = {.from = procs->arrays,
                                         .ranks = procs->base.world,
                                         .count = bytes / width,
                                         .before = from / width};
        coll_work_sum(work, &terms, to);
    }
}

/* Sums this rank's part into `to`. While a piece is summed, the next piece is in flight. */
static int sum_long(struct processes *procs, const struct coll_work *work, void *to)
{
    const uint64_t piece = sum_piece_bytes(procs, work);
    const uint64_t count = (longest_part(procs, work) + piece - 1) / piece;
    begin_pieces(procs, work, 0);
    for (uint64_t i = 0; i < count; i++) {
        if (i + 1 < count) {
            begin_pieces(procs, work, i + 1);
        }
        const int rc = wait_turn(procs, &procs->turns[i % TURNS]);
        if (rc != 0) {
            return rc;
        }
        sum_piece(procs, work, i, to);
    }
    return 0;
}

/* ---- longer sums of groups ---- Groups add first (coll_command.within). First, each rank
 * exchanges pieces with its group, and adds its group's sums of its part and of the parts of its
 * twins, which are the ranks of other groups with the same index. Then twins exchange these
 * sums. */

static bool sums_by_groups(const struct processes *procs, const struct coll_work *work)
{
    return work->op != COLL_GATHER && work->within > 1 && work->within < procs->base.world;
}

/* Returns the rank of the member of `group` with this index. */
static unsigned member(const struct coll_work *work, unsigned group, unsigned index)
{
    return group * work->within + index;
}

/* The number of groups, this rank's group, and its index in the group. */
struct groups {
    unsigned count, own, index;
};

static struct groups groups_of(const struct processes *procs, const struct coll_work *work)
{
    return (struct groups){.count = procs->base.world / work->within,
                           .own = procs->base.rank / work->within,
                           .index = procs->base.rank % work->within};
}

/* Returns the size of the `index`-th piece of rank r's part, and where it is in the whole array. */
static uint64_t piece_at(const struct processes *procs, const struct coll_work *work, unsigned r,
                         uint64_t index, uint64_t *at)
{
    uint64_t from;
    const uint64_t part = part_bytes(procs, work, r, at);
    const uint64_t bytes = piece_of(part, sum_piece_bytes(procs, work), index, &from);
    *at += from;
    return bytes;
}

/* Returns the place of a piece received for rank r. A part of a twin comes from each member of this
 * group, so its piece has the place of the rank with the member's index in the twin's group. */
static unsigned char *piece_from(const struct processes *procs, const struct turn *turn, unsigned r)
{
    return turn->pieces + r * procs->piece_bytes;
}

/* Returns the place where a twin's sum of this rank's part is received. The place is that of a
 * member of the twin's group, and is free when the sums of this group are made. */
static unsigned char *twin_sum(const struct processes *procs, const struct coll_work *work,
                               const struct turn *turn, unsigned group)
{
    const unsigned next = (procs->base.rank % work->within + 1) % work->within;
    return piece_from(procs, turn, member(work, group, next));
}

/* Begins to exchange the `index`-th piece of the parts of all ranks inside the group. */
static void begin_inside(struct processes *procs, const struct coll_work *work, uint64_t index)
{
    const struct turn *turn = &procs->turns[index % TURNS];
    const struct groups groups = groups_of(procs, work);
    for (unsigned i = 1; i < work->within; i++) {
        const unsigned other_index = (groups.index + i) % work->within;
        const unsigned peer = member(work, groups.own, other_index);
        for (unsigned g = 0; g < groups.count; g++) {
            const unsigned r = member(work, g, other_index);
            uint64_t at;
            const uint64_t in = piece_at(procs, work, member(work, g, groups.index), index, &at);
            receive_data(procs, &turn->in[r], peer, piece_from(procs, turn, r), in);
            received(procs, work->op, peer, in);
            const uint64_t out = piece_at(procs, work, r, index, &at);
            send_data(procs, &turn->out[r], peer, (const unsigned char *)work->from + at, out);
        }
    }
}

/* Adds the pieces of this group for this rank and its twins, and begins to exchange the sums with
 * the twins. */
static void add_inside(struct processes *procs, const struct coll_work *work, uint64_t index)
{
    const struct turn *turn = &procs->turns[index % TURNS];
    const struct groups groups = groups_of(procs, work);
    const size_t width = coll_type_bytes(work->type);
    uint64_t at;
    const uint64_t own = piece_at(procs, work, procs->base.rank, index, &at);
    for (unsigned g = 0; g < groups.count; g++) {
        const unsigned twin = member(work, g, groups.index);
        const uint64_t bytes = piece_at(procs, work, twin, index, &at);
        for (unsigned i = 0; i < work->within; i++) {
            procs->arrays[i] = i == groups.index ? (const unsigned char *)work->from + at
                                                 : piece_from(procs, turn, member(work, g, i));
        }
        coll_sum(work->type, procs->arrays, work->within, 0, bytes / width,
                 piece_from(procs, turn, twin));
    }
    for (unsigned i = 1; i < groups.count; i++) {
        const unsigned g = (groups.own + i) % groups.count;
        const unsigned twin = member(work, g, groups.index);
        receive_data(procs, &turn->in[twin], twin, twin_sum(procs, work, turn, g), own);
        received(procs, work->op, twin, own);
        send_data(procs, &turn->out[twin], twin, piece_from(procs, turn, twin),
                  piece_at(procs, work, twin, index, &at));
    }
}

/* Adds the sums of all groups for a piece of this rank's part. */
static void add_groups(struct processes *procs, const struct coll_work *work, uint64_t index,
                       unsigned char *to)
{
    const struct turn *turn = &procs->turns[index % TURNS];
    const struct groups groups = groups_of(procs, work);
    uint64_t begin;
    uint64_t at;
    (void)part_bytes(procs, work, procs->base.rank, &begin);
    const uint64_t bytes = piece_at(procs, work, procs->base.rank, index, &at);
    for (unsigned g = 0; g < groups.count; g++) {
        procs->arrays[g] = g == groups.own ? piece_from(procs, turn, procs->base.rank)
                                           : twin_sum(procs, work, turn, g);
    }
    coll_sum(work->type, procs->arrays, groups.count, 0, bytes / coll_type_bytes(work->type),
             to + (at - begin));
}

/* While twins exchange the sums of a piece, the next piece is exchanged inside groups. */
static int sum_groups_long(struct processes *procs, const struct coll_work *work, unsigned char *to)
{
    const uint64_t piece = sum_piece_bytes(procs, work);
    const uint64_t count = (longest_part(procs, work) + piece - 1) / piece;
    int rc = 0;
    begin_inside(procs, work, 0);
    for (uint64_t i = 0; rc == 0 && i <= count; i++) {
        if (i < count) {
            rc = wait_turn(procs, &procs->turns[i % TURNS]);
            if (rc == 0) {
                add_inside(procs, work, i);
            }
        }
        if (rc == 0 && i > 0) {
            rc = wait_turn(procs, &procs->turns[(i - 1) % TURNS]);
            if (rc == 0) {
                add_groups(procs, work, i - 1, to);
            }
        }
        if (rc == 0 && i + 1 < count) {
            begin_inside(procs, work, i + 1);
        }
    }
    return rc;
}

/* Each rank's part of a sum is in its place. First twins exchange their parts, and then each group
 * the parts of its members. */
static int gather_groups_long(struct processes *procs, const struct coll_work *work)
{
    const struct turn *turn = &procs->turns[0];
    const struct groups groups = groups_of(procs, work);
    const uint64_t longest = longest_part(procs, work);
    unsigned char *to = work->to;
    int rc = 0;
    for (uint64_t done = 0; rc == 0 && done < longest; done += transfer_max) {
        const uint64_t index = done / transfer_max;
        uint64_t from;
        uint64_t at;
        uint64_t bytes = part_bytes(procs, work, procs->base.rank, &at);
        const uint64_t own = piece_of(bytes, transfer_max, index, &from);
        const unsigned char *out = to + at + from;
        for (unsigned i = 1; i < groups.count; i++) {
            const unsigned twin = member(work, (groups.own + i) % groups.count, groups.index);
            bytes = piece_of(part_bytes(procs, work, twin, &at), transfer_max, index, &from);
            receive_data(procs, &turn->in[twin], twin, to + at + from, bytes);
            received(procs, work->op, twin, bytes);
            send_data(procs, &turn->out[twin], twin, out, own);
        }
        rc = wait_turn(procs, turn);
        for (unsigned r = 0; rc == 0 && r < procs->base.world; r++) {
            const unsigned other_index = r % work->within;
            const unsigned peer = member(work, groups.own, other_index);
            const unsigned twin = member(work, r / work->within, groups.index);
            if (other_index == groups.index) {
                continue;
            }
            bytes = piece_of(part_bytes(procs, work, r, &at), transfer_max, index, &from);
            receive_data(procs, &turn->in[r], peer, to + at + from, bytes);
            received(procs, work->op, peer, bytes);
            bytes = piece_of(part_bytes(procs, work, twin, &at), transfer_max, index, &from);
            send_data(procs, &turn->out[r], peer, to + at + from, bytes);
        }
        rc = rc != 0 ? rc : wait_turn(procs, turn);
    }
    return rc;
}

static int broadcast_long(struct processes *procs, const struct coll_work *work)
{
    const struct turn *turn = &procs->turns[0];
    const bool root = work->root == procs->base.rank;
    const uint64_t bytes = bytes_of(work, work->count);
    int rc = 0;
    for (uint64_t done = 0; rc == 0 && done < bytes; done += transfer_max) {
        const uint64_t part = bytes - done < transfer_max ? bytes - done : transfer_max;
        for (unsigned i = 0; root && i + 1 < procs->base.world; i++) {
            const unsigned r = other(procs, i);
            send_data(procs, &turn->out[r], r, (const unsigned char *)work->from + done, part);
        }
        if (!root) {
            receive_data(procs, &turn->in[work->root], work->root, (unsigned char *)work->to + done,
                         part);
            received(procs, work->op, work->root, part);
        }
        rc = wait_turn(procs, turn);
    }
    if (root) {
        copy(work->to, work->from, bytes);
    }
    return rc;
}

static int sum_any_long(struct processes *procs, const struct coll_work *work, unsigned char *to)
{
    return sums_by_groups(procs, work) ? sum_groups_long(procs, work, to)
                                       : sum_long(procs, work, to);
}

static int finish_long(struct processes *procs, const struct coll_work *work)
{
    uint64_t at;
    unsigned char *own = work->to;
    (void)part_bytes(procs, work, procs->base.rank, &at);
    int rc = 0;
    switch (work->op) {
    case COLL_GATHER: return gather_long(procs, work, work->from);
    case COLL_REDUCE_SCATTER: return sum_any_long(procs, work, own);
    case COLL_ALL_REDUCE:
        rc = sum_any_long(procs, work, own + at);
        if (rc == 0 && sums_by_groups(procs, work)) {
            return gather_groups_long(procs, work);
        }
        return rc != 0 ? rc : gather_long(procs, work, own + at);
    case COLL_BROADCAST: return broadcast_long(procs, work);
    case COLL_BARRIER:
    case COLL_OPS: break;
    }
    return 0;
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
    rc = finish_long(procs, work);
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
    for (int i = 0; i < TURNS; i++) {
        free(procs->turns[i].pieces);
    }
    free(procs->heads_out);
    free(procs->heads_in);
    free(procs->transfers);
    free(procs->arrays);
    free(procs);
}

/* Receives the heads of a rank up to its last one, so that no message remains in the transport.
 * Ranks close at about the same time, unless a rank has failed. */
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
        drain_heads(procs, other(procs, i), until_ns);
    }
    /* By now these transfers are complete, or the world has ended and nothing uses their
     * buffers. */
    (void)coll_peers_wait(procs->peers, procs->out, base->world);
    (void)coll_peers_wait(procs->peers, procs->last, base->world);
    pthread_mutex_destroy(&procs->lock);
    free_processes(procs);
}

static bool alloc_turn(const struct processes *procs, size_t world, struct coll_transfer *transfers,
                       struct turn *out)
{
    out->out = transfers;
    out->in = transfers + world;
    out->pieces = aligned_alloc(4096, world * procs->piece_bytes);
    return out->pieces != NULL;
}

static struct processes *alloc_processes(size_t world)
{
    enum { HEADS = 3, KINDS = HEADS + 2 * TURNS };
    struct processes *procs = calloc(1, sizeof *procs);
    if (procs == NULL) {
        return NULL;
    }
    const size_t share = PIECES_BYTES / (TURNS * world) / 4096 * 4096;
    procs->piece_bytes = share < PIECE_MIN ? PIECE_MIN : share > PIECE_MAX ? PIECE_MAX : share;
    procs->heads_out = calloc(world, HEAD_BYTES);
    procs->heads_in = calloc(world, HEAD_BYTES);
    procs->arrays = calloc(world, sizeof *procs->arrays);
    procs->transfers = calloc(KINDS * world, sizeof *procs->transfers);
    bool right = procs->heads_out != NULL && procs->heads_in != NULL && procs->arrays != NULL &&
                 procs->transfers != NULL;
    for (size_t i = 0; right && i < TURNS; i++) {
        right = alloc_turn(procs, world, procs->transfers + (HEADS + 2 * i) * world,
                           &procs->turns[i]);
    }
    if (!right) {
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
    struct processes *procs = alloc_processes(base->world);
    if (procs == NULL) {
        return core_err_set(-ENOMEM, "no memory for rank %u of %u", base->rank, base->world);
    }
    procs->base = *base;
    procs->peers = peers;
    procs->tag = coll_peers_tags(peers, 2);
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
