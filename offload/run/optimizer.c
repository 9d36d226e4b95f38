/* optimizer.c: makes an optimizer, and does the application's side of a step. */
#include "offload/run/optimizer_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "offload/plan/layout.h"
#include "offload/run/rates.h"

/* ---- other threads ---- */

/* Runs on the update's thread. */
static void give_back_updated(void *user, uint32_t block)
{
    run_optimizer_give_back(user, block, true);
}

/* Runs on the update's thread. */
static int total_of_all(void *user, const double *tiles, double *squares)
{
    struct run_optimizer *optimizer = user;
    memset(optimizer->tiles, 0, optimizer->tile_count * sizeof *optimizer->tiles);
    for (uint32_t b = 0; b < optimizer->blocks->count; b++) {
        const uint64_t elements = optimizer->blocks->list[b].elements;
        const uint64_t count = (elements + CORE_UPDATE_TILE - 1) / CORE_UPDATE_TILE;
        memcpy(optimizer->tiles + optimizer->first_tiles[b], tiles, count * sizeof *tiles);
        tiles += count;
    }
    const int rc = optimizer->sum(optimizer->sum_user, optimizer->tiles, optimizer->tile_count);
    if (rc != 0) {
        return core_err_set(rc < 0 ? rc : -EIO, "the sum over all processes failed (%d)", rc);
    }
    *squares = adam_norm_total(optimizer->tiles, optimizer->tile_count);
    return 0;
}

static int step_job(void *context, const void *arguments)
{
    const uint64_t *step = arguments;
    return run_optimizer_take_step(context, *step);
}

/* Ends the application's waits; the queue accepts no more steps. */
static void step_failed(void *context, int rc)
{
    struct run_optimizer *optimizer = context;
    core_line_fail(&optimizer->given_back, rc, core_err_message());
    core_line_fail(&optimizer->settled, rc, core_err_message());
}

/* ---- creating an optimizer ---- */

static void *zeroed(size_t count, size_t bytes)
{
    return calloc(count > 0 ? count : 1, bytes);
}

/* The worker no longer reads the previous settings, because the calling thread has waited for an
 * update with them. */
static void take_groups(struct run_optimizer *optimizer)
{
    memcpy(optimizer->step_groups, optimizer->groups,
           optimizer->group_count * sizeof *optimizer->groups);
}

static int make_tables(struct run_optimizer *optimizer, const struct run_optimizer_options *options)
{
    const size_t count = options->parameter_count;
    optimizer->parameter_count = count;
    optimizer->group_count = options->group_count;
    optimizer->parts = zeroed(count, sizeof(*optimizer->parts));
    optimizer->block_of = zeroed(count, sizeof *optimizer->block_of);
    optimizer->group_of = zeroed(count, sizeof *optimizer->group_of);
    optimizer->submitted = zeroed(count, sizeof *optimizer->submitted);
    optimizer->terms = zeroed(count, sizeof *optimizer->terms);
    optimizer->updates = zeroed(count, sizeof *optimizer->updates);
    optimizer->groups = zeroed(options->group_count, sizeof *optimizer->groups);
    optimizer->step_groups = zeroed(options->group_count, sizeof *optimizer->step_groups);
    if (optimizer->parts == NULL || optimizer->block_of == NULL || optimizer->group_of == NULL ||
        optimizer->submitted == NULL || optimizer->terms == NULL || optimizer->updates == NULL ||
        optimizer->groups == NULL || optimizer->step_groups == NULL) {
        return core_err_set(-ENOMEM, "no memory for %zu parameters", count);
    }
    memcpy(optimizer->groups, options->groups, options->group_count * sizeof *options->groups);
    take_groups(optimizer);
    for (size_t i = 0; i < count; i++) {
        optimizer->group_of[i] = options->parameters[i].group;
    }
    return 0;
}

