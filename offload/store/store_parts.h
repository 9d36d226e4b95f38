/* store_parts.h: what a store holds; private to store.c and adopt.c. */
#ifndef OFFLOAD_STORE_STORE_PARTS_H
#define OFFLOAD_STORE_STORE_PARTS_H

#include "offload/store/chunk.h"
#include "offload/store/image.h"
#include "offload/store/store.h"

enum { STORE_PATH_BYTES = 4096 };

/* Chunks of one kind and block; an activation's block is its boundary. */
struct store_row {
    struct store_chunk *chunks; /* owned, [count]; without extents where a chunk lies elsewhere */
    uint32_t count;
};

/* A path as it was made: what has to be undone. */
struct store_directory {
    char directory[STORE_PATH_BYTES]; /* ours, inside the parent; empty: memory */
    char parent[STORE_PATH_BYTES];    /* made by us; empty: it was there */
    struct aio_mem_disk *disk;        /* owned; NULL: a directory, or the caller's */
};

/* The checkpoint whose files chunks lie in, and its name; of a stream without one fds is -1. */
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
    uint64_t ahead_written; /* writes ahead of their norm that were handed on */
    uint64_t ahead_decided; /* of them, those behind which a decision stands */
    bool stands;            /* the last decision */
    struct store_adopting adopting;
};

/* Where a chunk lies; NULL, with a sentence: the plan keeps it elsewhere. */
struct store_chunk *store_chunk_find(const struct store *store, const struct store_place *place);

/* Where one stands among the chunks of weights and states. */
struct store_cursor {
    uint32_t kind, block, index;
};
/* The next chunk, those that lie elsewhere among them; NULL behind the last. Begun with zeros. */
struct store_chunk *store_chunk_each(const struct store *store, struct store_cursor *cursor);

/* Closes the files; nothing reads from them any more. */
void store_adopt_close(struct store *store);

#endif
