/* family.h: the tables of a model family: config keys, parameters, ops. Const; one file per family
 * (family_*.c), listed in families.c. Forward follows the table of ops downwards; backward is
 * derived from it, upwards (program.h). */
#ifndef OFFLOAD_MODEL_FAMILY_H
#define OFFLOAD_MODEL_FAMILY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/blocks/blocks.h"
#include "offload/model/config.h"

struct core_json;

/* ---- config.json ---- */

enum model_key_kind { MODEL_KEY_SIZE, MODEL_KEY_REAL, MODEL_KEY_BOOL };

/* A key that is copied into struct model_config. An absent key has transformers' default.
 * model_config_parse resolves a size of 0 (kv_heads: heads; head_dim: hidden / heads; inner: 4 *
 * hidden). */
struct model_key {
    const char *name;
    enum model_key_kind kind;
    bool nullable; /* a size for which null means 0 */
    size_t offset;
    const char *alias; /* transformers' other name; NULL: none */
};

/* ---- shapes ---- */

/* Sizes in tables; model_dim() gives their value for a config. */
enum model_dim {
    MODEL_DIM_NONE, /* 0 */
    MODEL_DIM_ONE,
    MODEL_DIM_VOCAB,
    MODEL_DIM_POSITIONS,
    MODEL_DIM_HIDDEN,
    MODEL_DIM_HEAD, /* head_dim */
    MODEL_DIM_Q,    /* heads * head_dim */
    MODEL_DIM_KV,   /* kv_heads * head_dim */
    MODEL_DIM_QK,   /* q and k */
    MODEL_DIM_QKV,  /* q, k and v */
    MODEL_DIM_INNER,
    MODEL_DIM_UP, /* 2 * inner if the family has a gate, else inner */
};

int64_t model_dim(const struct model_config *config, enum model_dim dim);

/* ---- parameters ---- */

/* Roles of parameters, by which ops refer to them. A block has at most one parameter of a role,
 * besides adapters. */
enum model_role {
    MODEL_NO_ROLE,
    MODEL_TOKEN_TABLE,
    MODEL_POSITION_TABLE,
    MODEL_NORM1,
    MODEL_NORM1_BIAS,
    MODEL_QKV,
    MODEL_QKV_BIAS,
    MODEL_Q_NORM,
    MODEL_K_NORM,
    MODEL_OUTPUT,
    MODEL_OUTPUT_BIAS,
    MODEL_NORM2,
    MODEL_NORM2_BIAS,
    MODEL_UP, /* gate and up if the family has a gate */
    MODEL_UP_BIAS,
    MODEL_DOWN,
    MODEL_DOWN_BIAS,
    MODEL_FINAL_NORM,
    MODEL_FINAL_NORM_BIAS,
    MODEL_HEAD,
};

/* When a model has a parameter. */
enum model_condition {
    MODEL_ALWAYS = 0,
    MODEL_WHEN_QKV_BIAS,
    MODEL_WHEN_OUTPUT_BIAS,
    MODEL_WHEN_MLP_BIAS,
    MODEL_WHEN_UNTIED,
};

enum { MODEL_PARTS_MAX = 3 };

/* A parameter [rows][cols]: whole tensors, one below the other. */
struct model_param_row {
    enum model_role role;
    enum model_dim rows;
    enum model_dim cols; /* MODEL_DIM_ONE for vectors */
    bool transposed;     /* the file holds [cols][rows] */
    bool decay;          /* weight decay applies, as transformers groups parameters */
    enum model_condition when;
    struct {
        /* name in files, with '#' for the layer's number; NULL: end of the parts */
        const char *name;
        enum model_dim rows;
    } parts[MODEL_PARTS_MAX];
};

/* ---- ops ---- */

enum model_row {
    MODEL_ROW_EMBED,     /* out = table[ids] (+ positions) */
    MODEL_ROW_NORM,      /* out = norm(sum) with sum = x + add, or norm(x) */
    MODEL_ROW_HEAD_NORM, /* out = norm(x) for each head; x and out are slices */
    MODEL_ROW_LINEAR,    /* out = x w^T + bias */
    MODEL_ROW_ROPE,      /* rotary embedding of x, in place */
    MODEL_ROW_ATTENTION, /* out = attention(x, x2, x3) */
    MODEL_ROW_ACT,       /* out = act(x), or act(first half of x) * second half */
    MODEL_ROW_ADD,       /* out = x + add */
    MODEL_ROW_LOSS,      /* x w^T against the labels */
};

