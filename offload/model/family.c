/* family.c: the tables and rules that several families share. */
#include "offload/model/family.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/json/json.h"

int64_t model_dim(const struct model_config *config, enum model_dim dim)
{
    const int64_t q = config->heads * config->head_dim;
    const int64_t kv = config->kv_heads * config->head_dim;
    switch (dim) {
    case MODEL_DIM_NONE: return 0;
    case MODEL_DIM_ONE: return 1;
    case MODEL_DIM_VOCAB: return config->vocab;
    case MODEL_DIM_POSITIONS: return config->positions;
    case MODEL_DIM_HIDDEN: return config->hidden;
    case MODEL_DIM_HEAD: return config->head_dim;
    case MODEL_DIM_Q: return q;
    case MODEL_DIM_KV: return kv;
    case MODEL_DIM_QK: return q + kv;
    case MODEL_DIM_QKV: return q + 2 * kv;
    case MODEL_DIM_INNER: return config->inner;
    case MODEL_DIM_UP: return config->family->gated ? 2 * config->inner : config->inner;
    }
    return 0;
}

/* ---- ops of a pre-norm decoder ---- */

#define WHOLE(v, dim)                                                                              \
    {                                                                                              \
        .value = (v), .width = (dim)                                                               \
    }
#define PART(v, from, dim)                                                                         \
    {                                                                                              \
        .value = (v), .first = (from), .width = (dim)                                              \
    }
#define HIDDEN(v) WHOLE(v, MODEL_DIM_HIDDEN)

const struct model_op_row model_ops_embedding[1] = {
    {.row = MODEL_ROW_EMBED,
     .weight = MODEL_TOKEN_TABLE,
     .bias = MODEL_POSITION_TABLE,
     .out = HIDDEN(MODEL_OUT)},
};

const struct model_op_row model_ops_head[2] = {
    {.row = MODEL_ROW_NORM,
     .x = HIDDEN(MODEL_IN),
     .weight = MODEL_FINAL_NORM,
     .bias = MODEL_FINAL_NORM_BIAS,
     .out = HIDDEN(MODEL_V_NORMED1)},
    {.row = MODEL_ROW_LOSS, .x = HIDDEN(MODEL_V_NORMED1), .weight = MODEL_HEAD},
};

#define ROWS_BEFORE_ATTENTION                                                                      \
    {.row = MODEL_ROW_NORM,                                                                        \
     .x = HIDDEN(MODEL_IN),                                                                        \
     .weight = MODEL_NORM1,                                                                        \
     .bias = MODEL_NORM1_BIAS,                                                                     \
     .out = HIDDEN(MODEL_V_NORMED1)},                                                              \
    {                                                                                              \
        .row = MODEL_ROW_LINEAR, .x = HIDDEN(MODEL_V_NORMED1), .weight = MODEL_QKV,                \
        .bias = MODEL_QKV_BIAS, .out = WHOLE(MODEL_V_QKV, MODEL_DIM_QKV)                           \
    }

