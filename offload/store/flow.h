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
    const struct store_image *image;  /* borrowed, as all here */
    int folder;                       /* of the checkpoint: descriptor */
    const char *name;                 /* and its name, for messages */
    bool writes;                      /* the files are made where they are not there, at full
                                        size, with their headers */
    const char *backend;              /* NULL: chosen by probing */
    const struct aio_backend *recipe; /* replaces `backend`; NULL: none */
    int64_t limit_ns;                 /* of one block's I/O; 0: the drive's own */
};

/* Opens or makes the files. Headers of files that are there have to be those of the image, and their
 * sizes too: -EINVAL names the file. -ENOSPC: there is no room. */
int store_flow_open(const struct store_flow_options *options, struct store_flow **out);
/* 0: all memory is the caller's again. -ETIMEDOUT as aio_queue_close. NULL is fine. */
int store_flow_close(struct store_flow *flow);

/* The sums of a stream's cuts, block after block: taken where the flow writes, compared where it
 * reads. */
uint64_t *store_flow_sums(struct store_flow *flow, enum store_stream stream);

/* Begins to write or to read elements [first, first + count) of a block: first a multiple of 64 Ki, the
 * end too or the block's. Waits where STORE_FLOW_PIECES are under way. The arrays stay as they are, or
 * are what was read, once store_flow_wait has returned 0 for the flow's tail as it was behind this.
 * An error, -EBADMSG with file and elements where a sum differs, ends the flow: nothing is under way
 * then, and whoever asks later gets it again. */
int store_flow_begin(struct store_flow *flow, uint32_t block, uint64_t first, uint64_t count,
                     const struct store_arrays *arrays);
/* The point behind everything begun so far. */
uint64_t store_flow_tail(const struct store_flow *flow);
/* Waits for everything in front of a point. */
int store_flow_wait(struct store_flow *flow, uint64_t point);
/* The file of a stream where it is opened for direct I/O; -1: it is not, or there is none. */
int store_flow_direct_file(const struct store_flow *flow, enum store_stream stream);

/* Reads a whole block and compares, into buffers of the flow alone. */
int store_flow_check(struct store_flow *flow, uint32_t block);

/* Waits for everything, and makes it durable. */
int store_flow_sync(struct store_flow *flow);

#endif
