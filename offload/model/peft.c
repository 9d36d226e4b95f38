/* peft.c: reads adapter_config.json, and sorts tensors by what they adapt. */
#include "offload/model/peft.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/json/json.h"
#include "offload/model/adapter.h"

enum { RANK_MAX = 1 << 16, NAME_BYTES = 1024 };

/* ---- adapter_config.json ---- */

/* Returns whether a value is not null, false or empty. */
static bool is_given(const struct core_json_value *value)
{
    if (value == NULL) {
        return false;
    }
    switch (core_json_kind(value)) {
    case CORE_JSON_NULL: return false;
    case CORE_JSON_BOOL: return core_json_bool(value);
    case CORE_JSON_STRING: return core_json_string(value, NULL)[0] != '\0';
    case CORE_JSON_ARRAY:
    case CORE_JSON_OBJECT: return core_json_count(value) > 0;
    case CORE_JSON_INTEGER:
    case CORE_JSON_REAL: break;
    }
    return true;
}

/* Refuses features that change what the tensors mean. */
static int check_features(const struct core_json *doc, const struct core_json_value *root)
{
    static const char *const flags[] = {"lora_bias", "use_qalora", "use_bdlora"};
    static const char *const lists[] = {"rank_pattern",
                                        "alpha_pattern",
                                        "layer_replication",
                                        "target_parameters",
                                        "trainable_token_indices",
                                        "monteclora_config",
                                        "arrow_config",
                                        "kasa_config",
                                        "alora_invocation_tokens"};
    const char *bias = "none";
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        bool set = false;
        int rc = core_json_get_bool(doc, root, flags[i], &set);
        if (rc != 0 && rc != -ENOENT) {
            return rc;
        }
        if (rc == 0 && set) {
            return core_json_refuse(doc, root, flags[i], 0, -EINVAL,
                                    "is not supported; only plain LoRA, rsLoRA and DoRA are");
        }
    }
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        if (is_given(core_json_find(root, lists[i]))) {
            return core_json_refuse(doc, root, lists[i], 0, -EINVAL, "is not supported");
        }
    }
    int rc = core_json_get_string(doc, root, "bias", &bias);
    if (rc != 0 && rc != -ENOENT) {
        return rc;
    }
    return strcmp(bias, "none") == 0 ? 0
                                     : core_json_refuse(doc, root, "bias", 0, -EINVAL,
                                                        "found \"%.40s\"; expected \"none\"", bias);
}

/* Refuses initial values for which PEFT changes the base's weights, because the adapter alone then
 * does not define the model. */
static int check_initial(const struct core_json *doc, const struct core_json_value *root)
{
    static const char key[] = "init_lora_weights";
    static const char *const plain[] = {"gaussian", "orthogonal", "eva", "mica"};
    const struct core_json_value *value = core_json_find(root, key);
    if (value == NULL || core_json_kind(value) != CORE_JSON_STRING) {
        return 0;
    }
    const char *text = core_json_string(value, NULL);
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        if (strcmp(text, plain[i]) == 0) {
            return 0;
        }
    }
    return core_json_refuse(doc, root, key, 0, -EINVAL,
                            "\"%.40s\" changes the weights of the base; save the adapter with "
                            "PEFT's path_initial_model_for_weight_conversion",
                            text);
}

/* Only folders that tide wrote name the base's identity. */
static int read_base(const struct core_json *doc, uint64_t *out)
{
    const struct core_json_value *mapping = core_json_find(core_json_root(doc),
                                                           MODEL_ADAPTER_MAPPING);
    const char *text = NULL;
    char *end = NULL;
    if (mapping == NULL || core_json_find(mapping, MODEL_ADAPTER_BASE) == NULL) {
        return 0;
    }
    int rc = core_json_get_string(doc, mapping, MODEL_ADAPTER_BASE, &text);
    if (rc != 0) {
        return rc;
    }
    *out = strtoull(text, &end, 16);
    return strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16
               ? 0
               : core_json_refuse(doc, mapping, MODEL_ADAPTER_BASE, 0, -EINVAL,
                                  "found \"%.40s\"; expected 16 hexadecimal digits", text);
}

