/* lane_update.c: one `adam` per block, whose number is the block's index, so that random numbers do not
 * depend on the placement. Parameters are grouped by decay. */
#include "offload/run/lane_update.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "offload/plan/shard.h"

/* Added to the norm, as PyTorch and DeepSpeed do: a norm equal to the limit is clipped, too. */
static const double clip_epsilon = 1e-6;

struct run_update {
    const struct model *model; /* borrowed, like the next four */
    const struct run_options *options;
    const struct plan_input *input;
    const struct plan *plan;
    const struct run_memory *memory;
    struct core_queue *queue; /* owned */
    struct core_team *team;   /* owned */
    struct adam_norm norm;
    struct adam **adams; /* owned, [blocks]; NULL for frozen blocks */
    struct plan_format format;
    enum core_update_type gradients; /* as they are stored */
    /* Set by the rank's thread between tapes, read by the queue's. */
    struct run_update_terms speculative;
    struct run_update_terms deferred;
    double loss_scale;
    /* Written by NORM, read by the rank's thread after its fence. */
    struct run_verdict verdict;
};

/* ---- making ---- */

/* Groups of parameters in a block. Frozen ones are updated with a rate of zero, so that a chunk is one
 * window wherever they are. */
enum { DECAYS, PLAIN, FROZEN, GROUPS };

static void fill_groups(const struct run_update *update, const struct run_update_terms *terms,
                        struct adam_group groups[GROUPS])
{
    for (size_t i = 0; i < GROUPS; i++) {
        groups[i] = update->options->group;
        groups[i].lr = i == FROZEN ? 0 : terms->lr;
        groups[i].beta1 = terms->betas[0];
        groups[i].beta2 = terms->betas[1];
        groups[i].decay = i == DECAYS ? groups[i].decay : 0;
        groups[i].step = terms->step;
    }
}

static size_t list_runs(const struct model_block *block, const struct run_options *options,
                        struct adam_run runs[MODEL_PARAMS_MAX])
{
    size_t count = 0;
    for (uint64_t at = 0; at < block->elements;) {
        const struct model_run run = model_block_run(block, at);
        const bool decay = run.decay || options->decay_all;
        runs[count++] = (struct adam_run){.end = run.end,
                                          .group = !run.trained ? FROZEN
                                                   : decay      ? DECAYS
                                                                : PLAIN};
        at = run.end;
    }
    return count;
}

bool run_update_splits_q8_block(const struct model *model, const struct run_options *options)
{
    struct adam_run runs[MODEL_PARAMS_MAX];
    bool cut = false;
    for (uint32_t b = 0; options->moments == CORE_UPDATE_Q8 && b < model->block_count; b++) {
        const size_t count = list_runs(&model->blocks[b], options, runs);
        for (size_t i = 0; model->blocks[b].trained && i + 1 < count; i++) {
            cut = cut ||
                  (runs[i].group != runs[i + 1].group && runs[i].end % CORE_UPDATE_Q8_BLOCK != 0);
        }
    }
    return cut;
}

static int make_adam(struct run_update *update, uint32_t index)
{
    const struct model_block *block = &update->model->blocks[index];
    const struct run_options *options = update->options;
    struct adam_run runs[MODEL_PARAMS_MAX];
    const size_t run_count = list_runs(block, options, runs);
    struct adam_group groups[GROUPS];
    const struct adam_group *group = &options->group;
    const struct run_update_terms first = {
        .lr = group->lr, .betas = {group->beta1, group->beta2}, .step = 1};
    fill_groups(update, &first, groups);
    const struct adam_options adam = {
        .rule = options->rule,
        .master = run_options_master(options),
        .gradients = update->gradients,
        .moments = options->moments,
        .count = block->elements,
        .runs = runs,
        .runs_count = run_count,
        .groups = groups,
        .groups_count = GROUPS,
        .seed = options->seed,
        .number = index,
        .team = update->team,
    };
    return adam_create(&adam, &update->adams[index]);
}

