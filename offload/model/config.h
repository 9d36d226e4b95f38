/* config.h: what tide uses of config.json, with the family's defaults. Plain data, constant once
 * filled. */
#ifndef OFFLOAD_MODEL_CONFIG_H
#define OFFLOAD_MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kern.h"
#include "kernels/rope.h"
#include "offload/model/dtype.h"

struct model_family;

enum { MODEL_LAYERS_MAX = 1024, MODEL_DROPOUTS_BYTES = 256 };

struct model_config {
    const struct model_family *family; /* static */
    int64_t vocab;
    int64_t hidden;
    int64_t layers;
    int64_t heads;
    int64_t kv_heads;
    int64_t head_dim;
    int64_t inner;
    int64_t positions;  /* max_position_embeddings; rows of a learned table */
    int64_t length_max; /* tokens of the longest row: positions, extended by RoPE scaling */
    /* token whose row of the token table gets no gradient from inputs; -1: none */
    int64_t padding_id;
    double eps; /* the same for all norms */
    enum kern_act_kind act;
    bool tied; /* the head's weight is the token table */
    bool qkv_bias;
    bool output_bias; /* attention's output projection has a bias */
    bool mlp_bias;
    bool scale_scores;   /* scores are multiplied by 1 / sqrt(head_dim) */
    bool scale_by_layer; /* scores are also multiplied by 1 / (layer + 1) */
    int64_t window;      /* window in tokens, for layers in `sliding`; 0: none */
    bool sliding[MODEL_LAYERS_MAX];
    struct kern_rope_config rope; /* only for families with rotary embeddings */
    enum model_dtype dtype;       /* type named by config.json; MODEL_OTHER: not given */
    enum kern_quant quant;        /* storage of linear layers in files; NONE: 16 or 32 bits */
    /* [layer]: bits (model_linear.bit) of linear layers that have 16 or 32 bits although `quant` is
     * set */
    uint64_t whole[MODEL_LAYERS_MAX];
    /* "attention_dropout 0.1": dropout rates above 0 of config.json or transformers' defaults;
     * never applied */
    char dropouts[MODEL_DROPOUTS_BYTES];
};

/* Returns the width of a layer's window; 0: none. */
int64_t model_config_window(const struct model_config *config, int64_t layer);
/* Returns the factor of a layer's attention scores. */
double model_config_scale(const struct model_config *config, int64_t layer);
/* Hashes settings that change results but no shape: windows, rotary embedding, scales of scores,
 * activation, epsilon, padding id. Never returns 0. */
uint64_t model_config_hash(const struct model_config *config);

#endif
