/* lane_update.c: keeps an `adam` per trained block, and one more per NUMA node. All of a block have
 * its index as `number`, so that random numbers do not depend on the placement. */
#include "offload/run/lane_update.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "offload/plan/layout.h"
#include "offload/plan/shard.h"

/* Added to the norm, as in PyTorch and DeepSpeed, so a norm equal to the limit is clipped, too. */
static const double clip_epsilon = 1e-6;

enum { QUEUE_DEPTH = 64 };

struct update_block {
    struct adam *adam; /* owned; NULL: the block is frozen or lent */
    /* owned, [node_count]: one per node's queue; may be NULL */
    struct adam **of_nodes;
    const uint32_t *groups; /* indices in the update's `groups` */
    size_t group_count;
};

struct update_terms {
    struct adam_group *groups; /* owned, [group_count] */
    double scale;
};

/* Only the queue's thread uses the team. */
struct update_node {
    struct core_queue *queue; /* owned */
    struct core_team *team;   /* owned */
};

/* Queues end commands in any order, but fences keep the order of submission: `line` counts the
 * commands before the first one under way. */
struct update_order {
    struct core_line line;
    uint64_t submitted;   /* used by the rank's thread only */
    pthread_mutex_t lock; /* protects the next two members and the line's advances */
    bool *done;           /* owned, [room]: command n is done, at n % room */
    uint64_t ended;       /* commands before the first one that is not done */
    uint64_t room;        /* more than the commands under way */
};

struct run_update {
    const struct blocks *list; /* borrowed, like the next six */
    const struct run_options *options;
    const struct plan_input *input;
    const struct plan *plan;
    const struct run_memory *memory;
    const struct run_place *place;
    const struct run_lent *lent;         /* NULL: none */
    struct run_lent_update *lent_update; /* owned; NULL: nothing is lent */
    void (*updated)(void *user, uint32_t block);
    int (*total)(void *user, const double *tiles, double *squares);
    void *user;
    struct core_queue *queue;  /* owned */
    struct core_team *team;    /* owned; has all threads of the update */
    struct update_node *nodes; /* owned, [node_count]: update chunks; NULL: `queue` does */
    uint32_t node_count;
    struct update_order order; /* used if there are nodes */
    struct adam_norm norm;
    uint32_t group_count;
    struct update_block *blocks; /* owned, [list->count] */
    uint32_t *groups;            /* owned: all blocks' groups, block by block */
    /* owned, [list->count + 1]: tiles before each block; last: all */
    uint64_t *first_tiles;
    /* Set by the rank's thread while no update runs. */
    struct update_terms speculative;
    struct update_terms deferred;
    double loss_scale;
    /* Written by NORM, read after its fence. */
    struct run_verdict verdict;
};

static enum core_update_type gradients_of(const struct run_update *update, uint32_t block)
{
    return update->lent == NULL ? run_options_gradients(update->options)
           : update->lent->sums ? CORE_UPDATE_F32
                                : update->lent->blocks[block].gradients;
}

/* ---- creating a lane ---- */

static uint32_t group_of(const struct block_run *run, const struct run_options *options)
{
    return options->decay_all ? 0 : run->group;
}

bool run_update_splits_q8_block(const struct blocks *blocks, const struct run_options *options)
{
    for (uint32_t b = 0; options->moments == CORE_UPDATE_Q8 && b < blocks->count; b++) {
        const struct block *block = &blocks->list[b];
        for (size_t i = 0; block->trained && i + 1 < block->run_count; i++) {
            const struct block_run *run = &block->runs[i];
            if (group_of(run, options) != group_of(run + 1, options) &&
                run->end % CORE_UPDATE_Q8_BLOCK != 0) {
                return true;
            }
        }
    }
    return false;
}

static void set_terms(const struct run_update *update, struct update_terms *terms,
                      const struct adam_group *groups, double scale)
{
    memcpy(terms->groups, groups, update->group_count * sizeof *groups);
    terms->scale = scale;
}

