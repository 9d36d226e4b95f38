/* rows.c: sorts ids, merges their pages, and finds the rows' places. */
#include "offload/model/rows.h"

#include <assert.h>
#include <stdlib.h>

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static uint64_t pages_of(uint64_t bytes)
{
    return (bytes + MODEL_PAGE_BYTES - 1) / MODEL_PAGE_BYTES;
}

/* Returns the greatest common divisor of a page and a row, in elements; 0: the embedding is read
 * whole. */
static int64_t rows_stride(const struct model *model, uint64_t type_bytes)
{
    const struct model_block *embedding = &model->blocks[0];
    const struct model_param *table =
        &embedding->params[model_block_param(embedding, MODEL_TOKEN_TABLE)];
    const uint64_t row_bytes = (uint64_t)table->cols * type_bytes;
    const int64_t stride = (int64_t)(common_divisor(row_bytes, MODEL_PAGE_BYTES) / type_bytes);
    const bool places_fit = table->rows <= INT32_MAX / (table->cols / stride);
    return embedding->trained || !places_fit ? 0 : stride;
}

struct model_rows model_rows_of(const struct model *model, uint64_t type_bytes, int64_t tokens,
                                int64_t length)
{
    const struct model_block *embedding = &model->blocks[0];
    const int positions = model_block_param(embedding, MODEL_POSITION_TABLE);
    const struct model_param *table =
        &embedding->params[model_block_param(embedding, MODEL_TOKEN_TABLE)];
    struct model_rows rows = {
        .stride = rows_stride(model, type_bytes),
        .row = table->cols,
        .vocab = table->rows,
        .type_bytes = type_bytes,
        .tokens = tokens,
    };
    if (rows.stride == 0) {
        return rows;
    }
    assert(table->offset == 0);
    const uint64_t row_bytes = (uint64_t)rows.row * type_bytes;
    const uint64_t stride_bytes = (uint64_t)rows.stride * type_bytes;
    const uint64_t used = (uint64_t)(tokens < rows.vocab ? tokens : rows.vocab);
    /* A row begins at least one stride before its first page ends. */
    uint64_t pages = used * pages_of(MODEL_PAGE_BYTES - stride_bytes + row_bytes);
    if (positions >= 0) {
        rows.positions_at = embedding->params[positions].offset * type_bytes;
        rows.positions_bytes = (uint64_t)length * row_bytes;
        pages += pages_of(rows.positions_bytes) + 1;
    }
    const uint64_t all = pages_of(embedding->elements * type_bytes);
    rows.pages_max = (uint32_t)(pages < all ? pages : all);
    rows.ranges_max = (uint32_t)used + 1;
    return rows;
}

static int by_id(const void *a, const void *b)
{
    const int32_t left = *(const int32_t *)a;
    const int32_t right = *(const int32_t *)b;
    return left < right ? -1 : left > right;
}

/* Callers add bytes in ascending order. */
static void add_bytes(const struct model_rows *rows, struct model_rows_used *used, uint64_t first,
                      uint64_t bytes)
{
    const uint32_t begin = (uint32_t)(first / MODEL_PAGE_BYTES);
    const uint32_t end = (uint32_t)pages_of(first + bytes);
    struct model_pages *last = used->count > 0 ? &used->ranges[used->count - 1] : NULL;
    if (last != NULL && begin <= last->first + last->count) {
        const uint32_t count = end - last->first;
        last->count = count > last->count ? count : last->count;
    } else {
        assert(used->count < rows->ranges_max);
        used->ranges[used->count++] = (struct model_pages){begin, end - begin, used->pages};
        last = &used->ranges[used->count - 1];
    }
    used->pages = last->at + last->count;
}

static uint64_t slot_byte(const struct model_rows_used *used, uint64_t byte)
{
    const uint32_t page = (uint32_t)(byte / MODEL_PAGE_BYTES);
    uint32_t low = 0;
    uint32_t high = used->count;
    while (high - low > 1) { /* finds the last range that begins at or before the page */
        const uint32_t middle = low + (high - low) / 2;
        if (used->ranges[middle].first <= page) {
            low = middle;
        } else {
            high = middle;
        }
    }
    const struct model_pages *range = &used->ranges[low];
    assert(page >= range->first && page < range->first + range->count);
    return (uint64_t)(range->at + (page - range->first)) * MODEL_PAGE_BYTES +
           byte % MODEL_PAGE_BYTES;
}

void model_rows_use(const struct model_rows *rows, const int32_t *ids, int32_t *sorted,
                    struct model_rows_used *used)
{
    const uint64_t row_bytes = (uint64_t)rows->row * rows->type_bytes;
    used->count = used->pages = 0;
    for (int64_t t = 0; t < rows->tokens; t++) {
        sorted[t] = ids[t];
    }
    qsort(sorted, (size_t)rows->tokens, sizeof *sorted, by_id);
    for (int64_t t = 0; t < rows->tokens; t++) {
        if (t == 0 || sorted[t] != sorted[t - 1]) {
            add_bytes(rows, used, (uint64_t)sorted[t] * row_bytes, row_bytes);
        }
    }
    if (rows->positions_bytes > 0) {
        add_bytes(rows, used, rows->positions_at, rows->positions_bytes);
        used->positions_at = slot_byte(used, rows->positions_at);
    }
    assert(used->pages <= rows->pages_max);
}

void model_rows_place(const struct model_rows *rows, const struct model_rows_used *used,
                      int32_t *ids)
{
    const uint64_t row_bytes = (uint64_t)rows->row * rows->type_bytes;
    const uint64_t stride_bytes = (uint64_t)rows->stride * rows->type_bytes;
    for (int64_t t = 0; t < rows->tokens; t++) {
        const uint64_t byte = (uint64_t)ids[t] * row_bytes;
        ids[t] = (int32_t)((used != NULL ? slot_byte(used, byte) : byte) / stride_bytes);
    }
}
