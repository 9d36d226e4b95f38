/* remote.h: the first process's calls of other processes' ranks, and their replies. The first
 * process decides everything; the others execute its calls in run_follow(). All processes are the
 * same build (coll/peers.h), so structs are sent byte by byte. In the first process the
 * application's thread calls, in the others the thread of run_follow(). */
#ifndef OFFLOAD_RUN_REMOTE_H
#define OFFLOAD_RUN_REMOTE_H

#include "core/base/err.h"
#include "offload/model/batch.h"
#include "offload/run/checkpoint.h"
#include "offload/run/rank.h"
#include "offload/run/rates.h"

struct coll_peers;

enum run_call {
    /* calls below RUN_CALL_RANKS go to all ranks at once: run_engine_call_ranks */
    RUN_CALL_LOAD,
    RUN_CALL_STEP,
    RUN_CALL_EVALUATE,
    RUN_CALL_LOGITS,
    RUN_CALL_DRAIN,
    RUN_CALL_QUIESCE,
    RUN_CALL_RELEASE,
    RUN_CALL_RANKS,                   /* the number of calls above */
    RUN_CALL_CREATE = RUN_CALL_RANKS, /* run_remote_create */
    RUN_CALL_FEED,                    /* with the number of micro-batches; each follows */
    RUN_CALL_WEIGHTS,                 /* with a block; pieces precede the reply */
    RUN_CALL_MASTERS,                 /* with a block; pieces of its masters, as floats, precede the
                                       * reply */
    /* pieces with the rank's checksums of the base precede the reply */
    RUN_CALL_SUMS,
    RUN_CALL_SAVE,       /* with struct run_remote_save */
    RUN_CALL_SAVE_BLOCK, /* with a block; pieces of checksums precede the reply */
    RUN_CALL_SAVE_SUMS,  /* with a block; a piece with all its checksums follows */
    RUN_CALL_SAVE_END,   /* with a uint32_t: 1 seals written data, 0 drops it */
    RUN_CALL_SAVE_PUBLISH,
    RUN_CALL_SAVE_ROTATE,
    RUN_CALL_PART, /* with a checkpoint's folder; the checkpoint stays open until the ranks load */
    RUN_CALL_PART_BEGIN, /* with struct store_part, a directory and a manifest */
    RUN_CALL_PART_GIVE,  /* with struct run_part_move (parts.h), like the next call */
    RUN_CALL_PART_TAKE,
    RUN_CALL_DESTROY,
    RUN_CALL_MEASURE, /* with struct run_remote_measure; needs no rank */
    RUN_CALL_END,     /* with the exit code; has no reply */
};

struct run_reply {
    int32_t code; /* 0 or -errno, with its message */
    char message[CORE_ERR_MESSAGE_BYTES];
    uint64_t plan_hash;     /* CREATE, like the next two members */
    uint64_t blocks_hash;   /* of the model: names, shapes, frozen parts */
    uint64_t weights_hash;  /* of some weights in the model's files (model_files_sample) */
    uint64_t sums_hash;     /* LOAD and PART: of all checksums of the checkpoint; 0: none was
                             * read */
    struct store_part part; /* PART: what the files have */
    int64_t targets;        /* FEED */
    struct run_result result;
    struct kern_loss loss;
    struct plan_traffic traffic;
    struct run_moved moved;
    uint64_t used_bytes, peak_bytes; /* memory of the process */
};

/* ---- the first process ---- */

/* Begins a call of a rank's process; run_remote_reply ends it. An error ends the world. */
int run_remote_call(struct coll_peers *peers, uint32_t rank, enum run_call call,
                    const void *arguments, size_t bytes);
/* Begins RUN_CALL_FEED, and sends the micro-batches. */
int run_remote_feed(struct coll_peers *peers, uint32_t rank, const struct model_batch *batches,
                    uint32_t count);
/* Waits for the reply. Returns its error, or the error that ended the world. */
int run_remote_reply(struct coll_peers *peers, uint32_t rank, struct run_reply *out);

enum { RUN_PIECE_BYTES = 8 << 20 };

typedef int run_take_piece(void *context, uint64_t first, uint64_t count,
                           const struct store_arrays *arrays);

