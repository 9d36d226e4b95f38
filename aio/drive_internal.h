/* drive_internal.h: the state of a drive, for channel.c, piece.c, drive.c and queue.c only.
 * A queue writes a drive_request into its channel on a drive; the drive's thread cuts requests into
 * pieces for the back end. The only call from a channel into its queue is `done`. Each file calls
 * only files to its right: queue.c, drive.c, piece.c, channel.c. */
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

/* Contiguous bytes of one file, a range of a queue's request. */
struct drive_request {
    enum aio_kind kind;
    uint32_t file;
    uint64_t offset;
    unsigned char *memory; /* borrowed until the request is finished */
    uint64_t bytes;
    struct aio_sums sums;
    uint64_t value; /* of the queue's request on the queue's line */
    uint64_t left;  /* unfinished pieces, plus one until nothing is left to cut */
    /* `head` passes the request once earlier ones are finished, too */
    bool finished;
};

struct drive_call;

/* A queue's ring of requests on one drive. The submitter writes a request, then `tail`. The drive
 * finishes requests, then advances `head`. Once the channel is open, only the drive's thread writes
 * the other members. */
struct channel {
    /* rc 0: one range of request `value` is finished. rc < 0: the queue fails with rc and this
     * thread's error message; rc 0 still follows for unfinished ranges. */
    void (*done)(void *user, uint64_t value, int rc);
    void *user;
    const _Atomic bool *failed;     /* borrowed: the queue has failed, perhaps on another drive */
    struct drive_request *requests; /* owned by the queue, [mask + 1] */
    uint64_t mask;
    uint64_t cut;       /* index of the next request to cut from */
    uint64_t cut_bytes; /* bytes of this request already cut */
    uint64_t in_flight; /* pieces cut and not finished */
    uint64_t pass;      /* grows by bytes served / weight; raised to the drive's after idleness */
    uint64_t weight;
    int64_t retry_ns; /* nothing is cut before this time: a piece waits */
    bool closing;
    struct drive_call *closer; /* borrowed: the call that closes the channel */
    int64_t closing_ns;        /* start of closing, by the clock of the limits */
    _Alignas(64) _Atomic uint64_t tail;
    _Alignas(64) _Atomic uint64_t head;
};

/* READY: to be submitted. DONE: read and not yet verified. */
enum piece_state { PIECE_FREE, PIECE_READY, PIECE_IN_FLIGHT, PIECE_DONE };

/* One transfer of at most block_bytes (with checksums: rounded up to whole units). */
struct io_piece {
    enum piece_state state;
    uint32_t generation; /* new at each submission: tells stale completions apart */
    int32_t next;        /* in the list of its state */
    struct channel *channel;
    uint64_t request; /* index in the channel */
    uint64_t within;  /* offset in the request */
    uint32_t bytes;
    uint32_t moved;
    uint32_t retries, repeats, rereads;
    bool warned;
    int64_t retry_ns; /* READY: not submitted before this time */
    int64_t start_ns;
    int64_t start_ran_ns; /* when it was cut, by the clock of the limits */
};

struct piece_list {
    int32_t first, last;
};

struct attached_file {
    int fd; /* borrowed */
    uint64_t size_bytes;
    bool direct;
    _Atomic bool used; /* released after the other fields are written */
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
    void *state; /* owned: the back end's state */

    struct channel *channels[AIO_CHANNELS_MAX]; /* borrowed from their queues */
    unsigned channels_count;
    uint64_t pass;           /* of the channel served last */
    struct io_piece *pieces; /* owned, [pieces_count] */
    uint32_t pieces_count;
    struct piece_list unused, ready, done;
    uint32_t in_flight;
    bool batch_expired;     /* the last wait brought no completion */
    uint32_t failing_calls; /* failures of submit or reap in a row */
    int64_t now_ns;         /* the clock when it was last read */
    int64_t ran_ns;         /* the clock of the limits at now_ns */
    int64_t watched_ns;     /* of the last check for late pieces */
    int64_t submit_ns;      /* no submit before this time: the last one failed */
    int64_t reap_ns;        /* no reap before this time: the last one failed */
    bool dead;              /* stalled or broken: no more submission */
    bool ending;

    struct attached_file files[AIO_FILES_MAX];
    struct iovec *slabs; /* owned: registered memory, in order of address */
    unsigned slabs_count;

    pthread_t thread;
    bool started;
    const struct core_log *log; /* borrowed from the creating thread */
    pthread_mutex_t calling;    /* one call at a time; not taken by the drive's thread */
    _Atomic(struct drive_call *) call;
    struct core_bell bell; /* rung for new requests and calls */
    /* what wakes the drive's thread in the back end (WAKE_* flags); 0: it is not waiting */
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

static inline void count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* ---- channel.c: the drive's thread ---- */

bool aio_channel_failed(const struct channel *channel);
/* Fails the channel's queue with this thread's error message. `value`: the failed request, or 0. */
void aio_channel_fail(struct channel *channel, uint64_t value, int rc);
/* Returns the channel to cut from; NULL if there is nothing to cut. Drops uncut requests of closing
 * channels and failed queues. */
struct channel *aio_channel_pick(struct aio_drive *drive);
/* `channel` comes from aio_channel_pick. */
void aio_channel_cut(struct aio_drive *drive, struct channel *channel, struct io_piece *piece);
/* Counts a piece of request `index` as finished, and finishes the request after its last piece. */
void aio_channel_finish(struct channel *channel, uint64_t index);
void aio_channel_drop(struct channel *channel);

/* ---- piece.c: the drive's thread ---- */

int aio_pieces_create(struct aio_drive *drive);
/* Submits pieces up to the drive's depth. */
int aio_pieces_submit(struct aio_drive *drive);
/* Returns when the next piece can be submitted, perhaps in the past; INT64_MAX: none is waiting. */
int64_t aio_pieces_due(struct aio_drive *drive);
void aio_pieces_complete(struct aio_drive *drive, const struct aio_event *event);
void aio_pieces_verify(struct aio_drive *drive, unsigned max);
/* Asks the back end to cancel the channel's pieces in flight (NULL: of all channels). */
void aio_pieces_cancel(struct aio_drive *drive, const struct channel *channel);
/* Drops waiting pieces whose queue has failed. */
void aio_pieces_drop(struct aio_drive *drive);
/* Warns once about a piece in flight after warn_ns. Returns -ETIMEDOUT with a message after
 * limit_ns. */
int aio_pieces_watch(struct aio_drive *drive);

/* ---- drive.c: any thread ---- */

void aio_drive_wake(struct aio_drive *drive);
int aio_drive_open_channel(struct aio_drive *drive, struct channel *channel);
/* Fails the queue if requests are unfinished, drops unsubmitted ones and waits for the others.
 * Returns -ETIMEDOUT if pieces stay in flight; the channel must not be freed then. */
int aio_drive_close_channel(struct aio_drive *drive, struct channel *channel);

#endif
