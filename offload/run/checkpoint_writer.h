/* checkpoint_writer.h: writes a checkpoint while the run continues; at most one is open. Each rank
 * has a lane, whose thread writes chunks as updates make them; the last lane to end finishes the
 * checkpoint. A failure does not end the run. The engine's thread calls while no rank works; a
 * rank's thread calls for its own lane. */
#ifndef OFFLOAD_RUN_CHECKPOINT_WRITER_H
#define OFFLOAD_RUN_CHECKPOINT_WRITER_H

#include "offload/run/executor.h"
#include "offload/run/lane_update.h"
#include "offload/store/checkpoint.h"

struct run_checkpoint_lane;
struct run_checkpoint_writer;

int run_checkpoint_writer_create(uint32_t ranks, struct run_checkpoint_writer **out);
/* Drops an unfinished checkpoint. All lanes must already be destroyed. Accepts NULL. */
void run_checkpoint_writer_destroy(struct run_checkpoint_writer *writer);

/* ---- the engine's thread ---- */

/* Takes over the checkpoint of a step; no other may be open. */
void run_checkpoint_writer_open(struct run_checkpoint_writer *writer,
                                struct store_checkpoint_write *checkpoint, uint64_t step);
/* Returns whether a checkpoint was opened and not yet closed by run_checkpoint_writer_wait. */
bool run_checkpoint_writer_is_open(const struct run_checkpoint_writer *writer);
/* Returns whether a checkpoint of this step is open and not accepted yet. */
bool run_checkpoint_writer_awaits(const struct run_checkpoint_writer *writer, uint64_t step);
/* Accepts the open checkpoint, which is finished when all lanes have written what they expect.
 * Takes over the memory of `manifest`. A checkpoint that is not accepted is removed. */
int run_checkpoint_writer_accept(struct run_checkpoint_writer *writer,
                                 struct store_manifest *manifest);
/* Waits for the lanes and closes the checkpoint. Returns -ECANCELED if the checkpoint was accepted
 * and a lane did not get all expected commands. Returns -ETIMEDOUT if a lane made no progress; the
 * checkpoint then stays open, because that lane may still write. */
int run_checkpoint_writer_wait(struct run_checkpoint_writer *writer);

/* ---- a rank's thread ---- */

struct run_checkpoint_lane_options {
    uint32_t rank;
    bool writes_states;              /* false: an earlier rank writes the same states */
    const struct run_update *update; /* borrowed, like the next member */
    struct core_bell *bell;
    int64_t stall_limit_ns; /* longest time without progress before -ETIMEDOUT */
};

/* `writer` is borrowed. */
int run_checkpoint_lane_create(struct run_checkpoint_writer *writer,
                               const struct run_checkpoint_lane_options *options,
                               struct run_checkpoint_lane **out);
/* Waits for the submitted commands. Accepts NULL. */
void run_checkpoint_lane_destroy(struct run_checkpoint_lane *lane);
struct run_lane run_checkpoint_lane(struct run_checkpoint_lane *lane);
/* `count` more WRITE commands of the lane also go to the open checkpoint. */
void run_checkpoint_lane_expect(struct run_checkpoint_lane *lane, uint32_t count);
/* Returns whether a wait ended without progress: the lane's thread may still be working. Accepts
 * NULL. */
bool run_checkpoint_lane_stuck(const struct run_checkpoint_lane *lane);

#endif
