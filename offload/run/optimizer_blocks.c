/* optimizer_blocks.c: groups parameters into blocks, which do not depend on the number of
 * processes, and finds this process's share. Called by create and load. */
#include "offload/run/optimizer_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "offload/plan/shard.h"

enum {
    PARTS_MAX = 4096, /* parameters of a block */
    /* small parameters share blocks of about this size */
    BLOCK_ELEMENTS = 512 << 10,
    /* approximate, for large models; limits the time of planning */
    BLOCKS_WANTED = 2000,
    TYPES = CORE_UPDATE_FP16 + 1 /* types of weights and of gradients */
};

/* Parameters of one class have the same types and may share a block. */
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
               : core_err_set(-EINVAL,
                              "%s is in group %" PRIu32
                              ", which does not exist; the number of groups is %" PRIu32,
                              parameter->name, parameter->group, options->group_count);
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

struct weights_at {
    uintptr_t begin, end;
    const char *name; /* borrowed */
};

static int compare_places(const void *one, const void *other)
{
    const struct weights_at *a = one;
    const struct weights_at *b = other;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* Overlapping weights would be updated twice. */
static int check_overlaps(const struct run_optimizer_options *options)
{
    const size_t count = options->parameter_count;
    struct weights_at *places = calloc(count, sizeof *places);
    int rc = 0;
    if (places == NULL) {
        return core_err_set(-ENOMEM, "no memory for the places of %zu parameters", count);
    }
    for (size_t i = 0; i < count; i++) {
        const struct run_optimizer_parameter *parameter = &options->parameters[i];
        const uint64_t width = parameter->weights_type == CORE_UPDATE_F32 ? 4 : 2;
        const uintptr_t begin = (uintptr_t)parameter->weights;
        places[i] = (struct weights_at){begin, begin + parameter->elements * width,
                                        parameter->name};
    }
    qsort(places, count, sizeof *places, compare_places);
    for (size_t i = 1; rc == 0 && i < count; i++) {
        if (places[i].begin < places[i - 1].end) {
            rc = core_err_set(-EINVAL,
                              "%s and %s have weights in the same memory; tied weights are one "
                              "parameter, whose gradients the program adds up or submits one after "
                              "another (`accumulate`)",
                              places[i - 1].name, places[i].name);
        }
    }
    free(places);
    return rc;
}

/* Assigns large parameters to blocks of their own, and small ones of the same types to shared
 * blocks, in the order of first parameters. */
static int assign_blocks(struct run_optimizer *optimizer,
                         const struct run_optimizer_options *options, uint32_t *count)
{
    struct {
        uint32_t block;
        uint64_t elements;
        size_t parts; /* of the open block; 0: none */
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
    if (rc == 0) {
        rc = check_overlaps(options);
    }
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

/* Names a block after its first parameter. Sets *moved to true if packing moves a parameter. */
static int add_block(struct run_optimizer *optimizer, const struct run_optimizer_options *options,
                     const size_t *members, size_t count, bool *moved)
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
            *moved = *moved || tensor.first % BLOCKS_ALIGN_ELEMENTS != 0;
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
    if (rc == 0) {
        blocks->packed = whole->packed;
    }
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
    if (rc == 0) {
        rc = blocks_finish(blocks, whole->family, whole->hash);
    }
    if (rc != 0) {
        blocks_destroy(blocks);
        return rc;
    }
    *out = blocks;
    return 0;
}

/* Describes this process's share of a block in the application's arrays. */
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

/* Lists parameters by block; those of block b begin at first[b]. */
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

/* A checkpoint must have the same hash of parameters and layout. Without packed parameters, the
 * hash equals that of versions that did not pack. */
static uint64_t hash_parameters(const struct run_optimizer_options *options, bool moved)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < options->parameter_count; i++) {
        const struct run_optimizer_parameter *parameter = &options->parameters[i];
        const bool odd = moved && parameter->elements % BLOCKS_ALIGN_ELEMENTS != 0;
        const uint64_t numbers[] = {parameter->elements, (uint64_t)parameter->weights_type,
                                    odd ? ~hash : hash};
        hash = core_hash(parameter->name, strlen(parameter->name),
                         core_hash(numbers, sizeof numbers, 0));
    }
    return hash;
}

static int list_blocks(struct run_optimizer *optimizer, const struct run_optimizer_options *options,
                       const size_t *first, const size_t *members, uint32_t count)
{
    int rc = blocks_create(&optimizer->whole);
    bool moved = false;
    if (rc == 0) {
        optimizer->whole->packed = options->options.moments != CORE_UPDATE_Q8;
    }
    for (uint32_t b = 0; rc == 0 && b < count; b++) {
        rc = add_block(optimizer, options, members + first[b], first[b + 1] - first[b], &moved);
    }
    if (rc == 0) {
        rc = blocks_finish(optimizer->whole, BLOCKS_APPLICATION, hash_parameters(options, moved));
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
    /* run_optimizer_destroy frees this array */
    optimizer->lent.blocks[0].parts = parts;
    rc = list_blocks(optimizer, options, first, members, count);
    if (rc == 0) {
        lend_blocks(optimizer, options, first, members, parts);
    }
done:
    free(first);
    free(members);
    return rc;
}

int run_optimizer_make_blocks(struct run_optimizer *optimizer,
                              const struct run_optimizer_options *options)
{
    uint32_t count = 0;
    int rc = assign_blocks(optimizer, options, &count);
    if (rc != 0) {
        return rc;
    }
    rc = add_blocks(optimizer, options, count);
    if (rc != 0) {
        return rc;
    }
    optimizer->tiles = calloc(optimizer->tile_count, sizeof *optimizer->tiles);
    return optimizer->tiles != NULL
               ? 0
               : core_err_set(-ENOMEM, "no memory for %" PRIu64 " sums", optimizer->tile_count);
}
