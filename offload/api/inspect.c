/* inspect.c: tide_inspect: describes and checks a folder or file. The caller's thread. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tide/inspect.h>
#include <unistd.h>

#include "aio/files.h"
#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "offload/api/abi.h"
#include "offload/api/context.h"
#include "offload/cache/cache.h"
#include "offload/model/adapter.h"
#include "offload/model/config_read.h"
#include "offload/model/files.h"
#include "offload/model/kept.h"
#include "offload/model/peft.h"
#include "offload/model/publish.h"
#include "offload/model/stored.h"
#include "offload/store/checkpoint.h"
#include "offload/store/ranks.h"

/* Bytes of a path and a file name. */
enum { PATH_BYTES = PATH_MAX + 104 };

static void count_file(const struct model_safetensors *file,
                       const struct tide_inspect_options *options, struct tide_inspection *out)
{
    size_t count;
    const struct model_tensor *list = model_safetensors_list(file, &count);
    out->files++;
    out->tensors += count;
    for (size_t i = 0; i < count; i++) {
        out->bytes += list[i].bytes;
        if (options->tensor != NULL) {
            struct tide_tensor tensor = {
                .struct_bytes = sizeof tensor,
                .name = list[i].name,
                .file = model_safetensors_path(file),
                .dtype = list[i].dtype_name,
                .shape = list[i].shape,
                .dimensions = list[i].dimensions,
                .bytes = list[i].bytes,
            };
            options->tensor(options->user, &tensor);
        }
    }
}

/* Turns damage into a result: the inspection succeeds, and `problem` has the message. */
static int judge(int rc, struct tide_inspection *out)
{
    out->verified = rc == 0;
    if (rc == -EINVAL || rc == -ENOENT || rc == -EIO || rc == -EBADMSG || rc == -ENOTSUP) {
        snprintf(out->problem, sizeof out->problem, "%s", core_err_message());
        return 0;
    }
    return rc;
}

static void describe_model(const struct model *model, struct tide_inspection *out)
{
    const struct model_config *config = &model->config;
    snprintf(out->family, sizeof out->family, "%s", config->family->name);
    const char *codes = model_storage_name(model_stored_as(config->quant));
    const bool quantised = config->quant != KERN_QUANT_NONE;
    if (config->dtype != MODEL_OTHER) {
        snprintf(out->dtype, sizeof out->dtype, "%s%s%s", quantised ? codes : "",
                 quantised ? "+" : "", model_dtype_config_name(config->dtype));
    }
    out->parameters = model->parameters;
    out->vocab = config->vocab;
    out->hidden = config->hidden;
    out->layers = config->layers;
    out->heads = config->heads;
    out->kv_heads = config->kv_heads;
    out->head_dim = config->head_dim;
    out->inner = config->inner;
    out->positions = config->length_max;
    out->tied = config->tied;
}

/* ---- checkpoints ---- */

struct verifying {
    struct tide_context *context;
};

static int report(void *user, uint64_t done, uint64_t total)
{
    const struct verifying *verifying = user;
    return context_progress(verifying->context, "verify", done, total);
}

static void describe_checkpoint(const struct store_manifest *manifest, struct tide_inspection *out)
{
    const char *optimizer = store_manifest_parameter(manifest, "optimizer");
    const char *precision = store_manifest_parameter(manifest, "precision");
    snprintf(out->family, sizeof out->family, "%s", manifest->blocks->family);
    snprintf(out->optimizer, sizeof out->optimizer, "%.15s", optimizer != NULL ? optimizer : "");
    snprintf(out->precision, sizeof out->precision, "%.15s", precision != NULL ? precision : "");
    out->step = manifest->step;
    out->updates = manifest->updates;
    out->run = manifest->run;
}

static int count_streams(const char *path, const struct store_image *image,
                         const struct tide_inspect_options *options, struct tide_inspection *out)
{
    int rc = 0;
    for (int s = 0; rc == 0 && s < STORE_STREAM_COUNT; s++) {
        char name[PATH_BYTES];
        struct model_safetensors *file = NULL;
        if (!store_image_has(image, (enum store_stream)s)) {
            continue;
        }
        snprintf(name, sizeof name, "%s/%s.safetensors", path,
                 store_stream_name((enum store_stream)s));
        rc = model_safetensors_open(name, &file);
        if (rc == 0) {
            count_file(file, options, out);
        }
        model_safetensors_close(file);
    }
    return rc;
}

static bool has(const char *path, const char *file)
{
    char name[PATH_BYTES];
    snprintf(name, sizeof name, "%s/%s", path, file);
    return access(name, F_OK) == 0;
}

/* Compares the manifest's lists of tensors with the model of config.json. */
static int check_tensors(const char *path, const struct blocks *blocks)
{
    char name[PATH_BYTES];
    char *text = NULL;
    size_t bytes = 0;
    struct model_config config;
    struct model *model = NULL;
    int rc = model_config_load(path, &config);
    if (rc != 0) {
        return rc;
    }
    const struct model_options options = {.frozen_as = blocks};
    rc = model_create(&config, &options, &model);
    if (rc != 0) {
        return rc;
    }
    snprintf(name, sizeof name, "%s/" MODEL_MANIFEST_NAME, path);
    rc = core_file_read_regular(name, STORE_MANIFEST_BYTES_MAX, &text, &bytes);
    if (rc == 0) {
        rc = store_manifest_check_tensors(text, bytes, name, model->flat);
    }
    free(text);
    model_destroy(model);
    return rc;
}

