/* drive_parts.h: what the files of the drive (drive.c, drive_lane.c, drive_block.c, drive_sums.c) and
 * the queue share; nobody else includes it.
 * A lane is a queue's ring of parts on one drive. The submitter writes a part and then `tail`; the
 * drive cuts parts into blocks, finishes them and then moves `head`. All else is the drive
 * thread's. */
#ifndef AIO_DRIVE_PARTS_H
#define AIO_DRIVE_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "aio/drive.h"
#include "aio/queue.h"
#include "core/base/bell.h"
#include "core/base/err.h"

enum { NAME_BYTES = 256, NONE = -1 };

struct part {
    enum aio_kind kind;
    uint32_t file;
    uint64_t offset;
    unsigned char *memory; /* borrowed from the submitter until the request is whole */
    uint64_t bytes;
    struct aio_sums sums;
    uint64_t value; /* of the request, on the queue's line */
    uint64_t left;  /* blocks not finished; counts one more until all are cut */
    bool finished;  /* waits for those before it */
};

struct control;

struct lane {
    struct aio_queue *queue; /* borrowed */
    struct part *parts;      /* owned by the queue, [mask + 1] */
    uint64_t mask;
    uint64_t cut;       /* the part being cut */
    uint64_t cut_bytes; /* how far */
    uint64_t flying;    /* blocks between being cut and finished */
    uint64_t pass;      /* stride scheduling: bytes served, divided by the lane's weight */
    uint64_t weight;
    int64_t retry_ns; /* nothing is cut before: a block waits to be repeated */
    bool closing;
    struct control *closer; /* borrowed: who waits for the lane to be empty */
    int64_t closing_ns;     /* since when, by the limits' clock */
    /* The submitter's release of `tail` pairs with the drive's acquire, and `head` vice versa. */
    _Alignas(64) _Atomic uint64_t tail;
    _Alignas(64) _Atomic uint64_t head;
};

enum block_state { BLOCK_FREE, BLOCK_READY, BLOCK_FLYING, BLOCK_DONE };

/* A piece of a part on its way. */
struct block {
    enum block_state state;
    uint32_t generation; /* one more each flight, so that late answers hit nothing */
    int32_t next;        /* in the list that its state names */
    struct lane *lane;
    uint64_t part;   /* index in the lane */
    uint64_t within; /* bytes of the part before it */
    uint32_t bytes;
    uint32_t moved;
    uint32_t retries, repeats, rereads;
    bool warned;
    int64_t retry_ns;     /* READY: not handed on before */
    int64_t start_ns;     /* of its first flight */
    int64_t start_ran_ns; /* the same, by the limits' clock */
};

struct list {
    int32_t first, last;
};

struct file {
    int fd; /* borrowed */
    uint64_t size_bytes;
    bool direct;
    _Atomic bool used; /* release after the other fields pairs with the submitters' acquire */
    char name[NAME_BYTES];
};

/* What another thread asks the drive's thread to do. */
struct control {
    int (*run)(struct aio_drive *drive, struct control *self); /* -EINPROGRESS: answered later */
    void *argument;                                            /* borrowed from the asker */
    struct core_err result;
    _Atomic bool answered;
};

struct aio_drive {
    char name[NAME_BYTES];
    char description[NAME_BYTES];
    struct aio_drive_options options;
    struct core_cpus cpus;
    uint32_t depth;
    uint32_t block_bytes;
    const struct aio_backend *backend;
    void *state; /* owned: the back end's */

    struct lane *lanes[AIO_DRIVE_QUEUES_MAX]; /* borrowed from their queues */
    unsigned lanes_count;                     /* places in use, from the front */
    uint64_t pass;                            /* of the lane served last */
    struct block *blocks;                     /* owned, [blocks_count] */
    uint32_t blocks_count;
    struct list unused, ready, done;
    uint32_t flying;
    uint32_t failing_calls; /* submit or reap, in a row */
    int64_t now_ns;         /* the clock, read once a round */
    int64_t ran_ns;         /* the limits' clock, the same */
    int64_t looked_ns;      /* when the watchdog last looked */
    int64_t submit_ns;      /* nothing is submitted before: submit has failed */
    int64_t reap_ns;        /* nothing is collected before: reap has failed */
    bool dead;              /* stalled or broken: nothing is submitted any more */
    bool ending;

