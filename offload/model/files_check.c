/* files_check.c: checks that a folder has the tensors of a model. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "offload/model/codes.h"

enum { NAMED_MAX = 8 };

/* Old GPTQ and AWQ folders, which have codes in place of weights, name no method in config.json. */
static int refuse_missing(const struct model_files *files, const struct model_part *part)
{
    static const char weight[] = ".weight";
    static const char *const codes[] = {".qweight", ".weight_packed"};
    const size_t length = strlen(part->name);
    const size_t stem = length > sizeof weight - 1 ? length - (sizeof weight - 1) : 0;
    char name[BLOCKS_NAME_BYTES_MAX + 32];
    for (size_t i = 0; stem > 0 && strcmp(part->name + stem, weight) == 0 && i < 2; i++) {
        const struct model_safetensors *shard = NULL;
        snprintf(name, sizeof name, "%.*s%s", (int)stem, part->name, codes[i]);
        if (model_files_find(files, name, &shard) != NULL) {
            return core_err_set(-EINVAL,
                                "%s has %s in place of %s: its weights are quantised, by GPTQ, AWQ "
                                "or the like, which tide does not read; give the model that they "
                                "were made from, in 16 or 32 bits",
                                model_files_folder(files), name, part->name);
        }
    }
    return core_err_set(-EINVAL, "%s has no tensor %s", model_files_folder(files), part->name);
}

static int check_part(const struct model_files *files, const struct model_param *param,
                      const struct model_part *part)
{
    const struct model_safetensors *shard = NULL;
    const struct model_tensor *tensor = model_files_part(files, part, &shard);
    if (tensor == NULL && param->adapter != MODEL_ADAPTER_NONE) {
        return 0;
    }
    if (tensor == NULL) {
        return refuse_missing(files, part);
    }
    if (part->quant != KERN_QUANT_NONE) {
        return model_codes_check(&(struct model_codes){.files = files,
                                                       .name = part->name,
                                                       .quant = part->quant,
                                                       .rows = part->rows,
                                                       .cols = param->cols});
    }
    if (tensor->dtype == MODEL_OTHER) {
        return core_err_set(-EINVAL,
                            "%s: tensor %s has type %s; tide reads F32, F16 and BF16, and codes of "
                            "bitsandbytes only in layers",
                            model_safetensors_path(shard), tensor->name, tensor->dtype_name);
    }
    const bool vector = param->vector;
    const uint64_t rows = (uint64_t)(param->transposed ? param->cols : part->rows);
    const uint64_t cols = (uint64_t)(param->transposed ? part->rows : param->cols);
    const bool fits = vector ? tensor->dimensions == 1 && tensor->shape[0] == (uint64_t)part->rows
                             : tensor->dimensions == 2 && tensor->shape[0] == rows &&
                                   tensor->shape[1] == cols;
    if (!fits) {
        char shape[128] = "";
        for (unsigned i = 0; i < tensor->dimensions; i++) {
            size_t at = strlen(shape);
            snprintf(shape + at, sizeof shape - at, "%s%" PRIu64, i > 0 ? ", " : "",
                     tensor->shape[i]);
        }
        char right[64];
        snprintf(right, sizeof right, "%" PRIu64, vector ? (uint64_t)part->rows : rows);
        if (!vector) {
            const size_t at = strlen(right);
            snprintf(right + at, sizeof right - at, ", %" PRIu64, cols);
        }
        return core_err_set(-EINVAL, "%s: tensor %s has the shape [%s]; config.json requires [%s]",
                            model_safetensors_path(shard), tensor->name, shape, right);
    }
    return 0;
}