static int inspect_checkpoint(struct tide_context *context, const char *path,
                              const struct tide_inspect_options *options,
                              struct tide_inspection *out)
{
    struct verifying verifying = {context};
    struct store_checkpoint *checkpoint = NULL;
    out->what = TIDE_CHECKPOINT;
    int rc = store_checkpoint_open(path, NULL, NULL, &checkpoint);
    if (rc != 0) {
        goto done;
    }
    describe_checkpoint(store_checkpoint_manifest(checkpoint), out);
    rc = count_streams(path, store_checkpoint_image(checkpoint), options, out);
    if (rc != 0) {
        goto done;
    }
    rc = store_checkpoint_verify(checkpoint, NULL, report, &verifying);
    const struct blocks *blocks = store_checkpoint_manifest(checkpoint)->blocks;
    if (rc == 0 && !blocks->base_apart && has(path, "config.json")) {
        rc = check_tensors(path, blocks);
    }

done:;
    const struct core_err kept = core_err_keep(rc);
    (void)store_checkpoint_close(checkpoint); /* read-only, so nothing is lost */
    return judge(core_err_first(&kept, 0), out);
}

/* ---- stores ---- */

/* Follows links. */
static bool is_named(const char *path, const char *name)
{
    char *whole = realpath(path, NULL);
    const char *slash = whole != NULL ? strrchr(whole, '/') : NULL;
    const bool is = slash != NULL && strcmp(slash + 1, name) == 0;
    free(whole);
    return is;
}

/* Sets *there if the directory is empty, or has files of a run or block store. */
static int inspect_store(const char *path, bool *there, struct tide_inspection *out)
{
    struct store_look look;
    if (model_folder_is_empty(path) == 1) { /* the directory is unused, not damaged */
        *there = true;
        out->what = TIDE_STORE_FOLDER;
        return judge(0, out);
    }
    int rc = store_look(path, &look);
    bool blocks = is_named(path, CACHE_FOLDER_NAME);
    if (rc == -ENOENT) {
        char below[PATH_BYTES];
        blocks = true;
        if ((size_t)snprintf(below, sizeof below, "%s/" CACHE_FOLDER_NAME, path) < sizeof below) {
            rc = store_look(below, &look);
        }
    }
    *there = rc != -ENOENT;
    if (!*there) {
        return 0;
    }
    out->what = blocks ? TIDE_BLOCKS_FOLDER : TIDE_STORE_FOLDER;
    out->files = look.files;
    out->bytes = look.bytes;
    out->run = look.run;
    out->process = look.process;
    out->in_use = look.in_use;
    out->path = look.path;
    out->paths = look.paths;
    return judge(rc, out);
}

/* ---- other folders ---- */

static int nothing_here(const char *path, struct tide_inspection *out)
{
    out->what = TIDE_OTHER_FOLDER;
    uint64_t *steps = NULL;
    size_t count = 0;
    int rc = store_shelf_list(path, &steps, &count);
    if (rc == 0 && count > 0) {
        rc = core_err_set(-ENOENT,
                          "%s has no model, but %zu checkpoint%s, the newest of which is "
                          "%s/checkpoint-%" PRIu64,
                          path, count, count == 1 ? "" : "s", path, steps[count - 1]);
    } else if (rc == 0) {
        rc = core_err_set(-ENOENT,
                          "%s is neither a model (there is no config.json) nor a checkpoint (no "
                          "manifest.json), and it has no files of a run",
                          path);
    }
    free(steps);
    return rc;
}

/* ---- the public function ---- */

static void keep_note(void *user, enum core_log_level level, const char *line)
{
    struct tide_inspection *out = user;
    const size_t at = strlen(out->note);
    (void)level;
    snprintf(out->note + at, sizeof out->note - at, "%s%s", at > 0 ? "; " : "", line);
}

static int inspect_model(const char *path, const struct tide_inspect_options *options,
                         struct tide_inspection *out)
{
    struct model_config config;
    struct model *model = NULL;
    struct model_files *files = NULL;
    const struct core_log *bound = core_log_bound();
    const struct core_log noting = {.level = CORE_LOG_WARN, .write = keep_note, .user = out};
    out->what = TIDE_MODEL_FOLDER;
    core_log_bind(&noting);
    int rc = model_config_load(path, &config);
    if (rc != 0) {
        goto done;
    }
    rc = model_create(&config, NULL, &model);
    if (rc != 0) {
        goto done;
    }
    describe_model(model, out);
    rc = model_files_open(path, &files);
    if (rc != 0) {
        goto done;
    }
    for (size_t i = 0; i < model_files_shard_count(files); i++) {
        count_file(model_files_shard(files, i), options, out);
    }
    rc = model_files_check(files, model);

done:
    core_log_bind(bound);
    model_files_close(files);
    model_destroy(model);
    return judge(rc, out);
}

