/* drive_internal.h: the state of a drive, for channel.c, piece.c, drive.c and queue.c only. A queue
 * writes a drive_request into its channel on a drive; the drive's thread cuts requests into pieces
 * and passes these to the back end. Completions go back the same way; the only call from a channel
 * into its queue is `done`. Calls between the files go one way: queue.c -> drive.c -> piece.c ->
 * channel.c. */
#ifndef AIO_DRIVE_INTERNAL_H
#define AIO_DRIVE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "aio/backend.h"
#include "aio/stats.h"
#include "aio/sums.h"
#include "core/base/bell.h"
#include "core/base/cpus.h"
#include "core/base/err.h"

struct aio_drive;
struct core_log;

enum { NAME_BYTES = 256, NONE = -1, AIO_CHANNELS_MAX = 16 };

/* One range of a queue's request: contiguous bytes of one file of this drive. */
struct drive_request {
    enum aio_kind kind;
    uint32_t file;
    uint64_t offset;
    unsigned char *memory; /* borrowed from the submitter until the request is finished */
    uint64_t bytes;
    struct aio_sums sums;
    uint64_t value; /* value of the queue's request on the queue's line */
    uint64_t left;  /* number of unfinished pieces, plus one until the last piece is cut */
    /* all pieces have finished; `head` moves past the request once all earlier ones are finished,
     * too */
    bool finished;
};

struct drive_call;

/* A queue's ring of requests on one drive. The submitter writes a request, then `tail`. The drive
 * cuts requests into pieces, finishes them, then advances `head`. The other members belong to the
 * drive's thread. */
struct channel {
    /* With rc 0, one range of request `value` is finished. With rc < 0, the queue fails with rc and
     * this thread's error message; `done` with rc 0 still follows for each unfinished range. */
    void (*done)(void *user, uint64_t value, int rc);
    void *user;
    const _Atomic bool *failed;     /* borrowed: the queue has failed, on this drive or another */
    struct drive_request *requests; /* owned by the queue, [mask + 1] */
    uint64_t mask;
    uint64_t cut;       /* index of the request that is being cut */
    uint64_t cut_bytes; /* bytes of this request that are already cut */
    uint64_t in_flight; /* pieces that are cut and not finished */
    uint64_t pass;      /* stride scheduling: bytes served, divided by the weight */
    uint64_t weight;
    int64_t retry_ns; /* nothing is cut before this time, because a piece waits to be repeated */
    bool closing;
    struct drive_call *closer; /* borrowed: the call that waits until the channel is empty */
    int64_t closing_ns;        /* when closing began, by the clock of the limits */
    /* The submitter stores `tail` and the drive loads it; the drive stores `head` and the submitter
     * loads it. Stores release and loads acquire, or are stronger. */
    _Alignas(64) _Atomic uint64_t tail;
    _Alignas(64) _Atomic uint64_t head;
};

/* FREE: unused. READY: to be submitted. IN_FLIGHT: passed to the back end. DONE: read and not yet
 * verified. */
enum piece_state { PIECE_FREE, PIECE_READY, PIECE_IN_FLIGHT, PIECE_DONE };

/* One transfer: at most block_bytes of a range (with checksums: rounded up to whole units). */
struct io_piece {
    enum piece_state state;
    uint32_t generation; /* counts submissions, so that a late completion matches no piece */
    int32_t next;        /* in the list of its state */
    struct channel *channel;
    uint64_t request; /* index in the channel */
    uint64_t within;  /* offset of the piece in the request */
    uint32_t bytes;
    uint32_t moved;
    uint32_t retries, repeats, rereads;
    bool warned;
    int64_t retry_ns;     /* READY: the piece is not submitted before this time */
    int64_t start_ns;     /* when the piece was cut */
    int64_t start_ran_ns; /* when the piece was cut, by the clock of the limits */
};

struct piece_list {
    int32_t first, last;
};

struct attached_file {
    int fd; /* borrowed */
    uint64_t size_bytes;
    bool direct;
    _Atomic bool used; /* released after the other fields are written; pairs with the submitters'
                        * acquire */
    char name[NAME_BYTES];
};

/* A function that the drive's thread runs for another thread. */
struct drive_call {
    /* -EINPROGRESS: the call is answered later */
    int (*run)(struct aio_drive *drive, struct drive_call *self);
    void *argument; /* borrowed from the caller */
    struct core_err result;
    _Atomic bool answered;
};

struct aio_drive {
    char name[NAME_BYTES];
    char description[NAME_BYTES];
    struct core_cpus cpus;
    uint32_t depth;
    uint32_t block_bytes;
    int64_t warn_ns, limit_ns;
    int64_t (*clock_ns)(void *user); /* NULL: the clocks of clock.h */
    void *clock_user;
    bool iopoll;
    const struct aio_backend *backend;
    void *state; /* owned: the state of the back end */

