/* config_quant.c: reads `quantization_config`, with the defaults of transformers. */
#include "offload/model/config_quant.h"

#include <errno.h>
#include <string.h>

#include "core/base/err.h"
#include "core/json/json.h"
#include "offload/model/adapter.h"
#include "offload/model/family.h"

enum { SKIPPED_MAX = 8192 };

static const char object_key[] = "quantization_config";

/* Returns "" if there is none. */
static const char *quant_method(const struct core_json_value *object)
{
    const struct core_json_value *method = core_json_kind(object) == CORE_JSON_OBJECT
                                               ? core_json_find(object, "quant_method")
                                               : NULL;
    const bool named = method != NULL && core_json_kind(method) == CORE_JSON_STRING;
    return named ? core_json_string(method, NULL) : "";
}

static int refuse_method(const struct core_json *doc, const char *method)
{
    return core_json_refuse(doc, core_json_root(doc), object_key, 0, -EINVAL,
                            "the weights are quantised%s%s%s, which tide does not read; give the "
                            "model that they were made from, in 16 or 32 bits (--base nf4 or int8 "
                            "keeps its frozen layers in fewer bits)",
                            method[0] != '\0' ? " by \"" : "", method,
                            method[0] != '\0' ? "\"" : "");
}

/* An absent key, or null, leaves *to unchanged. */
static int read_bool(const struct core_json *doc, const struct core_json_value *object,
                     const char *key, bool *to)
{
    const int rc = core_json_get_bool(doc, object, key, to);
    return rc == -ENOENT ? 0 : rc;
}

static int read_name(const struct core_json *doc, const struct core_json_value *object,
                     const char *key, const char **to)
{
    const int rc = core_json_get_string(doc, object, key, to);
    return rc == -ENOENT ? 0 : rc;
}

static int read_4bit(const struct core_json *doc, const struct core_json_value *object,
                     enum kern_quant *out)
{
    const char *type = "fp4";
    const char *storage = "uint8";
    bool nested = false;
    int rc = read_name(doc, object, "bnb_4bit_quant_type", &type);
    if (rc == 0) {
        rc = read_name(doc, object, "bnb_4bit_quant_storage", &storage);
    }
    if (rc == 0) {
        rc = read_bool(doc, object, "bnb_4bit_use_double_quant", &nested);
    }
    if (rc == 0 && strcmp(type, "nf4") != 0) {
        return core_json_refuse(doc, object, "bnb_4bit_quant_type", 0, -EINVAL,
                                "weights of the type \"%s\" are not supported, only nf4", type);
    }
    if (rc == 0 && strcmp(storage, "uint8") != 0) {
        return core_json_refuse(doc, object, "bnb_4bit_quant_storage", 0, -EINVAL,
                                "codes that are stored as \"%s\" are not supported, only uint8",
                                storage);
    }
    *out = nested ? KERN_QUANT_NF4 : KERN_QUANT_NF4_F32;
    return rc;
}

static int read_8bit(const struct core_json *doc, const struct core_json_value *object,
                     enum kern_quant *out)
{
    bool halves = false;
    const int rc = read_bool(doc, object, "llm_int8_has_fp16_weight", &halves);
    if (rc == 0 && halves) {
        return core_json_refuse(doc, object, "llm_int8_has_fp16_weight", 0, -EINVAL,
                                "int8 layers with fp16 weights are not supported");
    }
    *out = KERN_QUANT_INT8;
    return rc;
}

/* As in transformers, an entry excludes a module if the module's path ends with the entry, or
 * begins with the entry and a dot. Regular expressions are not evaluated. */
static bool skips(const char *tensor, const char *entry)
{
    const size_t module = model_module_length(tensor);
    const size_t length = strlen(entry);
    return length > 0 && length <= module &&
           ((strncmp(tensor, entry, length) == 0 &&
             (length == module || tensor[length] == '.' || entry[length - 1] == '.')) ||
            strncmp(tensor + module - length, entry, length) == 0);
}

static int read_skipped(const struct core_json *doc, const struct core_json_value *object,
                        struct model_config *config)
{
    static const char key[] = "llm_int8_skip_modules";
    const struct core_json_value *list = NULL;
    const int rc = core_json_get(doc, object, key, CORE_JSON_ARRAY, &list);
    if (rc != 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    if (core_json_count(list) > SKIPPED_MAX) {
        return core_json_refuse(doc, object, key, 0, -EINVAL, "found more than %d entries",
                                SKIPPED_MAX);
    }
    for (size_t i = 0; i < core_json_count(list); i++) {
        const struct core_json_value *entry = core_json_at(list, i);
        struct model_linear linear = {.next = 0};
        if (core_json_kind(entry) != CORE_JSON_STRING) {
            return core_json_refuse(doc, list, NULL, i, -EINVAL, "a module's name was expected");
        }
        while (model_linear_next(config, &linear)) {
            if (skips(linear.name, core_json_string(entry, NULL))) {
                config->whole[linear.layer] |= linear.bit;
            }
        }
    }
    return 0;
}

int model_config_read_quant(const struct core_json *doc, struct model_config *config)
{
    const struct core_json_value *object = core_json_find(core_json_root(doc), object_key);
    bool four = false;
    bool eight = false;
    config->quant = KERN_QUANT_NONE;
    memset(config->whole, 0, sizeof config->whole);
    if (object == NULL || core_json_kind(object) == CORE_JSON_NULL) {
        return 0;
    }
    const char *method = quant_method(object);
    if (strcmp(method, "bitsandbytes") != 0) {
        return refuse_method(doc, method);
    }
    int rc = read_bool(doc, object, "load_in_4bit", &four);
    if (rc == 0) {
        rc = read_bool(doc, object, "load_in_8bit", &eight);
    }
    if (rc == 0 && four == eight) {
        return core_json_refuse(doc, object, "load_in_4bit", 0, -EINVAL,
                                "exactly one of load_in_4bit and load_in_8bit must be true");
    }
    if (rc == 0) {
        rc = four ? read_4bit(doc, object, &config->quant) : read_8bit(doc, object, &config->quant);
    }
    return rc == 0 ? read_skipped(doc, object, config) : rc;
}
