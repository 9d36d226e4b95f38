/* export.c: tide_checkpoint_export: writes a checkpoint as a Hugging Face or PEFT folder. The
 * caller's thread. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <tide/checkpoint.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/json/scan.h"
#include "cpu_adam/adam.h"
#include "offload/api/context.h"
#include "offload/model/config_read.h"
#include "offload/model/publish.h"
#include "offload/model/save.h"
#include "offload/plan/shard.h"
#include "offload/store/checkpoint.h"

/* Elements per read. Shards and chunks begin at multiples of PLAN_CUT_ELEMENTS. */
enum { ELEMENTS = 64 * PLAN_CUT_ELEMENTS };

struct export
{
    struct tide_context *context;        /* borrowed */
    struct store_checkpoint *checkpoint; /* owned */
    struct model *model;                 /* owned */
    struct model_save *save;             /* owned */
    char *buffer;                        /* owned */
    char *master;                        /* owned; NULL: not needed */
    const char **modules[2]; /* owned, with their names: adapted modules, modules saved whole */
    size_t counts[2];
};

/* ---- the model ---- */

static int add_module(struct export *export, bool saved, const char *name, size_t length)
{
    const char **list = realloc(export->modules[saved], (export->counts[saved] + 1) * sizeof *list);
    if (list == NULL) {
        return core_err_set(-ENOMEM, "no memory for the modules of adapters");
    }
    export->modules[saved] = list;
    char *module = strndup(name, length);
    if (module == NULL) {
        return core_err_set(-ENOMEM, "no memory for the modules of adapters");
    }
    list[export->counts[saved]++] = module;
    return 0;
}

static int find_modules(struct export *export, const struct blocks *blocks,
                        struct model_lora_options *lora)
{
    static const char magnitude[] = "lora_magnitude_vector";
    static const char a[] = ".lora_A";
    static const char b[] = ".lora_B";
    const size_t prefix = strlen(MODEL_ADAPTER_PREFIX);
    int rc = 0;
    for (uint32_t i = 0; i < blocks->count; i++) {
        const struct block *block = &blocks->list[i];
        for (size_t t = 0; rc == 0 && block->trained && t < block->tensor_count; t++) {
            const char *name = block->tensors[t].name;
            const size_t length = model_module_length(name);
            if (strncmp(name, MODEL_ADAPTER_PREFIX, prefix) == 0 && name[length] == '.' &&
                strcmp(name + length + 1, magnitude) == 0) {
                lora->dora = true;
            } else if (strncmp(name, MODEL_ADAPTER_PREFIX, prefix) != 0 ||
                       length < prefix + sizeof b) {
                rc = add_module(export, true, name, length);
            } else if (strncmp(name + length - strlen(a), a, strlen(a)) == 0) {
                lora->rank = block->tensors[t].rows;
            } else if (strncmp(name + length - strlen(b), b, strlen(b)) == 0) {
                rc = add_module(export, false, name + prefix, length - prefix - strlen(b));
            }
        }
    }
    return rc;
}

/* For a checkpoint without the base. */
static int make_adapters(struct export *export, const struct model_config *config)
{
    const struct store_manifest *manifest = store_checkpoint_manifest(export->checkpoint);
    const char *alpha = store_manifest_parameter(manifest, STORE_LORA_ALPHA);
    const char *rslora = store_manifest_parameter(manifest, STORE_LORA_RSLORA);
    const char *dropout = store_manifest_parameter(manifest, STORE_LORA_DROPOUT);
    struct model_lora_options lora = {.rank = 0};
    if (alpha == NULL || rslora == NULL) {
        return core_err_set(
            -EINVAL,
            "the checkpoint has only trained weights, without those of its base model; resume "
            "the run to save it");
    }
    int rc = find_modules(export, manifest->blocks, &lora);
    if (rc == 0 && (lora.rank == 0 || export->counts[0] == 0)) {
        rc = core_err_set(-EINVAL, "the checkpoint has no adapters");
    }
    if (rc != 0) {
        return rc;
    }
    lora.alpha = core_json_real_read(alpha);
    lora.rslora = strcmp(rslora, "1") == 0;
    lora.dropout = dropout != NULL ? core_json_real_read(dropout) : 0.0;
    lora.targets = export->modules[0];
    lora.target_count = export->counts[0];
    lora.saved = export->modules[1];
    lora.saved_count = export->counts[1];
    const struct model_options options = {.lora = &lora};
    return model_create(config, &options, &export->model);
}

static int open_model(struct export *export, const char *path)
{
    const struct blocks *blocks = store_checkpoint_manifest(export->checkpoint)->blocks;
    struct model_config config;
    int rc = model_config_load(path, &config);
    if (rc == 0 && blocks->base_apart) {
        rc = make_adapters(export, &config);
    } else if (rc == 0) {
        const struct model_options options = {.frozen_as = blocks};
        rc = model_create(&config, &options, &export->model);
    }
    if (rc != 0) {
        return core_err_prefix(rc, "%s cannot be exported", path);
    }
    bool same = export->model->block_count == blocks->count &&
                (!blocks->base_apart || export->model->flat->hash == blocks->hash);
    for (uint32_t b = 0; same && b < blocks->count; b++) {
        same = export->model->blocks[b].elements == blocks->list[b].elements;
    }
    return same
               ? 0
               : core_err_set(-EINVAL,
                              "%s: config.json does not describe the model of these weights", path);
}

/* ---- weights ---- */

