/* lists.h: lists of numbers as people write them ("128K,1M"), and as DeepSpeed's sweep files hold them. */
#ifndef TOOLS_DS_NVME_BENCH_LISTS_H
#define TOOLS_DS_NVME_BENCH_LISTS_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/ds_nvme_bench/sweep.h"

/* "128K,1M" to numbers, at most BENCH_LIST_MAX; sizes are multiples of 4096. `name` is the option's,
 * for the message. */
int bench_list_parse(const char *name, const char *text, bool size, uint32_t high, uint32_t *list,
                     unsigned *count);

/* A file of ds_nvme_tune's --sweep_config, as lists for bench_list_parse(). */
struct bench_sweep_file {
    char blocks[512];  /* block_size; 1M where the file has none, as in ds_io */
    char depths[512];  /* queue_depth; 32 */
    char threads[512]; /* io_parallel; 1 */
    bool ignores;      /* it also has sequential_requests or single_submit */
};

/* -EINVAL with the file, the line and the key for anything else. */
int bench_sweep_file_load(const char *path, struct bench_sweep_file *out);

#endif
