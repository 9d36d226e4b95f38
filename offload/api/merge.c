/* merge.c: tide_adapter_merge: merges LoRA adapters into their base, a few rows at a time. The
 * caller's thread, with a team. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tide/checkpoint.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/team.h"
#include "kernels/quant.h"
#include "offload/api/context.h"
#include "offload/model/config_read.h"
#include "offload/model/files.h"
#include "offload/model/peft.h"
#include "offload/model/publish.h"
#include "offload/model/save.h"

/* Elements merged at a time; more for a transposed tensor or a longer row. */
enum { ELEMENTS = 1 << 20 };

struct merge {
    struct tide_context *context; /* borrowed */
    struct model *model;          /* owned, like all below */
    struct model_files *files;
    struct model_peft *peft;
    struct model_save *save;
    struct core_team *team;
    enum model_dtype type; /* type of the result's weights */
};

/* A tensor of the base model. */
struct tensor {
    unsigned block;
    const struct model_param *param;
    const struct model_part *part;
    const struct model_peft_entry *entry; /* NULL: the tensor does not change */
};

/* Owned arrays for one tensor. */
struct work {
    float *rows; /* [row_count][cols] */
    float *delta;
    float *a;         /* [rank][cols] */
    float *b;         /* [row_count][rank] */
    float *magnitude; /* [row_count] */
    uint64_t row_count;
};

/* ---- checks ---- */

static bool has_shape(const struct tensor *tensor, const struct model_tensor *found)
{
    const uint64_t rows = (uint64_t)tensor->part->rows;
    const uint64_t cols = (uint64_t)tensor->param->cols;
    const bool turned = tensor->param->transposed;
    return tensor->param->vector
               ? found->dimensions == 1 && found->shape[0] == rows
               : found->dimensions == 2 && found->shape[0] == (turned ? cols : rows) &&
                     found->shape[1] == (turned ? rows : cols);
}

static int check_tensor(const struct merge *merge, const struct tensor *tensor)
{
    const struct model_peft_entry *entry = tensor->entry;
    const uint64_t rows = (uint64_t)tensor->part->rows;
    const uint64_t cols = (uint64_t)tensor->param->cols;
    if (merge->model->config.tied && tensor->param->role == MODEL_TOKEN_TABLE) {
        return core_err_set(-EINVAL,
                            "%s has %s, which the base model also uses as its head "
                            "(tie_word_embeddings): PEFT trains it apart from the head, and one "
                            "table cannot be both",
                            merge->peft->folder, tensor->part->name);
    }
    const bool fits = entry->whole != NULL
                          ? has_shape(tensor, entry->whole)
                          : entry->a->shape[1] == cols && entry->b->shape[0] == rows &&
                                !tensor->param->vector;
    return fits ? 0
                : core_err_set(-EINVAL,
                               "%s is an adapter of another base model: in this one %s has %" PRIu64
                               " rows of %" PRIu64 ", which the adapter does not fit",
                               merge->peft->folder, tensor->part->name, rows, cols);
}

/* Stops when a call fails. */
static int each_tensor(struct merge *merge,
                       int (*call)(struct merge *merge, const struct tensor *tensor, void *user),
                       void *user)
{
    for (unsigned b = 0; b < merge->model->block_count; b++) {
        const struct model_block *block = &merge->model->blocks[b];
        for (unsigned i = 0; i < block->param_count; i++) {
            const struct model_param *param = &block->params[i];
            for (unsigned k = 0; k < param->part_count; k++) {
                const struct tensor tensor = {
                    .block = b,
                    .param = param,
                    .part = &param->parts[k],
                    .entry = model_peft_find(merge->peft, param->parts[k].name)};
                int rc = call(merge, &tensor, user);
                if (rc != 0) {
                    return rc;
                }
            }
        }
    }
    return 0;
}

struct survey {
    size_t matched;
    const char **names; /* owned array */
    bool mixed;         /* the tensors have several types */
    bool any;
};

