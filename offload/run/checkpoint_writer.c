/* checkpoint_writer.c: gives commands to the lanes' threads, which write one chunk at a time. */
#include "offload/run/checkpoint_writer.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/queue.h"
#include "offload/run/checkpoint.h"

struct run_checkpoint_lane {
    struct run_checkpoint_lane_options given;
    struct run_checkpoint_writer *writer; /* borrowed */
    struct core_queue *queue;             /* owned */
    uint32_t expected;                    /* WRITE commands still to come */
    bool sealed;                          /* no more commands will be expected */
    bool stuck;
};

struct run_checkpoint_writer {
    /* Lanes share files and drive, so they take turns. The threads of a step never take this
     * mutex. */
    pthread_mutex_t turn;
    struct store_checkpoint_write *checkpoint; /* owned; NULL: none, or finished */
    _Atomic uint32_t lanes_left;               /* acq_rel: the last lane sees the others' writes */
    /* the first error; protected by `turn` until the last lane ends */
    struct core_err failed;
    uint64_t step; /* used by the engine's thread only, like the next two members */
    bool open;
    bool accepted;
    uint32_t ranks;
    struct run_checkpoint_lane *lanes[]; /* borrowed; NULL: not created yet */
};

/* ---- the lanes' threads ---- */

static void note_error(struct run_checkpoint_writer *writer, int rc)
{
    if (writer->failed.code == 0) {
        writer->failed = core_err_keep(rc);
    }
}

static void write_chunk(const struct run_checkpoint_lane *lane, const struct plan_command *command)
{
    struct run_checkpoint_writer *writer = lane->writer;
    const struct adam_arrays arrays = run_update_chunk(lane->given.update, command);
    const struct store_arrays streams = run_checkpoint_streams(&arrays);
    pthread_mutex_lock(&writer->turn);
    if (writer->checkpoint != NULL && writer->failed.code == 0) {
        note_error(writer, store_checkpoint_put(writer->checkpoint, command->block, arrays.first,
                                                arrays.count, &streams));
    }
    pthread_mutex_unlock(&writer->turn);
}

static void end_lane(struct run_checkpoint_writer *writer)
{
    if (atomic_fetch_sub_explicit(&writer->lanes_left, 1, memory_order_acq_rel) != 1) {
        return;
    }
    if (writer->failed.code == 0) {
        note_error(writer, store_checkpoint_finish(writer->checkpoint));
    }
    note_error(writer, store_checkpoint_end(writer->checkpoint));
    writer->checkpoint = NULL;
}

struct lane_job {
    const struct plan_command *command; /* borrowed from the tape, which outlives the job */
    bool writes;
    bool last; /* the lane ends after this job */
};

static int run_job(void *context, const void *arguments)
{
    const struct run_checkpoint_lane *lane = context;
    const struct lane_job *job = arguments;
    if (job->writes) {
        write_chunk(lane, job->command);
    }
    if (job->last) {
        end_lane(lane->writer);
    }
    return 0; /* a failure does not end the run */
}

/* ---- the ranks' threads ---- */

static int submit_job(struct run_checkpoint_lane *lane, const struct lane_job *job,
                      struct core_fence *out)
{
    const struct core_job one = {
        .run = run_job, .context = lane, .arguments = job, .arguments_bytes = sizeof *job};
    return core_queue_submit(lane->queue, &one, out);
}

/* Never waits: the executor has other lanes to serve. */
static int lane_submit(void *context, const struct plan_command *command, struct core_fence *out)
{
    struct run_checkpoint_lane *lane = context;
    const bool writes = command->op == PLAN_WRITE && lane->expected > 0;
    const struct lane_job job = {.command = command,
                                 .writes = writes,
                                 .last = writes && lane->sealed && lane->expected == 1};
    int rc = submit_job(lane, &job, out);
    if (rc == 0 && writes) {
        lane->expected--;
        lane->sealed = lane->sealed && !job.last;
    }
    return rc;
}

int run_checkpoint_lane_create(struct run_checkpoint_writer *writer,
                               const struct run_checkpoint_lane_options *options,
                               struct run_checkpoint_lane **out)
{
    const struct core_queue_options queue = {
        .name = "checkpoint", .depth = 64, .bell = options->bell};
    struct run_checkpoint_lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL) {
        return core_err_set(-ENOMEM, "no memory for the lane of checkpoints");
    }
    lane->given = *options;
    lane->writer = writer;
    int rc = core_queue_create(&queue, &lane->queue);
    if (rc != 0) {
        free(lane);
        return rc;
    }
    writer->lanes[options->rank] = lane;
    *out = lane;
    return 0;
}

