/* exchange.h: how processes move a collective's data that are too long for its heads
 * (coll_processes.c). A rank receives its part of a sum from all ranks and adds in their order;
 * with coll_command.within, groups add first. init and fini: the thread that opens or closes the
 * coll; coll_exchange_post: any thread; the others: the queue's thread. */
#ifndef CORE_COLL_EXCHANGE_H
#define CORE_COLL_EXCHANGE_H

#include "core/coll/peers.h"
#include "core/coll/work.h"

enum { COLL_EXCHANGE_TURNS = 2 };

/* One piece of a sum; other collectives use the first turn's transfers. */
struct coll_turn {
    struct coll_transfer *out, *in; /* [world], borrowed from coll_exchange */
    unsigned char *pieces;          /* owned, [world][piece_bytes]: pieces and sums of groups */
};

struct coll_exchange {
    struct coll *coll;        /* borrowed */
    struct coll_peers *peers; /* borrowed */
    int tag;                  /* tag of the data */
    size_t piece_bytes;
    struct coll_transfer *transfers; /* owned */
    struct coll_turn turns[COLL_EXCHANGE_TURNS];
    const void **arrays; /* owned, [world]: the arrays to add */
};

/* Returns 0, or -ENOMEM without a message; call fini in either case. */
int coll_exchange_init(struct coll_exchange *exchange, struct coll *coll, struct coll_peers *peers,
                       int tag);
/* Accepts an exchange of zeros. */
void coll_exchange_fini(struct coll_exchange *exchange);

/* Moves and adds a collective's data after its heads. Returns 0, or the error that ended the
 * world. */
int coll_exchange_run(struct coll_exchange *exchange, const struct coll_work *work);

/* Begins a transfer whose memory and size are set. */
void coll_exchange_post(struct coll_exchange *exchange, struct coll_transfer *transfer, bool sends,
                        unsigned peer, int tag);
void coll_exchange_received(struct coll_exchange *exchange, enum coll_op op, unsigned from,
                            uint64_t bytes);

#endif