static int survey_tensor(struct merge *merge, const struct tensor *tensor, void *user)
{
    struct survey *survey = user;
    const struct model_safetensors *shard = NULL;
    const struct model_tensor *found = model_files_part(merge->files, tensor->part, &shard);
    survey->mixed = survey->mixed || (survey->any && found->dtype != merge->type);
    merge->type = found->dtype;
    survey->any = true;
    if (tensor->entry == NULL) {
        return 0;
    }
    survey->names[survey->matched++] = tensor->part->name;
    return check_tensor(merge, tensor);
}

/* A merge would lose an adapter that has no tensor in the base. */
static int check_adapter(struct merge *merge)
{
    struct survey survey = {.names = calloc(merge->peft->count, sizeof(*survey.names))};
    int rc = survey.names != NULL ? each_tensor(merge, survey_tensor, &survey)
                                  : core_err_set(-ENOMEM, "no memory to check adapters");
    merge->type = survey.mixed ? MODEL_F32 : merge->type;
    for (size_t i = 0; rc == 0 && survey.matched < merge->peft->count; i++) {
        bool found = false;
        for (size_t j = 0; j < survey.matched; j++) {
            found = found || strcmp(survey.names[j], merge->peft->entries[i].base) == 0;
        }
        if (!found) {
            rc = core_err_set(-EINVAL,
                              "%s is an adapter of another base model: this one has no tensor %s",
                              merge->peft->folder, merge->peft->entries[i].base);
        }
    }
    free(survey.names);
    return rc;
}

/* Adds the base's frozen blocks to `sums`, in order. */
static int sum_base(struct merge *merge, const struct model *model, struct model_sums *sums)
{
    char *buffer = malloc(ELEMENTS * sizeof(float));
    uint64_t done = 0;
    int rc = buffer != NULL ? 0 : core_err_set(-ENOMEM, "no memory to read the base model");
    for (unsigned b = 0; rc == 0 && b < model->block_count; b++) {
        const struct model_block *block = &model->blocks[b];
        for (uint64_t at = 0; rc == 0 && !block->trained && at < block->elements; at += ELEMENTS) {
            const uint64_t left = block->elements - at;
            const uint64_t count = left < ELEMENTS ? left : ELEMENTS;
            rc = model_files_read(merge->files, block, at, count, MODEL_F32, buffer, sums);
            done += count;
            if (rc == 0) {
                rc = context_progress(merge->context, "verify", done, model->parameters);
            }
        }
    }
    free(buffer);
    return rc;
}

/* The base must be the one that the adapter's folder names, if any. */
static int check_identity(struct merge *merge, const struct model_config *config, const char *base)
{
    struct model_lora_options lora = {.rank = 0};
    const struct model_options options = {.lora = &lora};
    struct model *model = NULL;
    struct model_sums *sums = NULL;
    if (merge->peft->base == 0) {
        return 0;
    }
    model_peft_options(merge->peft, &lora);
    int rc = model_create(config, &options, &model);
    if (rc != 0) {
        return rc;
    }
    rc = model_sums_create(model, &sums);
    if (rc == 0) {
        rc = sum_base(merge, model, sums);
    }
    if (rc == 0) {
        const uint64_t found = model_sums_identity(sums, merge->files);
        rc = found == merge->peft->base
                 ? 0
                 : core_err_set(-EINVAL,
                                "%s is an adapter of another base model: its base is %016" PRIx64
                                ", %s is %016" PRIx64,
                                merge->peft->folder, merge->peft->base, base, found);
    }
    model_sums_destroy(sums);
    model_destroy(model);
    return rc;
}

/* ---- one tensor ---- */

