/* exchange.h: how ranks that are processes move the data of a collective that are too long for its
 * heads (coll_processes.c). For a sum, each rank sends every part to the rank that owns it, which
 * adds the parts in the order of ranks with the code that coll_local.c uses, too; with
 * coll_command.within, groups of ranks add first. The thread that opens or closes the coll calls
 * init and fini, any thread coll_exchange_post, and the thread of the coll's queue the others. */
#ifndef CORE_COLL_EXCHANGE_H
#define CORE_COLL_EXCHANGE_H

#include "core/coll/peers.h"
#include "core/coll/work.h"

enum { COLL_EXCHANGE_TURNS = 2 };

/* The transfers and buffers of one piece of a sum; other collectives use the transfers of the first
 * turn. */
struct coll_turn {
    struct coll_transfer *out, *in; /* [world], borrowed from coll_exchange */
    unsigned char *pieces;          /* owned, [world][piece_bytes]: received pieces and sums of
                                     * groups */
};

struct coll_exchange {
    struct coll *coll;        /* borrowed */
    struct coll_peers *peers; /* borrowed */
    int tag;                  /* tag of the data */
    size_t piece_bytes;
    struct coll_transfer *transfers; /* owned */
    struct coll_turn turns[COLL_EXCHANGE_TURNS];
    const void **arrays; /* owned, [world]: the arrays that a sum adds */
};

/* Returns 0, or -ENOMEM without a message. Even after an error, fini releases what was
 * allocated. */
int coll_exchange_init(struct coll_exchange *exchange, struct coll *coll, struct coll_peers *peers,
                       int tag);
/* Accepts an exchange of zeros. */
void coll_exchange_fini(struct coll_exchange *exchange);

/* Moves and adds the data of a collective whose heads have been exchanged. Returns 0, or the error
 * that ended the world. */
int coll_exchange_run(struct coll_exchange *exchange, const struct coll_work *work);

/* Begins a transfer whose memory and size the caller has set. */
void coll_exchange_post(struct coll_exchange *exchange, struct coll_transfer *transfer, bool sends,
                        unsigned peer, int tag);
/* Counts bytes that arrived from a rank. */
void coll_exchange_received(struct coll_exchange *exchange, enum coll_op op, unsigned from,
                            uint64_t bytes);

#endif
