/* optimizer.c: groups parameters into blocks, plans, and takes steps on a thread of its own. */
#include "offload/run/optimizer_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/half.h"
#include "core/base/hash.h"
#include "offload/plan/layout.h"
#include "offload/plan/shard.h"
#include "offload/run/rates.h"

enum {
    PARTS_MAX = 4096,            /* parameters of a block */
    BLOCK_ELEMENTS = 512 << 10,  /* small parameters share a block until it has as many */
    BLOCKS_WANTED = 2000,        /* of a large model, so that planning stays short */
    TYPES = CORE_UPDATE_FP16 + 1 /* of weights and of gradients */
};

/* ---- blocks of parameters ---- */

/* Parameters of the same types may share a block. */
static unsigned class_of(const struct run_optimizer_parameter *parameter)
{
    return (unsigned)parameter->weights_type * TYPES + (unsigned)parameter->gradients_type;
}

static enum core_update_master master_of(enum core_update_type weights)
{
    return weights == CORE_UPDATE_BF16   ? CORE_UPDATE_MASTER_SPLIT
           : weights == CORE_UPDATE_FP16 ? CORE_UPDATE_MASTER_FP16
                                         : CORE_UPDATE_MASTER_F32;
}

static int check_parameter(const struct run_optimizer_options *options, size_t index)
{
    const struct run_optimizer_parameter *parameter = &options->parameters[index];
    const size_t bytes = parameter->weights_type == CORE_UPDATE_F32 ? 4 : 2;
    if (parameter->name == NULL || parameter->weights == NULL || parameter->elements == 0) {
        return core_err_set(-EINVAL, "parameter %zu has no %s", index,
                            parameter->name == NULL      ? "name"
                            : parameter->weights == NULL ? "weights"
                                                         : "elements");
    }
    if ((uintptr_t)parameter->weights % bytes != 0) {
        return core_err_set(-EINVAL, "the weights of %s at %p are not aligned to %zu bytes",
                            parameter->name, parameter->weights, bytes);
    }
    if (parameter->elements > BLOCKS_ELEMENTS_MAX) {
        return core_err_set(-EINVAL,
                            "%s has %" PRIu64 " elements; at most %" PRIu64 " are possible",
                            parameter->name, parameter->elements, (uint64_t)BLOCKS_ELEMENTS_MAX);
    }
    return parameter->group < options->group_count
               ? 0
               : core_err_set(-EINVAL, "%s is in group %" PRIu32 " of %" PRIu32, parameter->name,
                              parameter->group, options->group_count);
}

static int compare_names(const void *one, const void *other)
{
    return strcmp(*(const char *const *)one, *(const char *const *)other);
}

static int check_names(const struct run_optimizer_options *options)
{
    const size_t count = options->parameter_count;
    const char **names = calloc(count, sizeof(*names));
    int rc = 0;
    if (names == NULL) {
        return core_err_set(-ENOMEM, "no memory for %zu names", count);
    }
    for (size_t i = 0; i < count; i++) {
        names[i] = options->parameters[i].name;
    }
    qsort(names, count, sizeof(*names), compare_names);
    for (size_t i = 1; rc == 0 && i < count; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            rc = core_err_set(-EINVAL, "two parameters are named \"%s\"", names[i]);
        }
    }
    free(names);
    return rc;
}

/* Assigns each parameter a block: large ones have one of their own, small ones of the same types share
 * one. Blocks are in the order of their first parameters. */
