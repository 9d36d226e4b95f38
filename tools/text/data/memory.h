/* memory.h: limits and use of memory for rows. The struct is in the caller's memory. */
#ifndef TOOLS_TEXT_DATA_MEMORY_H
#define TOOLS_TEXT_DATA_MEMORY_H

#include <stdint.h>

#include "core/base/budget.h"

enum { TEXT_THREADS_MAX = 64 };

/* Memory that a feed may use and has used. Threads encode small rows in buffers that are kept. A
 * larger row is encoded alone with empty buffers, so whether it is refused depends on that row
 * alone. Must outlive the feed. */
struct text_memory {
    uint64_t row_bytes;        /* limit for turning one row into tokens */
    uint64_t line_bytes;       /* limit of the text of a row, not part of row_bytes */
    struct core_budget shared; /* files, tokenizer, windows, batches */
    struct core_budget large;  /* one large row */
    struct core_budget small[TEXT_THREADS_MAX]; /* small rows, by thread */
};

/* `row_bytes` 0: half of what this process may use, 1 MiB to 1 GiB. */
void text_memory_init(struct text_memory *memory, uint64_t row_bytes);
/* Returns the bytes that a feed of one thread needs for the rows read with this memory. */
uint64_t text_memory_peak(const struct text_memory *memory);
/* Returns a `row_bytes` that suffices for the rows read. */
uint64_t text_memory_row(const struct text_memory *memory);

#endif
