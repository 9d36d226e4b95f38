/* rank_step.c: tapes one after another: which one follows, what its update is done with, and what is
 * read off when it has ended. */
#include <errno.h>
#include <math.h>

#include "core/base/err.h"
#include "offload/plan/layout.h"
#include "offload/plan/shard.h"
#include "offload/run/rank_parts.h"

/* Puts the tape of `kind` behind the one begun last, closed. */
static int push(struct run_rank *rank, enum plan_kind kind)
{
    const struct plan_tape *tape = plan_tape(rank->plan, rank->last, kind);
    const struct core_fence gate = {&rank->gate, rank->gates + 1};
    if (tape == NULL) {
        return core_err_set(-EPROTO, "tape %d cannot follow tape %d", (int)kind, (int)rank->last);
    }
    int rc = run_executor_push(rank->executor, tape, gate);
    while (rc == -EAGAIN) { /* two are under way: the older one has to retire */
        rc = run_executor_drive(rank->executor, 1);
        rc = rc != 0 ? rc : run_executor_push(rank->executor, tape, gate);
    }
    if (rc == 0 && rank->timeline != NULL) {
        run_timeline_push(rank->timeline, tape);
    }
    return rc;
}

/* Takes back what was pushed for a step that does not come, or comes as another. */
static int withdraw(struct run_rank *rank)
{
    if (rank->ahead == PLAN_KIND_COUNT) {
        return 0;
    }
    rank->ahead = PLAN_KIND_COUNT;
    if (rank->timeline != NULL) {
        run_timeline_withdraw(rank->timeline);
    }
    struct plan_traffic traffic = {0};
    int rc = run_executor_withdraw(rank->executor, &traffic.store_read_bytes);
    if (rc == 0) {
        plan_traffic_add(&rank->traffic, &traffic);
    }
    return rc;
}

/* Lets the tape of `kind` go. */
static int begin(struct run_rank *rank, enum plan_kind kind)
{
    int rc = 0;
    if (rank->ahead != kind) {
        rc = withdraw(rank);
        rc = rc != 0 ? rc : push(rank, kind);
    }
    if (rc == 0) {
        const struct plan_traffic traffic = plan_tape_traffic(
            plan_tape(rank->plan, rank->last, kind));
        core_line_reach(&rank->gate, ++rank->gates);
        plan_traffic_add(&rank->traffic, &traffic);
        rank->last = kind;
        rank->ahead = PLAN_KIND_COUNT;
    }
    return rc;
}

/* Pushes the tape that most likely follows the one begun last, so that the drive reads for it while this
 * one ends. Not behind or as a guess: which of two generations is read then, its verdict says. */
static int push_ahead(struct run_rank *rank, const struct plan_tape *tape)
{
    const bool inside = plan_chosen_timing(rank->plan) == PLAN_TIMING_INSIDE;
    const enum plan_kind next = inside ? PLAN_FIRST : PLAN_NEXT;
    int rc = 0;
    if (!tape->guesses && plan_tape(rank->plan, rank->last, next) != NULL) {
        rc = push(rank, next);
        rank->ahead = rc == 0 ? next : rank->ahead;
    }
    return rc;
}

/* Runs the tape of `kind` after those before it, to its end and all before it. */
static int run_whole(struct run_rank *rank, enum plan_kind kind)
{
    int rc = begin(rank, kind);
    return rc != 0 ? rc : run_executor_drive(rank->executor, 0);
}

/* Runs the tape of a step up to the last command of its update. */
static int run_step(struct run_rank *rank, enum plan_kind kind)
{
    const struct plan_tape *tape = plan_tape(rank->plan, rank->last, kind);
    int rc = begin(rank, kind);
    const uint64_t number = run_executor_pushed(rank->executor) - 1;
    rc = rc != 0 ? rc : push_ahead(rank, tape);
    rc = rc != 0 ? rc
                 : run_executor_drive_to(rank->executor, number, PLAN_Q_UPDATE,
                                         tape->queue_count[PLAN_Q_UPDATE]);
    /* What the card updates inside backward is handed over with this step's terms. */
    const bool on_card = plan_layout_of(rank->plan)->tile_sums_card != PLAN_NONE;
    return rc != 0 || !on_card ? rc
                               : run_executor_drive_to(rank->executor, number, PLAN_Q_COMPUTE,
                                                       tape->queue_count[PLAN_Q_COMPUTE]);
}

int run_rank_feed(struct run_rank *rank, const struct model_batch *batches, uint32_t count,
                  int64_t *targets)
{
    int64_t sum = 0;
    if (count > rank->options->micro_batches) {
        return core_err_set(-EINVAL, "%u micro-batches are more than the %u of a step", count,
                            rank->options->micro_batches);
    }
    for (uint32_t i = 0; i < rank->options->micro_batches; i++) {
        int rc = run_inputs_put(&rank->inputs, i, i < count ? &batches[i] : NULL, &sum);
        if (rc != 0) {
            return rc;
        }
    }
    *targets = sum;
    return 0;
}

