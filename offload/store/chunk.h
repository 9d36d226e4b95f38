/* chunk.h: a chunk's one or two extents, and which of two is current. Memory alone knows that.
 * A chunk may borrow its first bytes from a checkpoint (adopt.h) until a write of its own stands.
 * A write goes to the extent that is not current and makes it so when it is done, so that a write that
 * fails leaves what was there. One that is ahead of its step's norm waits for a decision as well.
 * The engine's thread. Nothing is allocated here. */
#ifndef OFFLOAD_STORE_CHUNK_H
#define OFFLOAD_STORE_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/fence.h"

struct aio_extent;

enum { STORE_GENERATIONS_MAX = 2 };

struct store_chunk {
    struct aio_extent *extents[STORE_GENERATIONS_MAX]; /* owned by the store; NULL: none such */
    struct aio_extent *adopted;                        /* owned by the store: of a checkpoint */
    struct core_fence written;                         /* the last write of the other generation */
    uint8_t current;
    bool borrows; /* `adopted` is what counts, and the write of extents[current] is the other */
    bool waits;   /* `written` makes the other one current once it is reached */
    bool ahead;   /* and the decision has not been made */
};

/* What a read takes, and what the next write goes to. NULL: nothing lies here. */
struct aio_extent *store_chunk_current(struct store_chunk *chunk);
struct aio_extent *store_chunk_next(struct store_chunk *chunk);

/* The next extent is being written; `ahead` of the norm. */
void store_chunk_wrote(struct store_chunk *chunk, struct core_fence written, bool ahead);

/* What was written ahead stands or falls. */
void store_chunk_decide(struct store_chunk *chunk, bool stands);

#endif
