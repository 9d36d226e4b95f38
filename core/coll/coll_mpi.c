/* coll_mpi.c: ranks are processes that exchange transfers (peers.h).
 * A collective begins with a head from each rank to each other one: what it calls, and its data if they are
 * short; with those of a command that another back end carries out (`meets`) all ranks only meet. Once a rank has sent its head it takes part in that collective to the end, unless the head of another
 * rank says that this one has left or aborted; so data are on their way only to ranks that will receive them, and
 * all ranks fail at the same collective. Longer data follow: each rank sends the parts to their owners, who add
 * them up in the order of ranks with the code that ranks as threads use.
 * Entered by the thread of the coll's queue and by any thread that aborts. */
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

/* The head is followed by short data, or by the message of an abort. */
struct head {
    uint32_t kind;
    int32_t code; /* ABORTED */
    uint32_t op, type, root, within;
    uint64_t count;
    uint64_t borders; /* a hash of them */
};

/* A transfer of HEAD_BYTES is below the size up to which MPI libraries send without waiting for the receiver. */
enum { HEAD_BYTES = 3584, SHORT_BYTES = HEAD_BYTES - sizeof(struct head) };
/* Sums go by pieces, of which two are under way. The pieces of all ranks take at most PIECES_BYTES. */
enum { PIECES_BYTES = 8 << 20, PIECE_MIN = 64 << 10, PIECE_MAX = 1 << 20, TURNS = 2 };
/* Longer transfers are cut. */
static const uint64_t transfer_max = UINT64_C(64) << 20;
/* How long a rank that closes waits for the others to close. */
static const int64_t close_ns = INT64_C(3) * 1000000000;

/* The transfers of one turn: one each way with every other rank. */
struct turn {
    struct coll_transfer *out, *in; /* [world] */
    unsigned char *pieces;          /* [world][piece_bytes]: received */
};

