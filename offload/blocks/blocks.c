/* blocks.c: builds a list of blocks. Runs, spans and tensors are in three growing arrays, so that
 * 100,000 blocks need few allocations. */
#include "offload/blocks/blocks.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/size.h"
#include "core/base/utf8.h"

/* Names do not move while the list grows. */
struct blocks_text {
    struct blocks_text *next;
    size_t bytes;
    char chars[64 * 1024 - 16];
};

int blocks_create(struct blocks **out)
{
    struct blocks *blocks = calloc(1, sizeof *blocks);
    if (blocks == NULL) {
        return core_err_set(-ENOMEM, "no memory for a list of blocks");
    }
    *out = blocks;
    return 0;
}

void blocks_destroy(struct blocks *blocks)
{
    if (blocks == NULL) {
        return;
    }
    while (blocks->text != NULL) {
        struct blocks_text *next = blocks->text->next;
        free(blocks->text);
        blocks->text = next;
    }
    free(blocks->list);
    free(blocks->runs);
    free(blocks->spans);
    free(blocks->tensors);
    free(blocks);
}

/* ---- creating a list ---- */

/* Returns the array, perhaps moved, with room for one more element; NULL: no memory, and `array` is
 * unchanged. */
static void *reserve(void *array, size_t count, size_t *room, size_t bytes)
{
    if (count < *room) {
        return array;
    }
    const size_t wider = *room > 0 ? 2 * *room : 16;
    void *moved = realloc(array, wider * bytes);
    if (moved == NULL) {
        (void)core_err_set(-ENOMEM, "no memory for the description of %zu blocks", count);
        return NULL;
    }
    *room = wider;
    return moved;
}

static int check_name(const char *name, size_t bytes)
{
    for (size_t at = 0; at < bytes && bytes <= BLOCKS_NAME_BYTES_MAX;) {
        const size_t sequence = core_utf8_sequence(name + at, bytes - at);
        if (sequence == 0) {
            return core_err_set(-EINVAL, "byte %zu of a block's or tensor's name is not UTF-8", at);
        }
        at += sequence;
    }
    return bytes > 0 && bytes <= BLOCKS_NAME_BYTES_MAX
               ? 0
               : core_err_set(-EINVAL,
                              "the name of a block or tensor has %zu bytes; expected 1 to %d",
                              bytes, BLOCKS_NAME_BYTES_MAX);
}

static int copy_name(struct blocks *blocks, const char *name, const char **out)
{
    const size_t bytes = strlen(name);
    int rc = check_name(name, bytes);
    if (rc != 0) {
        return rc;
    }
    struct blocks_text *text = blocks->text;
    if (text == NULL || sizeof text->chars - text->bytes < bytes + 1) {
        text = malloc(sizeof *text);
        if (text == NULL) {
            return core_err_set(-ENOMEM, "no memory for the names of blocks");
        }
        text->next = blocks->text;
        text->bytes = 0;
        blocks->text = text;
    }
    char *copy = text->chars + text->bytes;
    memcpy(copy, name, bytes + 1);
    text->bytes += bytes + 1;
    *out = copy;
    return 0;
}

int blocks_add(struct blocks *blocks, const char *name)
{
    const char *copy = NULL;
    if (blocks->count == BLOCKS_MAX) {
        return core_err_set(-EINVAL, "the list already has the maximum of %d blocks", BLOCKS_MAX);
    }
    struct block *list = reserve(blocks->list, blocks->count, &blocks->list_room, sizeof *list);
    if (list == NULL) {
        return -ENOMEM;
    }
    blocks->list = list;
    int rc = copy_name(blocks, name, &copy);
    if (rc != 0) {
        return rc;
    }
    list[blocks->count++] = (struct block){.name = copy};
    return 0;
}

static struct block *last_block(struct blocks *blocks)
{
    assert(blocks->count > 0);
    return &blocks->list[blocks->count - 1];
}

/* Extends the last run, and the last span if the elements are trained, or adds new ones. */
static int cover(struct blocks *blocks, uint64_t first, uint64_t end, uint32_t group, bool trained)
{
    struct block *block = last_block(blocks);
    struct block_run *run = block->run_count > 0 ? &blocks->runs[blocks->run_count - 1] : NULL;
    struct block_span *span = block->span_count > 0 ? &blocks->spans[blocks->span_count - 1] : NULL;
    if (run != NULL && run->group == group) {
        run->end = end;
    } else {
        struct block_run *runs = reserve(blocks->runs, blocks->run_count, &blocks->run_room,
                                         sizeof *runs);
        if (runs == NULL) {
            return -ENOMEM;
        }
        blocks->runs = runs;
        if (block->run_count > 0) { /* padding before the array belongs to the previous run */
            runs[blocks->run_count - 1].end = first;
        }
        runs[blocks->run_count++] = (struct block_run){end, group};
        block->run_count++;
    }
    if (trained && span != NULL && span->end == first) {
        span->end = end;
    } else if (trained) {
        struct block_span *spans = reserve(blocks->spans, blocks->span_count, &blocks->span_room,
                                           sizeof *spans);
        if (spans == NULL) {
            return -ENOMEM;
        }
        blocks->spans = spans;
        spans[blocks->span_count++] = (struct block_span){first, end};
        block->span_count++;
    }
    return 0;
}

