/* exchange.c: cuts a collective's data into pieces; while one is summed, the next is in flight. */
#include "core/coll/exchange.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/coll/sum.h"

/* The buffers of two pieces in flight take at most PIECES_BYTES, unless PIECE_MIN needs more. */
enum { PIECES_BYTES = 8 << 20, PIECE_MIN = 64 << 10, PIECE_MAX = 1 << 20 };
/* the most bytes that one transfer of a gather or broadcast moves */
static const uint64_t transfer_max = UINT64_C(64) << 20;

void coll_exchange_received(struct coll_exchange *exchange, enum coll_op op, unsigned from,
                            uint64_t bytes)
{
    const char *own = coll_peers_at(exchange->peers, exchange->coll->rank)->host;
    const bool far = strcmp(coll_peers_at(exchange->peers, from)->host, own) != 0;
    atomic_fetch_add_explicit(&exchange->coll->received_bytes[op], bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&exchange->coll->far_bytes[op], far ? bytes : 0,
                              memory_order_relaxed);
}

/* ---- transfers ---- */

void coll_exchange_post(struct coll_exchange *exchange, struct coll_transfer *transfer, bool sends,
                        unsigned peer, int tag)
{
    transfer->sends = sends;
    transfer->peer = peer;
    transfer->tag = tag;
    coll_peers_post(exchange->peers, transfer);
}

/* Sends nothing if there are 0 bytes. */
static void send_data(struct coll_exchange *exchange, struct coll_transfer *transfer, unsigned to,
                      const void *from, uint64_t bytes)
{
    atomic_store_explicit(&transfer->state, COLL_TRANSFER_FREE, memory_order_relaxed);
    transfer->at = (void *)(uintptr_t)from;
    transfer->bytes = bytes;
    if (bytes > 0) {
        coll_exchange_post(exchange, transfer, true, to, exchange->tag);
    }
}

static void receive_data(struct coll_exchange *exchange, struct coll_transfer *transfer,
                         unsigned from, void *to, uint64_t bytes)
{
    atomic_store_explicit(&transfer->state, COLL_TRANSFER_FREE, memory_order_relaxed);
    transfer->at = to;
    transfer->bytes = bytes;
    if (bytes > 0) {
        coll_exchange_post(exchange, transfer, false, from, exchange->tag);
    }
}

static int wait_turn(struct coll_exchange *exchange, const struct coll_turn *turn)
{
    int rc = coll_peers_wait(exchange->peers, turn->in, exchange->coll->world);
    return rc != 0 ? rc : coll_peers_wait(exchange->peers, turn->out, exchange->coll->world);
}

/* ---- parts ---- */

/* Returns the size of piece `index` of a part of `bytes`; sets *at to its offset. */
static uint64_t piece_of(uint64_t bytes, uint64_t piece_bytes, uint64_t index, uint64_t *at)
{
    *at = index * piece_bytes < bytes ? index * piece_bytes : bytes;
    return bytes - *at < piece_bytes ? bytes - *at : piece_bytes;
}

static uint64_t longest_part(const struct coll_exchange *exchange, const struct coll_work *work)
{
    uint64_t longest = 0;
    for (unsigned r = 0; r < exchange->coll->world; r++) {
        uint64_t at;
        const uint64_t bytes = coll_part_bytes(exchange->coll, work, r, &at);
        longest = bytes > longest ? bytes : longest;
    }
    return longest;
}