#define ROWS_AFTER_ATTENTION                                                                       \
    {.row = MODEL_ROW_LINEAR,                                                                      \
     .x = WHOLE(MODEL_V_ATTENTION, MODEL_DIM_Q),                                                   \
     .weight = MODEL_OUTPUT,                                                                       \
     .bias = MODEL_OUTPUT_BIAS,                                                                    \
     .out = HIDDEN(MODEL_V_PROJECTED)},                                                            \
        {.row = MODEL_ROW_NORM,                                                                    \
         .x = HIDDEN(MODEL_IN),                                                                    \
         .add = MODEL_V_PROJECTED,                                                                 \
         .sum = MODEL_V_RESIDUAL,                                                                  \
         .weight = MODEL_NORM2,                                                                    \
         .bias = MODEL_NORM2_BIAS,                                                                 \
         .out = HIDDEN(MODEL_V_NORMED2)},                                                          \
        {.row = MODEL_ROW_LINEAR,                                                                  \
         .x = HIDDEN(MODEL_V_NORMED2),                                                             \
         .weight = MODEL_UP,                                                                       \
         .bias = MODEL_UP_BIAS,                                                                    \
         .out = WHOLE(MODEL_V_UP, MODEL_DIM_UP)},                                                  \
        {.row = MODEL_ROW_ACT,                                                                     \
         .x = WHOLE(MODEL_V_UP, MODEL_DIM_UP),                                                     \
         .out = WHOLE(MODEL_V_ACTED, MODEL_DIM_INNER)},                                            \
        {.row = MODEL_ROW_LINEAR,                                                                  \
         .x = WHOLE(MODEL_V_ACTED, MODEL_DIM_INNER),                                               \
         .weight = MODEL_DOWN,                                                                     \
         .bias = MODEL_DOWN_BIAS,                                                                  \
         .out = HIDDEN(MODEL_V_DOWN)},                                                             \
    {                                                                                              \
        .row = MODEL_ROW_ADD, .x = HIDDEN(MODEL_V_RESIDUAL), .add = MODEL_V_DOWN,                  \
        .out = HIDDEN(MODEL_OUT)                                                                   \
    }

const struct model_op_row model_ops_layer[10] = {
    ROWS_BEFORE_ATTENTION,
    {.row = MODEL_ROW_ROPE, .x = PART(MODEL_V_QKV, MODEL_DIM_NONE, MODEL_DIM_QK)},
    {.row = MODEL_ROW_ATTENTION,
     .x = PART(MODEL_V_QKV, MODEL_DIM_NONE, MODEL_DIM_Q),
     .x2 = PART(MODEL_V_QKV, MODEL_DIM_Q, MODEL_DIM_KV),
     .x3 = PART(MODEL_V_QKV, MODEL_DIM_QK, MODEL_DIM_KV),
     .out = WHOLE(MODEL_V_ATTENTION, MODEL_DIM_Q)},
    ROWS_AFTER_ATTENTION,
};

const struct model_op_row model_ops_layer_qk_norm[12] = {
    ROWS_BEFORE_ATTENTION,
    {.row = MODEL_ROW_HEAD_NORM,
     .x = PART(MODEL_V_QKV, MODEL_DIM_NONE, MODEL_DIM_Q),
     .weight = MODEL_Q_NORM,
     .out = PART(MODEL_V_QK, MODEL_DIM_NONE, MODEL_DIM_Q)},
    {.row = MODEL_ROW_HEAD_NORM,
     .x = PART(MODEL_V_QKV, MODEL_DIM_Q, MODEL_DIM_KV),
     .weight = MODEL_K_NORM,
     .out = PART(MODEL_V_QK, MODEL_DIM_Q, MODEL_DIM_KV)},
    {.row = MODEL_ROW_ROPE, .x = PART(MODEL_V_QK, MODEL_DIM_NONE, MODEL_DIM_QK)},
    {.row = MODEL_ROW_ATTENTION,
     .x = PART(MODEL_V_QK, MODEL_DIM_NONE, MODEL_DIM_Q),
     .x2 = PART(MODEL_V_QK, MODEL_DIM_Q, MODEL_DIM_KV),
     .x3 = PART(MODEL_V_QKV, MODEL_DIM_QK, MODEL_DIM_KV),
     .out = WHOLE(MODEL_V_ATTENTION, MODEL_DIM_Q)},
    ROWS_AFTER_ATTENTION,
};

/* ---- linear layers ---- */

bool model_role_is_linear(enum model_role role)
{
    return role == MODEL_QKV || role == MODEL_OUTPUT || role == MODEL_UP || role == MODEL_DOWN;
}

void model_part_name(const char *pattern, int64_t layer, char *out, size_t bytes)
{
    const char *mark = strchr(pattern, '#');
    if (mark == NULL) {
        snprintf(out, bytes, "%s", pattern);
    } else {
        snprintf(out, bytes, "%.*s%" PRId64 "%s", (int)(mark - pattern), pattern, layer, mark + 1);
    }
}

