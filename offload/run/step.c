/* step.c: runs one tape after another: which tape follows, with which settings, and which results
 * are read. One thread at a time calls. */
#include <assert.h>
#include <errno.h>
#include <math.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "offload/plan/layout.h"
#include "offload/plan/shard.h"
#include "offload/run/rank_internal.h"

/* what a function of the rank wants from the next tape; columns of next_tape */
enum request {
    REQUEST_STEP,
    REQUEST_STEP_SPECULATIVE, /* the update does not wait for the norm */
    REQUEST_STEP_SAVED,       /* writes the update inside the step to the checkpoint */
    REQUEST_DRAIN,            /* the pending update alone */
    REQUEST_COUNT,
};

/* If nothing is pending, there is nothing to drain. A step does not speculate while the pending
 * update goes to a checkpoint. */
static const enum plan_kind next_tape[RUN_PENDING_COUNT][REQUEST_COUNT] = {
    [RUN_PENDING_NONE] = {PLAN_FIRST, PLAN_GUESS, PLAN_FIRST_SAVE_OWN, PLAN_KIND_COUNT},
    [RUN_PENDING_DEFERRED] = {PLAN_NEXT, PLAN_GUESS_NEXT, PLAN_NEXT_SAVE_OWN, PLAN_DRAIN},
    [RUN_PENDING_SAVED] = {PLAN_NEXT_SAVE, PLAN_NEXT_SAVE, PLAN_NEXT_SAVE, PLAN_DRAIN_SAVE},
};

/* ---- tapes ---- */

/* The timeline has ops only while it records tapes. */
static void time_ops(struct run_rank *rank)
{
    const bool wanted = plan_trace_wants_ops(rank->trace);
    if (rank->compute_queue == NULL || wanted == rank->times_ops) {
        return;
    }
    rank->times_ops = wanted;
    rank->timing = (struct dev_timing){.timed = plan_trace_op, .user = rank->trace};
    if (dev_queue_time(rank->compute_queue, wanted ? &rank->timing : NULL) != 0) {
        core_log(CORE_LOG_WARN, "the timeline has no ops: %s", core_err_message());
    }
}

/* The gate of the tape stays closed. */
static int push_tape(struct run_rank *rank, enum plan_kind kind)
{
    const struct plan_tape *tape = plan_tape(rank->plan, rank->last, kind);
    const struct core_fence gate = {&rank->gate, rank->gates + 1};
    if (tape == NULL) {
        return core_err_set(-EPROTO, "tape %d cannot follow tape %d", (int)kind, (int)rank->last);
    }
    int rc = run_executor_push(rank->executor, tape, gate);
    while (rc == -EAGAIN) { /* two are under way: the older one must retire first */
        rc = run_executor_drive(rank->executor, 1);
        if (rc == 0) {
            rc = run_executor_push(rank->executor, tape, gate);
        }
    }
    if (rc == 0 && rank->trace != NULL) {
        plan_trace_push(rank->trace, tape);
        time_ops(rank);
    }
    return rc;
}

/* Withdraws a tape that was pushed in advance and does not come next. */
static int withdraw_tape(struct run_rank *rank)
{
    struct plan_traffic traffic = {0};
    if (rank->ahead == PLAN_KIND_COUNT) {
        return 0;
    }
    rank->ahead = PLAN_KIND_COUNT;
    if (rank->trace != NULL) {
        plan_trace_withdraw(rank->trace);
    }
    int rc = run_executor_withdraw(rank->executor, &traffic.store_read_bytes);
    if (rc == 0) {
        plan_traffic_add(&rank->traffic, &traffic);
    }
    return rc;
}

/* A step's inputs may use fewer rows than planned. */
static struct plan_traffic count_traffic(const struct run_rank *rank, const struct plan_tape *tape)
{
    struct plan_traffic traffic = plan_tape_traffic(tape);
    for (uint32_t i = 0; i < tape->count; i++) {
        const struct plan_command *command = &tape->commands[i];
        if (command->rows) {
            uint32_t first = 0;
            const uint32_t count = run_rows_micros(&rank->up.rows, command, &first);
            const uint64_t unused = command->bytes -
                                    run_inputs_rows_bytes(&rank->inputs, first, count);
            traffic.store_read_bytes -= command->op == PLAN_READ ? unused : 0;
            traffic.up_bytes -= command->op == PLAN_H2D ? unused : 0;
        }
    }
    return traffic;
}