static int gather_long(struct coll_exchange *exchange, const struct coll_work *work,
                       const void *own)
{
    const struct coll_turn *turn = &exchange->turns[0];
    const uint64_t longest = longest_part(exchange, work);
    uint64_t own_at;
    const uint64_t own_bytes = coll_part_bytes(exchange->coll, work, exchange->coll->rank, &own_at);
    int rc = 0;
    for (uint64_t done = 0; rc == 0 && done < longest; done += transfer_max) {
        for (unsigned i = 0; i + 1 < exchange->coll->world; i++) {
            const unsigned r = coll_other(exchange->coll, i);
            uint64_t at;
            uint64_t from;
            if (!coll_takes_part(exchange->coll, work, r)) {
                receive_data(exchange, &turn->in[r], r, NULL, 0);
                send_data(exchange, &turn->out[r], r, NULL, 0);
                continue;
            }
            const uint64_t bytes = coll_part_bytes(exchange->coll, work, r, &at);
            const uint64_t in = piece_of(bytes, transfer_max, done / transfer_max, &from);
            receive_data(exchange, &turn->in[r], r, (unsigned char *)work->to + at + from, in);
            coll_exchange_received(exchange, work->op, r, in);
            const uint64_t out = piece_of(own_bytes, transfer_max, done / transfer_max, &from);
            send_data(exchange, &turn->out[r], r, (const unsigned char *)own + from, out);
        }
        rc = wait_turn(exchange, turn);
    }
    coll_copy((unsigned char *)work->to + own_at, own, own_bytes);
    return rc;
}

/* A piece has whole elements. */
static uint64_t sum_piece_bytes(const struct coll_exchange *exchange, const struct coll_work *work)
{
    return exchange->piece_bytes - exchange->piece_bytes % coll_type_bytes(work->type);
}

/* Returns the buffer for a piece of rank r. In sums by groups, a piece for the twin in group g
 * takes the buffer of a member of group g. */
static unsigned char *piece_from(const struct coll_exchange *exchange, const struct coll_turn *turn,
                                 unsigned r)
{
    return turn->pieces + r * exchange->piece_bytes;
}

/* Begins to exchange piece `index` of the parts. */
static void begin_pieces(struct coll_exchange *exchange, const struct coll_work *work,
                         uint64_t index)
{
    const struct coll_turn *turn = &exchange->turns[index % COLL_EXCHANGE_TURNS];
    uint64_t at;
    uint64_t from;
    const uint64_t own = coll_part_bytes(exchange->coll, work, exchange->coll->rank, &at);
    const uint64_t piece = sum_piece_bytes(exchange, work);
    const uint64_t in = piece_of(own, piece, index, &from);
    for (unsigned i = 0; i + 1 < exchange->coll->world; i++) {
        const unsigned r = coll_other(exchange->coll, i);
        receive_data(exchange, &turn->in[r], r, piece_from(exchange, turn, r), in);
        coll_exchange_received(exchange, work->op, r, in);
    }
    for (unsigned i = 0; i + 1 < exchange->coll->world; i++) {
        const unsigned r = coll_other(exchange->coll, i);
        const uint64_t bytes = coll_part_bytes(exchange->coll, work, r, &at);
        const uint64_t out = piece_of(bytes, piece, index, &from);
        send_data(exchange, &turn->out[r], r, (const unsigned char *)work->from + at + from, out);
    }
}

static void sum_piece(struct coll_exchange *exchange, const struct coll_work *work, uint64_t index,
                      void *to)
{
    const struct coll_turn *turn = &exchange->turns[index % COLL_EXCHANGE_TURNS];
    uint64_t at;
    uint64_t from;
    const uint64_t own = coll_part_bytes(exchange->coll, work, exchange->coll->rank, &at);
    const uint64_t bytes = piece_of(own, sum_piece_bytes(exchange, work), index, &from);
    for (unsigned r = 0; r < exchange->coll->world; r++) {
        exchange->arrays[r] = r == exchange->coll->rank
                                  ? (const unsigned char *)work->from + at + from
                                  : piece_from(exchange, turn, r);
    }
    if (bytes > 0) {
        const uint64_t width = coll_type_bytes(work->type);
        const struct coll_terms terms = {.from = exchange->arrays,
                                         .ranks = exchange->coll->world,
                                         .count = bytes / width,
                                         .before = from / width};
        coll_work_sum(work, &terms, to);
    }
}

static int sum_long(struct coll_exchange *exchange, const struct coll_work *work, void *to)
{
    const uint64_t piece = sum_piece_bytes(exchange, work);
    const uint64_t count = (longest_part(exchange, work) + piece - 1) / piece;
    begin_pieces(exchange, work, 0);
    for (uint64_t i = 0; i < count; i++) {
        if (i + 1 < count) {
            begin_pieces(exchange, work, i + 1);
        }
        const int rc = wait_turn(exchange, &exchange->turns[i % COLL_EXCHANGE_TURNS]);
        if (rc != 0) {
            return rc;
        }
        sum_piece(exchange, work, i, to);
    }
    return 0;
}