uint64_t model_part_bit(const struct model_family *family, const struct model_param_row *row,
                        unsigned part)
{
    const size_t index = (size_t)(row - family->layer.params) * MODEL_PARTS_MAX + part;
    assert(index < 64);
    return UINT64_C(1) << index;
}

bool model_linear_next(const struct model_config *config, struct model_linear *linear)
{
    const struct model_block_table *table = &config->family->layer;
    const size_t each = table->param_count * MODEL_PARTS_MAX;
    for (size_t at = linear->next; at < each * (size_t)config->layers; at++) {
        const struct model_param_row *row = &table->params[at % each / MODEL_PARTS_MAX];
        const unsigned part = (unsigned)(at % MODEL_PARTS_MAX);
        if (model_role_is_linear(row->role) && row->parts[part].name != NULL) {
            linear->layer = (int64_t)(at / each);
            linear->rows = model_dim(config, row->parts[part].rows);
            linear->cols = model_dim(config, row->cols);
            linear->bit = model_part_bit(config->family, row, part);
            linear->next = at + 1;
            model_part_name(row->parts[part].name, linear->layer, linear->name,
                            sizeof linear->name);
            return true;
        }
    }
    return false;
}

/* ---- sliding windows ---- */

int model_read_layer_types(const struct core_json *doc, struct model_config *config)
{
    const struct core_json_value *list = NULL;
    const int rc = core_json_get(doc, core_json_root(doc), "layer_types", CORE_JSON_ARRAY, &list);
    if (rc != 0) {
        return rc;
    }
    if (core_json_count(list) != (size_t)config->layers) {
        return core_json_refuse(doc, core_json_root(doc), "layer_types", 0, -EINVAL,
                                "found %zu entries, but the model has %" PRId64 " layers",
                                core_json_count(list), config->layers);
    }
    for (size_t i = 0; i < (size_t)config->layers; i++) {
        const struct core_json_value *value = core_json_at(list, i);
        const char *type = core_json_kind(value) == CORE_JSON_STRING ? core_json_string(value, NULL)
                                                                     : "";
        config->sliding[i] = strcmp(type, "sliding_attention") == 0;
        if (!config->sliding[i] && strcmp(type, "full_attention") != 0 &&
            strcmp(type, "attention") != 0) { /* older name of full_attention */
            return core_json_refuse(doc, list, NULL, i, -EINVAL,
                                    "\"%s\" is not supported; full_attention and "
                                    "sliding_attention are",
                                    type);
        }
        if (config->sliding[i] && config->window == 0) {
            return core_json_refuse(doc, list, NULL, i, -EINVAL,
                                    "sliding_attention without a sliding_window in use");
        }
    }
    return 0;
}

int model_finish_qwen(const struct core_json *doc, struct model_config *config)
{
    const struct core_json_value *root = core_json_root(doc);
    bool use = false;
    int64_t window = config->window;
    int64_t first = 28;
    int rc = core_json_get_bool(doc, root, "use_sliding_window", &use);
    rc = rc == 0 || rc == -ENOENT ? core_json_get_integer(doc, root, "max_window_layers", &first)
                                  : rc;
    if (rc != 0 && rc != -ENOENT) {
        return rc;
    }
    const struct core_json_value *value = core_json_find(root, "sliding_window");
    if (value != NULL && core_json_kind(value) == CORE_JSON_NULL) {
        window = 0;
    } else if (value != NULL) {
        rc = core_json_get_integer(doc, root, "sliding_window", &window);
        if (rc == 0 && (window <= 0 || window > INT32_MAX)) {
            return core_json_refuse(doc, root, "sliding_window", 0, -EINVAL,
                                    "%" PRId64 " is not above zero", window);
        }
    }
    if (rc != 0 && rc != -ENOENT) {
        return rc;
    }
    config->window = use ? window : 0;
    rc = model_read_layer_types(doc, config);
    if (rc != -ENOENT) {
        return rc;
    }
    for (int64_t i = 0; i < config->layers; i++) {
        config->sliding[i] = config->window > 0 && i >= first;
    }
    return 0;
}
