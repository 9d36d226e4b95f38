/* base.h: opens and measures the file beside the first store in which a run keeps its quantised
 * base (model/kept.h). Called by the thread of the engine or of the plan. */
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
    const char *folder; /* folder of the model; NULL: nothing is kept */
};

/* Opens the file. If it does not exist and `writes` is set, begins a new one. Sets *out to NULL if
 * there is no file or the run keeps no base. */
int run_base_open(const struct run_base *base, bool writes, struct model_kept **out);
/* Sets *exists to whether the file exists, and *out to its size or, if it does not exist, to the
 * size that it would have. Sets *out to 0 if the run keeps no base, or if there is no room for a
 * new file. */
int run_base_bytes(const struct run_base *base, bool *exists, uint64_t *out);

#endif
