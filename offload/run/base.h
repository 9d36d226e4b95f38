/* base.h: opens and measures the file that keeps the quantised base beside the first store
 * (model/kept.h). Runs on the caller's thread. */
#ifndef OFFLOAD_RUN_BASE_H
#define OFFLOAD_RUN_BASE_H

#include <stdbool.h>

#include "offload/model/kept.h"
#include "offload/run/prepare.h"

struct run_base {
    const struct run_options *options; /* borrowed, like all pointers here */
    const struct run_prepared *prepared;
    const struct model *model;
    const struct model_files *files;
    const char *folder; /* of the model; NULL: nothing is kept */
};

/* Opens the file or, with `writes`, begins one. Sets *out to NULL if neither is possible or the run
 * keeps no base. */
int run_base_open(const struct run_base *base, bool writes, struct model_kept **out);
/* Sets *out to the size that the file has or would have; 0 if the run keeps no base or a new file
 * does not fit. */
int run_base_bytes(const struct run_base *base, bool *exists, uint64_t *out);

#endif
