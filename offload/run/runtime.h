/* runtime.h: the memory that the process takes besides the tiers: code, libraries, stacks, tapes
 * and tables. A plan counts this memory, so that its total is what the process will take. Any
 * thread may call. */
#ifndef OFFLOAD_RUN_RUNTIME_H
#define OFFLOAD_RUN_RUNTIME_H

#include "offload/run/options.h"

/* Returns the resident memory, including hugetlb pages; 0: the kernel does not report it. */
uint64_t run_runtime_used_bytes(void);
/* Returns the peak of the resident memory, plus the current hugetlb pages. */
uint64_t run_runtime_peak_bytes(void);

/* Returns the memory that a run will take: the resident memory at the first call, at least 8 MiB,
 * plus the memory that planning, threads, products and I/O add. */
uint64_t run_runtime_bytes(uint32_t block_count, const struct run_options *options);

/* Finds the memory of a GPU for a run without a budget: *budget_bytes, which fit into what is free
 * now, and *card_bytes, all memory of the GPU, which is the same for every run. */
int run_runtime_card_bytes(const char *device, uint64_t *budget_bytes, uint64_t *card_bytes);

#endif