/* Numbers the groups of a block's runs from 0; groups[n] is the update's group of number n. Returns
 * the number of groups. */
static size_t list_runs(const struct run_update *update, const struct block *block,
                        struct adam_run *runs, uint32_t *groups)
{
    size_t count = 0;
    for (size_t i = 0; i < block->run_count; i++) {
        const uint32_t group = group_of(&block->runs[i], update->options);
        size_t own = 0;
        assert(group < update->group_count);
        while (own < count && groups[own] != group) {
            own++;
        }
        if (own == count) {
            groups[count++] = group;
        }
        runs[i] = (struct adam_run){.end = block->runs[i].end, .group = (uint32_t)own};
    }
    return count;
}

static int make_adams(struct run_update *update, const struct adam_options *options,
                      struct update_block *made)
{
    struct adam_options own = *options;
    int rc = adam_create(options, &made->adam);
    if (rc != 0 || update->node_count == 0) {
        return rc;
    }
    made->of_nodes = calloc(update->node_count, sizeof *made->of_nodes);
    if (made->of_nodes == NULL) {
        return core_err_set(-ENOMEM, "no memory for the optimizer of %u NUMA nodes",
                            update->node_count);
    }
    for (uint32_t n = 0; rc == 0 && n < update->node_count; n++) {
        own.team = update->nodes[n].team;
        rc = adam_create(&own, &made->of_nodes[n]);
    }
    return rc;
}

static int make_adam(struct run_update *update, uint32_t index, uint32_t *groups)
{
    const struct block *block = &update->list->list[index];
    const struct run_options *options = update->options;
    struct update_block *made = &update->blocks[index];
    struct adam_run *runs = calloc(block->run_count, sizeof *runs);
    struct adam_group *first = calloc(block->run_count, sizeof *first);
    int rc = runs != NULL && first != NULL
                 ? 0
                 : core_err_set(-ENOMEM, "no memory for the optimizer of %s", block->name);
    if (rc == 0) {
        made->groups = groups;
        made->group_count = list_runs(update, block, runs, groups);
        for (size_t i = 0; i < made->group_count; i++) {
            first[i] = update->speculative.groups[groups[i]];
        }
        const struct adam_options adam = {
            .rule = options->rule,
            .master = run_options_master(options),
            .gradients = gradients_of(update, index),
            .moments = options->moments,
            .count = block->elements,
            .runs = runs,
            .runs_count = block->run_count,
            .groups = first,
            .groups_count = made->group_count,
            .seed = options->seed,
            .number = index,
            .team = update->team,
        };
        rc = make_adams(update, &adam, made);
    }
    free(runs);
    free(first);
    return rc;
}

static int make_tables(struct run_update *update, const struct run_update_options *options)
{
    const struct blocks *list = update->list;
    const size_t group_count = options->group_count;
    size_t run_count = 0;
    for (uint32_t b = 0; b < list->count; b++) {
        run_count += list->list[b].run_count;
    }
    update->blocks = calloc(list->count, sizeof *update->blocks);
    update->groups = calloc(run_count > 0 ? run_count : 1, sizeof *update->groups);
    update->first_tiles = calloc((size_t)list->count + 1, sizeof *update->first_tiles);
    update->speculative.groups = calloc(group_count, sizeof *update->speculative.groups);
    update->deferred.groups = calloc(group_count, sizeof *update->deferred.groups);
    if (update->blocks == NULL || update->groups == NULL || update->first_tiles == NULL ||
        update->speculative.groups == NULL || update->deferred.groups == NULL) {
        return core_err_set(-ENOMEM, "no memory for the optimizer of %" PRIu32 " blocks",
                            list->count);
    }
    for (uint32_t b = 0; b < list->count; b++) {
        update->first_tiles[b + 1] = update->first_tiles[b] +
                                     (list->list[b].elements + CORE_UPDATE_TILE - 1) /
                                         CORE_UPDATE_TILE;
    }
    set_terms(update, &update->speculative, options->groups, 1);
    set_terms(update, &update->deferred, options->groups, 1);
    return 0;
}