/* Opens the next tape's gate; pushes the tape unless it was pushed in advance. */
static int release_tape(struct run_rank *rank, enum plan_kind kind)
{
    if (rank->ahead != kind) {
        int rc = withdraw_tape(rank);
        if (rc != 0) {
            return rc;
        }
        rc = push_tape(rank, kind);
        if (rc != 0) {
            return rc;
        }
    }
    const struct plan_traffic traffic = count_traffic(rank,
                                                      plan_tape(rank->plan, rank->last, kind));
    core_line_reach(&rank->gate, ++rank->gates);
    plan_traffic_add(&rank->traffic, &traffic);
    rank->last = kind;
    rank->ahead = PLAN_KIND_COUNT;
    return 0;
}

/* Pushes the likeliest next tape, so that the drive reads for it while the last one ends. */
static int push_ahead(struct run_rank *rank, enum plan_kind kind)
{
    if (plan_tape(rank->plan, rank->last, kind) == NULL) {
        return 0;
    }
    int rc = push_tape(rank, kind);
    if (rc == 0) {
        rank->ahead = kind;
    }
    return rc;
}

/* Runs the tape and all earlier ones to their ends. */
static int run_whole_tape(struct run_rank *rank, enum plan_kind kind)
{
    int rc = release_tape(rank, kind);
    return rc != 0 ? rc : run_executor_drive(rank->executor, 0);
}

/* If the loss is not finite, neither are the gradients; the message then blames the forward pass.
 * Returns `rc`, the update's error. */
static int explain_gradients(struct run_rank *rank, int rc)
{
    const struct core_err error = core_err_keep(rc);
    struct kern_loss loss;
    if (rc != -EDOM || rank->compute_queue == NULL) {
        return rc;
    }
    const bool known = run_inputs_losses(&rank->inputs, rank->compute_queue,
                                         rank->options->micro_batches, &loss) == 0;
    return known && !isfinite(loss.sum)
               ? core_err_set(rc, "the loss is not finite, and so no gradient is: such values "
                                  "arose in the forward pass or are in the weights")
               : core_err_first(&error, rc);
}

/* Waits for the commands of the step's update and, if a card updates blocks, of compute. */
static int drive_update(struct run_rank *rank, const struct plan_tape *tape, uint64_t number)
{
    int rc = run_executor_drive_to(rank->executor, number, PLAN_Q_UPDATE,
                                   tape->queue_count[PLAN_Q_UPDATE]);
    /* The update's terms must stay until the GPU has the updates inside backward. */
    const bool on_card = plan_layout_of(rank->plan)->tile_sums_card != PLAN_NONE;
    if (rc != 0 || !on_card) {
        return rc;
    }
    return run_executor_drive_to(rank->executor, number, PLAN_Q_COMPUTE,
                                 tape->queue_count[PLAN_Q_COMPUTE]);
}

/* ---- the speculative update ---- */

static void count_speculative(const struct plan_tape *tape, uint64_t *bytes, uint64_t *writes)
{
    *bytes = *writes = 0;
    for (uint32_t i = 0; i < tape->count; i++) {
        const struct plan_command *command = &tape->commands[i];
        *bytes += command->ahead ? command->bytes : 0;
        if (command->ahead && command->op == PLAN_WRITE) {
            *writes += plan_command_operand(command, PLAN_AS_EXTENT_W16) != NULL;
            *writes += plan_command_operand(command, PLAN_AS_EXTENT_STATES) != NULL;
        }
    }
}

/* Keeps or discards the whole speculative update. Results in memory become current together;
 * results in the store, as each write is done. */
static int decide_speculative(struct run_rank *rank, const struct plan_tape *tape, bool keep,
                              uint64_t *wasted_bytes)
{
    static const enum plan_queue leave[] = {PLAN_Q_UP, PLAN_Q_COLL};
    const uint64_t number = run_executor_pushed(rank->executor) - 1; /* no tape is pushed ahead */
    uint64_t bytes;
    uint64_t writes;
    int rc = 0;
    count_speculative(tape, &bytes, &writes);
    *wasted_bytes = keep ? 0 : bytes;
    if (keep && run_memory_has_generations(&rank->memory)) {
        for (size_t i = 0; rc == 0 && i < sizeof leave / sizeof leave[0]; i++) {
            rc = run_executor_drive_to(rank->executor, number, leave[i],
                                       tape->queue_count[leave[i]]);
        }
        if (rc == 0) {
            run_memory_swap_generations(&rank->memory);
        }
    }
    /* even after an error: the store's writes wait for the decision */
    if (rank->store != NULL) {
        store_decide(rank->store, writes, keep);
    }
    return rc;
}

/* ---- a step ---- */

static uint32_t count_saved_chunks(const struct run_rank *rank, enum plan_kind kind)
{
    const struct plan_tape *tape = plan_tape(rank->plan, rank->last, kind);
    uint32_t count = 0;
    for (uint32_t i = 0; i < tape->count; i++) {
        const struct plan_command *command = &tape->commands[i];
        count += command->queue == PLAN_Q_WRITE_CHECKPOINT && command->op == PLAN_WRITE;
    }
    return count;
}