/* ---- longer sums by groups (coll_command.within) ----
 * Twins are ranks with the same index in different groups. Members of a group exchange pieces and
 * add them for themselves and their twins; then twins exchange these sums and add them. */

static bool sums_by_groups(const struct coll_exchange *exchange, const struct coll_work *work)
{
    return work->op != COLL_GATHER && work->within > 1 && work->within < exchange->coll->world;
}

static unsigned member(const struct coll_work *work, unsigned group, unsigned index)
{
    return group * work->within + index;
}

/* the number of groups, and this rank's group and index */
struct groups {
    unsigned count, own, index;
};

static struct groups groups_of(const struct coll_exchange *exchange, const struct coll_work *work)
{
    return (struct groups){.count = exchange->coll->world / work->within,
                           .own = exchange->coll->rank / work->within,
                           .index = exchange->coll->rank % work->within};
}

/* Returns the size of piece `index` of rank r's part; sets *at to its offset in the array. */
static uint64_t piece_at(const struct coll_exchange *exchange, const struct coll_work *work,
                         unsigned r, uint64_t index, uint64_t *at)
{
    uint64_t from;
    const uint64_t part = coll_part_bytes(exchange->coll, work, r, at);
    const uint64_t bytes = piece_of(part, sum_piece_bytes(exchange, work), index, &from);
    *at += from;
    return bytes;
}

/* Returns the buffer for the sum from the twin in `group`: that of another member of `group`, whose
 * piece has been added by then. */
static unsigned char *twin_sum(const struct coll_exchange *exchange, const struct coll_work *work,
                               const struct coll_turn *turn, unsigned group)
{
    const unsigned next = (exchange->coll->rank % work->within + 1) % work->within;
    return piece_from(exchange, turn, member(work, group, next));
}

static void begin_inside(struct coll_exchange *exchange, const struct coll_work *work,
                         uint64_t index)
{
    const struct coll_turn *turn = &exchange->turns[index % COLL_EXCHANGE_TURNS];
    const struct groups groups = groups_of(exchange, work);
    for (unsigned i = 1; i < work->within; i++) {
        const unsigned other_index = (groups.index + i) % work->within;
        const unsigned peer = member(work, groups.own, other_index);
        for (unsigned g = 0; g < groups.count; g++) {
            const unsigned r = member(work, g, other_index);
            uint64_t at;
            const uint64_t in = piece_at(exchange, work, member(work, g, groups.index), index, &at);
            receive_data(exchange, &turn->in[r], peer, piece_from(exchange, turn, r), in);
            coll_exchange_received(exchange, work->op, peer, in);
            const uint64_t out = piece_at(exchange, work, r, index, &at);
            send_data(exchange, &turn->out[r], peer, (const unsigned char *)work->from + at, out);
        }
    }
}

/* Adds the group's pieces for this rank and its twins, and begins to exchange these sums. */
static void add_inside(struct coll_exchange *exchange, const struct coll_work *work, uint64_t index)
{
    const struct coll_turn *turn = &exchange->turns[index % COLL_EXCHANGE_TURNS];
    const struct groups groups = groups_of(exchange, work);
    const size_t width = coll_type_bytes(work->type);
    uint64_t at;
    const uint64_t own = piece_at(exchange, work, exchange->coll->rank, index, &at);
    for (unsigned g = 0; g < groups.count; g++) {
        const unsigned twin = member(work, g, groups.index);
        const uint64_t bytes = piece_at(exchange, work, twin, index, &at);
        for (unsigned i = 0; i < work->within; i++) {
            exchange->arrays[i] = i == groups.index
                                      ? (const unsigned char *)work->from + at
                                      : piece_from(exchange, turn, member(work, g, i));
        }
        coll_sum(work->type, exchange->arrays, work->within, 0, bytes / width,
                 piece_from(exchange, turn, twin));
    }
    for (unsigned i = 1; i < groups.count; i++) {
        const unsigned g = (groups.own + i) % groups.count;
        const unsigned twin = member(work, g, groups.index);
        receive_data(exchange, &turn->in[twin], twin, twin_sum(exchange, work, turn, g), own);
        coll_exchange_received(exchange, work->op, twin, own);
        send_data(exchange, &turn->out[twin], twin, piece_from(exchange, turn, twin),
                  piece_at(exchange, work, twin, index, &at));
    }
}