/* An application's chunks arrive a few at a time, so all threads share them. */
static int make_nodes(struct run_update *update, struct core_bell *bell)
{
    const struct run_place *place = update->place;
    if (place->node_count < 2 || update->lent != NULL) {
        return 0;
    }
    core_line_init(&update->order.line, "update", bell);
    update->order.room = 2 * (uint64_t)(place->node_count + 1) * QUEUE_DEPTH;
    update->order.done = calloc(update->order.room, sizeof *update->order.done);
    update->nodes = calloc(place->node_count, sizeof *update->nodes);
    if (update->nodes == NULL || update->order.done == NULL) {
        return core_err_set(-ENOMEM, "no memory for the queues of %u NUMA nodes",
                            place->node_count);
    }
    for (; update->node_count < place->node_count; update->node_count++) {
        const struct run_place_node *where = &place->nodes[update->node_count];
        struct update_node *node = &update->nodes[update->node_count];
        const struct core_team_options team = {
            .name = "update", .count = where->end - where->first, .cpus = &where->cpus};
        const struct core_queue_options queue = {
            .name = "update", .depth = QUEUE_DEPTH, .cpus = &where->cpus, .bell = bell};
        int rc = core_team_create(&team, &node->team);
        if (rc != 0) {
            return rc;
        }
        rc = core_queue_create(&queue, &node->queue);
        if (rc != 0) {
            core_team_destroy(node->team);
            return rc;
        }
    }
    return 0;
}

/* Returns whether no lane waits for the update: an application's states are in memory. The
 * application's thread, which competes for processors, then need not see each command end. */
static bool works_alone(const struct run_update *update)
{
    return update->lent != NULL &&
           plan_layout_slots(plan_layout_of(update->plan)->state_slots) == 0;
}

static int make(struct run_update *update, const struct run_update_options *options)
{
    const struct core_cpus *cpus = update->place->node_count > 0 ? &update->place->nodes[0].cpus
                                                                 : NULL;
    const struct core_queue_options queue = {.name = "update",
                                             .depth = QUEUE_DEPTH,
                                             .cpus = cpus,
                                             .bell = options->bell,
                                             .rings_below = works_alone(update) ? 2 : 0,
                                             /* sleeps at once: an application may compute for any
                                              * length of time */
                                             .spin_ns = update->lent != NULL ? -1 : 0};
    int rc = run_place_team(update->place, "update", update->options->threads, &update->team);
    if (rc != 0) {
        return rc;
    }
    rc = make_nodes(update, options->bell);
    if (rc != 0) {
        return rc;
    }
    adam_norm_init(&update->norm, update->team, CORE_CPU_ALL);
    rc = make_tables(update, options);
    if (rc == 0 && update->lent != NULL) {
        rc = run_lent_update_create(update->lent, update->list, &update->norm, update->options,
                                    &update->lent_update);
    }
    uint32_t *groups = update->groups;
    for (uint32_t b = 0; rc == 0 && update->lent == NULL && b < update->list->count; b++) {
        if (update->list->list[b].trained) {
            rc = make_adam(update, b, groups);
            groups += update->blocks[b].group_count;
        }
    }
    return rc != 0 ? rc : core_queue_create(&queue, &update->queue);
}