/* Reads elements as fp32; `to` has room for them. */
static int read_floats(const struct model_peft *peft, const struct model_tensor *tensor,
                       uint64_t begin, uint64_t count, float *to)
{
    const size_t bytes = model_dtype_bytes(tensor->dtype);
    /* Reads narrow elements into the end of `to`, and widens them in place from the first on. */
    char *from = (char *)to + count * (sizeof *to - bytes);
    int rc = model_safetensors_read(peft->file, tensor, begin * bytes, from, count * bytes);
    if (rc == 0 && tensor->dtype != MODEL_F32) {
        for (uint64_t i = 0; i < count; i++) {
            uint16_t half;
            memcpy(&half, from + i * bytes, sizeof half);
            model_convert(&to[i], MODEL_F32, &half, tensor->dtype, 1);
        }
    }
    return rc;
}

/* Computes rows [begin, end) of work->delta = scale * B A. Double products are exact, so terms
 * hardly ever differ from PyTorch's fused multiply-adds in fp32. */
static void multiply(const struct merge *merge, const struct work *work, uint64_t begin,
                     uint64_t end, uint64_t cols)
{
    const uint64_t rank = (uint64_t)merge->peft->rank;
    const float scale = (float)merge->peft->scale;
    for (uint64_t r = begin; r < end; r++) {
        float *delta = work->delta + r * cols;
        memset(delta, 0, cols * sizeof *delta);
        for (uint64_t k = 0; k < rank; k++) {
            const double b = (double)work->b[r * rank + k];
            const float *a = work->a + k * cols;
            for (uint64_t c = 0; c < cols; c++) {
                delta[c] = (float)(b * (double)a[c] + (double)delta[c]);
            }
        }
        for (uint64_t c = 0; c < cols; c++) {
            delta[c] *= scale;
        }
    }
}

/* With DoRA, scales the rows to their magnitudes. */
static void add(const struct work *work, bool dora, uint64_t begin, uint64_t end, uint64_t cols)
{
    for (uint64_t r = begin; r < end; r++) {
        float *row = work->rows + r * cols;
        const float *delta = work->delta + r * cols;
        double square = 0;
        for (uint64_t c = 0; c < cols; c++) {
            row[c] += delta[c];
        }
        for (uint64_t c = 0; dora && c < cols; c++) {
            square += (double)row[c] * (double)row[c];
        }
        const float factor = dora ? work->magnitude[r] / (float)sqrt(square) : 1;
        for (uint64_t c = 0; dora && c < cols; c++) {
            row[c] *= factor;
        }
    }
}

/* Reads rows of the tensor that replaces the base's tensor. */
static int read_whole(const struct merge *merge, const struct tensor *tensor, uint64_t first,
                      uint64_t rows, const struct work *work)
{
    const uint64_t cols = (uint64_t)tensor->param->cols;
    const uint64_t all = (uint64_t)tensor->part->rows;
    if (!tensor->param->transposed) {
        return read_floats(merge->peft, tensor->entry->whole, first * cols, rows * cols,
                           work->rows);
    }
    int rc = read_floats(merge->peft, tensor->entry->whole, 0, all * cols, work->delta);
    for (uint64_t r = 0; rc == 0 && r < rows; r++) {
        for (uint64_t c = 0; c < cols; c++) {
            work->rows[r * cols + c] = work->delta[c * all + first + r];
        }
    }
    return rc;
}

struct job {
    const struct merge *merge;
    const struct work *work;
    uint64_t rows, cols;
    bool dora;
};

static void merge_some(void *argument, unsigned index, unsigned count)
{
    const struct job *job = argument;
    uint64_t begin = 0;
    uint64_t end = 0;
    core_team_share(job->rows, 1, index, count, &begin, &end);
    multiply(job->merge, job->work, begin, end, job->cols);
    add(job->work, job->dora, begin, end, job->cols);
}

static int check_finite(const struct merge *merge, const struct tensor *tensor,
                        const struct work *work, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        if (!isfinite(work->rows[i])) {
            return core_err_set(
                -EINVAL,
                "merging %s makes values of %s that are not finite: the adapter or the base has "
                "such values, or its lora_alpha is too large",
                merge->peft->folder, tensor->part->name);
        }
    }
    return 0;
}