    struct channel *channels[AIO_CHANNELS_MAX]; /* borrowed from their queues */
    unsigned channels_count;                    /* places in use, from the front */
    uint64_t pass;                              /* pass of the channel that was served last */
    struct io_piece *pieces;                    /* owned, [pieces_count] */
    uint32_t pieces_count;
    struct piece_list unused, ready, done;
    uint32_t in_flight;
    bool batch_expired;     /* the last wait for completions brought none */
    uint32_t failing_calls; /* failures of submit or reap in a row */
    int64_t now_ns;         /* the clock when it was last read */
    int64_t ran_ns;         /* the clock of the limits at the same time */
    int64_t watched_ns;     /* time of the last check for late pieces */
    int64_t submit_ns;      /* no submit before this time, because the last one failed */
    int64_t reap_ns;        /* no reap before this time, because the last one failed */
    bool dead;              /* stalled or broken: nothing is submitted any more */
    bool ending;

    struct attached_file files[AIO_FILES_MAX];
    struct iovec *slabs; /* owned: registered memory, in order of address */
    unsigned slabs_count;

    pthread_t thread;
    bool started;
    const struct core_log *log; /* borrowed from the creating thread's binding */
    pthread_mutex_t calling;    /* allows one call at a time; never taken by the drive's thread */
    _Atomic(struct drive_call *) call;
    struct core_bell bell; /* rung for new requests and calls */
    /* 0: the drive's thread is not waiting in the back end; else what wakes it: WAKE_* flags */
    _Atomic uint32_t waiting;
    struct core_bell answers;

    _Atomic uint64_t read_bytes, write_bytes, finished, short_transfers, repeats, retries, errors,
        mismatches, unknown_completions, stalls, waits, hashed_bytes, registered_bytes;
    _Atomic uint64_t latency[2][AIO_LATENCY_BUCKETS];
};

enum { WAKE_FOR_CALL = 1, WAKE_FOR_REQUESTS = 2 };

static inline struct drive_request *aio_request_of(const struct io_piece *piece)
{
    return &piece->channel->requests[piece->request & piece->channel->mask];
}

/* Adds to a count that only the drive's thread writes. */
static inline void count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* ---- channel.c: the drive's thread ---- */

bool aio_channel_failed(const struct channel *channel);
/* Fails the channel's queue with this thread's error message. `value` is the failed request; 0: no
 * single request failed. */
void aio_channel_fail(struct channel *channel, uint64_t value, int rc);
/* Returns the channel that the next piece is cut from; NULL if there is nothing to cut. Drops the
 * uncut requests of channels that are closing or whose queue has failed. */
struct channel *aio_channel_pick(struct aio_drive *drive);
/* Cuts the next piece of a channel, which comes from aio_channel_pick. */
void aio_channel_cut(struct aio_drive *drive, struct channel *channel, struct io_piece *piece);
/* Counts a piece of request `index` as finished; after its last piece, finishes the request. */
void aio_channel_finish(struct channel *channel, uint64_t index);
/* Drops the part of the requests that is not cut yet. The channel is closing, or its queue has
 * failed. */
void aio_channel_drop(struct channel *channel);

/* ---- piece.c: the drive's thread ---- */

int aio_pieces_create(struct aio_drive *drive);
/* Submits pieces while the drive has depth for them. Returns 0, or -errno of submit. */
int aio_pieces_submit(struct aio_drive *drive);
/* Returns when the next piece can be submitted. A time at or before drive->now_ns means now;
 * INT64_MAX: none is waiting. */
int64_t aio_pieces_due(struct aio_drive *drive);
void aio_pieces_complete(struct aio_drive *drive, const struct aio_event *event);
/* Verifies up to `max` pieces that were read. */
void aio_pieces_verify(struct aio_drive *drive, unsigned max);
/* Asks the back end to cancel the channel's pieces in flight; NULL: the pieces of all channels. */
void aio_pieces_cancel(struct aio_drive *drive, const struct channel *channel);
/* Drops the pieces that wait to be repeated and whose queue has failed. */
void aio_pieces_drop(struct aio_drive *drive);
/* Warns once about each piece that is in flight warn_ns or more after it was cut. Returns
 * -ETIMEDOUT with a message if one is in flight limit_ns after it was cut. */
int aio_pieces_watch(struct aio_drive *drive);

/* ---- drive.c: any thread ---- */

/* Tells the drive that a channel has new requests. */
void aio_drive_wake(struct aio_drive *drive);
int aio_drive_open_channel(struct aio_drive *drive, struct channel *channel);
/* Fails the queue if requests are unfinished, drops those that are not submitted and waits for the
 * others. Returns -ETIMEDOUT if pieces are still in flight; the channel must not be freed then. */
int aio_drive_close_channel(struct aio_drive *drive, struct channel *channel);

#endif