static void add_groups(struct coll_exchange *exchange, const struct coll_work *work, uint64_t index,
                       unsigned char *to)
{
    const struct coll_turn *turn = &exchange->turns[index % COLL_EXCHANGE_TURNS];
    const struct groups groups = groups_of(exchange, work);
    uint64_t begin;
    uint64_t at;
    (void)coll_part_bytes(exchange->coll, work, exchange->coll->rank, &begin);
    const uint64_t bytes = piece_at(exchange, work, exchange->coll->rank, index, &at);
    for (unsigned g = 0; g < groups.count; g++) {
        exchange->arrays[g] = g == groups.own ? piece_from(exchange, turn, exchange->coll->rank)
                                              : twin_sum(exchange, work, turn, g);
    }
    coll_sum(work->type, exchange->arrays, groups.count, 0, bytes / coll_type_bytes(work->type),
             to + (at - begin));
}

/* While twins exchange sums, groups exchange the next piece. */
static int sum_groups_long(struct coll_exchange *exchange, const struct coll_work *work,
                           unsigned char *to)
{
    const uint64_t piece = sum_piece_bytes(exchange, work);
    const uint64_t count = (longest_part(exchange, work) + piece - 1) / piece;
    int rc = 0;
    begin_inside(exchange, work, 0);
    for (uint64_t i = 0; rc == 0 && i <= count; i++) {
        if (i < count) {
            rc = wait_turn(exchange, &exchange->turns[i % COLL_EXCHANGE_TURNS]);
            if (rc == 0) {
                add_inside(exchange, work, i);
            }
        }
        if (rc == 0 && i > 0) {
            rc = wait_turn(exchange, &exchange->turns[(i - 1) % COLL_EXCHANGE_TURNS]);
            if (rc == 0) {
                add_groups(exchange, work, i - 1, to);
            }
        }
        if (rc == 0 && i + 1 < count) {
            begin_inside(exchange, work, i + 1);
        }
    }
    return rc;
}

/* First twins exchange their parts, then members of a group exchange the parts that they have. */
static int gather_groups_long(struct coll_exchange *exchange, const struct coll_work *work)
{
    const struct coll_turn *turn = &exchange->turns[0];
    const struct groups groups = groups_of(exchange, work);
    const uint64_t longest = longest_part(exchange, work);
    unsigned char *to = work->to;
    int rc = 0;
    for (uint64_t done = 0; rc == 0 && done < longest; done += transfer_max) {
        const uint64_t index = done / transfer_max;
        uint64_t from;
        uint64_t at;
        uint64_t bytes = coll_part_bytes(exchange->coll, work, exchange->coll->rank, &at);
        const uint64_t own = piece_of(bytes, transfer_max, index, &from);
        const unsigned char *out = to + at + from;
        for (unsigned i = 1; i < groups.count; i++) {
            const unsigned twin = member(work, (groups.own + i) % groups.count, groups.index);
            bytes = piece_of(coll_part_bytes(exchange->coll, work, twin, &at), transfer_max, index,
                             &from);
            receive_data(exchange, &turn->in[twin], twin, to + at + from, bytes);
            coll_exchange_received(exchange, work->op, twin, bytes);
            send_data(exchange, &turn->out[twin], twin, out, own);
        }
        rc = wait_turn(exchange, turn);
        for (unsigned r = 0; rc == 0 && r < exchange->coll->world; r++) {
            const unsigned other_index = r % work->within;
            const unsigned peer = member(work, groups.own, other_index);
            const unsigned twin = member(work, r / work->within, groups.index);
            if (other_index == groups.index) {
                continue;
            }
            bytes = piece_of(coll_part_bytes(exchange->coll, work, r, &at), transfer_max, index,
                             &from);
            receive_data(exchange, &turn->in[r], peer, to + at + from, bytes);
            coll_exchange_received(exchange, work->op, peer, bytes);
            bytes = piece_of(coll_part_bytes(exchange->coll, work, twin, &at), transfer_max, index,
                             &from);
            send_data(exchange, &turn->out[r], peer, to + at + from, bytes);
        }
        rc = rc != 0 ? rc : wait_turn(exchange, turn);
    }
    return rc;
}

