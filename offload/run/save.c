/* save.c: one job a chunk, and one that publishes. */
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
    /* The engine's. */
    bool busy;
    bool stuck;
    uint32_t left; /* WRITE commands until it is finished */
    struct core_fence finished;
    /* The queue's, while it is busy; the engine's otherwise. */
    struct store_checkpoint_write *checkpoint; /* owned */
    struct core_err failed;                    /* the first error of the save */
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
    (void)store_checkpoint_end(save->checkpoint);
    free(save);
}

void run_save_begin(struct run_save *save, struct store_checkpoint_write *checkpoint,
                    uint32_t count)
{
    save->checkpoint = checkpoint;
    save->left = count;
    save->busy = true;
    save->finished = (struct core_fence){0};
    save->failed = core_err_keep(0);
}

bool run_save_busy(const struct run_save *save)
{
    return save->busy;
}

/* ---- on the queue's thread ---- */

static void note(struct run_save *save, int rc)
{
    if (save->failed.code == 0) {
        save->failed = core_err_keep(rc);
    }
}

static int put(struct run_save *save, const struct plan_command *command)
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
    return store_checkpoint_put(save->checkpoint, command->block, first, command->elements,
                                &streams);
}

/* What a job carries: NULL: publish. */
struct order {
    const struct plan_command *command; /* borrowed from the tape, which outlives the job */
};

static int work(void *context, const void *arguments)
{
    struct run_save *save = context;
    const struct order *order = arguments;
    if (order->command == NULL) {
        if (save->failed.code == 0) {
            note(save, store_checkpoint_finish(save->checkpoint));
        }
        note(save, store_checkpoint_end(save->checkpoint));
        save->checkpoint = NULL;
    } else if (order->command->op == PLAN_WRITE && save->checkpoint != NULL &&
               save->failed.code == 0) {
        note(save, put(save, order->command));
    }
    return 0; /* the run goes on */
}

/* ---- on the engine's ---- */

static int hand_over(struct run_save *save, const struct plan_command *command,
                     struct core_fence *out)
{
    const struct order order = {.command = command};
    const struct core_job job = {
        .run = work, .context = save, .arguments = &order, .arguments_bytes = sizeof order};
    return core_queue_submit(save->queue, &job, out);
}

static int submit(void *context, const struct plan_command *command, const struct core_fence *after,
                  struct core_fence *out)
{
    struct run_save *save = context;
    (void)after; /* reached */
    int rc = hand_over(save, command, out);
    if (rc != 0 || command->op != PLAN_WRITE || save->left == 0 || --save->left > 0) {
        return rc;
    }
    while ((rc = hand_over(save, NULL, &save->finished)) == -EAGAIN) {
        rc = core_fence_wait_moving(core_queue_tail(save->queue), save->given.stall_limit_ns);
        if (rc != 0) {
            return rc;
        }
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

int run_save_wait(struct run_save *save)
{
    if (!save->busy) {
        return 0;
    }
    int rc = core_fence_wait_moving(save->finished, save->given.stall_limit_ns);
    save->stuck = rc == -ETIMEDOUT;
    save->busy = false;
    return rc != 0 ? rc : core_err_first(&save->failed, 0);
}