int run_update_create(const struct run_update_options *options, struct run_update **out)
{
    struct run_update *update = calloc(1, sizeof *update);
    if (update == NULL) {
        return core_err_set(-ENOMEM, "no memory for the lane of the optimizer");
    }
    update->list = options->blocks;
    update->group_count = options->group_count;
    update->options = options->options;
    update->input = options->input;
    update->plan = options->plan;
    update->memory = options->memory;
    update->place = options->place != NULL ? options->place : &run_place_none;
    update->lent = options->lent;
    update->updated = options->updated;
    update->total = options->total;
    update->user = options->user;
    update->loss_scale = 1;
    pthread_mutex_init(&update->order.lock, NULL);
    int rc = make(update, options);
    if (rc != 0) {
        run_update_destroy(update);
        return rc;
    }
    *out = update;
    return 0;
}

void run_update_destroy(struct run_update *update)
{
    if (update == NULL) {
        return;
    }
    core_queue_destroy(update->queue);
    for (uint32_t n = 0; n < update->node_count; n++) {
        core_queue_destroy(update->nodes[n].queue);
    }
    for (uint32_t b = 0; update->blocks != NULL && b < update->list->count; b++) {
        struct update_block *block = &update->blocks[b];
        for (uint32_t n = 0; block->of_nodes != NULL && n < update->node_count; n++) {
            adam_destroy(block->of_nodes[n]);
        }
        free(block->of_nodes);
        adam_destroy(block->adam);
    }
    for (uint32_t n = 0; n < update->node_count; n++) {
        core_team_destroy(update->nodes[n].team);
    }
    core_team_destroy(update->team);
    pthread_mutex_destroy(&update->order.lock);
    free(update->order.done);
    free(update->nodes);
    free(update->blocks);
    free(update->groups);
    free(update->first_tiles);
    run_lent_update_destroy(update->lent_update);
    free(update->speculative.groups);
    free(update->deferred.groups);
    free(update);
}

void run_update_abandon(struct run_update *update, int code)
{
    if (update != NULL && update->queue != NULL) {
        core_queue_abandon(update->queue, code);
        for (uint32_t n = 0; n < update->node_count; n++) {
            core_queue_abandon(update->nodes[n].queue, code);
        }
        if (update->node_count > 0) {
            core_line_fail(&update->order.line, code, core_err_message());
        }
    }
}

int run_update_wait(struct run_update *update, int64_t limit_ns)
{
    int rc = core_fence_wait(core_queue_tail(update->queue), limit_ns);
    for (uint32_t n = 0; n < update->node_count; n++) {
        const int one = core_fence_wait(core_queue_tail(update->nodes[n].queue), limit_ns);
        rc = rc == 0 || one == -ETIMEDOUT ? one : rc;
    }
    return rc;
}

struct core_team *run_update_team(struct run_update *update)
{
    return update->team;
}

/* ---- terms and verdict ---- */

void run_update_set_speculative(struct run_update *update, const struct run_update_terms *terms)
{
    set_terms(update, &update->speculative, terms->groups, terms->scale);
}

void run_update_set_deferred(struct run_update *update, const struct run_update_terms *terms)
{
    set_terms(update, &update->deferred, terms->groups, terms->scale);
}

struct run_verdict run_update_verdict(const struct run_update *update)
{
    return update->verdict;
}

void run_update_set_loss_scale(struct run_update *update, double loss_scale)
{
    update->loss_scale = loss_scale;
}

/* ---- commands ---- */

struct core_squares_args run_update_squares(const struct run_update *update,
                                            const struct plan_command *command)
{
    return (struct core_squares_args){
        .x = run_memory_of(update->memory, command, PLAN_AS_GRAD),
        .type = gradients_of(update, command->block),
        .count = command->elements,
        .sums = (double *)(void *)run_memory_of(update->memory, command, PLAN_AS_TILE_SUMS),
    };
}

static int do_sums(struct run_update *update, const struct plan_command *command)
{
    if (update->lent_update != NULL) {
        return run_lent_sums(
            update->lent_update, command->block,
            run_memory_of(update->memory, command, PLAN_AS_GRAD),
            (double *)(void *)run_memory_of(update->memory, command, PLAN_AS_TILE_SUMS));
    }
    const struct core_squares_args norm = run_update_squares(update, command);
    return adam_norm_sums(&update->norm, &norm);
}