static int make_block_tables(struct run_optimizer *optimizer)
{
    const uint32_t count = optimizer->blocks->count;
    optimizer->missing = zeroed(count, sizeof *optimizer->missing);
    optimizer->ready = zeroed(2 * (size_t)count, sizeof *optimizer->ready);
    optimizer->order = zeroed(count, sizeof *optimizer->order);
    optimizer->taken = zeroed(count, sizeof *optimizer->taken);
    optimizer->times_given_back = zeroed(count, sizeof *optimizer->times_given_back);
    if (optimizer->missing == NULL || optimizer->ready == NULL || optimizer->order == NULL ||
        optimizer->taken == NULL || optimizer->times_given_back == NULL) {
        return core_err_set(-ENOMEM, "no memory for %" PRIu32 " blocks", count);
    }
    for (uint32_t b = 0; b < count; b++) {
        optimizer->missing[b] = (uint32_t)optimizer->lent.blocks[b].part_count;
        optimizer->order[b] = count - 1 - b;
    }
    return 0;
}

static int check_world(const struct run_optimizer_options *options)
{
    if (options->rank > 0 && options->rank >= options->world) {
        return core_err_set(-EINVAL,
                            "the rank %" PRIu32 " must be below the number of processes, %" PRIu32,
                            options->rank, options->world);
    }
    const bool counts = options->options.clip > 0 || options->options.may_skip;
    return options->world <= 1 || options->sum != NULL || !counts
               ? 0
               : core_err_set(-EINVAL, "clip and check_overflow need the norm over all processes: "
                                       "give the function `sum`");
}

static int make_plan(struct run_optimizer *optimizer, const struct run_optimizer_options *options)
{
    if (options->parameter_count == 0 || options->group_count == 0) {
        return core_err_set(-EINVAL, "an optimizer needs a parameter and a group");
    }
    int rc = check_world(options);
    if (rc != 0) {
        return rc;
    }
    rc = make_tables(optimizer, options);
    if (rc != 0) {
        return rc;
    }
    rc = run_optimizer_make_blocks(optimizer, options);
    if (rc != 0) {
        return rc;
    }
    rc = make_block_tables(optimizer);
    if (rc != 0) {
        return rc;
    }
    if (options->device != NULL) {
        optimizer->options.budgets.host_taken_bytes += run_optimizer_device_bytes(optimizer);
    }
    rc = run_shapes_create_lent(optimizer->blocks, &optimizer->lent, &optimizer->options,
                                &optimizer->shapes);
    if (rc != 0) {
        return rc;
    }
    if (options->rates != NULL) {
        optimizer->rates = *options->rates;
    } else {
        rc = run_rates_measure(optimizer->shapes, &optimizer->options, &optimizer->rates);
    }
    if (rc != 0) {
        /* callers would take -EFBIG for a plan that does not fit */
        return rc == -EFBIG ? -EIO : rc;
    }
    optimizer->input = run_shapes_input(optimizer->shapes, &optimizer->options,
                                        &optimizer->rates.machine);
    optimizer->input.application = true;
    optimizer->input.budgets.device_is_host = true;
    rc = plan_create(&optimizer->input, &optimizer->plan);
    return rc != 0 ? rc : plan_flow_create(&optimizer->input, optimizer->plan, &optimizer->flow);
}

static int make(struct run_optimizer *optimizer, const struct run_optimizer_options *options)
{
    int rc = make_plan(optimizer, options);
    if (rc != 0) {
        return rc;
    }
    const struct core_queue_options worker = {.name = "optimizer", .depth = 4};
    optimizer->application = (struct run_application){
        .blocks = optimizer->blocks,
        .lent = &optimizer->lent,
        .groups = optimizer->terms,
        .group_count = (uint32_t)optimizer->parameter_count,
        .commands_max = plan_flow_commands_max(optimizer->flow),
        .updated = give_back_updated,
        .total = optimizer->sum != NULL ? total_of_all : NULL,
        .user = optimizer,
    };
    const struct run_rank_options rank = {
        .options = &optimizer->options,
        .shapes = optimizer->shapes,
        .application = &optimizer->application,
        .input = &optimizer->input,
        .plan = optimizer->plan,
        .run = optimizer->run,
        .progress = options->progress,
        .user = options->user,
    };
    run_optimizer_fill_terms(optimizer);
    rc = run_rank_create(&rank, &optimizer->rank);
    if (rc != 0) {
        return rc == -EFBIG ? -EIO : rc;
    }
    rc = options->device != NULL ? run_optimizer_device_open(optimizer, options->device) : 0;
    if (rc != 0) {
        return rc == -EFBIG ? -EIO : rc;
    }
    rc = run_rank_load_application(optimizer->rank);
    return rc != 0 ? rc : core_queue_create(&worker, &optimizer->worker);
}