static int read_flag(const struct core_json *doc, const char *key, bool *out)
{
    int rc = core_json_get_bool(doc, core_json_root(doc), key, out);
    return rc == -ENOENT ? 0 : rc;
}

static int read_config(const struct core_json *doc, struct model_peft *peft)
{
    const struct core_json_value *root = core_json_root(doc);
    const char *type = NULL;
    int rc = core_json_get_string(doc, root, "peft_type", &type);
    if (rc != 0) {
        return rc;
    }
    if (strcmp(type, "LORA") != 0) {
        return core_json_refuse(doc, root, "peft_type", 0, -EINVAL,
                                "found \"%.40s\"; expected \"LORA\"", type);
    }
    rc = core_json_get_integer(doc, root, "r", &peft->rank);
    if (rc != 0) {
        return rc;
    }
    if (peft->rank < 1 || peft->rank > RANK_MAX) {
        return core_json_refuse(doc, root, "r", 0, -EINVAL, "found %" PRId64 "; expected 1 to %d",
                                peft->rank, RANK_MAX);
    }
    rc = core_json_get_real(doc, root, "lora_alpha", &peft->alpha);
    if (rc != 0) {
        return rc;
    }
    rc = read_flag(doc, "use_rslora", &peft->rslora);
    if (rc != 0) {
        return rc;
    }
    rc = read_flag(doc, "use_dora", &peft->dora);
    if (rc != 0) {
        return rc;
    }
    peft->scale = model_lora_scale(peft->alpha, peft->rank, peft->rslora);
    rc = core_json_get_real(doc, root, "lora_dropout", &peft->dropout);
    if (rc != 0 && rc != -ENOENT) {
        return rc;
    }
    if (peft->dropout < 0 || peft->dropout > MODEL_LORA_DROPOUT_MAX) {
        return core_json_refuse(doc, root, "lora_dropout", 0, -EINVAL, "found %g; expected 0 to %g",
                                peft->dropout, MODEL_LORA_DROPOUT_MAX);
    }
    rc = read_base(doc, &peft->base);
    if (rc != 0) {
        return rc;
    }
    rc = check_initial(doc, root);
    return rc == 0 ? check_features(doc, root) : rc;
}

static int load_config(struct model_peft *peft)
{
    char path[4352];
    struct core_json *doc = NULL;
    snprintf(path, sizeof path, "%s/" MODEL_ADAPTER_CONFIG, peft->folder);
    int rc = core_json_load(path, &(struct core_json_options){.regular = true}, &doc);
    if (rc == 0 && core_json_kind(core_json_root(doc)) != CORE_JSON_OBJECT) {
        rc = core_err_set(-EINVAL, "%s: expected an object", path);
    }
    if (rc == 0) {
        rc = read_config(doc, peft);
    }
    if (rc == -ENOENT && doc != NULL) {
        rc = -EINVAL; /* a missing key, not a missing file */
    }
    core_json_destroy(doc);
    return rc;
}

/* ---- tensors ---- */

/* Kinds of PEFT tensors, by the ends of their names. */
enum part { PART_A, PART_B, PART_MAGNITUDE, PART_WHOLE };

static bool cut_end(char *name, const char *end, const char *instead)
{
    const size_t length = strlen(name);
    const size_t tail = strlen(end);
    if (length < tail || strcmp(name + length - tail, end) != 0) {
        return false;
    }
    snprintf(name + length - tail, NAME_BYTES - (length - tail), "%s", instead);
    return true;
}

