/* base.c: makes the options of a kept base from a plan. */
#include "offload/run/base.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "offload/plan/layout.h"

/* Returns whether a run keeps its base. */
static bool is_wanted(const struct run_base *base)
{
    const struct run_options *options = base->options;
    const bool quantised = options->base == MODEL_STORAGE_INT8 ||
                           options->base == MODEL_STORAGE_NF4;
    const bool memory = options->io != NULL && strcmp(options->io, "mem") == 0;
    return options->keep_base && quantised && options->store_count > 0 && !memory &&
           options->stores[0].directory != NULL && base->folder != NULL;
}

/* Fills in *out. Returns its array `paged`, which the caller frees; NULL: no memory. */
static bool *describe(const struct run_base *base, struct model_kept_options *out)
{
    const struct run_options *options = base->options;
    const struct run_prepared *prepared = base->prepared;
    bool *paged = calloc(prepared->shapes->block_count, sizeof *paged);
    for (uint32_t b = 0; paged != NULL && b < prepared->shapes->block_count; b++) {
        paged[b] = plan_layout_of(prepared->plan)->blocks[b].by_pages;
    }
    const uint64_t ranks = options->local > 0 ? options->local : 1;
    const uint64_t all = store_capacity(options->stores, options->store_count);
    const uint64_t used = plan_tier_bytes(prepared->plan, PLAN_STORE);
    *out = (struct model_kept_options){
        .directory = options->stores[0].directory,
        .folder = base->folder,
        .model = base->model,
        .files = base->files,
        .stored = (const struct model_stored *const *)prepared->shapes->stored,
        .paged = paged,
        .storage = options->base,
        .type = options->type,
        .room_bytes = all > used ? (all - used) * ranks : 0};
    return paged;
}

int run_base_open(const struct run_base *base, bool writes, struct model_kept **out)
{
    struct model_kept_options kept;
    *out = NULL;
    if (!is_wanted(base)) {
        return 0;
    }
    bool *paged = describe(base, &kept);
    if (paged == NULL) {
        return core_err_set(-ENOMEM, "no memory for a kept base");
    }
    kept.writes = writes;
    const int rc = model_kept_open(&kept, out);
    free(paged);
    return rc;
}

int run_base_bytes(const struct run_base *base, bool *exists, uint64_t *out)
{
    struct model_kept_options kept;
    struct model_kept *file = NULL;
    uint64_t bytes = 0;
    int rc = run_base_open(base, false, &file);
    *exists = file != NULL;
    model_kept_close(file);
    if (rc == 0 && is_wanted(base)) {
        bool *paged = describe(base, &kept);
        rc = paged != NULL ? model_kept_measure(&kept, &bytes)
                           : core_err_set(-ENOMEM, "no memory for a kept base");
        bytes = *exists || bytes <= kept.room_bytes ? bytes : 0;
        free(paged);
    }
    *out = bytes;
    return rc;
}