int run_optimizer_create(const struct run_optimizer_options *options, struct run_optimizer **out)
{
    struct run_optimizer *optimizer = calloc(1, sizeof *optimizer);
    if (optimizer == NULL) {
        return core_err_set(-ENOMEM, "no memory for an optimizer");
    }
    optimizer->options = options->options;
    optimizer->options.micro_batches = 1;
    optimizer->lent.sums = options->sums;
    optimizer->lent.checks = options->checks && !options->sums && options->device == NULL;
    optimizer->lent.part_count = options->parameter_count;
    optimizer->options.wishes.grads = options->sums ? PLAN_WHERE_HOST : PLAN_WHERE_AUTO;
    optimizer->loss_scale = 1;
    optimizer->world = options->world > 0 ? options->world : 1;
    optimizer->rank_index = options->rank;
    optimizer->sum = optimizer->world > 1 ? options->sum : NULL;
    optimizer->sum_user = options->sum_user;
    optimizer->run = run_rank_number(optimizer);
    pthread_mutex_init(&optimizer->lock, NULL);
    core_line_init(&optimizer->arrived, "the application", NULL);
    core_line_init(&optimizer->closed, "the step's end", NULL);
    core_line_init(&optimizer->given_back, "the update", NULL);
    core_line_init(&optimizer->settled, "the norm", NULL);
    int rc = make(optimizer, options);
    if (rc != 0) {
        const struct core_err kept = core_err_keep(rc);
        run_optimizer_destroy(optimizer);
        return core_err_first(&kept, 0);
    }
    *out = optimizer;
    return 0;
}

static void cancel(struct run_optimizer *optimizer)
{
    static const char why[] = "the optimizer was destroyed before the step was closed";
    core_line_fail(&optimizer->arrived, -ECANCELED, why);
    core_line_fail(&optimizer->closed, -ECANCELED, why);
    core_bell_ring(&optimizer->rank->bell);
}

void run_optimizer_destroy(struct run_optimizer *optimizer)
{
    if (optimizer == NULL) {
        return;
    }
    if (optimizer->worker != NULL) {
        const uint64_t closed = optimizer->steps * optimizer->blocks->count;
        (void)core_fence_wait((struct core_fence){&optimizer->given_back, closed}, -1);
        cancel(optimizer);
        core_queue_destroy(optimizer->worker);
    }
    run_optimizer_device_stop(optimizer->device);
    (void)run_rank_destroy(optimizer->rank); /* always true for an application (rank.h) */
    run_optimizer_device_close(optimizer->device);
    plan_flow_destroy(optimizer->flow);
    plan_destroy(optimizer->plan);
    run_shapes_destroy(optimizer->shapes);
    if (optimizer->blocks != optimizer->whole) {
        blocks_destroy(optimizer->blocks);
    }
    blocks_destroy(optimizer->whole);
    free(optimizer->whole_of);
    if (optimizer->lent.blocks != NULL) {
        free(optimizer->lent.blocks[0].parts);
    }
    free(optimizer->lent.blocks);
    free(optimizer->first_tiles);
    free(optimizer->tiles);
    free(optimizer->parts);
    free(optimizer->block_of);
    free(optimizer->groups);
    free(optimizer->step_groups);
    free(optimizer->group_of);
    free(optimizer->submitted);
    free(optimizer->missing);
    free(optimizer->ready);
    free(optimizer->order);
    free(optimizer->taken);
    free(optimizer->times_given_back);
    free(optimizer->terms);
    free(optimizer->updates);
    pthread_mutex_destroy(&optimizer->lock);
    free(optimizer);
}

