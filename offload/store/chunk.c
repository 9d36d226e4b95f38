/* chunk.c: switches generations when a reader or writer asks for the current one. */
#include "offload/store/chunk.h"

#include <stddef.h>

/* Makes the other generation current if its write is done and was not discarded. */
static void settle(struct store_chunk *chunk)
{
    if (!chunk->waits || chunk->ahead) {
        return;
    }
    int state = core_fence_poll(chunk->written);
    if (state == 0) {
        return;
    }
    chunk->waits = false;
    if (state < 0) {
        return; /* a failed write leaves the old data current */
    }
    chunk->current ^= !chunk->borrows;
    chunk->borrows = false;
}

struct aio_extent *store_chunk_current(struct store_chunk *chunk)
{
    settle(chunk);
    return chunk->borrows ? chunk->adopted : chunk->extents[chunk->current];
}

struct aio_extent *store_chunk_next(struct store_chunk *chunk)
{
    settle(chunk);
    struct aio_extent *other = chunk->borrows ? NULL : chunk->extents[!chunk->current];
    return other != NULL ? other : chunk->extents[chunk->current];
}

void store_chunk_wrote(struct store_chunk *chunk, struct core_fence written, bool ahead)
{
    const bool twice = chunk->extents[!chunk->current] != NULL;
    if (!twice && !chunk->borrows) {
        return; /* the only generation is overwritten */
    }
    chunk->written = written;
    chunk->waits = true;
    chunk->ahead = ahead && twice; /* with one generation there is nothing to decide */
}

void store_chunk_decide(struct store_chunk *chunk, bool stands)
{
    chunk->waits = chunk->waits && (stands || !chunk->ahead);
    chunk->ahead = false;
}