static void set_terms(struct run_rank *rank, const struct run_step_request *request)
{
    struct adam_group groups[MODEL_GROUP_COUNT];
    const struct run_update_terms speculative = {groups, 1 / request->loss_scale};
    run_options_groups(rank->options, request->lr, request->betas, rank->updates + 1, groups);
    run_update_set_loss_scale(rank->update, request->loss_scale);
    run_update_set_speculative(rank->update, &speculative);
}

/* The step's update is made already, becomes pending with the norm's factor, or is skipped. */
static int settle(struct run_rank *rank, const struct plan_tape *tape,
                  const struct run_step_request *request, struct run_result *result)
{
    const struct run_verdict verdict = run_update_verdict(rank->update);
    const bool inside = plan_chosen_timing(rank->plan) == PLAN_TIMING_INSIDE;
    result->norm = verdict.norm;
    result->skipped = !verdict.finite;
    result->norm_neutral = verdict.finite && verdict.factor == 1;
    if (result->guessed) {
        int rc = decide_speculative(rank, tape, result->norm_neutral, &result->guess_bytes);
        if (rc != 0) {
            return rc;
        }
    }
    const bool made = inside || (result->guessed && result->norm_neutral);
    rank->updates += !result->skipped;
    rank->pending = result->skipped || made ? RUN_PENDING_NONE : RUN_PENDING_DEFERRED;
    struct adam_group groups[MODEL_GROUP_COUNT];
    const struct run_update_terms deferred = {groups, verdict.factor / request->loss_scale};
    run_options_groups(rank->options, request->lr, request->betas, rank->updates, groups);
    run_update_set_deferred(rank->update, &deferred);
    if (rank->saved == RUN_SAVED_NEXT) {
        const bool pending = rank->pending != RUN_PENDING_NONE;
        rank->saved = pending || run_rank_updates_inside(rank) ? RUN_SAVED_LAST : RUN_SAVED_NONE;
        if (pending) {
            run_rank_save_pending(rank);
        }
    }
    return 0;
}

int run_rank_feed(struct run_rank *rank, uint32_t index, uint32_t count,
                  const struct model_batch *batch, int64_t *targets)
{
    const uint32_t last = rank->options->micro_batches - 1;
    assert(index <= last);
    if (index + 1 < count) {
        return run_inputs_write(&rank->inputs, index, batch, targets);
    }
    int rc = 0;
    /* The tape's last micro-batch completes the gradients. */
    for (uint32_t i = index; rc == 0 && i < last; i++) {
        rc = run_inputs_write(&rank->inputs, i, NULL, targets);
    }
    return rc == 0 ? run_inputs_write(&rank->inputs, last, batch, targets) : rc;
}

int run_rank_step(struct run_rank *rank, const struct run_step_request *request,
                  struct run_result *out)
{
    const bool saves = rank->pending == RUN_PENDING_SAVED || rank->saved == RUN_SAVED_NEXT;
    const bool saves_own = rank->saved == RUN_SAVED_NEXT && run_rank_updates_inside(rank);
    const bool guess = request->guess && !saves && plan_generations(rank->plan) > 1;
    const enum plan_kind kind = next_tape[rank->pending][saves_own ? REQUEST_STEP_SAVED
                                                         : guess   ? REQUEST_STEP_SPECULATIVE
                                                                   : REQUEST_STEP];
    const struct plan_tape *tape = plan_tape(rank->plan, rank->last, kind);
    const double targets = (double)request->targets;
    const float scale = targets > 0 ? (float)(request->loss_scale / targets) : 0.0f;
    struct run_result result = {.guessed = guess, .steady = rank->last < PLAN_DRAIN && !saves};
    (void)run_executor_stats_take(rank->executor); /* drops an earlier evaluation's waits */
    set_terms(rank, request);
    int rc = run_inputs_send(&rank->inputs, rank->compute_queue, scale, request->seed);
    if (rc != 0) {
        return rc;
    }
    rc = release_tape(rank, kind);
    if (rc != 0) {
        return rc;
    }
    const uint64_t number = run_executor_pushed(rank->executor) - 1;
    /* After a guess, no tape is pushed ahead: the verdict decides what it reads. */
    if (!tape->guesses) {
        const bool inside = plan_chosen_timing(rank->plan) == PLAN_TIMING_INSIDE;
        rc = push_ahead(rank, inside ? PLAN_FIRST : PLAN_NEXT);
    }
    if (rc != 0) {
        return rc;
    }
    rc = drive_update(rank, tape, number);
    if (rc != 0) {
        return explain_gradients(rank, rc);
    }
    rc = run_inputs_losses(&rank->inputs, rank->compute_queue, rank->options->micro_batches,
                           &result.loss);
    if (rc != 0) {
        return rc;
    }
    rc = settle(rank, tape, request, &result);
    if (rc != 0) {
        return rc;
    }
    *out = result;
    return 0;
}