/* ---- the application's side ---- */

int run_optimizer_check_alive(struct run_optimizer *optimizer)
{
    const int rc = core_fence_poll((struct core_fence){&optimizer->given_back, UINT64_MAX});
    return rc < 0 ? rc : 0;
}

int run_optimizer_set_group(struct run_optimizer *optimizer, uint32_t index,
                            const struct adam_group *group)
{
    struct core_update_scalars scalars;
    struct adam_group checked = *group;
    if (index >= optimizer->group_count) {
        return core_err_set(-EINVAL, "group %" PRIu32 " does not exist; the optimizer has %" PRIu32,
                            index, optimizer->group_count);
    }
    checked.step = 1;
    int rc = adam_scalars(optimizer->options.rule, &checked, 1, &scalars);
    if (rc == 0) {
        rc = run_optimizer_check_alive(optimizer);
    }
    if (rc != 0) {
        return rc;
    }
    optimizer->groups[index] = *group;
    return 0;
}

int run_optimizer_set_loss_scale(struct run_optimizer *optimizer, double loss_scale)
{
    int rc = run_optimizer_check_alive(optimizer);
    if (rc != 0) {
        return rc;
    }
    if (optimizer->open) {
        return core_err_set(-EBUSY,
                            "the loss scale can change only between steps; a gradient of the "
                            "next step has been submitted");
    }
    if (!(loss_scale > 0) || loss_scale > 1e30) {
        return core_err_set(-EINVAL,
                            "loss scale %g is out of range; expected more than 0, at most 1e30",
                            loss_scale);
    }
    rc = run_optimizer_wait(optimizer, run_optimizer_last_token(optimizer));
    if (rc == 0) {
        optimizer->loss_scale = loss_scale;
    }
    return rc;
}

/* Steps count from 1; the number of blocks as index means all blocks. */
static uint64_t token_of(const struct run_optimizer *optimizer, uint64_t step, uint32_t block)
{
    return step == 0 ? 0 : (step - 1) * (optimizer->blocks->count + UINT64_C(1)) + block + 1;
}

/* Sets *next to the smallest value of `given_back` at which the answer may change. */
static bool token_reached(const struct run_optimizer *optimizer, uint64_t token, uint64_t *next)
{
    const uint32_t count = optimizer->blocks->count;
    const uint64_t step = token == 0 ? 0 : (token - 1) / (count + UINT64_C(1)) + 1;
    const uint64_t block = token == 0 ? 0 : (token - 1) % (count + UINT64_C(1));
    const uint64_t now = atomic_load_explicit(&optimizer->given_back.reached, memory_order_acquire);
    *next = block == count ? step * count : now + 1;
    return block == count ? now >= *next
                          : atomic_load_explicit(&optimizer->times_given_back[block],
                                                 memory_order_acquire) >= step;
}

/* Returns the token of a parameter in the last closed step. */
static uint64_t token_of_parameter(const struct run_optimizer *optimizer, size_t parameter)
{
    return optimizer->parts[parameter] == NULL
               ? 0
               : token_of(optimizer, optimizer->steps, optimizer->block_of[parameter]);
}

uint64_t run_optimizer_last_token(const struct run_optimizer *optimizer)
{
    return token_of(optimizer, optimizer->steps, optimizer->blocks->count);
}

int run_optimizer_wait(struct run_optimizer *optimizer, uint64_t token)
{
    uint64_t next = 0;
    int rc = 0;
    while (rc == 0 && !token_reached(optimizer, token, &next)) {
        rc = core_fence_wait((struct core_fence){&optimizer->given_back, next}, -1);
    }
    return rc;
}

