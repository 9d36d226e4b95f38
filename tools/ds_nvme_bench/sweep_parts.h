/* sweep_parts.h: private to sweep.c and sweep_pick.c: the way from a scan to the candidates. */
#ifndef TOOLS_DS_NVME_BENCH_SWEEP_PARTS_H
#define TOOLS_DS_NVME_BENCH_SWEEP_PARTS_H

#include "tools/ds_nvme_bench/sweep.h"

enum { BENCH_CANDIDATES_MAX = 6 };

/* Of a setting: the least share of the best over the operations. Finds the way; what is recommended
 * goes by medians. */
double bench_sweep_score(const struct bench_sweep *sweep, const struct bench_params *setting);

/* The settings that may turn out best: the fastest half by what they were seen to do, and of the
 * others near them one that keeps enough in flight for any drive, then the smallest. Returns how many,
 * BENCH_CANDIDATES_MAX at most. */
unsigned bench_sweep_pick(const struct bench_sweep *sweep,
                          struct bench_params picked[BENCH_CANDIDATES_MAX]);

#endif