static int assign_blocks(struct run_optimizer *optimizer,
                         const struct run_optimizer_options *options, uint32_t *count)
{
    struct {
        uint32_t block;
        uint64_t elements;
        size_t parts; /* 0: none is open */
    } open[TYPES * TYPES] = {{0}};
    uint64_t all = 0;
    *count = 0;
    for (size_t i = 0; i < options->parameter_count; i++) {
        int rc = check_parameter(options, i);
        if (rc != 0) {
            return rc;
        }
        all += options->parameters[i].elements;
    }
    int rc = check_names(options);
    if (rc != 0) {
        return rc;
    }
    const uint64_t least = options->block_elements > 0 ? options->block_elements : BLOCK_ELEMENTS;
    const uint64_t large = all / BLOCKS_WANTED > least ? all / BLOCKS_WANTED : least;
    for (size_t i = 0; i < options->parameter_count; i++) {
        const struct run_optimizer_parameter *parameter = &options->parameters[i];
        const unsigned class = class_of(parameter);
        if (parameter->elements >= large) {
            optimizer->block_of[i] = (*count)++;
            continue;
        }
        if (open[class].parts == PARTS_MAX || open[class].elements >= large) {
            open[class].parts = 0;
        }
        if (open[class].parts++ == 0) {
            open[class].block = (*count)++;
            open[class].elements = 0;
        }
        open[class].elements += parameter->elements;
        optimizer->block_of[i] = open[class].block;
    }
    return 0;
}

static enum block_weights weights_of(enum core_update_type type)
{
    return type == CORE_UPDATE_BF16   ? BLOCK_WEIGHTS_BF16
           : type == CORE_UPDATE_FP16 ? BLOCK_WEIGHTS_FP16
                                      : BLOCK_WEIGHTS_FP32;
}

/* Adds a block with all elements of its parameters. It is named after the first one. */
static int add_block(struct run_optimizer *optimizer, const struct run_optimizer_options *options,
                     const size_t *members, size_t count)
{
    const enum block_weights weights = weights_of(options->parameters[members[0]].weights_type);
    struct blocks *blocks = optimizer->whole;
    int rc = blocks_add(blocks, options->parameters[members[0]].name);
    if (rc == 0 && weights != run_options_weights(options->options.type)) {
        blocks_set_weights(blocks, weights);
    }
    for (size_t i = 0; rc == 0 && i < count; i++) {
        const struct run_optimizer_parameter *parameter = &options->parameters[members[i]];
        struct block_tensor tensor = {
            .name = parameter->name, .rows = (int64_t)parameter->elements, .cols = 1};
        rc = blocks_add_array(blocks, parameter->elements, 0, true, &tensor.first);
        if (rc == 0) {
            rc = blocks_add_tensor(blocks, &tensor, NULL);
        }
    }
    if (rc == 0) {
        blocks_pad(blocks);
    }
    return rc;
}

struct plan_span run_optimizer_share_of(uint64_t elements, uint32_t world, uint32_t rank)
{
    const uint64_t first = plan_shard_border(elements, world, rank);
    const uint64_t end = plan_shard_border(elements, world, rank + 1);
    return (struct plan_span){.first = first, .count = end - first};
}

/* The elements of a tensor that are in a share of its block. */
static struct plan_span overlap_of(const struct block_tensor *tensor, struct plan_span share)
{
    const struct plan_span whole = {tensor->first, (uint64_t)tensor->rows};
    return plan_span_overlap(whole, share);
}

int run_optimizer_share_blocks(const struct blocks *whole, uint32_t world, uint32_t rank,
                               struct blocks **out)
{
    struct blocks *blocks = NULL;
    int rc = blocks_create(&blocks);
    for (uint32_t b = 0; rc == 0 && b < whole->count; b++) {
        const struct block *block = &whole->list[b];
        const struct plan_span share = run_optimizer_share_of(block->elements, world, rank);
        if (share.count == 0) {
            continue;
        }
        rc = blocks_add(blocks, block->name);
        if (rc == 0 && block->weights != BLOCK_WEIGHTS_OF_RUN) {
            blocks_set_weights(blocks, block->weights);
        }
        for (size_t i = 0; rc == 0 && i < block->tensor_count; i++) {
            const struct plan_span own = overlap_of(&block->tensors[i], share);
            struct block_tensor tensor = block->tensors[i];
            tensor.rows = (int64_t)own.count;
            if (own.count > 0) {
                rc = blocks_add_array(blocks, own.count, 0, true, &tensor.first);
            }
            if (own.count > 0 && rc == 0) {
                rc = blocks_add_tensor(blocks, &tensor, NULL);
            }
        }
        if (rc == 0) {
            blocks_pad(blocks);
        }
    }
    if (rc == 0 && blocks->count == 0) {
        rc = core_err_set(-EINVAL,
                          "process %" PRIu32 " of %" PRIu32
                          " would have no parameters: a share of a "
                          "block is a multiple of %d elements",
                          rank, world, PLAN_CUT_ELEMENTS);
    }
    rc = rc == 0 ? blocks_finish(blocks, whole->family, whole->hash) : rc;
    if (rc != 0) {
        blocks_destroy(blocks);
        return rc;
    }
    *out = blocks;
    return 0;
}