/* Returns the block of a tile: the first that ends after it. */
static uint32_t block_of_tile(const struct run_update *update, uint64_t tile)
{
    uint32_t low = 0;
    uint32_t high = update->list->count - 1;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (update->first_tiles[middle + 1] > tile) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static int do_norm(struct run_update *update, const struct plan_command *command)
{
    const double *sums = (const double *)(const void *)run_memory_of(update->memory, command,
                                                                     PLAN_AS_TILE_SUMS);
    const double clip = update->options->clip;
    const uint64_t tiles = update->first_tiles[update->list->count];
    const uint64_t bad = adam_norm_bad_tile(sums, tiles);
    double squares = 0;
    if (update->total != NULL) {
        int rc = update->total(update->user, sums, &squares);
        if (rc != 0) {
            return rc;
        }
    } else {
        squares = adam_norm_total(sums, tiles);
    }
    struct run_verdict verdict = {.norm = sqrt(squares) / update->loss_scale, .factor = 1};
    verdict.finite = isfinite(verdict.norm);
    if (!verdict.finite) {
        verdict.bad_block = block_of_tile(update, bad);
    } else if (clip > 0) {
        verdict.factor = fmin(clip / (verdict.norm + clip_epsilon), 1.0);
    }
    update->verdict = verdict;
    if (verdict.finite || update->options->may_skip) {
        return 0;
    }
    if (bad == tiles) {
        return core_err_set(-EDOM, "a gradient of another process is not finite");
    }
    return core_err_set(-EDOM, "the gradient of %s is not finite%s",
                        update->list->list[verdict.bad_block].name,
                        update->total != NULL /* tiles of other processes are not here */
                            ? ""
                            : " (the last such block, which backward reaches first)");
}

struct adam_arrays run_update_arrays(const struct plan_format *format, uint64_t first,
                                     uint64_t count, char *weights, char *states, const char *grads)
{
    char *m = format->m_bytes > 0 ? states + plan_state_offset(format, PLAN_M, count) : NULL;
    char *v = format->v_bytes > 0 ? states + plan_state_offset(format, PLAN_V, count) : NULL;
    struct adam_arrays arrays = {.first = first, .count = count, .g = grads, .m = m, .v = v};
    char *master = format->master_bytes > 0 ? states + plan_state_offset(format, PLAN_MASTER, count)
                                            : NULL;
    if (format->master_bytes == 0) {
        arrays.w32 = (float *)(void *)weights;
    } else {
        arrays.w16 = (uint16_t *)(void *)weights;
        arrays.lo16 = format->master_bytes == 2 ? (uint16_t *)(void *)master : NULL;
        arrays.w32 = format->master_bytes == 4 ? (float *)(void *)master : NULL;
    }
    if (format->q8_block > 0) {
        char *m_scale = states + plan_state_offset(format, PLAN_M_SCALE, count);
        char *v_scale = states + plan_state_offset(format, PLAN_V_SCALE, count);
        arrays.m_scale = m != NULL ? (float *)(void *)m_scale : NULL;
        arrays.v_scale = v != NULL ? (float *)(void *)v_scale : NULL;
    }
    return arrays;
}

static int set_groups(const struct update_block *block, struct adam *adam,
                      const struct update_terms *terms)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < block->group_count; i++) {
        rc = adam_group_set(adam, i, &terms->groups[block->groups[i]]);
    }
    return rc;
}

struct copying {
    char *to;
    const char *from;
    uint64_t bytes;
};

static void copy_part(void *argument, unsigned index, unsigned count)
{
    const struct copying *copying = argument;
    uint64_t begin;
    uint64_t end;
    core_team_share(copying->bytes, CORE_UPDATE_TILE, index, count, &begin, &end);
    memcpy(copying->to + begin, copying->from + begin, end - begin);
}