static int base_name(const struct model_peft *peft, const struct model_tensor *tensor,
                     char name[NAME_BYTES], enum part *part)
{
    static const char prefix[] = MODEL_ADAPTER_PREFIX;
    static const struct {
        const char *end;
        enum part part;
    } ends[] = {
        {".lora_A.weight", PART_A},
        {".lora_B.weight", PART_B},
        {".lora_magnitude_vector", PART_MAGNITUDE},
        {".lora_magnitude_vector.weight", PART_MAGNITUDE},
        {".modules_to_save.weight", PART_WHOLE},
    };
    const size_t length = strlen(tensor->name);
    const bool fits = strncmp(tensor->name, prefix, sizeof prefix - 1) == 0 &&
                      length < NAME_BYTES - 16;
    snprintf(name, NAME_BYTES, "%s", tensor->name + (fits ? sizeof prefix - 1 : 0));
    for (size_t i = 0; fits && i < sizeof ends / sizeof ends[0]; i++) {
        if (cut_end(name, ends[i].end, ".weight")) {
            *part = ends[i].part;
            return 0;
        }
    }
    if (!fits || strstr(name, ".lora_") != NULL || strstr(name, "lora_embedding") != NULL) {
        return core_err_set(-EINVAL,
                            "%s: tensor %s is not one of LoRA on a linear layer, which is "
                            "named " MODEL_ADAPTER_PREFIX "MODULE.lora_A.weight",
                            model_safetensors_path(peft->file), tensor->name);
    }
    *part = PART_WHOLE;
    return 0;
}

static int by_base(const void *a, const void *b)
{
    return strcmp(((const struct model_peft_entry *)a)->base,
                  ((const struct model_peft_entry *)b)->base);
}

/* Refuses a part that the file has under two names. */
static int join_part(const struct model_peft *peft, const struct model_tensor *from,
                     const struct model_tensor **to)
{
    if (from != NULL && *to != NULL) {
        return core_err_set(-EINVAL, "%s: tensors %s and %s are two names of one tensor",
                            model_safetensors_path(peft->file), (*to)->name, from->name);
    }
    *to = from != NULL ? from : *to;
    return 0;
}

static int join_parts(const struct model_peft *peft, const struct model_peft_entry *from,
                      struct model_peft_entry *to)
{
    int rc = join_part(peft, from->a, &to->a);
    if (rc != 0) {
        return rc;
    }
    rc = join_part(peft, from->b, &to->b);
    if (rc != 0) {
        return rc;
    }
    rc = join_part(peft, from->magnitude, &to->magnitude);
    if (rc != 0) {
        return rc;
    }
    return join_part(peft, from->whole, &to->whole);
}

/* Continues after an error, because each name must keep its owner. */
static int join_entries(struct model_peft *peft)
{
    size_t kept = 0;
    int rc = 0;
    for (size_t i = 0; i < peft->count; i++) {
        struct model_peft_entry *entry = &peft->entries[i];
        struct model_peft_entry *last = kept > 0 ? &peft->entries[kept - 1] : NULL;
        if (last == NULL || strcmp(last->base, entry->base) != 0) {
            peft->entries[kept++] = *entry;
            continue;
        }
        if (rc == 0) {
            rc = join_parts(peft, entry, last);
        }
        free((char *)(uintptr_t)entry->base);
    }
    peft->count = kept;
    return rc;
}

static bool is_matrix(const struct model_tensor *tensor, uint64_t rows, uint64_t cols)
{
    return tensor->dimensions == 2 && tensor->shape[0] == (rows > 0 ? rows : tensor->shape[0]) &&
           tensor->shape[1] == (cols > 0 ? cols : tensor->shape[1]);
}

static int check_entry(const struct model_peft *peft, const struct model_peft_entry *entry)
{
    const char *path = model_safetensors_path(peft->file);
    const uint64_t rank = (uint64_t)peft->rank;
    const struct model_tensor *const all[] = {entry->a, entry->b, entry->magnitude, entry->whole};
    for (size_t i = 0; i < 4; i++) {
        if (all[i] != NULL && all[i]->dtype == MODEL_OTHER) {
            return core_err_set(-EINVAL, "%s: tensor %s has type %s; expected F32, F16 or BF16",
                                path, all[i]->name, all[i]->dtype_name);
        }
    }
    if (entry->whole != NULL) {
        return entry->a == NULL && entry->b == NULL && entry->magnitude == NULL
                   ? 0
                   : core_err_set(-EINVAL, "%s: %s is both adapted and replaced", path,
                                  entry->base);
    }
    if (entry->a == NULL || entry->b == NULL || (entry->magnitude != NULL) != peft->dora) {
        return core_err_set(
            -EINVAL, "%s: %s has no %s", path, entry->base,
            entry->a == NULL   ? "lora_A"
            : entry->b == NULL ? "lora_B"
            : peft->dora       ? "lora_magnitude_vector"
                               : "use_dora in its config, although it has a lora_magnitude_vector");
    }
    if (!is_matrix(entry->a, rank, 0) || !is_matrix(entry->b, 0, rank)) {
        return core_err_set(-EINVAL,
                            "%s: the shapes of the adapters of %s do not match rank %" PRId64
                            " of " MODEL_ADAPTER_CONFIG,
                            path, entry->base, peft->rank);
    }
    const struct model_tensor *magnitude = entry->magnitude;
    return magnitude == NULL ||
                   (magnitude->dimensions == 1 && magnitude->shape[0] == entry->b->shape[0])
               ? 0
               : core_err_set(-EINVAL,
                              "%s: the length of tensor %s is not the number of rows of lora_B",
                              path, magnitude->name);
}