/* ---- ahead of the norm ---- */

/* What an update ahead costs where it was for nothing, and how many writes to the store it makes. */
static void count_ahead(const struct plan_tape *tape, uint64_t *bytes, uint64_t *writes)
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

/* The update made ahead stands or falls, as one. What it left in memory becomes current when all of it
 * is there; in the store as each write is done. */
static int decide(struct run_rank *rank, const struct plan_tape *tape, bool stands,
                  uint64_t *wasted_bytes)
{
    static const enum plan_queue leave[] = {PLAN_Q_UP, PLAN_Q_COLL};
    uint64_t bytes;
    uint64_t writes;
    int rc = 0;
    count_ahead(tape, &bytes, &writes);
    *wasted_bytes = stands ? 0 : bytes;
    if (run_memory_turns(&rank->memory) && stands) {
        const uint64_t number = run_executor_pushed(rank->executor) - 1; /* none is ahead */
        for (size_t i = 0; rc == 0 && i < sizeof leave / sizeof leave[0]; i++) {
            rc = run_executor_drive_to(rank->executor, number, leave[i],
                                       tape->queue_count[leave[i]]);
        }
        if (rc == 0) {
            run_memory_turn(&rank->memory);
        }
    }
    if (rank->store != NULL) {
        store_decide(rank->store, writes, stands);
    }
    return rc;
}

/* What the norm means to the update of the step that was just measured: made already, pending by the
 * norm's factor, or skipped. */
static int settle(struct run_rank *rank, const struct plan_tape *tape,
                  const struct run_order *order, struct run_result *result)
{
    const struct run_verdict verdict = run_update_verdict(rank->update);
    const bool inside = plan_chosen_timing(rank->plan) == PLAN_TIMING_INSIDE;
    int rc = 0;
    result->norm = verdict.norm;
    result->skipped = !verdict.finite;
    result->calm = verdict.finite && verdict.factor == 1;
    if (result->guessed) {
        rc = decide(rank, tape, result->calm, &result->guess_bytes);
    }
    rank->updates += !result->skipped;
    rank->pending = !result->skipped && !inside && !(result->guessed && result->calm);
    run_update_pending(rank->update,
                       &(struct run_update_terms){.lr = order->lr,
                                                  .betas = {order->betas[0], order->betas[1]},
                                                  .step = rank->updates,
                                                  .scale = verdict.factor / order->loss_scale});
    return rc;
}

static enum plan_kind kind_of(const struct run_rank *rank, bool guess)
{
    if (rank->saves) {
        return PLAN_NEXT_SAVE;
    }
    if (rank->saves_next && run_rank_updates_inside(rank)) {
        return rank->pending ? PLAN_NEXT_SAVE_OWN : PLAN_FIRST_SAVE_OWN;
    }
    return rank->pending ? (guess ? PLAN_GUESS_NEXT : PLAN_NEXT)
                         : (guess ? PLAN_GUESS : PLAN_FIRST);
}

/* A step whose update goes to a checkpoint: what it left pending follows. */
static void note_saved(struct run_rank *rank)
{
    rank->saves = false;
    if (rank->saves_next) {
        rank->saves_next = false;
        rank->saved_step = rank->pending || run_rank_updates_inside(rank);
        if (rank->pending) {
            run_rank_save_pending(rank);
        }
    }
}

int run_rank_step(struct run_rank *rank, const struct run_order *order, struct run_result *out)
{
    const enum plan_kind before = rank->last;
    const bool saves = rank->saves || rank->saves_next;
    const bool guess = order->guess && !saves && plan_generations(rank->plan) > 1;
    struct run_result result = {.guessed = guess, .steady = before < PLAN_DRAIN && !saves};
    struct kern_loss loss;
    const double targets = (double)order->targets;
    const float scale = targets > 0 ? (float)(order->loss_scale / targets) : 0.0f;
    const enum plan_kind kind = kind_of(rank, guess);
    (void)run_executor_stats_take(rank->executor); /* of an evaluation before */
    int rc = run_inputs_send(&rank->inputs, rank->compute_queue, scale);
    run_update_scaled(rank->update, order->loss_scale);
    run_update_ahead(rank->update,
                     &(struct run_update_terms){.lr = order->lr,
                                                .betas = {order->betas[0], order->betas[1]},
                                                .step = rank->updates + 1,
                                                .scale = 1 / order->loss_scale});
    rc = rc != 0 ? rc : run_step(rank, kind);
    rc = rc != 0 ? rc
                 : run_inputs_losses(&rank->inputs, rank->compute_queue,
                                     rank->options->micro_batches, &loss);
    rc = rc != 0 ? rc : settle(rank, plan_tape(rank->plan, before, kind), order, &result);
    if (rc == 0) {
        note_saved(rank);
        result.loss_sum = loss.sum;
        result.targets = loss.count;
        *out = result;
    }
    return rc;
}