/* Values between ops: [tokens][width]. IN and OUT are boundary activations. */
enum model_value {
    MODEL_NO_VALUE,
    MODEL_IN,
    MODEL_OUT,
    MODEL_V_NORMED1,
    MODEL_V_QKV,
    MODEL_V_QK,
    MODEL_V_ATTENTION,
    MODEL_V_PROJECTED,
    MODEL_V_RESIDUAL,
    MODEL_V_NORMED2,
    MODEL_V_UP,
    MODEL_V_ACTED,
    MODEL_V_DOWN,
    MODEL_VALUE_COUNT,
};

/* Columns of a value from column `first` on. */
struct model_slice {
    enum model_value value;
    enum model_dim first;
    enum model_dim width;
};

struct model_op_row {
    enum model_row row;
    struct model_slice x, x2, x3;
    enum model_value add;
    enum model_value sum;
    struct model_slice out;
    enum model_role weight;
    enum model_role bias; /* EMBED: the role of the position table */
};

struct model_block_table {
    const struct model_param_row *params;
    size_t param_count;
    const struct model_op_row *ops;
    size_t op_count;
};

struct model_family {
    const char *name;         /* model_type */
    const char *architecture; /* "LlamaForCausalLM" */
    struct model_config defaults;
    const struct model_key *keys;
    size_t key_count;
    const char *act_key;
    const char *const *dropout_keys; /* NULL-terminated */
    double dropout_default;
    const char *prefix; /* prefix of tensor names; files of the bare model omit it */
    /* NULL-terminated suffixes of tensors that are not read */
    const char *const *surplus;
    enum kern_norm_kind norm;
    bool rope;
    bool gated;
    bool pads; /* as in transformers, pad_token_id is the token table's padding_idx */
    /* Reads keys that `keys` cannot describe, such as windows. NULL: none. */
    int (*finish)(const struct core_json *doc, struct model_config *config);
    struct model_block_table embedding;
    struct model_block_table layer;
    struct model_block_table head;
};

/* Returns NULL for an unknown name. */
const struct model_family *model_family_find(const char *model_type);
/* Returns the index-th family; NULL beyond the last. */
const struct model_family *model_family_at(size_t index);

/* ---- what families share (family.c) ---- */

/* Ops of a pre-norm decoder: the embedding, the head, a layer, a layer with q and k normalised per
 * head. */
extern const struct model_op_row model_ops_embedding[1];
extern const struct model_op_row model_ops_head[2];
extern const struct model_op_row model_ops_layer[10];
extern const struct model_op_row model_ops_layer_qk_norm[12];
/* Returns whether a role is the weight of a linear layer other than the head. */
bool model_role_is_linear(enum model_role role);
/* Writes `pattern`, such as "model.layers.#.x", with the layer's number for '#'. */
void model_part_name(const char *pattern, int64_t layer, char *out, size_t bytes);
/* Returns a part's bit in config->whole[layer]; `row` is one of family->layer.params. */
uint64_t model_part_bit(const struct model_family *family, const struct model_param_row *row,
                        unsigned part);
/* Iterates over the weights of linear layers other than the head, from a zeroed struct on.
 * model_linear_next returns false at the end. */
struct model_linear {
    char name[BLOCKS_NAME_BYTES_MAX + 1];
    int64_t layer;
    int64_t rows, cols; /* in memory */
    uint64_t bit;
    size_t next; /* next part, counted over parameters and layers */
};
bool model_linear_next(const struct model_config *config, struct model_linear *linear);
/* Reads `layer_types` into config->sliding, after config->window is set. Returns -ENOENT if the key
 * is absent. */
int model_read_layer_types(const struct core_json *doc, struct model_config *config);
/* Reads Qwen's `layer_types`, `use_sliding_window`, `sliding_window`, `max_window_layers`. */
int model_finish_qwen(const struct core_json *doc, struct model_config *config);

#endif
