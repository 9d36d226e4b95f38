/* lists.h: parses lists of numbers: "128K,1M". */
#ifndef TOOLS_DS_NVME_BENCH_LISTS_H
#define TOOLS_DS_NVME_BENCH_LISTS_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/ds_nvme_bench/sweep.h"

/* Parses "1M,128K" into `list` ([BENCH_LIST_MAX]), ascending and without repetitions. Numbers are
 * at most `high`; sizes are multiples of 4096. Messages name the option `name`. */
int bench_list_parse(const char *name, const char *text, bool size, uint32_t high, uint32_t *list,
                     unsigned *count);

#endif