/* Copies the current generation to the one that a speculative update writes. */
static void copy_generation(const struct run_update *update, struct core_team *team,
                            const struct plan_command *command, enum plan_role role)
{
    struct copying copying = {.to = run_memory_of(update->memory, command, role),
                              .from = run_memory_current(update->memory, command, role)};
    if (copying.to != copying.from) {
        copying.bytes = plan_command_operand(command, role)->bytes;
        core_team_run(team, copy_part, &copying);
    }
}

struct adam_arrays run_update_chunk(const struct run_update *update,
                                    const struct plan_command *command)
{
    const struct run_memory *memory = update->memory;
    const uint64_t first = plan_state_span(update->input, command->block).first +
                           command->chunk * plan_chunk_elements(update->plan);
    char *slot = run_memory_slot_of(memory, command, PLAN_AS_SLOT);
    char *place = run_memory_of(memory, command, PLAN_AS_WEIGHTS_PLACE);
    char *resident = run_memory_of(memory, command, PLAN_AS_STATES);
    char *in_slot = slot != NULL ? slot + plan_slot_states_offset(update->plan) : NULL;
    return run_update_arrays(&update->input->blocks[command->block].format, first,
                             command->elements, place != NULL ? place : slot,
                             resident != NULL ? resident : in_slot,
                             run_memory_of(memory, command, PLAN_AS_GRAD));
}

static const struct update_terms *terms_of(const struct run_update *update,
                                           const struct plan_command *command)
{
    return command->ahead ? &update->speculative : &update->deferred;
}

/* Returns the node of the chunk's memory, or of its slot. */
static uint32_t node_of(const struct run_update *update, const struct plan_command *command)
{
    const struct plan_operand *slot = plan_command_operand(command, PLAN_AS_SLOT);
    const bool resident = plan_command_operand(command, PLAN_AS_STATES) != NULL;
    return slot != NULL && !resident
               ? run_place_of_slot(update->place, slot->buffer)
               : run_place_of_chunk(update->place, command->block, command->chunk);
}

static int do_update(struct run_update *update, const struct plan_command *command)
{
    const struct update_block *block = &update->blocks[command->block];
    const struct update_terms *terms = terms_of(update, command);
    const struct adam_arrays arrays = run_update_chunk(update, command);
    if (update->lent_update != NULL) {
        const struct run_lent_step step = {
            .chunk = &arrays,
            .groups = terms->groups,
            .scale = terms->scale,
            .tiles = (double *)(void *)run_memory_of(update->memory, command, PLAN_AS_TILE_SUMS)};
        int rc = run_lent_step(update->lent_update, command->block,
                               &update->input->blocks[command->block].format, &step);
        const uint64_t end = arrays.first + arrays.count;
        if (rc == 0 && end == update->list->list[command->block].elements) {
            update->updated(update->user, command->block);
        }
        return rc;
    }
    struct adam *adam = block->adam;
    struct core_team *team = update->team;
    if (update->node_count > 0) {
        const uint32_t node = node_of(update, command);
        adam = block->of_nodes[node];
        team = update->nodes[node].team;
    }
    copy_generation(update, team, command, PLAN_AS_WEIGHTS_PLACE);
    copy_generation(update, team, command, PLAN_AS_STATES);
    int rc = set_groups(block, adam, terms);
    return rc != 0 ? rc
                   : adam_step(adam, &arrays, arrays.first, arrays.first + arrays.count,
                               terms->scale, NULL);
}

int run_update_pieces(struct run_update *update, const struct plan_command *command,
                      adam_piece_fn *take, void *context)
{
    const struct update_terms *terms = terms_of(update, command);
    const struct adam_arrays arrays = run_update_chunk(update, command);
    const struct adam_window window = {.arrays = &arrays,
                                       .begin = arrays.first,
                                       .end = arrays.first + arrays.count,
                                       .gradient_scale = terms->scale};
    const struct update_block *block = &update->blocks[command->block];
    int rc = set_groups(block, block->adam, terms);
    return rc != 0 ? rc : adam_pieces(block->adam, &window, take, context);
}