static int sort_tensors(struct model_peft *peft)
{
    size_t count;
    const struct model_tensor *list = model_safetensors_list(peft->file, &count);
    peft->entries = calloc(count > 0 ? count : 1, sizeof *peft->entries);
    if (peft->entries == NULL) {
        return core_err_set(-ENOMEM, "no memory for the tensors of %s", peft->folder);
    }
    for (size_t i = 0; i < count; i++) {
        struct model_peft_entry *entry = &peft->entries[i];
        char name[NAME_BYTES];
        enum part part = PART_WHOLE;
        int rc = base_name(peft, &list[i], name, &part);
        if (rc != 0) {
            return rc;
        }
        entry->base = strdup(name);
        if (entry->base == NULL) {
            return core_err_set(-ENOMEM, "no memory for the tensors of %s", peft->folder);
        }
        peft->count++;
        *(part == PART_A           ? &entry->a
          : part == PART_B         ? &entry->b
          : part == PART_MAGNITUDE ? &entry->magnitude
                                   : &entry->whole) = &list[i];
    }
    qsort(peft->entries, peft->count, sizeof *peft->entries, by_base);
    int rc = join_entries(peft);
    for (size_t i = 0; rc == 0 && i < peft->count; i++) {
        rc = check_entry(peft, &peft->entries[i]);
    }
    if (rc != 0) {
        return rc;
    }
    return peft->count > 0
               ? 0
               : core_err_set(-EINVAL, "%s has no tensors", model_safetensors_path(peft->file));
}

/* ---- modules ---- */

/* Lists modules that are saved whole, or without `saved`, adapted ones. */
static int list_modules(struct model_peft *peft, bool saved, size_t *count)
{
    for (size_t i = 0; i < peft->count; i++) {
        const struct model_peft_entry *entry = &peft->entries[i];
        if ((entry->whole != NULL) != saved) {
            continue;
        }
        char *module = strndup(entry->base, model_module_length(entry->base));
        if (module == NULL) {
            return core_err_set(-ENOMEM, "no memory for the modules of %s", peft->folder);
        }
        peft->modules[peft->adapted + peft->saved] = module;
        ++*count;
    }
    return 0;
}

static int make_modules(struct model_peft *peft)
{
    peft->modules = calloc(peft->count, sizeof *peft->modules);
    if (peft->modules == NULL) {
        return core_err_set(-ENOMEM, "no memory for the modules of %s", peft->folder);
    }
    const int rc = list_modules(peft, false, &peft->adapted);
    return rc == 0 ? list_modules(peft, true, &peft->saved) : rc;
}

/* ---- opening a folder ---- */

int model_peft_open(const char *folder, struct model_peft **out)
{
    char path[4352];
    struct model_peft *peft = calloc(1, sizeof *peft);
    if (peft == NULL || (peft->folder = strdup(folder)) == NULL) {
        free(peft);
        return core_err_set(-ENOMEM, "no memory to open %s", folder);
    }
    int rc = load_config(peft);
    if (rc == 0) {
        snprintf(path, sizeof path, "%s/" MODEL_ADAPTER_FILE, folder);
        rc = model_safetensors_open(path, &peft->file);
    }
    if (rc == 0) {
        rc = sort_tensors(peft);
    }
    if (rc == 0) {
        rc = make_modules(peft);
    }
    if (rc != 0) {
        model_peft_close(peft);
        return rc;
    }
    *out = peft;
    return 0;
}