/* Describes where this process's share of a block is in the application's arrays. */
static void lend_block(struct run_optimizer *optimizer, const struct run_optimizer_options *options,
                       const size_t *members, uint32_t whole, uint32_t own)
{
    const struct block *block = &optimizer->whole->list[whole];
    struct run_lent_block *lent = &optimizer->lent.blocks[own];
    const struct plan_span share = run_optimizer_share_of(block->elements, optimizer->world,
                                                          optimizer->rank_index);
    for (size_t i = 0; i < block->tensor_count; i++) {
        const struct run_optimizer_parameter *parameter = &options->parameters[members[i]];
        const uint64_t width = parameter->weights_type == CORE_UPDATE_F32 ? 4 : 2;
        const struct plan_span span = overlap_of(&block->tensors[i], share);
        const uint64_t inside = span.first - block->tensors[i].first;
        if (span.count == 0) {
            continue;
        }
        struct run_lent_part *part = &lent->parts[lent->part_count++];
        *part = (struct run_lent_part){.first = span.first - share.first,
                                       .count = span.count,
                                       .inside = inside,
                                       .whole = parameter->elements,
                                       .index = (uint32_t)members[i],
                                       .weights = (char *)parameter->weights + inside * width};
        lent->master = master_of(parameter->weights_type);
        lent->gradients = parameter->gradients_type;
        optimizer->parts[members[i]] = part;
        optimizer->block_of[members[i]] = own;
    }
    optimizer->whole_of[own] = whole;
    optimizer->first_tiles[own] = optimizer->tile_count + share.first / CORE_UPDATE_TILE;
}

/* Lists the parameters of each block, one block after the other: those of block b from first[b] on. */
static void sort_members(const struct run_optimizer *optimizer, uint32_t count, size_t *first,
                         size_t *members)
{
    for (size_t i = 0; i < optimizer->parameter_count; i++) {
        first[optimizer->block_of[i] + 1]++;
    }
    for (uint32_t b = 0; b < count; b++) {
        first[b + 1] += first[b];
    }
    for (size_t i = 0; i < optimizer->parameter_count; i++) {
        members[first[optimizer->block_of[i]]++] = i;
    }
    memmove(first + 1, first, count * sizeof *first);
    first[0] = 0;
}

/* Of names, sizes and types: what must be equal for a checkpoint to fit. */
static uint64_t hash_parameters(const struct run_optimizer_options *options)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < options->parameter_count; i++) {
        const struct run_optimizer_parameter *parameter = &options->parameters[i];
        const uint64_t numbers[] = {parameter->elements, (uint64_t)parameter->weights_type, hash};
        hash = core_hash(parameter->name, strlen(parameter->name),
                         core_hash(numbers, sizeof numbers, 0));
    }
    return hash;
}

/* Lists all blocks, and of these the shares of this process. */
static int list_blocks(struct run_optimizer *optimizer, const struct run_optimizer_options *options,
                       const size_t *first, const size_t *members, uint32_t count)
{
    int rc = blocks_create(&optimizer->whole);
    for (uint32_t b = 0; rc == 0 && b < count; b++) {
        rc = add_block(optimizer, options, members + first[b], first[b + 1] - first[b]);
    }
    if (rc == 0) {
        rc = blocks_finish(optimizer->whole, "application", hash_parameters(options));
    }
    if (rc != 0 || optimizer->world == 1) {
        optimizer->blocks = optimizer->whole;
        return rc;
    }
    return run_optimizer_share_blocks(optimizer->whole, optimizer->world, optimizer->rank_index,
                                      &optimizer->blocks);
}