/* Result in work->rows. */
static int merge_rows(const struct merge *merge, const struct tensor *tensor, uint64_t first,
                      uint64_t rows, const struct work *work)
{
    const struct model_peft_entry *entry = tensor->entry;
    const uint64_t rank = (uint64_t)merge->peft->rank;
    const uint64_t cols = (uint64_t)tensor->param->cols;
    if (entry->whole != NULL) {
        return read_whole(merge, tensor, first, rows, work);
    }
    int rc = read_floats(merge->peft, entry->b, first * rank, rows * rank, work->b);
    if (rc == 0 && entry->magnitude != NULL) {
        rc = read_floats(merge->peft, entry->magnitude, first, rows, work->magnitude);
    }
    if (rc == 0) {
        struct job job = {merge, work, rows, cols, entry->magnitude != NULL};
        core_team_run(merge->team, merge_some, &job);
    }
    return rc;
}

static void work_fini(struct work *work)
{
    free(work->rows);
    free(work->delta);
    free(work->a);
    free(work->b);
    free(work->magnitude);
}

static int work_init(struct work *work, const struct merge *merge, const struct tensor *tensor)
{
    const uint64_t cols = (uint64_t)tensor->param->cols;
    const uint64_t all = (uint64_t)tensor->part->rows;
    const uint64_t rank = (uint64_t)merge->peft->rank;
    /* Reading a part of a transposed tensor would touch all of its rows. */
    const uint64_t rows = tensor->param->transposed || all < ELEMENTS / cols ? all
                          : cols > ELEMENTS                                  ? 1
                                                                             : ELEMENTS / cols;
    *work = (struct work){.rows = malloc(rows * cols * sizeof(float)),
                          .delta = malloc(rows * cols * sizeof(float)),
                          .a = malloc(rank * cols * sizeof(float)),
                          .b = malloc(rows * rank * sizeof(float)),
                          .magnitude = malloc(rows * sizeof(float)),
                          .row_count = rows};
    return work->rows != NULL && work->delta != NULL && work->a != NULL && work->b != NULL &&
                   work->magnitude != NULL
               ? 0
               : core_err_set(-ENOMEM, "no memory to merge %s", tensor->part->name);
}

static int merge_tensor(struct merge *merge, const struct tensor *tensor, void *user)
{
    const struct model_block *block = &merge->model->blocks[tensor->block];
    const uint64_t cols = (uint64_t)tensor->param->cols;
    const uint64_t all = (uint64_t)tensor->part->rows;
    const uint64_t begin = tensor->param->offset + (uint64_t)tensor->part->first_row * cols;
    uint64_t *done = user;
    struct work work;
    int rc = work_init(&work, merge, tensor);
    if (rc == 0 && tensor->entry != NULL && tensor->entry->a != NULL) {
        const struct model_tensor *a = tensor->entry->a;
        rc = read_floats(merge->peft, a, 0, a->shape[0] * cols, work.a);
    }
    for (uint64_t at = 0; rc == 0 && at < all; at += work.row_count) {
        const uint64_t rows = all - at < work.row_count ? all - at : work.row_count;
        rc = model_files_read(merge->files, block, begin + at * cols, rows * cols, MODEL_F32,
                              work.rows, NULL);
        if (rc == 0 && tensor->entry != NULL) {
            rc = merge_rows(merge, tensor, at, rows, &work);
            if (rc == 0) {
                rc = check_finite(merge, tensor, &work, rows * cols);
            }
        }
        if (rc == 0) {
            rc = model_save_put(merge->save, tensor->block, begin + at * cols, rows * cols,
                                MODEL_F32, work.rows);
        }
        *done += rows * cols;
        if (rc == 0) {
            rc = context_progress(merge->context, "merge", *done, merge->model->parameters);
        }
    }
    work_fini(&work);
    return rc;
}

/* ---- the public function ---- */