int run_rank_drain(struct run_rank *rank)
{
    const enum plan_kind kind = rank->saves ? PLAN_DRAIN_SAVE : PLAN_DRAIN;
    int rc = rank->pending ? run_whole(rank, kind) : run_rank_rest(rank);
    rank->pending = rc == 0 ? false : rank->pending;
    rank->saves = rc == 0 ? false : rank->saves;
    return rc;
}

/* ---- checkpoints ---- */

/* Commands of a tape behind the last one that put something into a checkpoint. */
static uint32_t count_puts(const struct run_rank *rank, enum plan_kind kind)
{
    const struct plan_tape *tape = plan_tape(rank->plan, rank->last, kind);
    uint32_t count = 0;
    for (uint32_t i = 0; i < tape->count; i++) {
        const struct plan_command *command = &tape->commands[i];
        count += command->queue == PLAN_Q_WRITE_CHECKPOINT && command->op == PLAN_WRITE;
    }
    return count;
}

bool run_rank_puts(const struct run_rank *rank)
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
    return rank->save != NULL && rank->pending && !run_rank_updates_inside(rank) &&
           plan_tape(rank->plan, rank->last, PLAN_NEXT_SAVE) != NULL;
}

void run_rank_save_pending(struct run_rank *rank)
{
    run_save_expect(rank->save, count_puts(rank, PLAN_NEXT_SAVE));
    rank->saves = true;
}

void run_rank_save_next(struct run_rank *rank)
{
    if (run_rank_updates_inside(rank)) {
        run_save_expect(rank->save,
                        count_puts(rank, rank->pending ? PLAN_NEXT_SAVE_OWN : PLAN_FIRST_SAVE_OWN));
    }
    rank->saves_next = true;
    rank->saved_step = false;
}

bool run_rank_saved_step(const struct run_rank *rank)
{
    return rank->saved_step;
}

bool run_rank_owes(const struct run_rank *rank)
{
    return rank->saves;
}

int run_rank_save_seal(struct run_rank *rank)
{
    return run_save_seal(rank->save);
}

int run_rank_save_wait(struct run_rank *rank)
{
    rank->saves = rank->saves_next = rank->saved_step = false;
    return run_save_wait(rank->save);
}

bool run_rank_save_stuck(const struct run_rank *rank)
{
    return rank != NULL && rank->save != NULL && run_save_stuck(rank->save);
}

int run_rank_rest(struct run_rank *rank)
{
    int rc = withdraw(rank);
    return rc != 0 ? rc : run_executor_drive(rank->executor, 0);
}

int run_rank_check(struct run_rank *rank, const struct model_batch *batch)
{
    int64_t targets = 0;
    return run_inputs_put(&rank->inputs, 0, batch, &targets);
}

int run_rank_evaluate(struct run_rank *rank, const struct model_batch *batch, struct kern_loss *out)
{
    int64_t targets = 0;
    int rc = run_rank_drain(rank);
    rc = rc != 0 ? rc : run_inputs_put(&rank->inputs, 0, batch, &targets);
    rc = rc != 0 ? rc : run_inputs_send(&rank->inputs, rank->compute_queue, 0);
    rc = rc != 0 ? rc : run_whole(rank, PLAN_EVAL);
    return rc != 0 ? rc : run_inputs_losses(&rank->inputs, rank->compute_queue, 1, out);
}

uint64_t run_rank_updates(const struct run_rank *rank)
{
    return rank->updates;
}

struct run_stats run_rank_stats_take(struct run_rank *rank)
{
    return run_executor_stats_take(rank->executor);
}

struct plan_traffic run_rank_traffic_take(struct run_rank *rank)
{
    const struct plan_traffic traffic = rank->traffic;
    rank->traffic = (struct plan_traffic){0};
    return traffic;
}

uint64_t run_rank_received_bytes(const struct run_rank *rank)
{
    struct coll_traffic traffic = {0};
    uint64_t bytes = 0;
    if (rank->coll != NULL) {
        coll_traffic_report(rank->coll, &traffic);
    }
    for (int op = 0; op < COLL_OPS; op++) {
        bytes += traffic.received_bytes[op];
    }
    return bytes;
}

void run_rank_store_stats(struct run_rank *rank, struct store_stats *out)
{
    *out = (struct store_stats){0};
    if (rank->store != NULL) {
        store_stats_take(rank->store, out);
    }
}