struct mpi {
    struct coll base;
    struct coll_peers *peers; /* borrowed */
    int tag;                  /* of heads; the next one is that of data */
    size_t piece_bytes;
    uint64_t number;                       /* of the collective, counted from 1, for messages */
    unsigned char *heads_out, *heads_in;   /* owned, [world][HEAD_BYTES] */
    struct coll_transfer *transfers;       /* owned: all below */
    struct coll_transfer *out, *in, *last; /* [world]: heads, and the head of leaving */
    struct turn turns[TURNS];
    const void **arrays;  /* owned, [world]: for sums */
    pthread_mutex_t lock; /* of the next two and of the order of heads */
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

static void received(struct mpi *mpi, enum coll_op op, unsigned from, uint64_t bytes)
{
    const char *own = coll_peers_at(mpi->peers, mpi->base.rank)->host;
    const bool far = strcmp(coll_peers_at(mpi->peers, from)->host, own) != 0;
    atomic_fetch_add_explicit(&mpi->base.received_bytes[op], bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&mpi->base.far_bytes[op], far ? bytes : 0, memory_order_relaxed);
}

static void copy(void *to, const void *from, uint64_t bytes)
{
    if (bytes > 0 && to != from) {
        memmove(to, from, bytes);
    }
}

/* ---- transfers ---- */

static void post(struct mpi *mpi, struct coll_transfer *transfer, bool sends, unsigned peer,
                 int tag)
{
    transfer->sends = sends;
    transfer->peer = peer;
    transfer->tag = tag;
    coll_peers_post(mpi->peers, transfer);
}

/* Begins to send a part of an array to another rank; 0 bytes are not sent. */
static void send_data(struct mpi *mpi, struct coll_transfer *transfer, unsigned to,
                      const void *from, uint64_t bytes)
{
    atomic_store_explicit(&transfer->state, COLL_TRANSFER_FREE, memory_order_relaxed);
    transfer->at = (void *)(uintptr_t)from;
    transfer->bytes = bytes;
    if (bytes > 0) {
        post(mpi, transfer, true, to, mpi->tag + 1);
    }
}

static void receive_data(struct mpi *mpi, struct coll_transfer *transfer, unsigned from, void *to,
                         uint64_t bytes)
{
    atomic_store_explicit(&transfer->state, COLL_TRANSFER_FREE, memory_order_relaxed);
    transfer->at = to;
    transfer->bytes = bytes;
    if (bytes > 0) {
        post(mpi, transfer, false, from, mpi->tag + 1);
    }
}

static int wait_turn(struct mpi *mpi, const struct turn *turn)
{
    int rc = coll_peers_wait(mpi->peers, turn->in, mpi->base.world);
    return rc != 0 ? rc : coll_peers_wait(mpi->peers, turn->out, mpi->base.world);
}

/* The i-th other rank of this one, so that not all ranks send to the same one first. */
static unsigned other(const struct mpi *mpi, unsigned i)
{
    return (mpi->base.rank + 1 + i) % mpi->base.world;
}

/* ---- failures ---- */

static int own_failure(struct mpi *mpi)
{
    pthread_mutex_lock(&mpi->lock);
    const struct core_err failed = mpi->failed;
    pthread_mutex_unlock(&mpi->lock);
    return core_err_first(&failed, 0);
}

/* Keeps this thread's error for all later collectives. */
static int fail(struct mpi *mpi, int rc)
{
    pthread_mutex_lock(&mpi->lock);
    if (mpi->failed.code == 0) {
        mpi->failed = core_err_keep(rc);
    }
    pthread_mutex_unlock(&mpi->lock);
    return rc;
}

/* Sends the last head of this rank to all others; holds the lock. */
static void send_last(struct mpi *mpi, const struct head *head, const char *message)
{
    mpi->ended = true;
    memcpy(mpi->last_head, head, sizeof *head);
    snprintf((char *)mpi->last_head + sizeof *head, SHORT_BYTES, "%s", message);
    for (unsigned i = 0; i + 1 < mpi->base.world; i++) {
        struct coll_transfer *transfer = &mpi->last[other(mpi, i)];
        transfer->at = mpi->last_head;
        transfer->bytes = sizeof *head + strlen(message) + 1;
        post(mpi, transfer, true, other(mpi, i), mpi->tag);
    }
}

/* ---- heads ---- */

static struct head head_of_work(const struct mpi *mpi, const struct coll_work *work)
{
    const size_t bytes = (coll_sharers(&mpi->base, work) + 1) * sizeof *work->borders;
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

/* Whether a collective's data go with its heads. */
static bool is_short(const struct coll_work *work)
{
    return bytes_of(work, work->count) <= SHORT_BYTES && !work->meets;
}

/* The elements that a rank sends to another one in its head, or to the owner of a part. */
static void part_for(const struct mpi *mpi, const struct coll_work *work, unsigned to,
                     uint64_t *begin, uint64_t *count)
{
    uint64_t end = 0;
    *begin = 0;
    *count = work->count;
    if (work->op == COLL_GATHER) {
        coll_part(&mpi->base, work, mpi->base.rank, begin, &end);
        *count = coll_takes_part(&mpi->base, work, to) ? end - *begin : 0;
        *begin = 0; /* `from` is the part alone */
    } else if (work->op == COLL_REDUCE_SCATTER) {
        coll_part(&mpi->base, work, to, begin, &end);
        *count = end - *begin;
    } else if (work->op == COLL_BROADCAST && work->root != mpi->base.rank) {
        *count = 0;
    }
}

static struct head head_from(const struct mpi *mpi, unsigned rank)
{
    struct head head;
    memcpy(&head, head_of(mpi->heads_in, rank), sizeof head);
    return head;
}

static void receive_head(struct mpi *mpi, unsigned rank)
{
    struct coll_transfer *transfer = &mpi->in[rank];
    transfer->at = head_of(mpi->heads_in, rank);
    transfer->bytes = HEAD_BYTES;
    post(mpi, transfer, false, rank, mpi->tag);
}

/* Begins to exchange heads, unless this rank has aborted. */
static int begin_heads(struct mpi *mpi, const struct coll_work *work)
{
    const struct head head = head_of_work(mpi, work);
    int rc = coll_peers_wait(mpi->peers, mpi->out, mpi->base.world); /* of the last collective */
    if (rc != 0) {
        return rc;
    }
    for (unsigned i = 0; i + 1 < mpi->base.world; i++) {
        receive_head(mpi, other(mpi, i));
    }
    pthread_mutex_lock(&mpi->lock);
    const struct core_err failed = mpi->failed;
    for (unsigned i = 0; failed.code == 0 && i + 1 < mpi->base.world; i++) {
        const unsigned to = other(mpi, i);
        struct coll_transfer *transfer = &mpi->out[to];
        uint64_t begin = 0;
        uint64_t count = 0;
        transfer->at = head_of(mpi->heads_out, to);
        memcpy(transfer->at, &head, sizeof head);
        if (is_short(work)) {
            part_for(mpi, work, to, &begin, &count);
            copy((unsigned char *)transfer->at + sizeof head,
                 (const unsigned char *)work->from + bytes_of(work, begin), bytes_of(work, count));
        }
        transfer->bytes = sizeof head + bytes_of(work, count);
        post(mpi, transfer, true, to, mpi->tag);
    }
    pthread_mutex_unlock(&mpi->lock);
    return core_err_first(&failed, 0);
}

/* Reads the heads that have arrived. Returns the error of a rank that has left or aborted; *missing is the number of
 * ranks without a head. */
static int look_at_heads(struct mpi *mpi, const struct coll_work *work, unsigned *missing)
{
    *missing = 0;
    for (unsigned r = 0; r < mpi->base.world; r++) {
        if (r == mpi->base.rank) {
            continue;
        }
        if (!coll_transfer_done(&mpi->in[r])) {
            ++*missing;
            continue;
        }
        const struct head head = head_from(mpi, r);
        const char *message = (const char *)head_of(mpi->heads_in, r) + sizeof head;
        if (head.kind == HEAD_LEFT) {
            return coll_fail_left(mpi->number, work, r);
        }
        if (head.kind == HEAD_ABORTED) {
            return core_err_adopt(head.code, message);
        }
    }
    return 0;
}

/* A rank that is late may still arrive and rely on this one, so the whole world ends. */
static int end_world(struct mpi *mpi, const struct coll_work *work, int64_t waited_ns)
{
    struct coll_missing missing = {.count = 0};
    for (unsigned r = 0; r < mpi->base.world; r++) {
        if (r != mpi->base.rank && !coll_transfer_done(&mpi->in[r])) {
            coll_missing_add(&missing, r);
        }
    }
    return coll_peers_fail(mpi->peers, coll_fail_missing(mpi->number, work, &missing, waited_ns));
}

static int wait_heads(struct mpi *mpi, const struct coll_work *work)
{
    struct core_bell *bell = coll_peers_bell(mpi->peers);
    const int64_t start_ns = core_clock_ran_ns();
    for (int64_t spin_ns = CORE_FENCE_SPIN_NS;; spin_ns = 0) {
        const uint32_t seen = core_bell_look(bell);
        unsigned missing = 0;
        int rc = coll_peers_error(mpi->peers);
        if (rc != 0) {
            return rc;
        }
        rc = look_at_heads(mpi, work, &missing);
        if (rc != 0 || missing == 0) {
            return rc;
        }
        const int64_t waited_ns = core_clock_ran_ns() - start_ns;
        if (waited_ns >= mpi->base.limit_ns) {
            return end_world(mpi, work, waited_ns);
        }
        core_bell_spin_sleep(bell, seen, spin_ns,
                             core_clock_beat_ns(mpi->base.limit_ns - waited_ns));
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
static int compare_heads(struct mpi *mpi, const struct coll_work *work)
{
    const struct head own = head_of_work(mpi, work);
    const struct head first = mpi->base.rank == 0 ? own : head_from(mpi, 0);
    for (unsigned r = 1; r < mpi->base.world; r++) {
        const struct head head = r == mpi->base.rank ? own : head_from(mpi, r);
        if (!same(&first, &head)) {
            const struct coll_work a = work_of(&first);
            const struct coll_work b = work_of(&head);
            return coll_fail_differs(mpi->number, &a, r, &b);
        }
    }
    return 0;
}

/* ---- short data, which came with the heads ---- */

/* Elements [begin, begin + count) of this rank, and those that came from the others, summed. */
static void sum_short(struct mpi *mpi, const struct coll_work *work, uint64_t begin, uint64_t count,
                      void *to)
{
    for (unsigned r = 0; r < mpi->base.world; r++) {
        mpi->arrays[r] = r == mpi->base.rank
                             ? (const unsigned char *)work->from + bytes_of(work, begin)
                             : head_of(mpi->heads_in, r) + sizeof(struct head);
    }
    if (count > 0) {
        const struct coll_terms terms = {
            .from = mpi->arrays, .ranks = mpi->base.world, .count = count};
        coll_work_sum(work, &terms, to);
        for (unsigned r = 0; r < mpi->base.world; r++) {
            received(mpi, work->op, r, r == mpi->base.rank ? 0 : bytes_of(work, count));
        }
    }
}

static void gather_short(struct mpi *mpi, const struct coll_work *work)
{
    for (unsigned r = 0; r < mpi->base.world; r++) {
        uint64_t begin;
        uint64_t end;
        if (!coll_takes_part(&mpi->base, work, r)) {
            continue;
        }
        coll_part(&mpi->base, work, r, &begin, &end);
        const bool own = r == mpi->base.rank;
        copy((unsigned char *)work->to + bytes_of(work, begin),
             own ? work->from : (const void *)(head_of(mpi->heads_in, r) + sizeof(struct head)),
             bytes_of(work, end - begin));
        received(mpi, work->op, r, own ? 0 : bytes_of(work, end - begin));
    }
}

static void finish_short(struct mpi *mpi, const struct coll_work *work)
{
    uint64_t begin;
    uint64_t end;
    coll_part(&mpi->base, work, mpi->base.rank, &begin, &end);
    const bool root = work->root == mpi->base.rank;
    switch (work->op) {
    case COLL_GATHER: gather_short(mpi, work); break;
    case COLL_REDUCE_SCATTER: sum_short(mpi, work, begin, end - begin, work->to); break;
    case COLL_ALL_REDUCE: sum_short(mpi, work, 0, work->count, work->to); break;
    case COLL_BROADCAST:
        copy(work->to,
             root ? work->from
                  : (const void *)(head_of(mpi->heads_in, work->root) + sizeof(struct head)),
             bytes_of(work, work->count));
        received(mpi, work->op, work->root, root ? 0 : bytes_of(work, work->count));
        break;
    case COLL_BARRIER:
    case COLL_OPS: break;
    }
}

/* ---- longer data ---- */

/* The `index`-th piece of a part. */
static uint64_t piece_of(uint64_t bytes, uint64_t piece_bytes, uint64_t index, uint64_t *at)
{
    *at = index * piece_bytes < bytes ? index * piece_bytes : bytes;
    return bytes - *at < piece_bytes ? bytes - *at : piece_bytes;
}

/* Bytes of rank r's part, and where it is. */
static uint64_t part_bytes(const struct mpi *mpi, const struct coll_work *work, unsigned r,
                           uint64_t *at)
{
    uint64_t begin;
    uint64_t end;
    coll_part(&mpi->base, work, r, &begin, &end);
    *at = bytes_of(work, begin);
    return bytes_of(work, end - begin);
}

static uint64_t longest_part(const struct mpi *mpi, const struct coll_work *work)
{
    uint64_t longest = 0;
    for (unsigned r = 0; r < mpi->base.world; r++) {
        uint64_t at;
        const uint64_t bytes = part_bytes(mpi, work, r, &at);
        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

/* Sends this rank's part to all and receives theirs at their places. */
static int gather_long(struct mpi *mpi, const struct coll_work *work, const void *own)
{
    const struct turn *turn = &mpi->turns[0];
    const uint64_t longest = longest_part(mpi, work);
    uint64_t own_at;
    const uint64_t own_bytes = part_bytes(mpi, work, mpi->base.rank, &own_at);
    int rc = 0;
    for (uint64_t done = 0; rc == 0 && done < longest; done += transfer_max) {
        for (unsigned i = 0; i + 1 < mpi->base.world; i++) {
            const unsigned r = other(mpi, i);
            uint64_t at;
            uint64_t from;
            if (!coll_takes_part(&mpi->base, work, r)) {
                receive_data(mpi, &turn->in[r], r, NULL, 0);
                send_data(mpi, &turn->out[r], r, NULL, 0);
                continue;
            }
            const uint64_t bytes = part_bytes(mpi, work, r, &at);
            const uint64_t in = piece_of(bytes, transfer_max, done / transfer_max, &from);
            receive_data(mpi, &turn->in[r], r, (unsigned char *)work->to + at + from, in);
            received(mpi, work->op, r, in);
            const uint64_t out = piece_of(own_bytes, transfer_max, done / transfer_max, &from);
            send_data(mpi, &turn->out[r], r, (const unsigned char *)own + from, out);
        }
        rc = wait_turn(mpi, turn);
    }
    copy((unsigned char *)work->to + own_at, own, own_bytes);
    return rc;
}

/* A piece of a sum has whole elements. */
static uint64_t sum_piece_bytes(const struct mpi *mpi, const struct coll_work *work)
{
    return mpi->piece_bytes - mpi->piece_bytes % coll_type_bytes(work->type);
}

/* Begins to exchange the `index`-th piece of every part with its owner. */
static void begin_pieces(struct mpi *mpi, const struct coll_work *work, uint64_t index)
{
    const struct turn *turn = &mpi->turns[index % TURNS];
    uint64_t at;
    uint64_t from;
    const uint64_t own = part_bytes(mpi, work, mpi->base.rank, &at);
    const uint64_t piece = sum_piece_bytes(mpi, work);
    const uint64_t in = piece_of(own, piece, index, &from);
    for (unsigned i = 0; i + 1 < mpi->base.world; i++) {
        const unsigned r = other(mpi, i);
        receive_data(mpi, &turn->in[r], r, turn->pieces + r * mpi->piece_bytes, in);
        received(mpi, work->op, r, in);
    }
    for (unsigned i = 0; i + 1 < mpi->base.world; i++) {
        const unsigned r = other(mpi, i);
        const uint64_t bytes = part_bytes(mpi, work, r, &at);
        const uint64_t out = piece_of(bytes, piece, index, &from);
        send_data(mpi, &turn->out[r], r, (const unsigned char *)work->from + at + from, out);
    }
}

static void sum_piece(struct mpi *mpi, const struct coll_work *work, uint64_t index, void *to)
{
    const struct turn *turn = &mpi->turns[index % TURNS];
    uint64_t at;
    uint64_t from;
    const uint64_t own = part_bytes(mpi, work, mpi->base.rank, &at);
    const uint64_t bytes = piece_of(own, sum_piece_bytes(mpi, work), index, &from);
    for (unsigned r = 0; r < mpi->base.world; r++) {
        mpi->arrays[r] = r == mpi->base.rank ? (const unsigned char *)work->from + at + from
                                             : turn->pieces + r * mpi->piece_bytes;
    }
    if (bytes > 0) {
        const uint64_t width = coll_type_bytes(work->type);
        const struct coll_terms terms = {.from = mpi->arrays,
                                         .ranks = mpi->base.world,
                                         .count = bytes / width,
                                         .before = from / width};
        coll_work_sum(work, &terms, to);
    }
}

/* Sums this rank's part into `to`; while a piece is summed, the next one is on its way. */
static int sum_long(struct mpi *mpi, const struct coll_work *work, void *to)
{
    const uint64_t piece = sum_piece_bytes(mpi, work);
    const uint64_t count = (longest_part(mpi, work) + piece - 1) / piece;
    begin_pieces(mpi, work, 0);
    for (uint64_t i = 0; i < count; i++) {
        if (i + 1 < count) {
            begin_pieces(mpi, work, i + 1);
        }
        const int rc = wait_turn(mpi, &mpi->turns[i % TURNS]);
        if (rc != 0) {
            return rc;
        }
        sum_piece(mpi, work, i, to);
    }
    return 0;
}

/* ---- longer sums of groups ----
 * Groups add up first (coll_command.within): first each rank exchanges pieces inside its group, and adds its group's
 * sums of its own part and of those of its twins, the ranks of other groups with its index; then twins exchange these. */

static bool sums_by_groups(const struct mpi *mpi, const struct coll_work *work)
{
    return work->op != COLL_GATHER && work->within > 1 && work->within < mpi->base.world;
}

/* The rank of a group with the `index` of the group's member. */
static unsigned member(const struct coll_work *work, unsigned group, unsigned index)
{
    return group * work->within + index;
}

/* The groups, this rank's own, and its index there. */
struct groups {
    unsigned count, own, index;
};

static struct groups groups_of(const struct mpi *mpi, const struct coll_work *work)
{
    return (struct groups){.count = mpi->base.world / work->within,
                           .own = mpi->base.rank / work->within,
                           .index = mpi->base.rank % work->within};
}

/* The `index`-th piece of rank r's part: its size, and where it is in the whole array. */
static uint64_t piece_at(const struct mpi *mpi, const struct coll_work *work, unsigned r,
                         uint64_t index, uint64_t *at)
{
    uint64_t from;
    const uint64_t part = part_bytes(mpi, work, r, at);
    const uint64_t bytes = piece_of(part, sum_piece_bytes(mpi, work), index, &from);
    *at += from;
    return bytes;
}

/* Received pieces: of rank r. A part of a twin comes from each member of this group, so its piece has the place of
 * the rank with the member's index in the twin's group. */
static unsigned char *piece_from(const struct mpi *mpi, const struct turn *turn, unsigned r)
{
    return turn->pieces + r * mpi->piece_bytes;
}

/* Where a twin's sum of this rank's part is received: a place inside its group that is free when the
 * sums of this group are made. */
static unsigned char *twin_sum(const struct mpi *mpi, const struct coll_work *work,
                               const struct turn *turn, unsigned group)
{
    const unsigned next = (mpi->base.rank % work->within + 1) % work->within;
    return piece_from(mpi, turn, member(work, group, next));
}

/* Begins to exchange the `index`-th piece of the parts of all ranks inside the group. */
static void begin_inside(struct mpi *mpi, const struct coll_work *work, uint64_t index)
{
    const struct turn *turn = &mpi->turns[index % TURNS];
    const struct groups groups = groups_of(mpi, work);
    for (unsigned i = 1; i < work->within; i++) {
        const unsigned other_index = (groups.index + i) % work->within;
        const unsigned peer = member(work, groups.own, other_index);
        for (unsigned g = 0; g < groups.count; g++) {
            const unsigned r = member(work, g, other_index);
            uint64_t at;
            const uint64_t in = piece_at(mpi, work, member(work, g, groups.index), index, &at);
            receive_data(mpi, &turn->in[r], peer, piece_from(mpi, turn, r), in);
            received(mpi, work->op, peer, in);
            const uint64_t out = piece_at(mpi, work, r, index, &at);
            send_data(mpi, &turn->out[r], peer, (const unsigned char *)work->from + at, out);
        }
    }
}

/* Adds the pieces of this group for this rank and its twins, and begins to exchange the sums with these. */
static void add_inside(struct mpi *mpi, const struct coll_work *work, uint64_t index)
{
    const struct turn *turn = &mpi->turns[index % TURNS];
    const struct groups groups = groups_of(mpi, work);
    const size_t width = coll_type_bytes(work->type);
    uint64_t at;
    const uint64_t own = piece_at(mpi, work, mpi->base.rank, index, &at);
    for (unsigned g = 0; g < groups.count; g++) {
        const unsigned twin = member(work, g, groups.index);
        const uint64_t bytes = piece_at(mpi, work, twin, index, &at);
        for (unsigned i = 0; i < work->within; i++) {
            mpi->arrays[i] = i == groups.index ? (const unsigned char *)work->from + at
                                               : piece_from(mpi, turn, member(work, g, i));
        }
        coll_sum(work->type, mpi->arrays, work->within, 0, bytes / width,
                 piece_from(mpi, turn, twin));
    }
    for (unsigned i = 1; i < groups.count; i++) {
        const unsigned g = (groups.own + i) % groups.count;
        const unsigned twin = member(work, g, groups.index);
        receive_data(mpi, &turn->in[twin], twin, twin_sum(mpi, work, turn, g), own);
        received(mpi, work->op, twin, own);
        send_data(mpi, &turn->out[twin], twin, piece_from(mpi, turn, twin),
                  piece_at(mpi, work, twin, index, &at));
    }
}

/* Adds the sums of all groups for a piece of this rank's part. */
static void add_groups(struct mpi *mpi, const struct coll_work *work, uint64_t index,
                       unsigned char *to)
{
    const struct turn *turn = &mpi->turns[index % TURNS];
    const struct groups groups = groups_of(mpi, work);
    uint64_t begin;
    uint64_t at;
    (void)part_bytes(mpi, work, mpi->base.rank, &begin);
    const uint64_t bytes = piece_at(mpi, work, mpi->base.rank, index, &at);
    for (unsigned g = 0; g < groups.count; g++) {
        mpi->arrays[g] = g == groups.own ? piece_from(mpi, turn, mpi->base.rank)
                                         : twin_sum(mpi, work, turn, g);
    }
    coll_sum(work->type, mpi->arrays, groups.count, 0, bytes / coll_type_bytes(work->type),
             to + (at - begin));
}

/* While twins exchange the sums of a piece, the next piece is exchanged inside groups. */
static int sum_groups_long(struct mpi *mpi, const struct coll_work *work, unsigned char *to)
{
    const uint64_t piece = sum_piece_bytes(mpi, work);
    const uint64_t count = (longest_part(mpi, work) + piece - 1) / piece;
    int rc = 0;
    begin_inside(mpi, work, 0);
    for (uint64_t i = 0; rc == 0 && i <= count; i++) {
        if (i < count) {
            rc = wait_turn(mpi, &mpi->turns[i % TURNS]);
            if (rc == 0) {
                add_inside(mpi, work, i);
            }
        }
        if (rc == 0 && i > 0) {
            rc = wait_turn(mpi, &mpi->turns[(i - 1) % TURNS]);
            if (rc == 0) {
                add_groups(mpi, work, i - 1, to);
            }
        }
        if (rc == 0 && i + 1 < count) {
            begin_inside(mpi, work, i + 1);
        }
    }
    return rc;
}

/* Each rank's part of a sum is in its place: first twins exchange theirs, then each group what its members have. */
static int gather_groups_long(struct mpi *mpi, const struct coll_work *work)
{
    const struct turn *turn = &mpi->turns[0];
    const struct groups groups = groups_of(mpi, work);
    const uint64_t longest = longest_part(mpi, work);
    unsigned char *to = work->to;
    int rc = 0;
    for (uint64_t done = 0; rc == 0 && done < longest; done += transfer_max) {
        const uint64_t index = done / transfer_max;
        uint64_t from;
        uint64_t at;
        uint64_t bytes = part_bytes(mpi, work, mpi->base.rank, &at);
        const uint64_t own = piece_of(bytes, transfer_max, index, &from);
        const unsigned char *out = to + at + from;
        for (unsigned i = 1; i < groups.count; i++) {
            const unsigned twin = member(work, (groups.own + i) % groups.count, groups.index);
            bytes = piece_of(part_bytes(mpi, work, twin, &at), transfer_max, index, &from);
            receive_data(mpi, &turn->in[twin], twin, to + at + from, bytes);
            received(mpi, work->op, twin, bytes);
            send_data(mpi, &turn->out[twin], twin, out, own);
        }
        rc = wait_turn(mpi, turn);
        for (unsigned r = 0; rc == 0 && r < mpi->base.world; r++) {
            const unsigned other_index = r % work->within;
            const unsigned peer = member(work, groups.own, other_index);
            const unsigned twin = member(work, r / work->within, groups.index);
            if (other_index == groups.index) {
                continue;
            }
            bytes = piece_of(part_bytes(mpi, work, r, &at), transfer_max, index, &from);
            receive_data(mpi, &turn->in[r], peer, to + at + from, bytes);
            received(mpi, work->op, peer, bytes);
            bytes = piece_of(part_bytes(mpi, work, twin, &at), transfer_max, index, &from);
            send_data(mpi, &turn->out[r], peer, to + at + from, bytes);
        }
        rc = rc != 0 ? rc : wait_turn(mpi, turn);
    }
    return rc;
}

static int broadcast_long(struct mpi *mpi, const struct coll_work *work)
{
    const struct turn *turn = &mpi->turns[0];
    const bool root = work->root == mpi->base.rank;
    const uint64_t bytes = bytes_of(work, work->count);
    int rc = 0;
    for (uint64_t done = 0; rc == 0 && done < bytes; done += transfer_max) {
        const uint64_t part = bytes - done < transfer_max ? bytes - done : transfer_max;
        for (unsigned i = 0; root && i + 1 < mpi->base.world; i++) {
            const unsigned r = other(mpi, i);
            send_data(mpi, &turn->out[r], r, (const unsigned char *)work->from + done, part);
        }
        if (!root) {
            receive_data(mpi, &turn->in[work->root], work->root, (unsigned char *)work->to + done,
                         part);
            received(mpi, work->op, work->root, part);
        }
        rc = wait_turn(mpi, turn);
    }
    if (root) {
        copy(work->to, work->from, bytes);
    }
    return rc;
}

static int sum_any_long(struct mpi *mpi, const struct coll_work *work, unsigned char *to)
{
    return sums_by_groups(mpi, work) ? sum_groups_long(mpi, work, to) : sum_long(mpi, work, to);
}

static int finish_long(struct mpi *mpi, const struct coll_work *work)
{
    uint64_t at;
    unsigned char *own = work->to;
    (void)part_bytes(mpi, work, mpi->base.rank, &at);
    int rc = 0;
    switch (work->op) {
    case COLL_GATHER: return gather_long(mpi, work, work->from);
    case COLL_REDUCE_SCATTER: return sum_any_long(mpi, work, own);
    case COLL_ALL_REDUCE:
        rc = sum_any_long(mpi, work, own + at);
        if (rc == 0 && sums_by_groups(mpi, work)) {
            return gather_groups_long(mpi, work);
        }
        return rc != 0 ? rc : gather_long(mpi, work, own + at);
    case COLL_BROADCAST: return broadcast_long(mpi, work);
    case COLL_BARRIER:
    case COLL_OPS: break;
    }
    return 0;
}

/* ---- a collective ---- */

static int mpi_run(struct coll *base, const struct coll_work *work)
{
    struct mpi *mpi = (struct mpi *)base;
    int rc = own_failure(mpi);
    if (rc != 0) {
        return rc;
    }
    mpi->number++;
    rc = begin_heads(mpi, work);
    if (rc == 0) {
        rc = wait_heads(mpi, work);
    }
    if (rc == 0) {
        rc = compare_heads(mpi, work);
    }
    if (rc != 0) {
        return fail(mpi, rc);
    }
    if (work->meets) {
        return 0;
    }
    if (is_short(work)) {
        finish_short(mpi, work);
        return 0;
    }
    rc = finish_long(mpi, work);
    return rc != 0 ? fail(mpi, rc) : 0;
}

static int mpi_abort(struct coll *base, int code)
{
    struct mpi *mpi = (struct mpi *)base;
    const struct coll_peer *self = coll_peers_at(mpi->peers, base->rank);
    core_err_prefix(code, "rank %u on %s", base->rank, self->host);
    pthread_mutex_lock(&mpi->lock);
    if (mpi->failed.code == 0) {
        const struct head head = {.kind = HEAD_ABORTED, .code = code};
        mpi->failed = core_err_keep(code);
        send_last(mpi, &head, mpi->failed.message);
    }
    const struct core_err failed = mpi->failed;
    pthread_mutex_unlock(&mpi->lock);
    return core_err_first(&failed, 0);
}

static int mpi_end(struct coll *base, int code)
{
    struct mpi *mpi = (struct mpi *)base;
    if (code == 0) {
        return coll_peers_error(mpi->peers);
    }
    core_err_prefix(code, "rank %u on %s", base->rank, coll_peers_at(mpi->peers, base->rank)->host);
    return coll_peers_fail(mpi->peers, code);
}

/* ---- open and close ---- */

static void free_mpi(struct mpi *mpi)
{
    if (mpi == NULL) {
        return;
    }
    for (int i = 0; i < TURNS; i++) {
        free(mpi->turns[i].pieces);
    }
    free(mpi->heads_out);
    free(mpi->heads_in);
    free(mpi->transfers);
    free(mpi->arrays);
    free(mpi);
}

/* Receives the heads of a rank up to its last one, so that nothing is left behind in MPI. Ranks close at about the
 * same time, unless something failed. */
static void drain_heads(struct mpi *mpi, unsigned rank, int64_t until_ns)
{
    struct core_bell *bell = coll_peers_bell(mpi->peers);
    struct coll_transfer *in = &mpi->in[rank];
    while (!coll_transfer_done(in) || head_from(mpi, rank).kind == HEAD_WORK) {
        const int state = atomic_load_explicit(&in->state, memory_order_acquire);
        const uint32_t seen = core_bell_look(bell);
        if (state != COLL_TRANSFER_POSTED) {
            receive_head(mpi, rank);
        } else if (core_clock_now_ns() >= until_ns || coll_peers_error(mpi->peers) != 0) {
            coll_peers_withdraw(mpi->peers, in);
            return;
        } else if (!coll_transfer_done(in)) {
            (void)core_bell_sleep(bell, seen, CORE_CLOCK_BEAT_NS);
        }
    }
}

static void mpi_close(struct coll *base)
{
    struct mpi *mpi = (struct mpi *)base;
    const struct head left = {.kind = HEAD_LEFT};
    const int64_t until_ns = core_clock_now_ns() + close_ns;
    pthread_mutex_lock(&mpi->lock);
    if (!mpi->ended) {
        send_last(mpi, &left, "");
    }
    pthread_mutex_unlock(&mpi->lock);
    for (unsigned i = 0; i + 1 < base->world; i++) {
        drain_heads(mpi, other(mpi, i), until_ns);
    }
    /* By now these transfers are complete, or the world has ended and nobody uses their buffers. */
    (void)coll_peers_wait(mpi->peers, mpi->out, base->world);
    (void)coll_peers_wait(mpi->peers, mpi->last, base->world);
    pthread_mutex_destroy(&mpi->lock);
    free_mpi(mpi);
}

static bool alloc_turn(const struct mpi *mpi, size_t world, struct coll_transfer *transfers,
                       struct turn *out)
{
    out->out = transfers;
    out->in = transfers + world;
    out->pieces = aligned_alloc(4096, world * mpi->piece_bytes);
    return out->pieces != NULL;
}

static struct mpi *alloc_mpi(size_t world)
{
    enum { HEADS = 3, KINDS = HEADS + 2 * TURNS };
    struct mpi *mpi = calloc(1, sizeof *mpi);
    if (mpi == NULL) {
        return NULL;
    }
    const size_t share = PIECES_BYTES / (TURNS * world) / 4096 * 4096;
    mpi->piece_bytes = share < PIECE_MIN ? PIECE_MIN : share > PIECE_MAX ? PIECE_MAX : share;
    mpi->heads_out = calloc(world, HEAD_BYTES);
    mpi->heads_in = calloc(world, HEAD_BYTES);
    mpi->arrays = calloc(world, sizeof *mpi->arrays);
    mpi->transfers = calloc(KINDS * world, sizeof *mpi->transfers);
    bool right = mpi->heads_out != NULL && mpi->heads_in != NULL && mpi->arrays != NULL &&
                 mpi->transfers != NULL;
    for (size_t i = 0; right && i < TURNS; i++) {
        right = alloc_turn(mpi, world, mpi->transfers + (HEADS + 2 * i) * world, &mpi->turns[i]);
    }
    if (!right) {
        free_mpi(mpi);
        return NULL;
    }
    mpi->out = mpi->transfers;
    mpi->in = mpi->out + world;
    mpi->last = mpi->in + world;
    return mpi;
}

static int mpi_open(const struct coll_options *options, struct coll *base, struct coll **out)
{
    struct coll_peers *peers = options->peers;
    if (peers == NULL || coll_peers_world(peers) != base->world ||
        coll_peers_rank(peers) != base->rank) {
        return core_err_set(-EINVAL, "rank %u of %u is not this process's rank over MPI",
                            base->rank, base->world);
    }
    struct mpi *mpi = alloc_mpi(base->world);
    if (mpi == NULL) {
        return core_err_set(-ENOMEM, "no memory for rank %u of %u", base->rank, base->world);
    }
    mpi->base = *base;
    mpi->peers = peers;
    mpi->tag = coll_peers_tags(peers, 2);
    pthread_mutex_init(&mpi->lock, NULL);
    *out = &mpi->base;
    return 0;
}

const struct coll_backend coll_backend_mpi = {
    .kind = "mpi",
    .open = mpi_open,
    .close = mpi_close,
    .run = mpi_run,
    .abort = mpi_abort,
    .end = mpi_end,
};