int run_optimizer_wait_weights(struct run_optimizer *optimizer, size_t parameter)
{
    const bool all = parameter == RUN_OPTIMIZER_ALL;
    const size_t first = all ? 0 : parameter;
    const size_t end = all ? optimizer->parameter_count : parameter + 1;
    int rc = run_optimizer_wait(optimizer, all ? run_optimizer_last_token(optimizer)
                                               : token_of_parameter(optimizer, parameter));
    for (size_t i = first; rc == 0 && optimizer->device != NULL && i < end; i++) {
        rc = run_optimizer_device_show(optimizer, i);
    }
    return rc;
}

void run_optimizer_set_stream(struct run_optimizer *optimizer, void *stream)
{
    optimizer->stream = stream;
}

int run_optimizer_poll(struct run_optimizer *optimizer, uint64_t token)
{
    uint64_t next = 0;
    if (token_reached(optimizer, token, &next)) {
        return 1;
    }
    const int rc = core_fence_poll((struct core_fence){&optimizer->given_back, next});
    return rc < 0 ? rc : 0;
}

/* Begins a step, unless one is open. */
static int open_step(struct run_optimizer *optimizer)
{
    const uint64_t step = optimizer->steps + 1;
    const struct core_job job = {.run = step_job,
                                 .failed = step_failed,
                                 .context = optimizer,
                                 .arguments = &step,
                                 .arguments_bytes = sizeof step};
    struct core_fence unused;
    if (optimizer->open) {
        return 0;
    }
    if (run_optimizer_inside(optimizer)) {
        take_groups(optimizer);
    }
    int rc = core_queue_submit(optimizer->worker, &job, &unused);
    while (rc == -EAGAIN) { /* earlier steps are not updated yet */
        rc = run_optimizer_wait(optimizer, token_of(optimizer, step - 2, optimizer->blocks->count));
        if (rc == 0) {
            rc = core_queue_submit(optimizer->worker, &job, &unused);
        }
    }
    optimizer->open = rc == 0;
    return rc;
}

/* Tells the worker that `handed` blocks are ready, counted over all steps. */
static void hand_over(struct run_optimizer *optimizer, uint64_t handed)
{
    core_line_reach(&optimizer->arrived, handed);
    if (atomic_load_explicit(&optimizer->awaits_ready, memory_order_seq_cst)) {
        core_bell_ring(&optimizer->rank->bell);
    }
}

/* Returns the value that `arrived` must reach. */
static uint64_t add_ready(struct run_optimizer *optimizer, uint32_t block)
{
    optimizer->ready[optimizer->handed++ % (2 * (uint64_t)optimizer->blocks->count)] = block;
    return optimizer->handed;
}

static void widen(enum core_update_type type, const void *from, size_t count, float *to)
{
    if (type == CORE_UPDATE_BF16) {
        core_bf16_widen(from, count, to);
    } else if (type == CORE_UPDATE_FP16) {
        core_fp16_widen(from, count, to);
    } else {
        memcpy(to, from, count * sizeof *to);
    }
}

static void add_gradient(struct run_optimizer *optimizer, size_t parameter, const void *gradient)
{
    enum { AT_ONCE = 4096 };
    const uint32_t block = optimizer->block_of[parameter];
    const struct run_lent_part *part = optimizer->parts[parameter];
    const enum core_update_type type = optimizer->lent.blocks[block].gradients;
    const size_t bytes = type == CORE_UPDATE_F32 ? 4 : 2;
    const uint32_t buffer = plan_layout_of(optimizer->plan)->blocks[block].gradient;
    float *sum = (float *)(void *)optimizer->rank->memory.at[buffer] + part->first;
    float terms[AT_ONCE];
    for (uint64_t at = 0; at < part->count; at += AT_ONCE) {
        const size_t count = part->count - at < AT_ONCE ? (size_t)(part->count - at) : AT_ONCE;
        widen(type, (const char *)gradient + at * bytes, count, terms);
        for (size_t i = 0; i < count; i++) {
            sum[at + i] = part->gradient == NULL ? terms[i] : sum[at + i] + terms[i];
        }
    }
}