static int open_all(struct merge *merge, const char *base, const char *adapter)
{
    struct model_config config;
    int rc = model_peft_open(adapter, &merge->peft);
    if (rc != 0) {
        return core_err_prefix(rc, "%s is not a readable adapter", adapter);
    }
    rc = model_config_load(base, &config);
    if (rc == 0 && config.quant != KERN_QUANT_NONE) {
        rc = core_err_set(-EINVAL,
                          "the weights of %s are quantised (%s); an adapter is merged into the "
                          "model that they were made from, in 16 or 32 bits",
                          base, kern_quant_name(config.quant));
    }
    if (rc == 0) {
        rc = model_create(&config, NULL, &merge->model);
    }
    if (rc == 0) {
        rc = model_files_open(base, &merge->files);
    }
    if (rc == 0) {
        rc = model_files_check(merge->files, merge->model);
    }
    if (rc == 0) {
        rc = check_adapter(merge);
    }
    return rc == 0 ? check_identity(merge, &config, base) : rc;
}

static int run(struct merge *merge, const char *base, const char *adapter, const char *folder,
               int overwrite)
{
    uint64_t done = 0;
    if (core_file_is_same(base, folder) || core_file_is_same(adapter, folder)) {
        return core_err_set(-EINVAL, "%s is an input of the merge; name another folder", folder);
    }
    int rc = open_all(merge, base, adapter);
    if (rc != 0) {
        return rc;
    }
    const struct model_save_options options = {
        .folder = folder, .source = base, .type = merge->type, .replace = overwrite != 0};
    rc = core_team_create(&(struct core_team_options){.name = "merge"}, &merge->team);
    if (rc == 0) {
        rc = model_save_open(merge->model, &options, &merge->save);
    }
    if (rc == 0) {
        rc = each_tensor(merge, merge_tensor, &done);
    }
    if (rc == 0) {
        rc = model_save_finish(merge->save);
    }
    if (rc == 0) {
        core_log(CORE_LOG_INFO, "merged %s into the %s weights of %s", adapter,
                 model_dtype_name(merge->type), base);
    }
    return rc;
}

static int merge_adapter(struct tide_context *context, const char *base, const char *adapter,
                         const char *folder, int overwrite)
{
    const struct context_before before = context_enter(context);
    struct merge merge = {.context = context, .type = MODEL_OTHER};
    int rc = base != NULL && adapter != NULL && folder != NULL && folder[0] != '\0'
                 ? run(&merge, base, adapter, folder, overwrite)
                 : core_err_set(-EINVAL,
                                "a base model, an adapter and a folder to write are required");
    const struct core_err kept = core_err_keep(rc);
    core_team_destroy(merge.team);
    model_save_close(merge.save);
    model_files_close(merge.files);
    model_destroy(merge.model);
    model_peft_close(merge.peft);
    rc = core_err_first(&kept, 0);
    context_leave(&before);
    return rc;
}

static bool is_checkpoint(const char *folder)
{
    char path[PATH_MAX];
    return folder != NULL &&
           (size_t)snprintf(path, sizeof path, "%s/" MODEL_MANIFEST_NAME, folder) < sizeof path &&
           access(path, F_OK) == 0;
}

int tide_adapter_merge(struct tide_context *context, const char *base, const char *adapter,
                       const char *folder, int overwrite)
{
    char exported[PATH_MAX];
    if (!is_checkpoint(adapter) || folder == NULL) {
        return merge_adapter(context, base, adapter, folder, overwrite);
    }
    if ((size_t)snprintf(exported, sizeof exported, "%s.adapter-XXXXXX", folder) >=
        sizeof exported) {
        return core_err_set(-ENAMETOOLONG,
                            "the path of the folder to write has %zu bytes, which leaves no room "
                            "for the name of a temporary folder beside it",
                            strlen(folder));
    }
    if (mkdtemp(exported) == NULL) {
        const int error = errno;
        return core_err_set(-error, "%s cannot be created: %s", exported, strerror(error));
    }
    int rc = tide_checkpoint_export(context, adapter, exported, 0);
    if (rc == 0) {
        rc = merge_adapter(context, base, exported, folder, overwrite);
    }
    const struct core_err kept = core_err_keep(rc);
    model_folder_remove(exported);
    return core_err_first(&kept, 0);
}
