/* memory.h: what the rows of data may take of memory, and what they took. The caller's memory. */
#ifndef TOOLS_TEXT_DATA_MEMORY_H
#define TOOLS_TEXT_DATA_MEMORY_H

#include <stdint.h>

#include "core/base/budget.h"

enum { TEXT_THREADS_MAX = 64 };

/* What a feed may take and took. A row's way from JSON to tokens has a limit, so that one row cannot take
 * all of the machine; everything else has sizes of its own and is counted. Rows that need little are made by
 * all threads at once, in buffers that stay; what needs more is made again alone, from empty buffers, so
 * that which rows are refused depends on the rows alone. The caller's memory; outlives the feed. */
struct text_memory {
    uint64_t row_bytes;                         /* the limit of one row */
    uint64_t line_bytes;                        /* of its text, besides */
    struct core_budget shared;                  /* files, tokenizer, windows, batches */
    struct core_budget large;                   /* a row that needs much */
    struct core_budget small[TEXT_THREADS_MAX]; /* of each thread: rows that need little */
};

/* `row_bytes` 0: half of what this process may use, at most 1 GiB. */
void text_memory_init(struct text_memory *memory, uint64_t row_bytes);
/* What a feed of one thread takes for the rows that feeds with this memory have read. */
uint64_t text_memory_peak(const struct text_memory *memory);
/* The same of the largest row alone: a limit under which the same rows are read. */
uint64_t text_memory_row(const struct text_memory *memory);

#endif