static int make(struct run_update *update, struct core_bell *bell)
{
    const struct core_team_options team = {.name = "update", .count = update->options->threads};
    const struct core_queue_options queue = {.name = "update", .depth = 64, .bell = bell};
    int rc = core_team_create(&team, &update->team);
    if (rc != 0) {
        return rc;
    }
    adam_norm_init(&update->norm, update->team, CORE_CPU_ALL);
    update->adams = calloc(update->model->block_count, sizeof(*update->adams));
    if (update->adams == NULL) {
        return core_err_set(-ENOMEM, "no memory for the optimizer of %u blocks",
                            update->model->block_count);
    }
    for (uint32_t b = 0; rc == 0 && b < update->model->block_count; b++) {
        rc = update->model->blocks[b].trained ? make_adam(update, b) : 0;
    }
    return rc != 0 ? rc : core_queue_create(&queue, &update->queue);
}

int run_update_create(const struct run_update_options *options, struct run_update **out)
{
    struct run_update *update = calloc(1, sizeof *update);
    if (update == NULL) {
        return core_err_set(-ENOMEM, "no memory for the lane of the optimizer");
    }
    update->model = options->model;
    update->options = options->options;
    update->input = options->input;
    update->plan = options->plan;
    update->memory = options->memory;
    update->format = run_options_format(options->options);
    update->gradients = run_options_gradients(options->options);
    update->loss_scale = 1;
    int rc = make(update, options->bell);
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
    for (uint32_t b = 0; update->adams != NULL && b < update->model->block_count; b++) {
        adam_destroy(update->adams[b]);
    }
    core_team_destroy(update->team);
    free(update->adams);
    free(update);
}

void run_update_abandon(struct run_update *update, int code)
{
    if (update != NULL && update->queue != NULL) {
        core_queue_abandon(update->queue, code);
    }
}

struct core_fence run_update_tail(struct run_update *update)
{
    return core_queue_tail(update->queue);
}

struct core_team *run_update_team(struct run_update *update)
{
    return update->team;
}

/* ---- between tapes ---- */

void run_update_set_speculative(struct run_update *update, const struct run_update_terms *terms)
{
    update->speculative = *terms;
}

void run_update_set_deferred(struct run_update *update, const struct run_update_terms *terms)
{
    update->deferred = *terms;
}

struct run_verdict run_update_verdict(const struct run_update *update)
{
    return update->verdict;
}

void run_update_set_loss_scale(struct run_update *update, double loss_scale)
{
    update->loss_scale = loss_scale;
}

/* ---- commands; the thread of the queue ---- */

struct core_squares_args run_update_squares(const struct run_update *update,
                                            const struct plan_command *command)
{
    return (struct core_squares_args){
        .x = run_memory_of(update->memory, command, PLAN_AS_GRAD),
        .type = update->gradients,
        .count = command->elements,
        .sums = (double *)(void *)run_memory_of(update->memory, command, PLAN_AS_TILE_SUMS),
    };
}

static int do_sums(struct run_update *update, const struct plan_command *command)
{
    const struct core_squares_args norm = run_update_squares(update, command);
    return adam_norm_sums(&update->norm, &norm);
}

/* The block that a tile belongs to. */
static uint32_t block_of_tile(const struct run_update *update, uint64_t tile)
{
    for (uint32_t b = 0; b < update->model->block_count; b++) {
        const uint64_t tiles = (update->model->blocks[b].elements + CORE_UPDATE_TILE - 1) /
                               CORE_UPDATE_TILE;
        if (tile < tiles) {
            return b;
        }
        tile -= tiles;
    }
    return update->model->block_count - 1;
}

