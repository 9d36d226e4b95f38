/* chunk.h: a chunk's one or two extents, and which is current; recorded only in memory. With two
 * extents, a write goes to the other extent, which becomes current when the write is done, so a
 * failed write keeps the old data. A write before the step's norm is known also waits for a
 * decision. A single extent is overwritten. Until its first own write is done, a chunk may read
 * from a file of a checkpoint or kept base (store.h). The engine's thread; allocates nothing. */
#ifndef OFFLOAD_STORE_CHUNK_H
#define OFFLOAD_STORE_CHUNK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/fence.h"

struct aio_extent;

enum { STORE_GENERATIONS_MAX = 2 };

struct store_chunk {
    struct aio_extent *extents[STORE_GENERATIONS_MAX]; /* owned by the store; NULL: none */
    struct aio_extent *adopted;                        /* owned by the store: in a checkpoint's or a
                                                        * kept base's file */
    struct core_fence written;                         /* the last write, if `waits` */
    uint8_t current;
    bool of_base; /* `adopted` is in a kept base, and stays there */
    bool borrows; /* `adopted` is current, and the next write goes to extents[current] */
    bool waits;   /* the written extent becomes current at `written` */
    bool ahead;   /* the switch also waits for store_chunk_decide() */
};

/* Return the extents of the next read and the next write. NULL: the chunk is not in the store. */
struct aio_extent *store_chunk_current(struct store_chunk *chunk);
struct aio_extent *store_chunk_next(struct store_chunk *chunk);

/* Records a write to the next extent; `ahead`: before the step's norm is known. */
void store_chunk_wrote(struct store_chunk *chunk, struct core_fence written, bool ahead);

/* Makes a write that came before the norm current (`stands`), or discards it. */
void store_chunk_decide(struct store_chunk *chunk, bool stands);

#endif
