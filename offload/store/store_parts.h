/* store_parts.h: the members of a store; private to store.c and adopt.c. */
#ifndef OFFLOAD_STORE_STORE_PARTS_H
#define OFFLOAD_STORE_STORE_PARTS_H

#include "offload/store/chunk.h"
#include "offload/store/image.h"
#include "offload/store/store.h"

enum { STORE_PATH_BYTES = 4096 };

/* Chunks of one kind and block; an activation's block is its boundary. */
struct store_row {
    struct store_chunk *chunks; /* owned, [count]; a chunk that is not in the store has no
                                 * extents */
    uint32_t count;
};

/* A path, and what has to be removed with it. */
struct store_directory {
    char directory[STORE_PATH_BYTES]; /* our directory, inside the parent; empty: memory */
    char parent[STORE_PATH_BYTES];    /* created by us; empty: it existed */
    struct aio_mem_disk *disk;        /* owned; NULL: there is a directory, or the disk is the
                                       * caller's */
};

/* The checkpoint whose files contain chunks, and its name; the descriptor of a missing stream is
 * -1. */
struct store_adopting {
    bool open;
    int fds[STORE_STREAM_COUNT];        /* owned */
    uint32_t files[STORE_STREAM_COUNT]; /* of the first path's drive */
};

struct store {
    struct aio_store *extents; /* owned */
    struct store_directory places[STORE_PATHS_MAX];
    unsigned place_count;
    struct store_row *rows[STORE_KIND_COUNT]; /* owned, [block_count] each */
    uint32_t block_count;
    uint64_t next_owner;
    uint64_t ahead_written; /* writes ahead of their norm that were submitted */
    uint64_t ahead_decided; /* of these, the ones about which a decision was made */
    bool stands;            /* the last decision: whether they became current */
    struct store_adopting adopting;
};

/* Finds a chunk; NULL, with a sentence: the plan does not keep it in STORE. */
struct store_chunk *store_chunk_find(const struct store *store, const struct store_place *place);

/* Index of a place among the chunks of weights and states. */
struct store_cursor {
    uint32_t kind, block, index;
};
/* The next chunk, including those that are not in STORE; NULL after the last. `place` begins as
 * zeros. */
struct store_chunk *store_chunk_each(const struct store *store, struct store_cursor *cursor);

/* Closes the files; nothing reads from them any more. */
void store_adopt_close(struct store *store);

#endif
