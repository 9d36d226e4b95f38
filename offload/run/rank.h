/* rank.h: one rank: its device, memory, store, queues and executor. Loads weights, takes steps,
 * evaluates, and hands out weights and states. One thread at a time calls; lanes have their own
 * threads. */
#ifndef OFFLOAD_RUN_RANK_H
#define OFFLOAD_RUN_RANK_H

#include "offload/model/files.h"
#include "offload/run/executor.h"
#include "offload/run/inputs.h"
#include "offload/run/lane_update.h"
#include "offload/run/memory.h"
#include "offload/run/shapes.h"
#include "offload/store/checkpoint.h"

struct coll_meeting;
struct coll_peers;
struct run_checkpoint_writer;
struct run_rank;

/* An application that computes on its own weights and gradients. Its tapes have only lanes of the
 * update and the store. */
struct run_application {
    const struct blocks *blocks;
    const struct run_lent *lent;
    /* settings, one group per parameter; each step replaces them */
    const struct adam_group *groups;
    uint32_t group_count;
    /* commands of the longest tape; the application makes the tapes */
    uint32_t commands_max;
    /* Called on the update's thread when a block's weights were updated. */
    void (*updated)(void *user, uint32_t block);
    /* Called on the update's thread: sums the squares over all processes, from this process's
     * tiles. NULL: no other process. */
    int (*total)(void *user, const double *tiles, double *squares);
    void *user;
};

struct run_rank_options {
    const struct run_options *options; /* borrowed, like all pointers here */
    const struct run_shapes *shapes;
    const struct run_application *application; /* NULL: the device computes */
    const struct plan_input *input;
    const struct plan *plan;
    struct run_checkpoint_writer *writer; /* NULL: updates write no checkpoints */
    /* where ranks of this process meet; NULL: it has only one */
    struct coll_meeting *meeting;
    /* the processes of all ranks; NULL: only this process */
    struct coll_peers *peers;
    uint64_t run;      /* distinguishes runs */
    const char *trace; /* file for a timeline of a few steps; NULL: none */
    /* Called repeatedly by create and load; a result other than 0 ends them with that error. May be
     * NULL. */
    int (*progress)(void *user, const char *phase, uint64_t done, uint64_t total);
    void *user;
};

/* Returns a rank's DEVICE bytes besides the plan's buffers. */
uint64_t run_rank_device_bytes(const struct run_shapes *shapes, const struct run_options *options);

/* Returns a number that distinguishes a run from others on this machine. The address of `owner`, an
 * object of the run, distinguishes runs of one process. */
uint64_t run_rank_number(const void *owner);

int run_rank_create(const struct run_rank_options *options, struct run_rank **out);
/* Accepts NULL. Returns false if a lane did not end its command; what the rank was given must then
 * stay, because the lane's thread may still use it. Always true for an application's rank, which
 * waits for its lanes without a limit. */
bool run_rank_destroy(struct run_rank *rank);
/* Writes the options' timeline, if any, once. Call it after a drain; destroy calls it, too. */
int run_rank_trace(struct run_rank *rank);

/* Returns a counter that grows with the rank's progress. Any thread may call. */
uint64_t run_rank_pulse(const struct run_rank *rank);

/* Ends other ranks' waits for this one with `code` and this thread's message. Any thread may
 * call. */
void run_rank_abort(struct run_rank *rank, int code);

/* Loads weights from the files, and makes initial states. Call model_files_check first. Adds
 * checksums of frozen blocks to `sums`, unless that is NULL; if all ranks read whole blocks, only
 * the first rank does. */
int run_rank_load(struct run_rank *rank, const struct model_files *files, struct model_sums *sums);
/* Loads a checkpoint of the same model and formats, with any placement and number of ranks. Frozen
 * blocks that the checkpoint lacks (blocks.h) or that are kept in fewer bits come from the
 * files. */
int run_rank_resume(struct run_rank *rank, struct store_checkpoint *checkpoint,
                    const struct model_files *files, struct model_sums *sums);
/* Makes the initial states for an application's weights. */
int run_rank_load_application(struct run_rank *rank);
/* Closes the checkpoint of run_rank_resume, unless its bytes are still used. */
int run_rank_release_checkpoint(struct run_rank *rank);
uint64_t run_rank_updates(const struct run_rank *rank);
/* Describes the library of a GPU's matrix products: "cuBLASLt 130002, driver 13000, NVIDIA H200";
 * NULL on the CPU. Valid until destroy. */
