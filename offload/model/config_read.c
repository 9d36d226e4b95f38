/* config_read.c: reads config.json into struct model_config. */
#include "offload/model/config_read.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/log.h"
#include "core/json/json.h"
#include "offload/model/codes.h"
#include "offload/model/config_quant.h"
#include "offload/model/config_rope.h"
#include "offload/model/family.h"
#include "offload/model/files.h"

enum { SIZE_MAX_VALUE = INT32_MAX };

static bool is_null(const struct core_json_value *object, const char *key)
{
    const struct core_json_value *value = core_json_find(object, key);
    return value != NULL && core_json_kind(value) == CORE_JSON_NULL;
}

/* If a file has a key and its alias, they must agree. */
static int find_name(const struct core_json *doc, const struct model_key *key, const char **out)
{
    const struct core_json_value *root = core_json_root(doc);
    int64_t size;
    int64_t other;
    *out = key->name;
    if (key->alias == NULL) {
        return 0;
    }
    int rc = core_json_get_integer(doc, root, key->alias, &other);
    if (rc != 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    rc = core_json_get_integer(doc, root, key->name, &size);
    if (rc == -ENOENT) {
        *out = key->alias;
        return 0;
    }
    if (rc == 0 && size != other) {
        return core_json_refuse(doc, root, key->alias, 0, -EINVAL,
                                "found %" PRId64 " here and %" PRId64 " in %s", other, size,
                                key->name);
    }
    return rc;
}

/* An absent key leaves *to unchanged. */
static int read_key(const struct core_json *doc, const struct model_key *key, void *to)
{
    const struct core_json_value *root = core_json_root(doc);
    const char *name;
    int64_t size;
    int rc = find_name(doc, key, &name);
    if (rc != 0) {
        return rc;
    }
    if (is_null(root, name)) {
        if (!key->nullable) {
            return core_json_refuse(doc, root, name, 0, -EINVAL,
                                    "found null; leave the key out for the default");
        }
        *(int64_t *)to = 0; /* resolved later from other keys */
        return 0;
    }
    switch (key->kind) {
    case MODEL_KEY_SIZE:
        rc = core_json_get_integer(doc, root, name, &size);
        if (rc == 0 && (size <= 0 || size > SIZE_MAX_VALUE)) {
            return core_json_refuse(doc, root, name, 0, -EINVAL,
                                    "%" PRId64 " is out of range 1..%d", size, SIZE_MAX_VALUE);
        }
        if (rc == 0) {
            *(int64_t *)to = size;
        }
        break;
    case MODEL_KEY_REAL: rc = core_json_get_real(doc, root, key->name, to); break;
    case MODEL_KEY_BOOL: rc = core_json_get_bool(doc, root, key->name, to); break;
    default: rc = -EINVAL; break;
    }
    return rc == -ENOENT ? 0 : rc;
}

static int read_keys(const struct core_json *doc, struct model_config *config)
{
    const struct model_family *family = config->family;
    for (size_t i = 0; i < family->key_count; i++) {
        const struct model_key *key = &family->keys[i];
        int rc = read_key(doc, key, (char *)config + key->offset);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}

static int read_family(const struct core_json *doc, const struct model_family **out)
{
    const char *name;
    int rc = core_json_get_string(doc, core_json_root(doc), "model_type", &name);
    if (rc != 0) {
        return rc == -ENOENT
                   ? core_err_set(-EINVAL, "%s: model_type is missing", core_json_source(doc))
                   : rc;
    }
    *out = model_family_find(name);
    if (*out != NULL) {
        return 0;
    }
    char known[256] = "";
    for (size_t i = 0; model_family_at(i) != NULL; i++) {
        size_t at = strlen(known);
        snprintf(known + at, sizeof known - at, "%s%s", i > 0 ? ", " : "",
                 model_family_at(i)->name);
    }
    return core_json_refuse(doc, core_json_root(doc), "model_type", 0, -EINVAL,
                            "the family \"%s\" is unknown; known are %s", name, known);
}

static int read_act(const struct core_json *doc, struct model_config *config)
{
    static const struct {
        const char *name;
        enum kern_act_kind kind;
    } acts[] = {
        {"silu", KERN_ACT_SILU},          {"swish", KERN_ACT_SILU},
        {"gelu", KERN_ACT_GELU},          {"gelu_python", KERN_ACT_GELU},
        {"gelu_new", KERN_ACT_GELU_TANH}, {"gelu_pytorch_tanh", KERN_ACT_GELU_TANH},
        {"relu", KERN_ACT_RELU},
    };
    const char *key = config->family->act_key;
    const char *name;
    int rc = core_json_get_string(doc, core_json_root(doc), key, &name);
    if (rc != 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++) {
        if (strcmp(acts[i].name, name) == 0) {
            config->act = acts[i].kind;
            return 0;
        }
    }
    return core_json_refuse(doc, core_json_root(doc), key, 0, -EINVAL,
                            "the activation \"%s\" is not supported; silu, gelu, gelu_new, "
                            "gelu_pytorch_tanh and relu are",
                            name);
}

/* Reads `dtype` (transformers 5) or `torch_dtype` (4). */
static int read_dtype(const struct core_json *doc, struct model_config *config)
{
    static const char *const keys[] = {"dtype", "torch_dtype"};
    for (size_t i = 0; i < 2; i++) {
        const char *name;
        int rc = core_json_get_string(doc, core_json_root(doc), keys[i], &name);
        if (rc == -ENOENT) {
            continue;
        }
        if (rc != 0) {
            return rc;
        }
        enum model_dtype dtype = model_dtype_from_config(name);
        if (dtype == MODEL_OTHER) {
            return core_json_refuse(doc, core_json_root(doc), keys[i], 0, -EINVAL,
                                    "weights of type \"%s\" are not supported; float32, float16 "
                                    "and bfloat16 are",
                                    name);
        }
        if (config->dtype != MODEL_OTHER && config->dtype != dtype) {
            return core_json_refuse(doc, core_json_root(doc), keys[i], 0, -EINVAL,
                                    "found %s, but dtype is %s", name,
                                    model_dtype_config_name(config->dtype));
        }
        config->dtype = dtype;
    }
    return 0;
}

/* As in transformers, the token table's row pad_token_id gets no gradient from inputs. A negative
 * index counts from the end. */
static int read_padding(const struct core_json *doc, struct model_config *config)
{
    const struct core_json_value *root = core_json_root(doc);
    int64_t id;
    config->padding_id = -1;
    if (!config->family->pads || is_null(root, "pad_token_id")) {
        return 0;
    }
    int rc = core_json_get_integer(doc, root, "pad_token_id", &id);
    if (rc != 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    if (id < -config->vocab || id >= config->vocab) {
        return core_json_refuse(doc, root, "pad_token_id", 0, -EINVAL,
                                "%" PRId64 " is outside the vocabulary of %" PRId64, id,
                                config->vocab);
    }
    config->padding_id = id < 0 ? id + config->vocab : id;
    return 0;
}

static int read_dropouts(const struct core_json *doc, struct model_config *config)
{
    char *line = config->dropouts;
    line[0] = '\0';
    for (const char *const *key = config->family->dropout_keys; *key != NULL; key++) {
        double value = config->family->dropout_default;
        int rc = core_json_get_real(doc, core_json_root(doc), *key, &value);
        if (rc != 0 && rc != -ENOENT) {
            return rc;
        }
        if (value > 0.0) {
            size_t at = strlen(line);
            snprintf(line + at, MODEL_DROPOUTS_BYTES - at, "%s%s %g", at > 0 ? ", " : "", *key,
                     value);
        }
    }
    return 0;
}

/* Refuses unsupported keys that would change results. */
static int refuse_unknown(const struct core_json *doc)
{
    static const char other[] = "per_layer_config";
    const struct core_json_value *root = core_json_root(doc);
    const struct core_json_value *found = core_json_find(root, other);
    if (found != NULL && core_json_kind(found) != CORE_JSON_NULL) {
        return core_json_refuse(doc, root, other, 0, -EINVAL, "this key is not supported");
    }
    double part = 1.0;
    int rc = core_json_get_real(doc, root, "partial_rotary_factor", &part);
    if (rc == 0 && part != 1.0) {
        return core_json_refuse(doc, root, "partial_rotary_factor", 0, -EINVAL,
                                "%g is not supported, only 1.0", part);
    }
    static const struct {
        const char *key;
        bool supported;
        const char *message;
    } bools[] = {
        {"add_cross_attention", false, "cross attention is not supported"},
        {"is_causal", true, "attention to later tokens is not supported"},
    };
    for (size_t i = 0; i < sizeof bools / sizeof bools[0] && (rc == 0 || rc == -ENOENT); i++) {
        bool value = bools[i].supported;
        rc = core_json_get_bool(doc, root, bools[i].key, &value);
        if (rc == 0 && value != bools[i].supported) {
            return core_json_refuse(doc, root, bools[i].key, 0, -EINVAL, "%s", bools[i].message);
        }
    }
    return rc == -ENOENT ? 0 : rc;
}

static int resolve(const struct core_json *doc, struct model_config *config)
{
    const struct core_json_value *root = core_json_root(doc);
    if (config->kv_heads == 0) {
        config->kv_heads = config->heads;
    }
    if (config->heads % config->kv_heads != 0) {
        return core_json_refuse(doc, root, "num_key_value_heads", 0, -EINVAL,
                                "%" PRId64 " heads cannot share %" PRId64 " key and value heads",
                                config->heads, config->kv_heads);
    }
    if (config->head_dim == 0) {
        if (config->hidden % config->heads != 0) {
            return core_err_set(-EINVAL,
                                "%s: %" PRId64 " heads do not divide the hidden size %" PRId64
                                ", and there is no head_dim",
                                core_json_source(doc), config->heads, config->hidden);
        }
        config->head_dim = config->hidden / config->heads;
    }
    if (config->family->rope && config->head_dim % 2 != 0) {
        return core_err_set(-EINVAL, "%s: heads of %" PRId64 " elements cannot be rotated in pairs",
                            core_json_source(doc), config->head_dim);
    }
    if (config->inner == 0) {
        config->inner = 4 * config->hidden;
    }
    const int64_t most = SIZE_MAX_VALUE;
    if (config->head_dim > most / config->heads / 3 || config->inner > most / 2) {
        return core_err_set(-EINVAL,
                            "%s: %" PRId64 " heads of %" PRId64 " elements, or an inner size of "
                            "%" PRId64 ", are too large",
                            core_json_source(doc), config->heads, config->head_dim, config->inner);
    }
    if (config->layers > MODEL_LAYERS_MAX) {
        return core_err_set(-EINVAL, "%s: %" PRId64 " layers are too many; the maximum is %d",
                            core_json_source(doc), config->layers, MODEL_LAYERS_MAX);
    }
    if (!(config->eps > 0.0) || !isfinite(config->eps)) {
        return core_err_set(-EINVAL, "%s: the epsilon of norms is %g; it must be above 0",
                            core_json_source(doc), config->eps);
    }
    return 0;
}

int model_config_parse(const struct core_json *doc, struct model_config *out)
{
    if (core_json_kind(core_json_root(doc)) != CORE_JSON_OBJECT) {
        return core_err_set(-EINVAL, "%s is not an object", core_json_source(doc));
    }
    const struct model_family *family = NULL;
    int rc = read_family(doc, &family);
    if (rc != 0 || family == NULL) {
        return rc;
    }
    struct model_config config = family->defaults;
    config.family = family;
    config.dtype = MODEL_OTHER;
    rc = refuse_unknown(doc);
    if (rc != 0) {
        return rc;
    }
    rc = read_keys(doc, &config);
    if (rc != 0) {
        return rc;
    }
    rc = read_act(doc, &config);
    if (rc != 0) {
        return rc;
    }
    rc = read_dtype(doc, &config);
    if (rc != 0) {
        return rc;
    }
    rc = read_padding(doc, &config);
    if (rc != 0) {
        return rc;
    }
    rc = resolve(doc, &config);
    if (rc != 0) {
        return rc;
    }
    config.length_max = config.positions;
    if (family->rope) {
        rc = model_config_read_rope(doc, &config);
        if (rc != 0) {
            return rc;
        }
    }
    if (family->finish != NULL) {
        rc = family->finish(doc, &config);
        if (rc != 0) {
            return rc;
        }
    }
    rc = model_config_read_quant(doc, &config);
    if (rc == 0) {
        rc = read_dropouts(doc, &config);
    }
    if (rc == 0) {
        *out = config;
    }
    return rc;
}

int model_config_load(const char *folder, struct model_config *out)
{
    char *path;
    if (asprintf(&path, "%s/config.json", folder) < 0) {
        return core_err_set(-ENOMEM, "no memory for the name of %s/config.json", folder);
    }
    const struct core_json_options options = {.regular = true, .bytes_max = 16 << 20};
    struct core_json *doc = NULL;
    int rc = core_json_load(path, &options, &doc);
    free(path);
    if (rc == 0) {
        rc = model_config_parse(doc, out);
    }
    if (rc == 0 && out->tied && model_files_have_own_head(folder, out->family)) {
        core_log(CORE_LOG_WARN,
                 "%s: tie_word_embeddings is true, but the files have a head (lm_head.weight) that "
                 "differs from the token table; both are used, untied, as transformers does",
                 core_json_source(doc));
        out->tied = false;
    }
    if (rc == 0) {
        model_codes_find(folder, out);
    }
    core_json_destroy(doc);
    return rc;
}