int blocks_add_array(struct blocks *blocks, uint64_t elements, uint32_t group, bool trained,
                     uint64_t *first)
{
    struct block *block = last_block(blocks);
    const uint64_t begin = core_round_up(block->elements,
                                         blocks->packed ? 1 : BLOCKS_ALIGN_ELEMENTS);
    if (elements > BLOCKS_ELEMENTS_MAX - begin) {
        return core_err_set(-EINVAL, "%s would have more than %" PRIu64 " elements", block->name,
                            BLOCKS_ELEMENTS_MAX);
    }
    *first = begin;
    if (elements == 0) {
        return 0;
    }
    assert(block->elements == 0 || block->trained == trained);
    int rc = cover(blocks, begin, begin + elements, group, trained);
    if (rc != 0) {
        return rc;
    }
    block->elements = begin + elements;
    block->trained = trained;
    return 0;
}

void blocks_set_weights(struct blocks *blocks, enum block_weights weights)
{
    last_block(blocks)->weights = weights;
}

void blocks_pad(struct blocks *blocks)
{
    struct block *block = last_block(blocks);
    block->elements = core_round_up(block->elements, BLOCKS_ALIGN_ELEMENTS);
    if (block->run_count > 0) {
        blocks->runs[blocks->run_count - 1].end = block->elements;
    }
}

int blocks_add_tensor(struct blocks *blocks, const struct block_tensor *tensor, const char **name)
{
    const char *copy = NULL;
    struct block_tensor *tensors = reserve(blocks->tensors, blocks->tensor_count,
                                           &blocks->tensor_room, sizeof *tensors);
    if (tensors == NULL) {
        return -ENOMEM;
    }
    blocks->tensors = tensors;
    int rc = copy_name(blocks, tensor->name, &copy);
    if (rc != 0) {
        return rc;
    }
    tensors[blocks->tensor_count] = *tensor;
    tensors[blocks->tensor_count++].name = copy;
    last_block(blocks)->tensor_count++;
    if (name != NULL) {
        *name = copy;
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_names(const struct blocks *blocks)
{
    const char **names = malloc(blocks->count * sizeof *names);
    if (names == NULL) {
        return core_err_set(-ENOMEM, "no memory for the names of %" PRIu32 " blocks",
                            blocks->count);
    }
    for (uint32_t b = 0; b < blocks->count; b++) {
        names[b] = blocks->list[b].name;
    }
    qsort(names, blocks->count, sizeof *names, by_name);
    int rc = 0;
    for (uint32_t b = 1; rc == 0 && b < blocks->count; b++) {
        if (strcmp(names[b - 1], names[b]) == 0) {
            rc = core_err_set(-EINVAL, "two blocks have the name \"%s\"", names[b]);
        }
    }
    free(names);
    return rc;
}

int blocks_finish(struct blocks *blocks, const char *family, uint64_t hash)
{
    const struct block_run *run = blocks->runs;
    const struct block_span *span = blocks->spans;
    const struct block_tensor *tensor = blocks->tensors;
    if (blocks->count == 0) {
        return core_err_set(-EINVAL, "0 blocks; expected 1 to %d", BLOCKS_MAX);
    }
    int rc = check_names(blocks);
    if (rc != 0) {
        return rc;
    }
    for (uint32_t b = 0; b < blocks->count; b++) {
        struct block *block = &blocks->list[b];
        block->runs = run;
        block->spans = span;
        block->tensors = tensor;
        run = run != NULL ? run + block->run_count : NULL;
        span = span != NULL ? span + block->span_count : NULL;
        tensor = tensor != NULL ? tensor + block->tensor_count : NULL;
    }
    snprintf(blocks->family, sizeof blocks->family, "%s", family);
    blocks->hash = hash;
    return 0;
}

/* ---- reading ---- */

bool block_gap(const struct block *block, uint64_t at, uint64_t *end)
{
    assert(at < block->elements);
    size_t low = 0;
    size_t high = block->span_count;
    while (low < high) { /* the first span that ends after `at` */
        const size_t middle = low + (high - low) / 2;
        if (block->spans[middle].end > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    if (low == block->span_count) {
        *end = block->elements;
        return true;
    }
    const struct block_span *span = &block->spans[low];
    *end = span->begin > at ? span->begin : span->end;
    return span->begin > at;
}
