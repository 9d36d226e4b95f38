/* lists.h: lists of numbers as people write them: "128K,1M". */
#ifndef TOOLS_DS_NVME_BENCH_LISTS_H
#define TOOLS_DS_NVME_BENCH_LISTS_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/ds_nvme_bench/sweep.h"

/* "128K,1M" to numbers, at most BENCH_LIST_MAX; sizes are multiples of 4096. `name` is the option's,
 * for the message. */
int bench_list_parse(const char *name, const char *text, bool size, uint32_t high, uint32_t *list,
                     unsigned *count);

#endif
