/* runtime.h: the process's memory besides the tiers: code, libraries, stacks, tapes and tables. A
 * plan's total includes this memory. Any thread may call. */
#ifndef OFFLOAD_RUN_RUNTIME_H
#define OFFLOAD_RUN_RUNTIME_H

#include "offload/run/options.h"

/* Returns the resident memory with hugetlb pages; 0: the kernel does not report it. */
uint64_t run_runtime_used_bytes(void);
/* Returns the peak of the resident memory, plus the current hugetlb pages. */
uint64_t run_runtime_peak_bytes(void);

/* Returns the memory that a run will take besides the tiers: resident memory at the first call, at
 * least 8 MiB, plus what planning, threads, products and I/O add. */
uint64_t run_runtime_bytes(uint32_t block_count, const struct run_options *options);

/* For a run without a budget: sets *budget_bytes to what fits into a GPU's free memory, and
 * *card_bytes to the GPU's whole memory, which is the same for every run. */
int run_runtime_card_bytes(const char *device, uint64_t *budget_bytes, uint64_t *card_bytes);

#endif
