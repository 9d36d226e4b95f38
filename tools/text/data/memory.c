/* memory.c: limits of memory for rows, and figures for a plan. Any thread. */
#include "tools/text/data/memory.h"

#include "core/base/mem_limits.h"

enum { SMALL_BYTES = 16 << 20, ROW_BYTES_MIN = 1 << 20, ROW_BYTES_MAX = 1 << 30 };

void text_memory_init(struct text_memory *memory, uint64_t row_bytes)
{
    struct core_mem_limits limits;
    if (row_bytes == 0 && core_mem_limits("", &limits) == 0) {
        row_bytes = limits.usable_bytes / 2;
        row_bytes = row_bytes < ROW_BYTES_MIN   ? ROW_BYTES_MIN
                    : row_bytes > ROW_BYTES_MAX ? ROW_BYTES_MAX
                                                : row_bytes;
    }
    memory->row_bytes = row_bytes > 0 ? row_bytes : ROW_BYTES_MAX;
    memory->line_bytes = memory->row_bytes / 2;
    core_budget_init(&memory->shared, "data", CORE_BUDGET_NONE);
    core_budget_init(&memory->large, "row", memory->row_bytes);
    for (unsigned i = 0; i < TEXT_THREADS_MAX; i++) {
        /* half: a row that fits into the thread's used buffers must also fit into `large`, which
         * begins empty, while new buffers grow */
        const uint64_t most = memory->row_bytes / 2;
        core_budget_init(&memory->small[i], "rows", most < SMALL_BYTES ? most : SMALL_BYTES);
    }
}

static uint64_t small_peak(const struct text_memory *memory)
{
    uint64_t most = 0;
    for (unsigned i = 0; i < TEXT_THREADS_MAX; i++) {
        const uint64_t peak = core_budget_peak(&memory->small[i]);
        most = peak > most ? peak : most;
    }
    return most;
}

uint64_t text_memory_peak(const struct text_memory *memory)
{
    return core_budget_peak(&memory->shared) + core_budget_peak(&memory->large) +
           small_peak(memory);
}

uint64_t text_memory_row(const struct text_memory *memory)
{
    const uint64_t large = core_budget_peak(&memory->large);
    const uint64_t least = 2 * small_peak(memory); /* small rows may use half of the limit */
    const uint64_t most = large > least ? large : least;
    return most > ROW_BYTES_MIN ? most : ROW_BYTES_MIN;
}