static int do_norm(struct run_update *update, const struct plan_command *command)
{
    const double *sums = (const double *)(const void *)run_memory_of(update->memory, command,
                                                                     PLAN_AS_TILE_SUMS);
    const double clip = update->options->clip;
    uint64_t tiles = 0;
    for (uint32_t b = 0; b < update->model->block_count; b++) {
        tiles += (update->model->blocks[b].elements + CORE_UPDATE_TILE - 1) / CORE_UPDATE_TILE;
    }
    struct run_verdict verdict = {.norm = sqrt(adam_norm_total(sums, tiles)) / update->loss_scale,
                                  .factor = 1};
    verdict.finite = isfinite(verdict.norm);
    if (!verdict.finite) {
        verdict.bad_block = block_of_tile(update, adam_norm_bad_tile(sums, tiles));
    } else if (clip > 0) {
        verdict.factor = fmin(clip / (verdict.norm + clip_epsilon), 1.0);
    }
    update->verdict = verdict;
    if (!verdict.finite && !update->options->may_skip) {
        return core_err_set(-EDOM, "the gradient of %s is not finite",
                            update->model->blocks[verdict.bad_block].name);
    }
    return 0;
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

static int set_groups(struct run_update *update, uint32_t block,
                      const struct run_update_terms *terms)
{
    struct adam_group groups[GROUPS];
    int rc = 0;
    fill_groups(update, terms, groups);
    for (size_t i = 0; rc == 0 && i < GROUPS; i++) {
        rc = adam_group_set(update->adams[block], i, &groups[i]);
    }
    return rc;
}

/* What copy_part copies. */
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

/* A speculative update of two generations in memory begins with a copy of the current one. */
static void copy_generation(struct run_update *update, const struct plan_command *command,
                            enum plan_role role)
{
    struct copying copying = {.to = run_memory_of(update->memory, command, role),
                              .from = run_memory_current(update->memory, command, role)};
    if (copying.to != copying.from) {
        copying.bytes = plan_command_operand(command, role)->bytes;
        core_team_run(update->team, copy_part, &copying);
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
    return run_update_arrays(&update->format, first, command->elements,
                             place != NULL ? place : slot, resident != NULL ? resident : in_slot,
                             run_memory_of(memory, command, PLAN_AS_GRAD));
}

static const struct run_update_terms *terms_of(const struct run_update *update,
                                               const struct plan_command *command)
{
    return command->ahead ? &update->speculative : &update->deferred;
}

static int do_update(struct run_update *update, const struct plan_command *command)
{
    const struct run_update_terms *terms = terms_of(update, command);
    const struct adam_arrays arrays = run_update_chunk(update, command);
    copy_generation(update, command, PLAN_AS_WEIGHTS_PLACE);
    copy_generation(update, command, PLAN_AS_STATES);
    int rc = set_groups(update, command->block, terms);
    return rc != 0 ? rc
                   : adam_step(update->adams[command->block], &arrays, arrays.first,
                               arrays.first + arrays.count, terms->scale, NULL);
}

int run_update_pieces(struct run_update *update, const struct plan_command *command,
                      adam_piece_fn *take, void *context)
{
    const struct run_update_terms *terms = terms_of(update, command);
    const struct adam_arrays arrays = run_update_chunk(update, command);
    const struct adam_window window = {.arrays = &arrays,
                                       .begin = arrays.first,
                                       .end = arrays.first + arrays.count,
                                       .gradient_scale = terms->scale};
    int rc = set_groups(update, command->block, terms);
    return rc != 0 ? rc : adam_pieces(update->adams[command->block], &window, take, context);
}

/* What a job carries. */
struct update_job {
    const struct plan_command *command; /* borrowed from the tape, which outlives the job */
};

static int run_job(void *context, const void *arguments)
{
    struct run_update *update = context;
    const struct update_job *job = arguments;
    switch ((enum plan_op)job->command->op) {
    case PLAN_SUMS: return do_sums(update, job->command);
    case PLAN_NORM: return do_norm(update, job->command);
    case PLAN_UPDATE: return do_update(update, job->command);
    case PLAN_JOIN: return 0;
    case PLAN_READ:
    case PLAN_WRITE:
    case PLAN_H2D:
    case PLAN_D2H:
    case PLAN_GATHER:
    case PLAN_REDUCE:
    case PLAN_FWD:
    case PLAN_BWD:
    case PLAN_ROUND:
    case PLAN_OP_COUNT: break;
    }
    return core_err_set(-ENOTSUP, "the update's lane has no command %s",
                        plan_op_name((enum plan_op)job->command->op));
}

static int update_submit(void *context, const struct plan_command *command, struct core_fence *out)
{
    struct run_update *update = context;
    const struct update_job one = {.command = command};
    const struct core_job job = {
        .run = run_job, .context = update, .arguments = &one, .arguments_bytes = sizeof one};
    return core_queue_submit(update->queue, &job, out);
}

struct run_lane run_update_lane(struct run_update *update)
{
    return (struct run_lane){.submit = update_submit, .context = update};
}
