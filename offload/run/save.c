/* save.c: one job a chunk; the last one says that the lane is done. */
#include "offload/run/save.h"

#include <errno.h>
#include <stdlib.h>

#include "core/base/err.h"
#include "core/base/queue.h"
#include "offload/plan/shard.h"
#include "offload/run/rank.h"

struct run_save {
    struct run_save_options given;
    struct core_queue *queue; /* owned */
    uint32_t left;            /* WRITE commands that are expected */
    bool sealed;              /* and no more will be */
    bool stuck;
};

int run_save_create(const struct run_save_options *options, struct run_save **out)
{
    struct run_save *save = calloc(1, sizeof *save);
    const struct core_queue_options queue = {
        .name = "checkpoint", .depth = 64, .bell = options->bell};
    if (save == NULL) {
        return core_err_set(-ENOMEM, "no memory for the lane of checkpoints");
    }
    save->given = *options;
    int rc = core_queue_create(&queue, &save->queue);
    if (rc != 0) {
        free(save);
        return rc;
    }
    *out = save;
    return 0;
}

void run_save_destroy(struct run_save *save)
{
    if (save == NULL) {
        return;
    }
    core_queue_destroy(save->queue);
    free(save);
}

/* ---- on the queue's thread ---- */

static void put(const struct run_save *save, const struct plan_command *command)
{
    const struct run_save_options *given = &save->given;
    const uint64_t first = plan_state_span(given->input, command->block).first +
                           command->chunk * plan_chunk_elements(given->plan);
    char *slot = run_memory_slot_of(given->memory, command, PLAN_AS_SLOT);
    char *place = run_memory_of(given->memory, command, PLAN_AS_WEIGHTS_PLACE);
    char *resident = run_memory_of(given->memory, command, PLAN_AS_STATES);
    char *in_slot = slot != NULL ? slot + plan_slot_states_offset(given->plan) : NULL;
    const struct adam_arrays arrays = run_update_arrays(
        given->update, first, command->elements, place != NULL ? place : slot,
        resident != NULL ? resident : in_slot, NULL);
    const struct store_arrays streams = run_rank_streams(&arrays);
    run_saving_put(given->saving, command->block, first, command->elements, &streams);
}

/* What a job carries. */
struct order {
    const struct plan_command *command; /* borrowed from the tape, which outlives the job */
    bool puts;
    bool last; /* the lane is done behind it */
};

static int work(void *context, const void *arguments)
{
    const struct run_save *save = context;
    const struct order *order = arguments;
    if (order->puts) {
        put(save, order->command);
    }
    if (order->last) {
        run_saving_lane_done(save->given.saving);
    }
    return 0; /* the run goes on */
}

/* ---- on the rank's ---- */

static int hand_over(struct run_save *save, const struct order *order, struct core_fence *out)
{
    const struct core_job job = {
        .run = work, .context = save, .arguments = order, .arguments_bytes = sizeof *order};
    return core_queue_submit(save->queue, &job, out);
}

/* Never waits: the executor has other lanes to serve. */
static int submit(void *context, const struct plan_command *command, struct core_fence *out)
{
    struct run_save *save = context;
    const bool puts = command->op == PLAN_WRITE && save->left > 0;
    const struct order order = {
        .command = command, .puts = puts, .last = puts && save->sealed && save->left == 1};
    int rc = hand_over(save, &order, out);
    if (rc == 0 && puts) {
        save->left--;
        save->sealed = save->sealed && !order.last;
    }
    return rc;
}

struct run_lane run_save_lane(struct run_save *save)
{
    return (struct run_lane){.submit = submit, .context = save};
}

bool run_save_stuck(const struct run_save *save)
{
    return save->stuck;
}

void run_save_expect(struct run_save *save, uint32_t count)
{
    save->left += count;
}

int run_save_seal(struct run_save *save)
{
    const struct order done = {.last = true};
    struct core_fence fence;
    int rc = 0;
    if (save->left > 0) {
        save->sealed = true; /* the last of them says so */
        return 0;
    }
    while ((rc = hand_over(save, &done, &fence)) == -EAGAIN) {
        rc = core_fence_wait_moving(core_queue_tail(save->queue), save->given.stall_limit_ns);
        if (rc != 0) {
            return rc;
        }
    }
    return rc;
}

int run_save_wait(struct run_save *save)
{
    save->left = 0;
    save->sealed = false;
    int rc = core_fence_wait_moving(core_queue_tail(save->queue), save->given.stall_limit_ns);
    save->stuck = rc == -ETIMEDOUT;
    return rc;
}