int run_optimizer_submit(struct run_optimizer *optimizer, size_t parameter, const void *gradient,
                         bool last, uint64_t *token)
{
    const uint64_t step = optimizer->steps + 1;
    if (parameter >= optimizer->parameter_count) {
        return core_err_set(-EINVAL, "parameter %zu does not exist; the optimizer has %zu",
                            parameter, optimizer->parameter_count);
    }
    struct run_lent_part *part = optimizer->parts[parameter];
    const uint32_t block = optimizer->block_of[parameter];
    const size_t bytes = part == NULL                                                 ? 1
                         : optimizer->lent.blocks[block].gradients == CORE_UPDATE_F32 ? 4
                                                                                      : 2;
    if (gradient == NULL || (uintptr_t)gradient % bytes != 0) {
        return core_err_set(-EINVAL, "a gradient at %p is not aligned to %zu bytes", gradient,
                            bytes);
    }
    int rc = run_optimizer_check_alive(optimizer);
    if (rc != 0) {
        return rc;
    }
    if (optimizer->submitted[parameter] == step) {
        return core_err_set(-EALREADY,
                            "parameter %zu has its last gradient of step %" PRIu64 " already",
                            parameter, step);
    }
    if (!last && !optimizer->lent.sums) {
        return core_err_set(
            -EINVAL, "parameter %zu: several gradients in a step need the option `accumulate`",
            parameter);
    }
    /* The worker must have copied the last step's settings. If this process has no part of the
     * parameter, any block of that step shows it. */
    rc = run_optimizer_wait(optimizer, part != NULL ? token_of_parameter(optimizer, parameter)
                                                    : token_of(optimizer, optimizer->steps, 0));
    if (rc != 0) {
        return rc;
    }
    rc = open_step(optimizer);
    if (rc != 0) {
        return rc;
    }
    if (part == NULL) { /* other processes have the parameter */
        optimizer->submitted[parameter] = last ? step : 0;
        *token = 0;
        return 0;
    }
    const char *own = (const char *)gradient + part->inside * bytes;
    if (optimizer->device != NULL) {
        rc = run_optimizer_device_take(optimizer, parameter, optimizer->lent.sums, &own);
        if (rc != 0) {
            return rc;
        }
        run_optimizer_device_note(optimizer, parameter);
    }
    if (optimizer->lent.sums) {
        add_gradient(optimizer, parameter, own);
    }
    part->gradient = own;
    if (optimizer->lent.checks) {
        part->seal = run_lent_seal(&optimizer->lent.blocks[block], part);
    }
    if (!last) {
        *token = 0;
        return 0;
    }
    optimizer->submitted[parameter] = step;
    if (--optimizer->missing[block] == 0) {
        hand_over(optimizer, add_ready(optimizer, block));
    }
    *token = token_of(optimizer, step, block);
    return 0;
}

int run_optimizer_step(struct run_optimizer *optimizer, uint64_t *token)
{
    const uint32_t count = optimizer->blocks->count;
    int rc = run_optimizer_check_alive(optimizer);
    if (rc != 0) {
        return rc;
    }
    if (!optimizer->open) {
        return core_err_set(-ENODATA, "the step has no gradient: none was submitted since the "
                                      "last step");
    }
    const uint64_t step = ++optimizer->steps;
    optimizer->open = false;
    if (!run_optimizer_inside(optimizer)) {
        take_groups(optimizer);
    }
    core_line_reach(&optimizer->closed, step);
    for (uint32_t b = count; b-- > 0;) {
        if (optimizer->missing[b] > 0) {
            (void)add_ready(optimizer, b);
        }
        optimizer->missing[b] = (uint32_t)optimizer->lent.blocks[b].part_count;
    }
    hand_over(optimizer, optimizer->handed);
    *token = token_of(optimizer, step, count);
    return 0;
}

int run_optimizer_result(struct run_optimizer *optimizer, struct run_optimizer_result *out)
{
    int rc = core_fence_wait((struct core_fence){&optimizer->settled, optimizer->steps}, -1);
    if (rc == 0) {
        *out = optimizer->result;
    }
    return rc;
}

