/* export.c: tide_checkpoint_export: writes a checkpoint's weights as a Hugging Face folder. The caller's
 * thread. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <tide/checkpoint.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "offload/api/context.h"
#include "offload/model/config_read.h"
#include "offload/model/save.h"
#include "offload/plan/shard.h"
#include "offload/store/checkpoint.h"

/* Elements per read: whole cuts, a few MiB. */
enum { ELEMENTS = 64 * PLAN_CUT_ELEMENTS };

struct export
{
    struct tide_context *context;        /* borrowed */
    struct store_checkpoint *checkpoint; /* owned */
    struct model *model;                 /* owned */
    struct model_save *save;             /* owned */
    char *buffer;                        /* owned */
};

static enum model_dtype dtype_of(const char *name)
{
    return strcmp(name, "F32") == 0    ? MODEL_F32
           : strcmp(name, "BF16") == 0 ? MODEL_BF16
                                       : MODEL_F16;
}

/* Opens the checkpoint's model and checks that its blocks are those of the checkpoint. */
static int open_model(struct export *export, const char *path)
{
    const struct blocks *blocks = store_checkpoint_manifest(export->checkpoint)->blocks;
    struct model_config config;
    if (blocks->base_apart) {
        return core_err_set(-EINVAL,
                            "%s cannot be exported: it has trained weights alone, without those of "
                            "its base model; resume the run to save it",
                            path);
    }
    int rc = model_config_load(path, &config);
    if (rc == 0) {
        const struct model_options options = {.frozen_as = blocks};
        rc = model_create(&config, &options, &export->model);
    }
    if (rc != 0) {
        return core_err_prefix(rc, "%s cannot be exported", path);
    }
    bool same = export->model->block_count == blocks->count;
    for (uint32_t b = 0; same && b < blocks->count; b++) {
        same = export->model->blocks[b].elements == blocks->list[b].elements;
    }
    return same
               ? 0
               : core_err_set(-EINVAL,
                              "%s: config.json does not describe the model of these weights", path);
}

static int put_block(struct export *export, uint32_t block, enum model_dtype type)
{
    const uint64_t elements = export->model->blocks[block].elements;
    const struct store_arrays arrays = {.at = {[STORE_STREAM_WEIGHTS] = export->buffer}};
    for (uint64_t at = 0; at < elements; at += ELEMENTS) {
        const uint64_t count = elements - at < ELEMENTS ? elements - at : ELEMENTS;
        int rc = store_checkpoint_read(export->checkpoint, block, at, count, &arrays);
        if (rc != 0) {
            return rc;
        }
        rc = model_save_put(export->save, block, at, count, type, export->buffer);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

/* Opens a checkpoint. If `path` is a folder of checkpoints, the error names the newest. */
static int open_checkpoint(const char *path, struct store_checkpoint **out)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    char newest[PATH_MAX];
    int rc = store_checkpoint_open(path, NULL, NULL, out);
    if (rc != -ENOENT) {
        return rc;
    }
    const struct core_err kept = core_err_keep(rc);
    if (store_shelf_list(path, &steps, &count) == 0 && count > 0) {
        rc = core_err_set(-ENOENT, "%s is not a checkpoint; its newest is %s", path,
                          store_shelf_path(path, steps[count - 1], newest, sizeof newest));
        free(steps);
        return rc;
    }
    free(steps);
    return core_err_first(&kept, 0);
}

static int run(struct export *export, const char *path, const char *folder, int overwrite)
{
    void *buffer = NULL;
    if (core_file_is_same(path, folder)) { /* the states of the checkpoint would be lost */
        return core_err_set(-EINVAL, "%s is the checkpoint itself; name another folder", folder);
    }
    int rc = open_checkpoint(path, &export->checkpoint);
    if (rc != 0) {
        return rc;
    }
    rc = open_model(export, path);
    if (rc == 0 && posix_memalign(&buffer, PLAN_ALIGN_BYTES, (size_t)ELEMENTS * 4) != 0) {
        rc = core_err_set(-ENOMEM, "no memory to export %s", path);
    }
    export->buffer = buffer;
    if (rc != 0) {
        return rc;
    }
    const enum model_dtype type = dtype_of(
        store_checkpoint_manifest(export->checkpoint)->weight_dtype);
    const struct model_save_options options = {
        .folder = folder, .source = path, .type = type, .replace = overwrite != 0};
    rc = model_save_open(export->model, &options, &export->save);
    if (rc != 0) {
        return rc;
    }
    for (uint32_t b = 0; b < export->model->block_count; b++) {
        rc = put_block(export, b, type);
        if (rc != 0) {
            return rc;
        }
        rc = context_progress(export->context, "export", b + 1, export->model->block_count);
        if (rc != 0) {
            return rc;
        }
    }
    return model_save_finish(export->save);
}

int tide_checkpoint_export(struct tide_context *context, const char *checkpoint, const char *folder,
                           int overwrite)
{
    const struct context_before before = context_enter(context);
    struct export export = {.context = context};
    int rc = checkpoint != NULL && folder != NULL && folder[0] != '\0'
                 ? run(&export, checkpoint, folder, overwrite)
                 : core_err_set(-EINVAL, "a checkpoint and a folder to write are required");
    const struct core_err kept = core_err_keep(rc);
    model_save_close(export.save);
    model_destroy(export.model);
    free(export.buffer);
    rc = core_err_first(&kept, store_checkpoint_close(export.checkpoint));
    context_leave(&before);
    return rc;
}
