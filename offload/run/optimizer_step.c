/* optimizer_step.c: a step on the worker's thread: puts ready blocks on tapes, and fetches states
 * ahead in the previous step's order (docs/decisions/063). */
#include <stdatomic.h>
#include <string.h>

#include "core/base/err.h"
#include "offload/plan/layout.h"
#include "offload/run/optimizer_internal.h"

bool run_optimizer_inside(const struct run_optimizer *optimizer)
{
    return plan_chosen_timing(optimizer->plan) == PLAN_TIMING_INSIDE;
}

void run_optimizer_fill_terms(struct run_optimizer *optimizer)
{
    for (size_t i = 0; i < optimizer->parameter_count; i++) {
        optimizer->terms[i] = optimizer->step_groups[optimizer->group_of[i]];
        optimizer->terms[i].step = optimizer->updates[i] + 1;
    }
}

void run_optimizer_give_back(struct run_optimizer *optimizer, uint32_t block, bool updated)
{
    struct run_lent_block *lent = &optimizer->lent.blocks[block];
    for (size_t i = 0; i < lent->part_count; i++) {
        optimizer->updates[lent->parts[i].index] += updated && lent->parts[i].gradient != NULL;
        lent->parts[i].gradient = NULL;
    }
    pthread_mutex_lock(&optimizer->lock);
    atomic_fetch_add_explicit(&optimizer->times_given_back[block], 1, memory_order_release);
    core_line_reach(&optimizer->given_back, ++optimizer->given_back_count);
    pthread_mutex_unlock(&optimizer->lock);
}

/* ---- tapes ---- */

static bool has_gradient(const struct run_optimizer *optimizer, uint32_t block)
{
    const struct run_lent_block *lent = &optimizer->lent.blocks[block];
    size_t i = 0;
    while (i < lent->part_count && lent->parts[i].gradient == NULL) {
        i++;
    }
    return i < lent->part_count;
}

/* Another tape can be pushed when at most one is under way. */
static int make_room(struct run_optimizer *optimizer)
{
    return run_executor_drive(optimizer->rank->executor, 1);
}

static int push(struct run_optimizer *optimizer)
{
    return run_executor_push(optimizer->rank->executor, plan_flow_end(optimizer->flow),
                             (struct core_fence){0});
}

/* Gradients are expected in the previous step's order. Updates after the norm run in the opposite
 * order, that of the next forward pass. */
static uint32_t expected_at(const struct run_optimizer *optimizer, uint32_t place)
{
    return optimizer
        ->order[run_optimizer_inside(optimizer) ? place : optimizer->blocks->count - 1 - place];
}

/* Fetches states of expected blocks into empty slots, once per block and step. Stops if more chunks
 * lost their slots than there are slots: the order then differs too much. */
static int fetch_ahead(struct run_optimizer *optimizer)
{
    const uint32_t count = optimizer->blocks->count;
    const uint32_t slots = plan_layout_slots(plan_layout_of(optimizer->plan)->state_slots);
    bool full = false;
    int rc = 0;
    if (slots == 0 || optimizer->expected == count ||
        plan_flow_lost(optimizer->flow) - optimizer->lost > slots) {
        return 0;
    }
    plan_flow_begin(optimizer->flow);
    while (rc == 0 && !full && optimizer->expected < count && plan_flow_has_room(optimizer->flow)) {
        const uint32_t block = expected_at(optimizer, optimizer->expected);
        if (optimizer->taken[block] < optimizer->step) {
            rc = plan_flow_fetch(optimizer->flow, block, &full);
        }
        optimizer->expected += !full;
    }
    return rc != 0 ? rc : push(optimizer);
}

/* ---- what blocks need ---- */

static void clear_sums(struct run_optimizer *optimizer, uint32_t block)
{
    const struct plan_layout *layout = plan_layout_of(optimizer->plan);
    const uint64_t first = layout->blocks[block].first_tile;
    const uint64_t count = plan_chunk_count(optimizer->input.blocks[block].elements,
                                            PLAN_TILE_ELEMENTS);
    memset(optimizer->rank->memory.at[layout->tile_sums] + first * PLAN_TILE_SUM_BYTES, 0,
           count * PLAN_TILE_SUM_BYTES);
}

