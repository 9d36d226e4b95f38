/* runtime.h: the memory that the process takes besides the tiers: code, libraries, threads' stacks,
 * tapes and tables. Counted so that a plan's total is what the process will have. */
#ifndef OFFLOAD_RUN_RUNTIME_H
#define OFFLOAD_RUN_RUNTIME_H

#include "offload/run/options.h"

struct model;

/* Resident now, hugetlb pages included; 0 where the kernel does not say. */
uint64_t run_runtime_used_bytes(void);
/* The most so far. */
uint64_t run_runtime_peak_bytes(void);

/* What there will be: what was resident when this was first asked, 8 MiB at least, and what planning,
 * threads, products and I/O add. */
uint64_t run_runtime_bytes(const struct model *model, const struct run_options *options);

#endif