static void lend_blocks(struct run_optimizer *optimizer,
                        const struct run_optimizer_options *options, const size_t *first,
                        const size_t *members, struct run_lent_part *parts)
{
    uint32_t own = 0;
    for (uint32_t b = 0; b < optimizer->whole->count; b++) {
        const uint64_t elements = optimizer->whole->list[b].elements;
        if (run_optimizer_share_of(elements, optimizer->world, optimizer->rank_index).count > 0) {
            optimizer->lent.blocks[own].parts = parts;
            lend_block(optimizer, options, members + first[b], b, own);
            parts += optimizer->lent.blocks[own++].part_count;
        }
        optimizer->tile_count += (elements + CORE_UPDATE_TILE - 1) / CORE_UPDATE_TILE;
    }
}

static int add_blocks(struct run_optimizer *optimizer, const struct run_optimizer_options *options,
                      uint32_t count)
{
    size_t *first = calloc((size_t)count + 1, sizeof *first);
    size_t *members = calloc(options->parameter_count, sizeof *members);
    struct run_lent_part *parts = calloc(options->parameter_count, sizeof *parts);
    optimizer->lent.blocks = calloc(count, sizeof *optimizer->lent.blocks);
    optimizer->first_tiles = calloc(count, sizeof *optimizer->first_tiles);
    optimizer->whole_of = calloc(count, sizeof *optimizer->whole_of);
    int rc = 0;
    if (first == NULL || members == NULL || parts == NULL || optimizer->lent.blocks == NULL ||
        optimizer->first_tiles == NULL || optimizer->whole_of == NULL) {
        rc = core_err_set(-ENOMEM, "no memory for %zu parameters", options->parameter_count);
        free(parts);
        goto done;
    }
    sort_members(optimizer, count, first, members);
    optimizer->lent.blocks[0].parts = parts; /* those of block 0 are all of them */
    rc = list_blocks(optimizer, options, first, members, count);
    if (rc == 0) {
        lend_blocks(optimizer, options, first, members, parts);
    }
done:
    free(first);
    free(members);
    return rc;
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

/* ---- the worker's thread ---- */

/* The update's thread. */
static void note_updated(void *user, uint32_t block)
{
    run_optimizer_give_back(user, block, true);
}

/* The update's thread. */
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

/* From here on the application may see the error; the queue takes no step any more. */
static void step_failed(void *context, int rc)
{
    struct run_optimizer *optimizer = context;
    core_line_fail(&optimizer->done, rc, core_err_message());
    core_line_fail(&optimizer->settled, rc, core_err_message());
}

/* ---- making ---- */

static void *zeroed(size_t count, size_t bytes)
{
    return calloc(count > 0 ? count : 1, bytes);
}

/* Keeps the groups as they are now for the updates of a step. The updates of the step before have theirs: the
 * thread that calls has waited for one of them. */
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
    optimizer->made = zeroed(count, sizeof *optimizer->made);
    if (optimizer->missing == NULL || optimizer->ready == NULL || optimizer->order == NULL ||
        optimizer->taken == NULL || optimizer->made == NULL) {
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
        return core_err_set(-EINVAL, "process %" PRIu32 " of %" PRIu32, options->rank,
                            options->world);
    }
    const bool counts = options->options.clip > 0 || options->options.may_skip;
    return options->world <= 1 || options->sum != NULL || !counts
               ? 0
               : core_err_set(-EINVAL, "clipping and skipping need the norm of all processes, so "
                                       "the sum of numbers over them");
}

