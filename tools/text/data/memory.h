/* memory.h: limits and use of memory for rows of data. The struct is in the caller's memory. */
#ifndef TOOLS_TEXT_DATA_MEMORY_H
#define TOOLS_TEXT_DATA_MEMORY_H

#include <stdint.h>

#include "core/base/budget.h"

enum { TEXT_THREADS_MAX = 64 };

/* Memory that a feed may use and has used. Turning one row from JSON to tokens has a limit, so that
 * a single row cannot exhaust the machine; everything else has its own limits and is counted. All
 * threads encode small rows at the same time, in buffers that are kept. A row that needs more is
 * encoded again, alone and with empty buffers, so that whether a row is refused depends on that row
 * alone. Must outlive the feed. */
struct text_memory {
    uint64_t row_bytes;                         /* limit of one row */
    uint64_t line_bytes;                        /* limit of the text of a row, beside row_bytes */
    struct core_budget shared;                  /* files, tokenizer, windows, batches */
    struct core_budget large;                   /* one large row */
    struct core_budget small[TEXT_THREADS_MAX]; /* small rows, for each thread */
};

/* Sets the limits. `row_bytes` 0: half of what this process may use, 1 MiB to 1 GiB. */
void text_memory_init(struct text_memory *memory, uint64_t row_bytes);
/* Returns the bytes that a feed of one thread needs for the rows that feeds with this memory have
 * read. */
uint64_t text_memory_peak(const struct text_memory *memory);
/* Returns how much memory the largest row needs: with this as `row_bytes`, the same rows can be
 * read. */
uint64_t text_memory_row(const struct text_memory *memory);

#endif
