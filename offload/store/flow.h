/* flow.h: private to checkpoints and their bench: moves ranges of blocks between memory and
 * the files of a checkpoint, through a drive of its own or a shared one, and takes or checks the sum
 * of every cut on the way.
 * Pieces of up to a MiB are in flight together; what is not aligned, and the end of a block with its
 * padding, goes through buffers of the flow. One thread at a time. */
#ifndef OFFLOAD_STORE_FLOW_H
#define OFFLOAD_STORE_FLOW_H

#include "aio/queue.h"
#include "offload/store/image.h"

struct store_flow;

enum { STORE_FLOW_PIECES = 16, STORE_FLOW_PIECE_BYTES = 1 << 20 };
/* Of memory: what a flow takes for its buffers. */
#define STORE_FLOW_BYTES ((uint64_t)STORE_FLOW_PIECES * STORE_FLOW_PIECE_BYTES)

struct store_flow_options {
    const struct store_image *image; /* borrowed, as all here */
    int folder;                      /* of the checkpoint: descriptor */
    const char *name;                /* and its name, for messages */
    bool writes;                     /* the files are made where they are not there, at full
                                        size, with their headers */
    const char *backend;             /* NULL: chosen by probing */
    struct aio_fault *fault;         /* for tests; NULL: none */
    int64_t limit_ns;                /* of one block's I/O; 0: the drive's own */
};

/* Opens or makes the files. Headers of files that are there have to be those of the image, and their
 * sizes too: -EINVAL names the file. -ENOSPC: there is no room. */
int store_flow_open(const struct store_flow_options *options, struct store_flow **out);
/* 0: all memory is the caller's again. -ETIMEDOUT as aio_queue_close. NULL is fine. */
int store_flow_close(struct store_flow *flow);

/* The sums of a stream's cuts, block after block: written by store_flow_write, compared by
 * store_flow_read. */
uint64_t *store_flow_sums(struct store_flow *flow, enum store_stream stream);

/* Elements [first, first + count) of a block: first a multiple of 64 Ki, the end too or the block's.
 * Returns when the bytes are with the files. */
int store_flow_write(struct store_flow *flow, uint32_t block, uint64_t first, uint64_t count,
                     const struct store_arrays *arrays);
/* -EBADMSG names file and elements where a sum differs. */
int store_flow_read(struct store_flow *flow, uint32_t block, uint64_t first, uint64_t count,
                    const struct store_arrays *arrays);
/* Reads a whole block and compares, into buffers of the flow alone. */
int store_flow_check(struct store_flow *flow, uint32_t block);

/* Makes everything durable. */
int store_flow_sync(struct store_flow *flow);

#endif