/* Receives the pieces before a reply, passes them to `take`, and receives the reply. `memory` has
 * RUN_PIECE_BYTES. After an error of `take` the other pieces are dropped. */
int run_remote_pieces(struct coll_peers *peers, uint32_t rank, void *memory, run_take_piece *take,
                      void *context);

/* A folder and the application's bytes follow the struct. */
struct run_remote_save {
    uint32_t leads; /* 1: first process of a machine with its own part */
    uint32_t keep;
    struct store_part part;
    struct run_position position;
    uint64_t application_bytes;
};
/* Begins RUN_CALL_SAVE. `folder` is the directory for a leader's part, or the checkpoint into which
 * other processes write. */
int run_remote_save(struct coll_peers *peers, uint32_t rank, const struct run_remote_save *save,
                    const char *folder, const void *application);
/* Begins RUN_CALL_SAVE_SUMS with a whole block's checksums. */
int run_remote_sums(struct coll_peers *peers, uint32_t rank, void *memory, uint32_t block,
                    const struct store_arrays *sums, uint64_t elements);

struct run_remote_job {
    const struct run_options *options;
    const struct run_rates *rates;
    const double *drive_bytes; /* [STORE_PATHS_MAX] */
    uint64_t run;
    const char *model; /* folder */
    const struct model_options *model_options;
    const char *adapter;    /* PEFT folder with the adapters' options; NULL: none */
    const char *checkpoint; /* NULL: none */
};
int run_remote_create(struct coll_peers *peers, uint32_t rank, const struct run_remote_job *job);

/* What is measured: collectives of arrays of `bytes`, and gathers within groups of `within` ranks
 * (0: none). */
struct run_remote_measure {
    uint64_t bytes;
    uint32_t within;
};
/* Measures coll_bytes and within_bytes between all processes. with->bytes is the largest size of
 * arrays; on return, the last measurement's. */
int run_remote_measure(struct coll_peers *peers, struct run_remote_measure *with,
                       struct plan_rates *out);

/* ---- the other processes ---- */

/* Receives the next call, with its arguments in `memory` of RUN_PIECE_BYTES. */
int run_remote_next(struct coll_peers *peers, void *memory, enum run_call *call, size_t *bytes);
int run_remote_answer(struct coll_peers *peers, const struct run_reply *reply);
/* Receives a micro-batch into `memory`. If four arrays of its ids exceed `room` bytes, drops the
 * arrays and sets `ids` to NULL; the other pointers are then invalid. */
int run_remote_batch(struct coll_peers *peers, void *memory, size_t room, struct model_batch *out);
/* Sends a range of streams in pieces. `count` 0: sends the empty piece that ends a series. */
int run_remote_send_range(struct coll_peers *peers, void *memory, const struct plan_format *format,
                          const struct store_arrays *arrays, uint64_t first, uint64_t count);
/* Sends a range's checksums, one for each cut of each stream. */
int run_remote_send_sums(struct coll_peers *peers, void *memory, const struct store_arrays *sums,
                         uint64_t first, uint64_t count);
/* Receives a whole block's checksums; `sums` points into `memory`. */
int run_remote_receive_sums(struct coll_peers *peers, void *memory, struct store_arrays *sums);
enum { RUN_NAMES_MAX = 1024 };

struct run_remote_made {
    struct run_options options; /* strings are in the memory of run_remote_read_job() */
    struct run_rates rates;
    double drive_bytes[STORE_PATHS_MAX];
    uint64_t run;
    const char *model;
    /* frozen, targets and modules to save; the next two members point here */
    const char *names[RUN_NAMES_MAX];
    struct model_options model_options;
    struct model_lora_options lora;
    const char *adapter;
    const char *checkpoint;
};

/* Reads the arguments of CREATE. *out points into `memory` and into itself, so neither may move. */
int run_remote_read_job(void *memory, size_t bytes, struct run_remote_made *out);

/* Serves the first process until RUN_CALL_END, and sets *code to its exit code. Returns 0, or the
 * error that ended the world. */
int run_follow(struct coll_peers *peers, int *code);

#endif
