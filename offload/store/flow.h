/* flow.h: moves ranges of blocks between memory and a checkpoint's files on its own drive, and
 * computes or verifies checksums. Pieces of up to a MiB are in flight together. Unaligned data and
 * padded ends go through buffers of the flow. One thread at a time. */
#ifndef OFFLOAD_STORE_FLOW_H
#define OFFLOAD_STORE_FLOW_H

#include "aio/queue.h"
#include "offload/store/image.h"

struct store_flow;

enum { STORE_FLOW_PIECES = 16, STORE_FLOW_PIECE_BYTES = 1 << 20 };
/* Most memory of a flow's buffers. */
#define STORE_FLOW_BYTES ((uint64_t)STORE_FLOW_PIECES * STORE_FLOW_PIECE_BYTES)

struct store_flow_options {
    const struct store_image *image;  /* borrowed, as is every pointer here */
    int folder;                       /* descriptor of the checkpoint's folder */
    const char *name;                 /* path of that folder, for messages */
    bool writes;                      /* creates or overwrites files at full size */
    bool joins;                       /* with `writes`: another process has created the files */
    bool partial;                     /* reserves no space: some ranges will not be written */
    const char *backend;              /* NULL: chosen by probing */
    const struct aio_backend *recipe; /* back end used in place of `backend`; NULL: none */
    int64_t limit_ns; /* a piece in flight this long is an error; 0: the drive's own limit */
};

/* Opens the files. Returns -EINVAL if a file to read or join lacks the image's header or size,
 * -ENOSPC if there is not enough space. */
int store_flow_open(const struct store_flow_options *options, struct store_flow **out);
/* Returns 0 if the caller may free all memory, or -ETIMEDOUT like aio_queue_close. Accepts
 * NULL. */
int store_flow_close(struct store_flow *flow);

/* Returns a stream's checksums, block after block: filled by a flow that writes, compared by a flow
 * that reads. NULL: no file. */
uint64_t *store_flow_sums(struct store_flow *flow, enum store_stream stream);

/* Begins to move elements [first, first + count) of a block. `first` is a multiple of 64 Ki, and so
 * is the end, unless it is the block's end. Waits if STORE_FLOW_PIECES are in flight. Until
 * store_flow_wait has returned 0 for a later store_flow_tail, `arrays` must not be changed, nor
 * used if they are read into. An error (-EBADMSG with file and elements if a checksum differs) ends
 * the flow: later calls return the same error, and nothing is in flight unless a drive does not
 * respond. */
int store_flow_begin(struct store_flow *flow, uint32_t block, uint64_t first, uint64_t count,
                     const struct store_arrays *arrays);
/* Returns the point after all pieces begun so far. */
uint64_t store_flow_tail(const struct store_flow *flow);
/* Waits for all pieces before a point. */
int store_flow_wait(struct store_flow *flow, uint64_t point);
/* Returns the descriptor of a stream's file; -1: no file is open for direct I/O. */
int store_flow_direct_file(const struct store_flow *flow, enum store_stream stream);

/* One byte per cut, block after block. OWN: the cut must be read back. OTHER: another process reads
 * the cut back. */
enum { STORE_MARK_OWN = 1, STORE_MARK_OTHER = 2 };
struct store_marks {
    unsigned char *at[STORE_STREAM_COUNT];
};

/* Reads and verifies the cuts of a block that are marked OWN (NULL: all), using only buffers of the
 * flow. */
int store_flow_check(struct store_flow *flow, uint32_t block, const struct store_marks *marks);

/* Waits for all pieces, and makes them durable. */
int store_flow_sync(struct store_flow *flow);
/* After a sync: turns a flow that writes into one that reads the same files from the drive. */
void store_flow_turn(struct store_flow *flow);

#endif