static bool ends_in(const char *text, const char *end)
{
    size_t length = strlen(text);
    size_t tail = strlen(end);
    return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* Returns whether the model reads this tensor or leaves it out on purpose. */
static bool is_known(const struct model *model, const char *tensor)
{
    char weights[BLOCKS_NAME_BYTES_MAX + 1];
    const bool codes = model->config.quant != KERN_QUANT_NONE &&
                       model_codes_weights_name(tensor, weights, sizeof weights);
    const char *name = codes ? weights : tensor;
    const struct model_family *family = model->config.family;
    for (size_t i = 0; family->surplus[i] != NULL; i++) {
        if (ends_in(name, family->surplus[i])) {
            return true;
        }
    }
    if (model->config.tied && strcmp(name, "lm_head.weight") == 0) {
        return true;
    }
    for (unsigned i = 0; i < model->block_count; i++) {
        for (unsigned j = 0; j < model->blocks[i].param_count; j++) {
            const struct model_param *param = &model->blocks[i].params[j];
            for (unsigned k = 0; k < param->part_count; k++) {
                if (ends_in(param->parts[k].name, name)) {
                    return true;
                }
            }
        }
    }
    return false;
}

static void tell_surplus(const struct model_files *files, const struct model *model)
{
    char line[512] = "";
    size_t surplus = 0;
    for (size_t i = 0; i < model_files_shard_count(files); i++) {
        size_t count;
        const struct model_tensor *list = model_safetensors_list(model_files_shard(files, i),
                                                                 &count);
        for (size_t j = 0; j < count; j++) {
            if (!is_known(model, list[j].name) && surplus++ < NAMED_MAX) {
                size_t at = strlen(line);
                snprintf(line + at, sizeof line - at, "%s%s", at > 0 ? ", " : "", list[j].name);
            }
        }
    }
    if (surplus > 0) {
        core_log(CORE_LOG_WARN, "%s: %zu tensor%s not part of the model and not read: %s%s",
                 model_files_folder(files), surplus, surplus == 1 ? " is" : "s are", line,
                 surplus > NAMED_MAX ? ", ..." : "");
    }
}

int model_files_check(const struct model_files *files, const struct model *model)
{
    for (unsigned i = 0; i < model->block_count; i++) {
        for (unsigned j = 0; j < model->blocks[i].param_count; j++) {
            const struct model_param *param = &model->blocks[i].params[j];
            for (unsigned k = 0; k < param->part_count; k++) {
                int rc = check_part(files, param, &param->parts[k]);
                if (rc != 0) {
                    return rc;
                }
            }
        }
    }
    tell_surplus(files, model);
    return 0;
}

/* The hash does not depend on the tensor's place in files. */
static int add_sample(const struct model_safetensors *shard, const struct model_tensor *tensor,
                      uint64_t *sum)
{
    enum { BYTES = 64 };
    struct {
        uint64_t bytes, dtype;
        unsigned char middle[BYTES];
    } sample = {.bytes = tensor->bytes, .dtype = (uint64_t)tensor->dtype};
    const uint64_t half = tensor->bytes / 2;
    const uint64_t left = tensor->bytes - half;
    const int rc = model_safetensors_read(shard, tensor, half, sample.middle,
                                          left < BYTES ? left : BYTES);
    *sum += core_hash(&sample, sizeof sample, core_hash(tensor->name, strlen(tensor->name), 0));
    return rc;
}

int model_files_sample(const struct model_files *files, uint64_t *out)
{
    enum { SAMPLES = 512 };
    uint64_t total = 0;
    uint64_t sum = 0;
    size_t count;
    int rc = 0;
    for (size_t i = 0; i < model_files_shard_count(files); i++) {
        (void)model_safetensors_list(model_files_shard(files, i), &count);
        total += count;
    }
    /* Samples are chosen by name, because processes may have different shards. */
    const uint64_t step = total / SAMPLES + 1;
    for (size_t i = 0; i < model_files_shard_count(files); i++) {
        const struct model_safetensors *shard = model_files_shard(files, i);
        const struct model_tensor *list = model_safetensors_list(shard, &count);
        for (size_t t = 0; rc == 0 && t < count; t++) {
            if (core_hash(list[t].name, strlen(list[t].name), 0) % step == 0) {
                rc = add_sample(shard, &list[t], &sum);
            }
        }
    }
    *out = sum;
    return rc;
}