struct update_job {
    const struct plan_command *command; /* borrowed from the tape, which outlives the job */
    uint64_t number;                    /* in the order of all queues */
};

static int run_command(struct run_update *update, const struct plan_command *command)
{
    switch ((enum plan_op)command->op) {
    case PLAN_SUMS: return do_sums(update, command);
    case PLAN_NORM: return do_norm(update, command);
    case PLAN_UPDATE: return do_update(update, command);
    case PLAN_JOIN: return 0;
    case PLAN_READ:
    case PLAN_WRITE:
    case PLAN_H2D:
    case PLAN_D2H:
    case PLAN_GATHER:
    case PLAN_EXPAND:
    case PLAN_REDUCE:
    case PLAN_FWD:
    case PLAN_BWD:
    case PLAN_ROUND:
    case PLAN_OP_COUNT: break;
    }
    return core_err_set(-ENOTSUP, "the update's lane has no command %s",
                        plan_op_name((enum plan_op)command->op));
}

/* Advances the line past the leading commands that are done. */
static void end_in_order(struct update_order *order, uint64_t number)
{
    pthread_mutex_lock(&order->lock);
    order->done[number % order->room] = true;
    while (order->done[order->ended % order->room]) {
        order->done[order->ended % order->room] = false;
        order->ended++;
    }
    core_line_reach(&order->line, order->ended);
    pthread_mutex_unlock(&order->lock);
}

static int run_job(void *context, const void *arguments)
{
    struct run_update *update = context;
    const struct update_job *job = arguments;
    if (update->lent != NULL) {
        core_team_expect(update->team, core_queue_has_more(update->queue));
    }
    const int rc = run_command(update, job->command);
    if (update->node_count > 0 && rc == 0) {
        end_in_order(&update->order, job->number);
    }
    return rc;
}

static void job_failed(void *context, int rc)
{
    struct run_update *update = context;
    if (update->node_count > 0) {
        core_line_fail(&update->order.line, rc, core_err_message());
    }
}

/* Updates of several nodes run at once; other commands run alone. Returns -EAGAIN if a command must
 * wait. */
static int queue_of(const struct run_update *update, const struct plan_command *command,
                    struct core_queue **out)
{
    *out = update->queue;
    if (update->node_count == 0) {
        return 0;
    }
    if (command->op == PLAN_UPDATE) {
        const int done = core_fence_poll(core_queue_tail(update->queue));
        *out = update->nodes[node_of(update, command)].queue;
        return done > 0 ? 0 : done < 0 ? done : -EAGAIN;
    }
    for (uint32_t n = 0; n < update->node_count; n++) {
        const int done = core_fence_poll(core_queue_tail(update->nodes[n].queue));
        if (done <= 0) {
            return done < 0 ? done : -EAGAIN;
        }
    }
    return 0;
}

static int update_submit(void *context, const struct plan_command *command, struct core_fence *out)
{
    struct run_update *update = context;
    struct core_queue *queue = NULL;
    const struct update_job one = {.command = command, .number = update->order.submitted};
    const struct core_job job = {.run = run_job,
                                 .failed = job_failed,
                                 .context = update,
                                 .arguments = &one,
                                 .arguments_bytes = sizeof one};
    int rc = queue_of(update, command, &queue);
    if (rc != 0) {
        return rc;
    }
    rc = core_queue_submit(queue, &job, out);
    if (rc == 0 && update->node_count > 0) {
        *out = (struct core_fence){.line = &update->order.line, .value = ++update->order.submitted};
    }
    return rc;
}

struct run_lane run_update_lane(struct run_update *update)
{
    return (struct run_lane){.submit = update_submit, .context = update};
}