/* Returns whether a block's update also sums its squares, to read gradients once. Needs updates
 * that do not wait for the norm, single gradients, one parameter with chunks that begin at its
 * tiles, and whole tiles for nine tenths of the threads. */
static bool sums_with_update(const struct run_optimizer *optimizer, uint32_t block)
{
    const struct run_lent_block *lent = &optimizer->lent.blocks[block];
    const uint64_t chunk = plan_chunk_elements(optimizer->plan);
    const uint64_t count = lent->parts[0].count < chunk ? lent->parts[0].count : chunk;
    const uint64_t tiles = plan_chunk_count(count, PLAN_TILE_ELEMENTS);
    const uint64_t threads = optimizer->options.threads;
    const uint64_t rounds = plan_chunk_count(tiles, threads);
    return run_optimizer_inside(optimizer) && !optimizer->lent.sums && lent->part_count == 1 &&
           (lent->parts[0].inside | chunk) % PLAN_TILE_ELEMENTS == 0 &&
           10 * tiles >= 9 * rounds * threads;
}

static int add_ready(struct run_optimizer *optimizer, uint32_t block)
{
    const bool inside = run_optimizer_inside(optimizer);
    optimizer->taken[block] = optimizer->step;
    int rc = optimizer->device != NULL ? run_optimizer_device_wait(optimizer, block) : 0;
    if (rc != 0) {
        return rc;
    }
    if (!has_gradient(optimizer, block)) {
        clear_sums(optimizer, block);
        if (inside) {
            run_optimizer_give_back(optimizer, block, false);
        }
        return 0;
    }
    if (sums_with_update(optimizer, block)) {
        return plan_flow_update_sums(optimizer->flow, block);
    }
    rc = plan_flow_sums(optimizer->flow, block);
    return rc != 0 || !inside ? rc : plan_flow_update(optimizer->flow, block, true);
}

static int add_update(struct run_optimizer *optimizer, uint32_t block)
{
    if (!has_gradient(optimizer, block)) {
        run_optimizer_give_back(optimizer, block, false);
        return 0;
    }
    return plan_flow_update(optimizer->flow, block, false);
}

/* ---- an update of all blocks ---- */

/* Drives tapes until `arrived` reaches `ready` or no tape is left. */
static int drive_until_ready(struct run_optimizer *optimizer, struct core_fence ready)
{
    atomic_store_explicit(&optimizer->awaits_ready, true, memory_order_seq_cst);
    int rc = run_executor_drive_until(optimizer->rank->executor, ready, 0);
    atomic_store_explicit(&optimizer->awaits_ready, false, memory_order_relaxed);
    return rc;
}

/* Waits for more than `taken` ready blocks of all steps. Sets *out to their number. */
static int wait_ready(struct run_optimizer *optimizer, uint64_t taken, uint64_t *out)
{
    const struct core_fence more = {&optimizer->arrived, taken + 1};
    int rc = core_fence_poll(more);
    if (rc == 0) { /* until then, reads ahead */
        rc = fetch_ahead(optimizer);
        if (rc == 0) {
            rc = drive_until_ready(optimizer, more);
        }
        if (rc == 0) {
            rc = core_fence_sleep(more);
        }
    }
    *out = atomic_load_explicit(&optimizer->arrived.reached, memory_order_acquire);
    return rc < 0 ? rc : 0;
}