void model_peft_close(struct model_peft *peft)
{
    if (peft == NULL) {
        return;
    }
    for (size_t i = 0; i < peft->count; i++) {
        free((char *)(uintptr_t)peft->entries[i].base);
    }
    for (size_t i = 0; i < peft->adapted + peft->saved; i++) {
        free((char *)(uintptr_t)peft->modules[i]);
    }
    free(peft->modules);
    free(peft->entries);
    model_safetensors_close(peft->file);
    free(peft->folder);
    free(peft);
}

const struct model_peft_entry *model_peft_find(const struct model_peft *peft, const char *base)
{
    const struct model_peft_entry key = {.base = base};
    return bsearch(&key, peft->entries, peft->count, sizeof *peft->entries, by_base);
}

/* ---- comparing with a model ---- */

void model_peft_options(const struct model_peft *peft, struct model_lora_options *out)
{
    out->rank = peft->rank;
    out->alpha = peft->alpha;
    out->rslora = peft->rslora;
    out->dora = peft->dora;
    out->dropout = peft->dropout;
    out->targets = peft->modules;
    out->target_count = peft->adapted;
    out->saved = peft->modules + peft->adapted;
    out->saved_count = peft->saved;
}

/* The options' names in messages. */
static const char LORA_TARGETS[] = "lora_targets (--lora-targets)";
static const char MODULES_TO_SAVE[] = "modules_to_save (--modules-to-save)";

static void print_base_name(const struct model_param *param, const struct model_part *part,
                            char name[NAME_BYTES])
{
    if (param->adapter != MODEL_ADAPTER_NONE) {
        model_adapter_base_name(part->name, name, NAME_BYTES);
    } else {
        snprintf(name, NAME_BYTES, "%s", part->name);
    }
}

/* Refuses a trained tensor without a matching entry, and counts the matching entries. */
static int match_param(const struct model_peft *peft, const struct model_param *param,
                       size_t *matched)
{
    for (unsigned k = 0; param->trained && k < param->part_count; k++) {
        char name[NAME_BYTES];
        print_base_name(param, &param->parts[k], name);
        const bool adapted = param->adapter != MODEL_ADAPTER_NONE;
        const struct model_peft_entry *entry = model_peft_find(peft, name);
        if (entry == NULL || (entry->whole == NULL) != adapted) {
            return core_err_set(-EINVAL, "%s names %s, which %s does not %s",
                                adapted ? LORA_TARGETS : MODULES_TO_SAVE, name, peft->folder,
                                adapted ? "adapt" : "replace");
        }
        *matched += param->adapter == MODEL_ADAPTER_NONE || param->adapter == MODEL_ADAPTER_B;
    }
    return 0;
}

static bool model_has(const struct model *model, const struct model_peft_entry *entry)
{
    for (unsigned b = 0; b < model->block_count; b++) {
        for (unsigned i = 0; i < model->blocks[b].param_count; i++) {
            const struct model_param *param = &model->blocks[b].params[i];
            for (unsigned k = 0; param->trained && k < param->part_count; k++) {
                char name[NAME_BYTES];
                print_base_name(param, &param->parts[k], name);
                if (strcmp(name, entry->base) == 0) {
                    return true;
                }
            }
        }
    }
    return false;
}

int model_peft_check(const struct model_peft *peft, const struct model *model)
{
    size_t matched = 0;
    for (unsigned b = 0; b < model->block_count; b++) {
        for (unsigned i = 0; i < model->blocks[b].param_count; i++) {
            int rc = match_param(peft, &model->blocks[b].params[i], &matched);
            if (rc != 0) {
                return rc;
            }
        }
    }
    for (size_t i = 0; matched < peft->count && i < peft->count; i++) {
        const struct model_peft_entry *entry = &peft->entries[i];
        if (!model_has(model, entry)) {
            const bool adapted = entry->whole == NULL;
            return core_err_set(-EINVAL, "%s %s %s, which %s does not name", peft->folder,
                                adapted ? "adapts" : "replaces", entry->base,
                                adapted ? LORA_TARGETS : MODULES_TO_SAVE);
        }
    }
    return 0;
}