/* Blocks, then shapes, rates and the plan. */
static int make_plan(struct run_optimizer *optimizer, const struct run_optimizer_options *options)
{
    uint32_t count = 0;
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
    rc = assign_blocks(optimizer, options, &count);
    if (rc != 0) {
        return rc;
    }
    rc = add_blocks(optimizer, options, count);
    if (rc != 0) {
        return rc;
    }
    optimizer->tiles = zeroed(optimizer->tile_count, sizeof *optimizer->tiles);
    if (optimizer->tiles == NULL) {
        return core_err_set(-ENOMEM, "no memory for %" PRIu64 " sums", optimizer->tile_count);
    }
    rc = make_block_tables(optimizer);
    if (rc != 0) {
        return rc;
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
        return rc == -EFBIG ? -EIO : rc; /* callers take it for a plan that does not fit */
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
        .updated = note_updated,
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
    core_line_init(&optimizer->arrived, "the application", &optimizer->rank->bell);
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
    optimizer->lent.part_count = options->parameter_count;
    optimizer->options.wishes.grads = options->sums ? PLAN_WHERE_HOST : PLAN_WHERE_AUTO;
    optimizer->loss_scale = 1;
    optimizer->world = options->world > 0 ? options->world : 1;
    optimizer->rank_index = options->rank;
    optimizer->sum = optimizer->world > 1 ? options->sum : NULL;
    optimizer->sum_user = options->sum_user;
    optimizer->run = run_rank_number(optimizer);
    pthread_mutex_init(&optimizer->lock, NULL);
    core_line_init(&optimizer->closed, "the step's end", NULL);
    core_line_init(&optimizer->done, "the update", NULL);
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
}

bool run_optimizer_destroy(struct run_optimizer *optimizer)
{
    if (optimizer == NULL) {
        return true;
    }
    if (optimizer->worker != NULL) {
        const uint64_t closed = optimizer->steps * optimizer->blocks->count;
        (void)core_fence_wait((struct core_fence){&optimizer->done, closed}, -1);
        cancel(optimizer);
        core_queue_destroy(optimizer->worker);
    }
    if (!run_rank_destroy(optimizer->rank)) {
        return false;
    }
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
    free(optimizer->made);
    free(optimizer->terms);
    free(optimizer->updates);
    pthread_mutex_destroy(&optimizer->lock);
    free(optimizer);
    return true;
}

/* ---- the application's side ---- */

int run_optimizer_set_group(struct run_optimizer *optimizer, uint32_t index,
                            const struct adam_group *group)
{
    struct core_update_scalars scalars;
    struct adam_group checked = *group;
    if (index >= optimizer->group_count) {
        return core_err_set(-EINVAL, "group %" PRIu32 " of %" PRIu32, index,
                            optimizer->group_count);
    }
    checked.step = 1;
    int rc = adam_scalars(optimizer->options.rule, &checked, 1, &scalars);
    if (rc != 0) {
        return rc;
    }
    optimizer->groups[index] = *group;
    return 0;
}

int run_optimizer_set_loss_scale(struct run_optimizer *optimizer, double loss_scale)
{
    if (optimizer->open) {
        return core_err_set(-EBUSY, "the loss scale changes between steps; a gradient of the next "
                                    "step has been submitted");
    }
    if (!(loss_scale > 0) || loss_scale > 1e30) {
        return core_err_set(-EINVAL, "loss scale %g is not a positive number", loss_scale);
    }
    const int rc = run_optimizer_wait(optimizer, run_optimizer_last_token(optimizer));
    if (rc == 0) {
        optimizer->loss_scale = loss_scale;
    }
    return rc;
}

/* A token says a step, from 1, and a block, or, with the number of blocks, all of them. */
static uint64_t token_of(const struct run_optimizer *optimizer, uint64_t step, uint32_t block)
{
    return step == 0 ? 0 : (step - 1) * (optimizer->blocks->count + UINT64_C(1)) + block + 1;
}

/* Whether a token is reached if the line `done` is where the fence is. False: *next is the first value of the
 * line at which it may be. */
static bool token_reached(const struct run_optimizer *optimizer, uint64_t token, uint64_t *next)
{
    const uint32_t count = optimizer->blocks->count;
    const uint64_t step = token == 0 ? 0 : (token - 1) / (count + UINT64_C(1)) + 1;
    const uint64_t block = token == 0 ? 0 : (token - 1) % (count + UINT64_C(1));
    const uint64_t now = atomic_load_explicit(&optimizer->done.reached, memory_order_acquire);
    *next = block == count ? step * count : now + 1;
    return block == count
               ? now >= *next
               : atomic_load_explicit(&optimizer->made[block], memory_order_acquire) >= step;
}

uint64_t run_optimizer_token(const struct run_optimizer *optimizer, size_t parameter)
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
        rc = core_fence_wait((struct core_fence){&optimizer->done, next}, -1);
    }
    return rc;
}

