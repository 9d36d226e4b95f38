/* checkpoint_writer.h: writes a checkpoint while the run continues. A run has one writer, with at
 * most one open checkpoint. Each rank has a lane of the writer: a queue whose thread writes the
 * chunks of the rank's tapes as updates make them. The lane that ends last finishes the checkpoint.
 * A failure ends only the checkpoint, not the run. The engine's thread calls while no rank works; a
 * rank's thread calls for its own lane. */
#ifndef OFFLOAD_RUN_CHECKPOINT_WRITER_H
#define OFFLOAD_RUN_CHECKPOINT_WRITER_H

#include "offload/run/executor.h"
#include "offload/run/lane_update.h"
#include "offload/store/checkpoint.h"

struct run_checkpoint_lane;
struct run_checkpoint_writer;

int run_checkpoint_writer_create(uint32_t ranks, struct run_checkpoint_writer **out);
/* Removes a checkpoint that is not finished. All lanes must already be destroyed. Accepts NULL. */
void run_checkpoint_writer_destroy(struct run_checkpoint_writer *writer);

/* ---- the engine's thread ---- */

/* Takes over the checkpoint of a step. No other checkpoint may be open. */
void run_checkpoint_writer_open(struct run_checkpoint_writer *writer,
                                struct store_checkpoint_write *checkpoint, uint64_t step);
/* Returns whether a checkpoint was opened and no run_checkpoint_writer_wait has closed it. */
bool run_checkpoint_writer_is_open(const struct run_checkpoint_writer *writer);
/* Returns whether a checkpoint of this step is open and not accepted yet. */
bool run_checkpoint_writer_awaits(const struct run_checkpoint_writer *writer, uint64_t step);
/* Accepts the open checkpoint, which is finished when all lanes have written the commands that they
 * expect. Takes over the memory of `manifest`. A checkpoint that is not accepted is removed. */
int run_checkpoint_writer_accept(struct run_checkpoint_writer *writer,
                                 struct store_manifest *manifest);
/* Waits for the work that the lanes have begun, and closes the checkpoint. Returns 0 if the
 * checkpoint is published or was not accepted. Returns -ECANCELED if it was accepted and a lane
 * never got all commands that it expects, or the first error of writing it. Returns -ETIMEDOUT if a
 * lane made no progress; the checkpoint then stays open, because that lane may still write to
 * it. */
int run_checkpoint_writer_wait(struct run_checkpoint_writer *writer);

/* ---- a rank's thread ---- */

struct run_checkpoint_lane_options {
    uint32_t rank;
    bool writes_states; /* false: an earlier rank has the same states, and writes them */
    const struct run_update *update; /* borrowed, like the next member; finds the chunk of a
                                      * command */
    struct core_bell *bell;
    int64_t stall_limit_ns; /* -ETIMEDOUT if the lane makes no progress for this long */
};

/* `writer` is borrowed. */
int run_checkpoint_lane_create(struct run_checkpoint_writer *writer,
                               const struct run_checkpoint_lane_options *options,
                               struct run_checkpoint_lane **out);
/* Waits for the commands that were submitted. Accepts NULL. */
void run_checkpoint_lane_destroy(struct run_checkpoint_lane *lane);
struct run_lane run_checkpoint_lane(struct run_checkpoint_lane *lane);
/* Announces that the next `count` WRITE commands also go to the open checkpoint; commands that are
 * not expected are ignored. */
void run_checkpoint_lane_expect(struct run_checkpoint_lane *lane, uint32_t count);
/* Returns whether a wait ended because the lane made no progress, so that its thread may still be
 * working. Accepts NULL. */
bool run_checkpoint_lane_stuck(const struct run_checkpoint_lane *lane);

#endif