void run_checkpoint_lane_destroy(struct run_checkpoint_lane *lane)
{
    if (lane == NULL) {
        return;
    }
    core_queue_destroy(lane->queue);
    lane->writer->lanes[lane->given.rank] = NULL;
    free(lane);
}

struct run_lane run_checkpoint_lane(struct run_checkpoint_lane *lane)
{
    return (struct run_lane){.submit = lane_submit, .context = lane};
}

void run_checkpoint_lane_expect(struct run_checkpoint_lane *lane, uint32_t count)
{
    lane->expected += count;
}

bool run_checkpoint_lane_stuck(const struct run_checkpoint_lane *lane)
{
    return lane != NULL && lane->stuck;
}

/* ---- the engine's thread ---- */

int run_checkpoint_writer_create(uint32_t ranks, struct run_checkpoint_writer **out)
{
    struct run_checkpoint_writer *writer = calloc(1,
                                                  sizeof *writer + ranks * sizeof writer->lanes[0]);
    if (writer == NULL) {
        return core_err_set(-ENOMEM, "no memory for the writer of checkpoints");
    }
    pthread_mutex_init(&writer->turn, NULL);
    writer->ranks = ranks;
    *out = writer;
    return 0;
}

void run_checkpoint_writer_destroy(struct run_checkpoint_writer *writer)
{
    if (writer == NULL) {
        return;
    }
    (void)store_checkpoint_end(writer->checkpoint);
    pthread_mutex_destroy(&writer->turn);
    free(writer);
}

void run_checkpoint_writer_open(struct run_checkpoint_writer *writer,
                                struct store_checkpoint_write *checkpoint, uint64_t step)
{
    uint32_t lanes = 0;
    for (uint32_t r = 0; r < writer->ranks; r++) {
        lanes += writer->lanes[r]->given.writes_states;
    }
    writer->checkpoint = checkpoint;
    writer->step = step;
    writer->open = true;
    writer->accepted = false;
    writer->failed = core_err_keep(0);
    atomic_store_explicit(&writer->lanes_left, lanes, memory_order_relaxed);
}

bool run_checkpoint_writer_is_open(const struct run_checkpoint_writer *writer)
{
    return writer->open;
}

bool run_checkpoint_writer_awaits(const struct run_checkpoint_writer *writer, uint64_t step)
{
    return writer->open && !writer->accepted && writer->step == step;
}

/* Ends the lane's part after its last expected WRITE, which may already be submitted. */
static int seal_lane(struct run_checkpoint_lane *lane)
{
    const struct lane_job end = {.last = true};
    struct core_fence fence;
    int rc;
    if (lane->expected > 0) {
        lane->sealed = true;
        return 0;
    }
    while ((rc = submit_job(lane, &end, &fence)) == -EAGAIN) {
        rc = core_fence_wait_moving(core_queue_tail(lane->queue), lane->given.stall_limit_ns);
        if (rc != 0) {
            return rc;
        }
    }
    return rc;
}

int run_checkpoint_writer_accept(struct run_checkpoint_writer *writer,
                                 struct store_manifest *manifest)
{
    int rc = 0;
    writer->accepted = true;
    store_checkpoint_tell(writer->checkpoint, manifest);
    for (uint32_t r = 0; rc == 0 && r < writer->ranks; r++) {
        rc = writer->lanes[r]->given.writes_states ? seal_lane(writer->lanes[r]) : 0;
    }
    return rc;
}

static int wait_lane(struct run_checkpoint_lane *lane)
{
    lane->expected = 0;
    lane->sealed = false;
    int rc = core_fence_wait_moving(core_queue_tail(lane->queue), lane->given.stall_limit_ns);
    lane->stuck = rc == -ETIMEDOUT;
    return rc;
}

static int close_checkpoint(struct run_checkpoint_writer *writer)
{
    if (!writer->open) {
        return 0;
    }
    writer->open = false;
    if (writer->checkpoint != NULL) {
        (void)store_checkpoint_end(writer->checkpoint);
        writer->checkpoint = NULL;
        return !writer->accepted
                   ? 0
                   : core_err_set(-ECANCELED,
                                  "the checkpoint was abandoned before all of it was written");
    }
    return writer->accepted ? core_err_first(&writer->failed, 0) : 0;
}

int run_checkpoint_writer_wait(struct run_checkpoint_writer *writer)
{
    struct core_err first = core_err_keep(0);
    bool stuck = false;
    for (uint32_t r = 0; r < writer->ranks; r++) {
        int rc = wait_lane(writer->lanes[r]);
        stuck = stuck || rc == -ETIMEDOUT;
        if (rc != 0 && first.code == 0) {
            first = core_err_keep(rc);
        }
    }
    return core_err_first(&first, stuck ? 0 : close_checkpoint(writer));
}