static int broadcast_long(struct coll_exchange *exchange, const struct coll_work *work)
{
    const struct coll_turn *turn = &exchange->turns[0];
    const bool root = work->root == exchange->coll->rank;
    const uint64_t bytes = coll_work_bytes(work, work->count);
    int rc = 0;
    for (uint64_t done = 0; rc == 0 && done < bytes; done += transfer_max) {
        const uint64_t part = bytes - done < transfer_max ? bytes - done : transfer_max;
        for (unsigned i = 0; root && i + 1 < exchange->coll->world; i++) {
            const unsigned r = coll_other(exchange->coll, i);
            send_data(exchange, &turn->out[r], r, (const unsigned char *)work->from + done, part);
        }
        if (!root) {
            receive_data(exchange, &turn->in[work->root], work->root,
                         (unsigned char *)work->to + done, part);
            coll_exchange_received(exchange, work->op, work->root, part);
        }
        rc = wait_turn(exchange, turn);
    }
    if (root) {
        coll_copy(work->to, work->from, bytes);
    }
    return rc;
}

static int sum_any_long(struct coll_exchange *exchange, const struct coll_work *work,
                        unsigned char *to)
{
    return sums_by_groups(exchange, work) ? sum_groups_long(exchange, work, to)
                                          : sum_long(exchange, work, to);
}

int coll_exchange_run(struct coll_exchange *exchange, const struct coll_work *work)
{
    uint64_t at;
    unsigned char *own = work->to;
    (void)coll_part_bytes(exchange->coll, work, exchange->coll->rank, &at);
    int rc = 0;
    switch (work->op) {
    case COLL_GATHER: return gather_long(exchange, work, work->from);
    case COLL_REDUCE_SCATTER: return sum_any_long(exchange, work, own);
    case COLL_ALL_REDUCE:
        rc = sum_any_long(exchange, work, own + at);
        if (rc == 0 && sums_by_groups(exchange, work)) {
            return gather_groups_long(exchange, work);
        }
        return rc != 0 ? rc : gather_long(exchange, work, own + at);
    case COLL_BROADCAST: return broadcast_long(exchange, work);
    case COLL_BARRIER:
    case COLL_OPS: break;
    }
    return 0;
}

/* ---- memory ---- */

void coll_exchange_fini(struct coll_exchange *exchange)
{
    for (int i = 0; i < COLL_EXCHANGE_TURNS; i++) {
        free(exchange->turns[i].pieces);
    }
    free(exchange->transfers);
    free(exchange->arrays);
}

int coll_exchange_init(struct coll_exchange *exchange, struct coll *coll, struct coll_peers *peers,
                       int tag)
{
    const size_t world = coll->world;
    const size_t share = PIECES_BYTES / (COLL_EXCHANGE_TURNS * world) / 4096 * 4096;
    *exchange = (struct coll_exchange){.coll = coll, .peers = peers, .tag = tag};
    exchange->piece_bytes = share < PIECE_MIN ? PIECE_MIN : share > PIECE_MAX ? PIECE_MAX : share;
    exchange->arrays = calloc(world, sizeof *exchange->arrays);
    exchange->transfers = calloc(2 * COLL_EXCHANGE_TURNS * world, sizeof *exchange->transfers);
    bool right = exchange->arrays != NULL && exchange->transfers != NULL;
    for (size_t i = 0; right && i < COLL_EXCHANGE_TURNS; i++) {
        struct coll_turn *turn = &exchange->turns[i];
        turn->out = exchange->transfers + 2 * i * world;
        turn->in = turn->out + world;
        turn->pieces = aligned_alloc(4096, world * exchange->piece_bytes);
        right = turn->pieces != NULL;
    }
    return right ? 0 : -ENOMEM;
}