int run_optimizer_poll(struct run_optimizer *optimizer, uint64_t token)
{
    uint64_t next = 0;
    if (token_reached(optimizer, token, &next)) {
        return 1;
    }
    const int rc = core_fence_poll((struct core_fence){&optimizer->done, next});
    return rc < 0 ? rc : 0;
}

/* Begins a step with its first gradient. */
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
    while (rc == -EAGAIN) { /* steps before this one are not updated yet */
        rc = run_optimizer_wait(optimizer, token_of(optimizer, step - 2, optimizer->blocks->count));
        if (rc == 0) {
            rc = core_queue_submit(optimizer->worker, &job, &unused);
        }
    }
    optimizer->open = rc == 0;
    return rc;
}

/* Notes that a block is ready. Returns the value that `arrived` reaches then. */
static uint64_t add_ready(struct run_optimizer *optimizer, uint32_t block)
{
    optimizer->ready[optimizer->handed++ % (2 * (uint64_t)optimizer->blocks->count)] = block;
    return optimizer->handed;
}

/* Adds a gradient to the step's sum, or begins it. */
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
    int rc = run_optimizer_wait(optimizer, run_optimizer_token(optimizer, parameter));
    if (rc != 0) {
        return rc;
    }
    rc = open_step(optimizer);
    if (rc != 0) {
        return rc;
    }
    if (part == NULL) { /* other processes need it */
        optimizer->submitted[parameter] = last ? step : 0;
        *token = 0;
        return 0;
    }
    const char *own = (const char *)gradient + part->inside * bytes;
    if (optimizer->lent.sums) {
        add_gradient(optimizer, parameter, own);
    }
    part->gradient = own;
    if (!last) {
        *token = 0;
        return 0;
    }
    optimizer->submitted[parameter] = step;
    if (--optimizer->missing[block] == 0) {
        core_line_reach(&optimizer->arrived, add_ready(optimizer, block));
    }
    *token = token_of(optimizer, step, block);
    return 0;
}

int run_optimizer_step(struct run_optimizer *optimizer, uint64_t *token)
{
    const uint32_t count = optimizer->blocks->count;
    if (!optimizer->open) {
        return core_err_set(-ENODATA, "a step without a gradient: none was submitted since the "
                                      "last one");
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
    core_line_reach(&optimizer->arrived, optimizer->handed);
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
    const struct plan_layout *layout = plan_layout_of(optimizer->plan);
    struct run_optimizer_info info = {
        .host_bytes = plan_tier_bytes(optimizer->plan, PLAN_HOST) +
                      optimizer->input.budgets.host_taken_bytes,
        .store_bytes = plan_tier_bytes(optimizer->plan, PLAN_STORE),
        .resident_bytes = plan_consumer_bytes(&optimizer->input, optimizer->plan, PLAN_HOST,
                                              PLAN_FOR_STATES),
        .blocks = optimizer->blocks->count,
        .state_slots = plan_layout_slots(layout->state_slots),
        .chunk_elements = plan_chunk_elements(optimizer->plan)};
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
    if (optimizer->open) {
        return core_err_set(-EBUSY, "weights change between steps; a gradient of the next step has "
                                    "been submitted");
    }
    int rc = run_optimizer_quiesce(optimizer);
    if (rc != 0 || optimizer->parts[parameter] == NULL) {
        return rc;
    }
    const uint32_t block = optimizer->block_of[parameter];
    run_slots_init(&slots, optimizer->rank);
    for (uint32_t i = 0; rc == 0 && i < run_chunk_count(optimizer->rank, block); i++) {
        rc = follow_chunk(optimizer, block, i, optimizer->parts[parameter], &slots);
    }
    const struct core_err kept = core_err_keep(rc);
    return core_err_first(&kept, run_slots_wait(optimizer->rank, &slots));
}
