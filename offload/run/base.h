/* base.h: the file beside the first store in which a run keeps its quantised base (model/kept.h): whether one is wanted, and
 * where. Engine's thread, or a planner's. */
#ifndef OFFLOAD_RUN_BASE_H
#define OFFLOAD_RUN_BASE_H

#include <stdbool.h>

#include "offload/model/kept.h"
#include "offload/run/prepare.h"

struct run_base {
    const struct run_options *options; /* borrowed, like all here */
    const struct run_prepared *prepared;
    const struct model *model;
    const struct model_files *files;
    const char *folder; /* of the model; NULL: nothing is kept */
};

/* Opens the file, or begins one if `writes`. *out is NULL if there is none. */
int run_base_open(const struct run_base *base, bool writes, struct model_kept **out);
/* The bytes that a file takes, if one is wanted and there is room for it, or it is there already; else 0. */
int run_base_bytes(const struct run_base *base, bool *exists, uint64_t *out);

#endif