const char *run_rank_products(const struct run_rank *rank);

struct run_step_request {
    double lr;
    double betas[2];
    double loss_scale;
    int64_t targets; /* of all ranks: tokens or pairs */
    uint64_t seed;
    bool guess; /* update before the norm is known, if the plan has a tape for that */
};

struct run_result {
    struct kern_loss loss;
    double norm; /* of the whole gradient, before clipping */
    bool skipped;
    bool norm_neutral;    /* the norm neither clipped nor skipped the update */
    bool guessed;         /* updated before the norm was known; right if norm_neutral */
    bool steady;          /* followed another step directly, and saved nothing */
    uint64_t guess_bytes; /* bytes moved for a wrong guess */
    int64_t wait_ns;      /* for other ranks; set by the engine */
};

/* Copies micro-batch `index` of the `count` of the next step on this rank, and adds its targets to
 * *targets. Call it for each in order. A rank without any calls it once with 0, 0 and NULL, and
 * computes one micro-batch of padding. */
int run_rank_feed(struct run_rank *rank, uint32_t index, uint32_t count,
                  const struct model_batch *batch, int64_t *targets);
int run_rank_step(struct run_rank *rank, const struct run_step_request *order,
                  struct run_result *out);
/* Returns -EINVAL if a batch cannot be evaluated. */
int run_rank_check(struct run_rank *rank, const struct model_batch *batch);
/* Drains, then computes a micro-batch's loss. `batch` NULL: takes part for another rank. */
int run_rank_evaluate(struct run_rank *rank, const struct model_batch *batch,
                      struct kern_loss *out);
/* Drains, then computes the fp32 logits [vocab] of the token after `ids` [length], at most a row's
 * length. `ids` NULL: takes part for another rank. */
int run_rank_logits(struct run_rank *rank, const int32_t *ids, int64_t length, float *out);
/* Does the pending update, and waits until no work is left. */
int run_rank_drain(struct run_rank *rank);

/* Waits for all work that has begun. Does not begin the pending update. */
int run_rank_quiesce(struct run_rank *rank);

/* ---- updates that are written to the open checkpoint ---- */

/* False: an earlier rank writes the same states. */
bool run_rank_writes_states(const struct run_rank *rank);
/* Returns whether a step's update, or a part of it, runs inside the step. */
bool run_rank_updates_inside(const struct run_rank *rank);
/* Returns whether the pending update is a whole step's, and can be written to a checkpoint. */
bool run_rank_can_save(const struct run_rank *rank);
/* Writes the pending update to the checkpoint, with the next step or drain. */
void run_rank_save_pending(struct run_rank *rank);
/* Writes the next step's update to the checkpoint: the part inside the step at once, the pending
 * part with the step or drain after it. */
void run_rank_save_next(struct run_rank *rank);
/* Returns whether the step after run_rank_save_next wrote its update to the checkpoint or left it
 * pending. A skipped step has no update. */
bool run_rank_saved_step(const struct run_rank *rank);
/* Returns whether the pending update must still be written to the checkpoint. */
bool run_rank_save_due(const struct run_rank *rank);
/* Cancels run_rank_save_pending and run_rank_save_next. */
void run_rank_save_forget(struct run_rank *rank);

typedef int run_take_weights(void *context, uint64_t first, uint64_t count, const void *weights);
/* Passes this rank's part of a block's working weights to `take`, in pieces and in order. Call it
 * after a drain. */
int run_rank_weights(struct run_rank *rank, uint32_t block, run_take_weights *take, void *context);

struct run_take_states {
    int (*take)(void *context, const struct adam_arrays *arrays);
    /* NULL if take() is done with the arrays on return. Otherwise `tail` returns the point after
     * the last arrays, and `wait` waits until the arrays before a point are free. */
    uint64_t (*tail)(void *context);
    int (*wait)(void *context, uint64_t point);
    void *context;
};
/* Reads out a trained block's states. After a failure the taker may still use arrays. */
int run_rank_states(struct run_rank *rank, uint32_t block, const struct run_take_states *taker);

struct run_stats run_rank_stats_take(struct run_rank *rank);
struct plan_traffic run_rank_traffic_take(struct run_rank *rank);
struct run_moved {
    struct store_moved paths[STORE_PATHS_MAX];
};

/* Sets *out to the bytes that the store's drives moved since the last call, by path. */
void run_rank_moved_take(struct run_rank *rank, struct run_moved *out);

#endif