    struct file files[AIO_FILES_MAX];
    struct iovec *slabs; /* owned, registered, in order of address */
    unsigned slabs_count;

    pthread_t thread;
    bool started;
    const struct core_log *log; /* borrowed from the creating thread's binding */
    pthread_mutex_t asking;     /* one control at a time; never taken by the drive's thread */
    _Atomic(struct control *) control;
    struct core_bell bell;    /* rung for new parts and controls */
    _Atomic uint32_t waiting; /* 0: not in the back end; else what has to wake it, WAKE_* */
    struct core_bell answers;

    _Atomic uint64_t read_bytes, write_bytes, finished, shorts, repeats, retries, errors,
        mismatches, strangers, stalls, waits, hashed_bytes, registered_bytes;
    _Atomic uint64_t latency[2][AIO_LATENCY_BUCKETS];
};

static inline struct part *aio_part_of(const struct block *block)
{
    return &block->lane->parts[block->part & block->lane->mask];
}

enum { WAKE_FOR_CONTROL = 1, WAKE_FOR_PARTS = 2 };

/* Adds to a count that only the drive's thread writes. */
static inline void count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* drive.c: any thread. Tells the drive that a lane has new parts. */
void aio_drive_ring(struct aio_drive *drive);
/* drive.c: any thread. Lets the drive's thread run something; 0 or -errno with the sentence. */
int aio_drive_ask(struct aio_drive *drive, int (*run)(struct aio_drive *, struct control *),
                  void *argument);
/* drive.c: ends all queues with this thread's sentence. */
void aio_drive_die(struct aio_drive *drive, int code);

/* drive_lane.c: which queue goes next. */
/* The lane that the next block is cut from; NULL: nothing to cut. */
struct lane *aio_lane_pick(struct aio_drive *drive);
/* Cuts one block off; the lane comes from aio_lane_pick. */
void aio_lane_cut(struct aio_drive *drive, struct lane *lane, struct block *block);
/* One block, or the rest of a dropped part, is through. */
void aio_lane_finish(struct lane *lane, uint64_t part);
/* Drops what was not cut, of a lane whose queue has failed. */
void aio_lane_drop(struct lane *lane);
/* Controls for aio_drive_ask; the argument is the lane. Closing ends when nothing flies. */
int aio_lane_open(struct aio_drive *drive, struct control *self);
int aio_lane_close(struct aio_drive *drive, struct control *self);

/* drive_sums.c: the checksums of a block of a part that has them. */
/* Of what its memory holds now, before it is written. */
void aio_sums_take(struct aio_drive *drive, const struct block *block);
/* The part's first sum that does not match, with what was found; NONE if all do. */
int64_t aio_sums_check(struct aio_drive *drive, const struct block *block, uint64_t *found);

/* drive_block.c: the life of a block. */
int aio_block_init(struct aio_drive *drive);
/* Hands blocks to the back end while there is room. 0, or -errno of submit. */
int aio_block_fill(struct aio_drive *drive);
/* When the next block can be handed on: at or before drive->now_ns: now; INT64_MAX: no block waits. */
int64_t aio_block_due(struct aio_drive *drive);
void aio_block_event(struct aio_drive *drive, const struct aio_event *event);
/* Hashes and finishes up to `max` blocks that wait for it. */
void aio_block_verify(struct aio_drive *drive, unsigned max);
void aio_block_cancel(struct aio_drive *drive, const struct lane *lane);
/* Drops what waits to go again, of queues that have failed. */
void aio_block_sweep(struct aio_drive *drive);

/* drive_late.c: how long blocks take. */
const char *aio_kind_name(enum aio_kind kind);
/* Where a latency is counted. */
unsigned aio_latency_bucket(uint64_t ns);
/* Reports what is late; kills the drive beyond the limit. */
void aio_block_watch(struct aio_drive *drive);

/* queue.c: the drive's side. */
void aio_queue_part_done(struct aio_queue *queue, uint64_t value);
void aio_queue_fail(struct aio_queue *queue, int code, const char *sentence);
bool aio_queue_failed(const struct aio_queue *queue);

#endif