static int inspect_adapter(const char *path, const struct tide_inspect_options *options,
                           struct tide_inspection *out)
{
    struct model_peft *peft = NULL;
    out->what = TIDE_ADAPTER_FOLDER;
    int rc = model_peft_open(path, &peft);
    if (rc == 0) {
        out->rank = (uint64_t)peft->rank;
        out->alpha = peft->alpha;
        out->rslora = peft->rslora;
        out->dora = peft->dora;
        for (size_t i = 0; i < peft->count; i++) {
            out->adapted += peft->entries[i].whole == NULL;
            out->saved += peft->entries[i].whole != NULL;
        }
        count_file(peft->file, options, out);
    }
    model_peft_close(peft);
    return judge(rc, out);
}

/* ---- kept bases ---- */

static int inspect_base(const char *path, struct tide_inspection *out)
{
    struct model_kept_look look;
    out->what = TIDE_BASE_FILE;
    out->files = 1;
    const int rc = model_kept_inspect(path, &look);
    if (look.folder[0] != '\0') {
        out->bytes = look.bytes;
        snprintf(out->precision, sizeof out->precision, "%s+%s", look.storage, look.type);
        snprintf(out->note, sizeof out->note, "the base is %016" PRIx64 ", made of %.400s",
                 look.identity, look.folder);
    }
    return judge(rc, out);
}

static bool inspect_bases(const char *path, struct tide_inspection *out)
{
    const unsigned count = model_kept_count(path);
    if (count == 0) {
        return false;
    }
    out->what = TIDE_STORE_FOLDER;
    out->verified = 1;
    snprintf(out->note, sizeof out->note, "%u kept base%s", count, count == 1 ? "" : "s");
    return true;
}

static int inspect_folder(struct tide_context *context, const char *path,
                          const struct tide_inspect_options *options, struct tide_inspection *out)
{
    bool store = false;
    /* a damaged checkpoint may lack one of these files */
    if (has(path, MODEL_MANIFEST_NAME) || has(path, STORE_SUMS_NAME)) {
        return inspect_checkpoint(context, path, options, out);
    }
    if (has(path, "config.json")) {
        return inspect_model(path, options, out);
    }
    if (has(path, MODEL_ADAPTER_CONFIG) || has(path, MODEL_ADAPTER_FILE)) {
        return inspect_adapter(path, options, out);
    }
    int rc = inspect_store(path, &store, out);
    return rc != 0 || store || inspect_bases(path, out) ? rc : judge(nothing_here(path, out), out);
}

static int inspect_file(const char *path, const struct tide_inspect_options *options,
                        struct tide_inspection *out)
{
    struct model_safetensors *file = NULL;
    bool store = false;
    if (is_named(path, AIO_PATH_FILE_NAME)) {
        char folder[PATH_BYTES];
        const char *slash = strrchr(path, '/');
        snprintf(folder, sizeof folder, "%.*s.", slash != NULL ? (int)(slash + 1 - path) : 0, path);
        int rc = inspect_store(folder, &store, out);
        if (rc != 0 || store) {
            return rc;
        }
    }
    if (model_kept_is(path)) {
        return inspect_base(path, out);
    }
    out->what = TIDE_SAFETENSORS;
    int rc = model_safetensors_open(path, &file);
    if (rc == 0) {
        count_file(file, options, out);
    }
    model_safetensors_close(file);
    if (rc == -EINVAL && !model_safetensors_is_possible(path)) {
        return core_err_set(-EINVAL,
                            "%s is not a safetensors file: its first 8 bytes are not the "
                            "length of a header within the file",
                            path);
    }
    return judge(rc, out);
}

static int inspect(struct tide_context *context, const char *path,
                   const struct tide_inspect_options *from, struct tide_inspection *out)
{
    struct tide_inspection answer = {0};
    struct tide_inspect_options options = {0};
    struct stat info;
    if (path == NULL) {
        return core_err_set(-EINVAL, "the path is NULL");
    }
    int rc = from != NULL ? abi_struct_read("tide_inspect_options", from, &options, sizeof options)
                          : 0;
    if (rc != 0) {
        return rc;
    }
    rc = abi_struct_check("tide_inspection", out);
    if (rc != 0) {
        return rc;
    }
    if (stat(path, &info) != 0) {
        return core_err_set(-errno, "%s cannot be opened: %s", path, strerror(errno));
    }
    if (S_ISDIR(info.st_mode)) {
        rc = inspect_folder(context, path, &options, &answer);
    } else if (S_ISREG(info.st_mode)) {
        rc = inspect_file(path, &options, &answer);
    } else {
        rc = core_err_set(-EINVAL, "%s is neither a folder nor a file", path);
    }
    return rc == 0 ? abi_struct_write("tide_inspection", &answer, sizeof answer, out) : rc;
}

int tide_inspect(struct tide_context *context, const char *path,
                 const struct tide_inspect_options *options, struct tide_inspection *out)
{
    const struct context_before before = context_enter(context);
    int rc = inspect(context, path, options, out);
    context_leave(&before);
    return rc;
}