/* Reads a range of weights into the buffer; with masters, as fp32. */
static int read_range(struct export *export, uint32_t block, uint64_t at, uint64_t count)
{
    const struct store_manifest *manifest = store_checkpoint_manifest(export->checkpoint);
    const bool split = manifest->format.master_bytes == 2;
    const struct store_arrays streams = {
        .at = {[STORE_STREAM_WEIGHTS] = export->buffer, [STORE_STREAM_MASTER] = export->master}};
    int rc = store_checkpoint_read(export->checkpoint, block, at, count, &streams);
    if (rc != 0 || export->master == NULL) {
        return rc;
    }
    const struct adam_arrays arrays = {
        .w16 = (uint16_t *)(void *)export->buffer,
        .lo16 = split ? (uint16_t *)(void *)export->master : NULL,
        .w32 = split ? NULL : (float *)(void *)export->master,
    };
    float *floats = (float *)(void *)export->buffer;
    /* from the end, because floats are longer than weights */
    for (uint64_t i = count; i-- > 0;) {
        floats[i] = adam_master_value(&arrays, i);
    }
    return 0;
}

static int put_block(struct export *export, uint32_t block, enum model_dtype type)
{
    const uint64_t elements = export->model->blocks[block].elements;
    for (uint64_t at = 0; at < elements; at += ELEMENTS) {
        const uint64_t count = elements - at < ELEMENTS ? elements - at : ELEMENTS;
        int rc = read_range(export, block, at, count);
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

/* For a folder of checkpoints, the error names the newest checkpoint. */
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
    const bool folder = store_shelf_list(path, &steps, &count) == 0 && access(path, F_OK) == 0;
    if (folder && count > 0) {
        rc = core_err_set(-ENOENT, "%s is not a checkpoint; its newest is %s", path,
                          store_shelf_path(path, steps[count - 1], newest, sizeof newest));
        free(steps);
        return rc;
    }
    free(steps);
    return folder ? core_err_set(-ENOENT,
                                 "%s is not a checkpoint: it has no " MODEL_MANIFEST_NAME
                                 "; name a folder checkpoint-STEP that a run wrote, or give the "
                                 "model and its adapter (tide export --merge BASE ADAPTER)",
                                 path)
                  : core_err_first(&kept, 0);
}

/* A part of a checkpoint may lack the weights of some ranks. */
static int check_whole(const struct store_manifest *manifest, const char *path)
{
    const struct store_part *part = &manifest->part;
    const bool masters = manifest->blocks->base_apart && manifest->format.master_bytes > 0;
    const uint32_t ranks = masters && part->states_of > part->weights_of ? part->states_of
                                                                         : part->weights_of;
    for (uint32_t r = 0; part->ranks != 0 && r < ranks; r++) {
        if ((part->ranks >> r & 1) == 0) {
            return core_err_set(-EINVAL,
                                "%s has one machine's part of a checkpoint (--checkpoint-local), "
                                "without the weights of rank %u; the model that the run writes at "
                                "its end is whole",
                                path, r);
        }
    }
    return 0;
}

static int make_buffers(struct export *export, const char *path)
{
    const struct store_manifest *manifest = store_checkpoint_manifest(export->checkpoint);
    const bool masters = manifest->blocks->base_apart && manifest->format.master_bytes > 0;
    void *memory[2] = {NULL, NULL};
    for (int i = 0; i < 1 + masters; i++) {
        if (posix_memalign(&memory[i], PLAN_ALIGN_BYTES, (size_t)ELEMENTS * 4) != 0) {
            free(memory[0]);
            return core_err_set(-ENOMEM, "no memory to export %s", path);
        }
    }
    export->buffer = memory[0];
    export->master = memory[1];
    return 0;
}

static int run(struct export *export, const char *path, const char *folder, int overwrite)
{
    /* otherwise the states of the checkpoint would be lost */
    if (core_file_is_same(path, folder)) {
        return core_err_set(-EINVAL, "%s is the checkpoint itself; name another folder", folder);
    }
    int rc = open_checkpoint(path, &export->checkpoint);
    if (rc != 0) {
        return rc;
    }
    rc = check_whole(store_checkpoint_manifest(export->checkpoint), path);
    if (rc == 0) {
        rc = open_model(export, path);
    }
    if (rc == 0) {
        rc = make_buffers(export, path);
    }
    if (rc != 0) {
        return rc;
    }
    const struct store_manifest *manifest = store_checkpoint_manifest(export->checkpoint);
    const bool adapters = manifest->blocks->base_apart;
    const enum model_dtype type = adapters ? MODEL_F32
                                           : model_dtype_from_name(manifest->weight_dtype);
    const struct model_save_options options = {.folder = folder,
                                               .source = path,
                                               .type = type,
                                               .replace = overwrite != 0,
                                               .base = manifest->base};
    rc = model_save_open(export->model, &options, &export->save);
    if (rc != 0) {
        return rc;
    }
    for (uint32_t b = 0; b < export->model->block_count; b++) {
        rc = adapters && !export->model->blocks[b].trained ? 0 : put_block(export, b, type);
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
    free(export.master);
    for (int saved = 0; saved < 2; saved++) {
        for (size_t i = 0; i < export.counts[saved]; i++) {
            free((char *)(uintptr_t) export.modules[saved][i]);
        }
        free(export.modules[saved]);
    }
    rc = core_err_first(&kept, store_checkpoint_close(export.checkpoint));
    context_leave(&before);
    return rc;
}