struct plan_span run_optimizer_share(const struct run_optimizer *optimizer, size_t parameter)
{
    const struct run_lent_part *part = optimizer->parts[parameter];
    return part == NULL ? (struct plan_span){0}
                        : (struct plan_span){.first = part->inside, .count = part->count};
}

struct run_optimizer_info run_optimizer_info(const struct run_optimizer *optimizer)
{
    struct run_optimizer_info info = {
        .host_bytes = plan_tier_bytes(optimizer->plan, PLAN_HOST) +
                      optimizer->input.budgets.host_taken_bytes,
        .store_bytes = plan_tier_bytes(optimizer->plan, PLAN_STORE),
        .resident_bytes = plan_consumer_bytes(&optimizer->input, optimizer->plan, PLAN_HOST,
                                              PLAN_FOR_STATES),
        .blocks = optimizer->blocks->count};
    for (size_t i = 0; i < optimizer->parameter_count; i++) {
        info.parameters += run_optimizer_share(optimizer, i).count;
    }
    return info;
}

/* ---- weights that the application wrote ---- */

static int follow_chunk(struct run_optimizer *optimizer, uint32_t block, uint32_t index,
                        const struct run_lent_part *part, struct run_slots *slots)
{
    struct run_rank *rank = optimizer->rank;
    const struct run_chunk chunk = run_chunk_at(rank, block, index);
    const struct store_place place = {STORE_STATES, block, index};
    char *states = run_chunk_states_memory(rank, &chunk);
    struct run_slot *slot = NULL;
    if (run_lent_overlap(part, chunk.first, chunk.count).count == 0) {
        return 0;
    }
    if (states == NULL) {
        slot = run_slots_next(slots);
        int rc = run_rank_wait(rank, slot->moved);
        if (rc != 0) {
            return rc;
        }
        states = slot->memory + plan_slot_states_offset(optimizer->plan);
        rc = run_chunk_get(rank, &place, states, &slot->moved);
        if (rc != 0) {
            return rc;
        }
        rc = run_rank_wait(rank, slot->moved);
        if (rc != 0) {
            return rc;
        }
    }
    const struct adam_arrays arrays = run_update_arrays(
        &optimizer->input.blocks[block].format, chunk.first, chunk.count, NULL, states, NULL);
    run_lent_begin_masters(&optimizer->lent.blocks[block], part, &arrays);
    return slot != NULL ? run_chunk_put(rank, &place, states, &slot->moved) : 0;
}

int run_optimizer_quiesce(struct run_optimizer *optimizer)
{
    int rc = core_fence_wait(core_queue_tail(optimizer->worker), -1);
    if (rc != 0) {
        return rc;
    }
    rc = run_rank_quiesce(optimizer->rank);
    plan_flow_forget(optimizer->flow);
    return rc;
}

int run_optimizer_weights_changed(struct run_optimizer *optimizer, size_t parameter)
{
    struct run_slots slots;
    if (parameter >= optimizer->parameter_count) {
        return core_err_set(-EINVAL, "parameter %zu does not exist; the optimizer has %zu",
                            parameter, optimizer->parameter_count);
    }
    int rc = run_optimizer_check_alive(optimizer);
    if (rc != 0) {
        return rc;
    }
    if (optimizer->open) {
        return core_err_set(-EBUSY, "weights can change only between steps; a gradient of the next "
                                    "step has been submitted");
    }
    rc = run_optimizer_quiesce(optimizer);
    if (rc != 0 || optimizer->parts[parameter] == NULL) {
        return rc;
    }
    const uint32_t block = optimizer->block_of[parameter];
    if (optimizer->device != NULL) {
        rc = run_optimizer_device_read(optimizer, parameter);
    }
    run_slots_init(&slots, optimizer->rank);
    for (uint32_t i = 0; rc == 0 && i < run_chunk_count(optimizer->rank, block); i++) {
        rc = follow_chunk(optimizer, block, i, optimizer->parts[parameter], &slots);
    }
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, run_slots_wait(optimizer->rank, &slots));
}
