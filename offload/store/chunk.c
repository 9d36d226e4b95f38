/* chunk.c: the switch between two generations, made when somebody looks. */
#include "offload/store/chunk.h"

#include <stddef.h>

/* Lets a write that is done, and that nothing speaks against, become current. */
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
        return; /* a failed one leaves what was there */
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
        return; /* held once: in place */
    }
    chunk->written = written;
    chunk->waits = true;
    chunk->ahead = ahead && twice; /* nobody decides about what is held once */
}

void store_chunk_decide(struct store_chunk *chunk, bool stands)
{
    chunk->waits = chunk->waits && (stands || !chunk->ahead);
    chunk->ahead = false;
}
