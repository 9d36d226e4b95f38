/* rows.h: the rows of a frozen embedding that a micro-batch uses. The pages with these rows are
 * read into a slot, in ascending order and once each. Ids become places in the slot, counted in
 * strides; the stride divides both a row and a page. Pure functions; any thread. */
#ifndef OFFLOAD_MODEL_ROWS_H
#define OFFLOAD_MODEL_ROWS_H

#include "offload/model/model.h"

enum { MODEL_PAGE_BYTES = 4096 };

/* Consecutive pages; the first one is page `at` of the slot. */
struct model_pages {
    uint32_t first;
    uint32_t count;
    uint32_t at;
};

/* What a run's micro-batches have in common. `stride` 0: the embedding is read whole. */
struct model_rows {
    int64_t stride; /* elements */
    int64_t row;    /* elements */
    int64_t vocab;
    uint64_t type_bytes;
    /* byte of the block where the rows of positions begin, which all micro-batches use */
    uint64_t positions_at;
    uint64_t positions_bytes;
    int64_t tokens; /* tokens of a micro-batch */
    uint32_t pages_max;
    uint32_t ranges_max;
};

struct model_rows model_rows_of(const struct model *model, uint64_t type_bytes, int64_t tokens,
                                int64_t length);

struct model_rows_used {
    struct model_pages *ranges; /* [ranges_max], the caller's; ascending, with gaps */
    uint32_t count;
    uint32_t pages;
    uint64_t positions_at; /* byte of the slot */
};

/* Finds the pages of rows->tokens `ids`, which are in the vocabulary. `sorted` has room for as
 * many. */
void model_rows_use(const struct model_rows *rows, const int32_t *ids, int32_t *sorted,
                    struct model_rows_used *used);

/* Replaces ids with places in a slot with these pages, or in the whole block if `used` is NULL. */
void model_rows_place(const struct model_rows *rows, const struct model_rows_used *used,
                      int32_t *ids);

#endif