/* Blocks that are ready at the same time may share a tape. */
static int take_ready(struct run_optimizer *optimizer)
{
    const uint32_t count = optimizer->blocks->count;
    const uint64_t end = optimizer->step * count;
    uint64_t taken = end - count;
    while (taken < end) {
        uint64_t arrived = 0;
        int rc = make_room(optimizer);
        if (rc == 0) {
            rc = wait_ready(optimizer, taken, &arrived);
        }
        if (rc == 0) {
            rc = make_room(optimizer);
        }
        plan_flow_begin(optimizer->flow);
        while (rc == 0 && taken < arrived && taken < end && plan_flow_has_room(optimizer->flow)) {
            rc = add_ready(optimizer, optimizer->ready[taken++ % (2 * (uint64_t)count)]);
        }
        if (rc == 0) {
            rc = push(optimizer);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int take_norm(struct run_optimizer *optimizer)
{
    struct run_executor *executor = optimizer->rank->executor;
    int rc = make_room(optimizer);
    if (rc != 0) {
        return rc;
    }
    plan_flow_begin(optimizer->flow);
    rc = plan_flow_norm(optimizer->flow);
    if (rc == 0) {
        rc = push(optimizer);
    }
    return rc != 0 ? rc
                   : run_executor_drive_to(executor, run_executor_pushed(executor) - 1,
                                           PLAN_Q_UPDATE, 1);
}

static int update_deferred(struct run_optimizer *optimizer, double factor)
{
    const uint32_t count = optimizer->blocks->count;
    const struct run_update_terms terms = {optimizer->terms, factor / optimizer->loss_scale};
    run_optimizer_fill_terms(optimizer);
    run_update_set_deferred(optimizer->rank->update, &terms);
    for (uint32_t i = 0; i < count;) {
        int rc = make_room(optimizer);
        plan_flow_begin(optimizer->flow);
        while (rc == 0 && i < count && plan_flow_has_room(optimizer->flow)) {
            rc = add_update(optimizer, expected_at(optimizer, i++));
        }
        if (rc == 0) {
            rc = push(optimizer);
        }
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* Gives all blocks back without an update. */
static void skip(struct run_optimizer *optimizer)
{
    for (uint32_t b = 0; b < optimizer->blocks->count; b++) {
        run_optimizer_give_back(optimizer, b, false);
    }
}

static int settle(struct run_optimizer *optimizer)
{
    const struct run_verdict verdict = run_update_verdict(optimizer->rank->update);
    int rc = core_fence_wait((struct core_fence){&optimizer->closed, optimizer->step}, -1);
    if (rc != 0) {
        return rc;
    }
    optimizer->result = (struct run_optimizer_result){.step = optimizer->before + optimizer->step,
                                                      .norm = verdict.norm,
                                                      .factor = verdict.factor,
                                                      .skipped = !verdict.finite};
    core_line_reach(&optimizer->settled, optimizer->step);
    if (!verdict.finite) {
        skip(optimizer);
        return 0;
    }
    return run_optimizer_inside(optimizer) ? 0 : update_deferred(optimizer, verdict.factor);
}

/* Records this step's order, and reads ahead until a block of the next step is ready. */
static int end_step(struct run_optimizer *optimizer)
{
    const uint32_t count = optimizer->blocks->count;
    const uint64_t first = (optimizer->step - 1) * count;
    for (uint32_t i = 0; i < count; i++) {
        optimizer->order[i] = optimizer->ready[(first + i) % (2 * (uint64_t)count)];
    }
    int rc = make_room(optimizer);
    if (rc != 0) {
        return rc;
    }
    optimizer->step++;
    optimizer->expected = 0;
    optimizer->lost = plan_flow_lost(optimizer->flow);
    rc = fetch_ahead(optimizer);
    const struct core_fence next = {&optimizer->arrived, first + count + 1};
    return rc != 0 ? rc : drive_until_ready(optimizer, next);
}

int run_optimizer_take_step(struct run_optimizer *optimizer, uint64_t step)
{
    struct run_rank *rank = optimizer->rank;
    const struct run_update_terms terms = {optimizer->terms, 1 / optimizer->loss_scale};
    optimizer->step = step;
    optimizer->expected = 0;
    optimizer->lost = plan_flow_lost(optimizer->flow);
    if (run_optimizer_inside(optimizer)) {
        run_optimizer_fill_terms(optimizer);
        run_update_set_speculative(rank->update, &terms);
    }
    run_update_set_loss_scale(rank->update, optimizer->loss_scale);
    int rc = take_ready(optimizer);
    if (rc != 0) {
        return rc;
    }
    rc = take_norm(optimizer);
    if (rc != 0) {
        return rc;
    }
    rc = settle(optimizer);
    return rc != 0 ? rc : end_step(optimizer);
}