/* ---- between steps ---- */

int run_rank_quiesce(struct run_rank *rank)
{
    int rc = withdraw_tape(rank);
    return rc != 0 ? rc : run_executor_drive(rank->executor, 0);
}

int run_rank_drain(struct run_rank *rank)
{
    if (rank->pending == RUN_PENDING_NONE) {
        return run_rank_quiesce(rank);
    }
    int rc = run_whole_tape(rank, next_tape[rank->pending][REQUEST_DRAIN]);
    if (rc == 0) {
        rank->pending = RUN_PENDING_NONE;
    }
    return rc;
}

int run_rank_check(struct run_rank *rank, const struct model_batch *batch)
{
    int64_t targets = 0;
    return run_inputs_write(&rank->inputs, 0, batch, &targets);
}

int run_rank_evaluate(struct run_rank *rank, const struct model_batch *batch, struct kern_loss *out)
{
    int64_t targets = 0;
    int rc = run_rank_drain(rank);
    if (rc != 0) {
        return rc;
    }
    rc = run_inputs_write(&rank->inputs, 0, batch, &targets);
    if (rc != 0) {
        return rc;
    }
    rc = run_inputs_send(&rank->inputs, rank->compute_queue, 0, 0);
    if (rc != 0) {
        return rc;
    }
    rc = run_whole_tape(rank, PLAN_EVAL);
    return rc != 0 ? rc : run_inputs_losses(&rank->inputs, rank->compute_queue, 1, out);
}

/* ---- checkpoints ---- */

bool run_rank_writes_states(const struct run_rank *rank)
{
    return rank->options->rank == 0 || plan_shards_states(rank->input);
}

bool run_rank_updates_inside(const struct run_rank *rank)
{
    const enum plan_timing timing = plan_chosen_timing(rank->plan);
    return timing == PLAN_TIMING_INSIDE || timing == PLAN_TIMING_SPLIT;
}

bool run_rank_can_save(const struct run_rank *rank)
{
    return rank->checkpoint_lane != NULL && rank->pending != RUN_PENDING_NONE &&
           !run_rank_updates_inside(rank) &&
           plan_tape(rank->plan, rank->last, PLAN_NEXT_SAVE) != NULL;
}

void run_rank_save_pending(struct run_rank *rank)
{
    run_checkpoint_lane_expect(rank->checkpoint_lane, count_saved_chunks(rank, PLAN_NEXT_SAVE));
    rank->pending = RUN_PENDING_SAVED;
}

void run_rank_save_next(struct run_rank *rank)
{
    if (run_rank_updates_inside(rank)) {
        run_checkpoint_lane_expect(
            rank->checkpoint_lane,
            count_saved_chunks(rank, next_tape[rank->pending][REQUEST_STEP_SAVED]));
    }
    rank->saved = RUN_SAVED_NEXT;
}

bool run_rank_saved_step(const struct run_rank *rank)
{
    return rank->saved == RUN_SAVED_LAST;
}

bool run_rank_save_due(const struct run_rank *rank)
{
    return rank->pending == RUN_PENDING_SAVED;
}

void run_rank_save_forget(struct run_rank *rank)
{
    rank->saved = RUN_SAVED_NONE;
    if (rank->pending == RUN_PENDING_SAVED) {
        rank->pending = RUN_PENDING_DEFERRED;
    }
}

/* ---- counters ---- */

uint64_t run_rank_updates(const struct run_rank *rank)
{
    return rank->updates;
}

struct run_stats run_rank_stats_take(struct run_rank *rank)
{
    return run_executor_stats_take(rank->executor);
}

void run_rank_moved_take(struct run_rank *rank, struct run_moved *out)
{
    struct store_stats stats = {0};
    if (rank->store != NULL) {
        store_stats_take(rank->store, &stats);
    }
    for (size_t i = 0; i < STORE_PATHS_MAX; i++) {
        const struct store_moved *before = &rank->moved.paths[i];
        out->paths[i] = (struct store_moved){stats.paths[i].read_bytes - before->read_bytes,
                                             stats.paths[i].write_bytes - before->write_bytes};
        rank->moved.paths[i] = stats.paths[i];
    }
}

struct plan_traffic run_rank_traffic_take(struct run_rank *rank)
{
    const struct plan_traffic traffic = rank->traffic;
    rank->traffic = (struct plan_traffic){0};
    return traffic;
}
