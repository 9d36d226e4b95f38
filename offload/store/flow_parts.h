/* flow_parts.h: the members of a flow; private to flow*.c. */
#ifndef OFFLOAD_STORE_FLOW_PARTS_H
#define OFFLOAD_STORE_FLOW_PARTS_H

#include "core/base/err.h"
#include "core/base/mem.h"
#include "offload/store/flow.h"

/* Cuts of one stream that are moved as one request. */
struct flow_piece {
    enum store_stream stream;
    uint32_t block;
    uint64_t cut;    /* the first */
    uint64_t count;  /* of cuts */
    uint64_t offset; /* in the file */
    uint64_t bytes;
    uint64_t padded_bytes;
    char *memory; /* the caller's memory; NULL: none */
    char *at;     /* memory of the request: `memory`, or a buffer of the flow */
    struct core_fence done;
};

struct store_flow {
    const struct store_image *image; /* borrowed */
    char name[512];
    bool writes;
    int64_t still_ns;        /* an error if pieces are in flight and none ends for this long */
    struct aio_drive *drive; /* owned */
    struct aio_queue *queue; /* owned */
    int fds[STORE_STREAM_COUNT];
    bool direct[STORE_STREAM_COUNT];
    uint32_t files[STORE_STREAM_COUNT];
    uint64_t *sums[STORE_STREAM_COUNT];          /* owned */
    struct core_region buffers;                  /* owned, STORE_FLOW_PIECES of piece_bytes */
    uint64_t piece_bytes;                        /* maximum of a piece: less if files are small */
    struct flow_piece pieces[STORE_FLOW_PIECES]; /* in turn */
    uint64_t begun;         /* pieces; at most the last STORE_FLOW_PIECES are in flight */
    uint64_t finished;      /* under way */
    struct core_err failed; /* the error that ended the flow */
};

#endif
