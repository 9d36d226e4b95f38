/* family_rotary.c: the tables of family_rotary.h. */
#include "offload/model/family_rotary.h"

#include <stddef.h>

const struct model_key model_rotary_keys[MODEL_ROTARY_KEYS] = {
    {"vocab_size", MODEL_KEY_SIZE, false, offsetof(struct model_config, vocab), NULL},
    {"hidden_size", MODEL_KEY_SIZE, false, offsetof(struct model_config, hidden), NULL},
    {"num_hidden_layers", MODEL_KEY_SIZE, false, offsetof(struct model_config, layers), NULL},
    {"num_attention_heads", MODEL_KEY_SIZE, false, offsetof(struct model_config, heads), NULL},
    {"num_key_value_heads", MODEL_KEY_SIZE, true, offsetof(struct model_config, kv_heads), NULL},
    {"head_dim", MODEL_KEY_SIZE, true, offsetof(struct model_config, head_dim), NULL},
    {"intermediate_size", MODEL_KEY_SIZE, false, offsetof(struct model_config, inner), NULL},
    {"max_position_embeddings", MODEL_KEY_SIZE, false, offsetof(struct model_config, positions),
     NULL},
    {"rms_norm_eps", MODEL_KEY_REAL, false, offsetof(struct model_config, eps), NULL},
    {"tie_word_embeddings", MODEL_KEY_BOOL, false, offsetof(struct model_config, tied), NULL},
};

const struct model_param_row model_rotary_embedding[1] = {
    {.role = MODEL_TOKEN_TABLE,
     .rows = MODEL_DIM_VOCAB,
     .cols = MODEL_DIM_HIDDEN,
     .decay = true,
     .parts = {{"model.embed_tokens.weight", MODEL_DIM_VOCAB}}},
};

const struct model_param_row model_rotary_layer[MODEL_ROTARY_LAYER_PARAMS] = {
    {.role = MODEL_NORM1,
     .rows = MODEL_DIM_HIDDEN,
     .cols = MODEL_DIM_ONE,
     .parts = {{"model.layers.#.input_layernorm.weight", MODEL_DIM_HIDDEN}}},
    {.role = MODEL_QKV,
     .rows = MODEL_DIM_QKV,
     .cols = MODEL_DIM_HIDDEN,
     .decay = true,
     .parts = {{"model.layers.#.self_attn.q_proj.weight", MODEL_DIM_Q},
               {"model.layers.#.self_attn.k_proj.weight", MODEL_DIM_KV},
               {"model.layers.#.self_attn.v_proj.weight", MODEL_DIM_KV}}},
    {.role = MODEL_QKV_BIAS,
     .rows = MODEL_DIM_QKV,
     .cols = MODEL_DIM_ONE,
     .when = MODEL_WHEN_QKV_BIAS,
     .parts = {{"model.layers.#.self_attn.q_proj.bias", MODEL_DIM_Q},
               {"model.layers.#.self_attn.k_proj.bias", MODEL_DIM_KV},
               {"model.layers.#.self_attn.v_proj.bias", MODEL_DIM_KV}}},
    {.role = MODEL_OUTPUT,
     .rows = MODEL_DIM_HIDDEN,
     .cols = MODEL_DIM_Q,
     .decay = true,
     .parts = {{"model.layers.#.self_attn.o_proj.weight", MODEL_DIM_HIDDEN}}},
    {.role = MODEL_OUTPUT_BIAS,
     .rows = MODEL_DIM_HIDDEN,
     .cols = MODEL_DIM_ONE,
     .when = MODEL_WHEN_OUTPUT_BIAS,
     .parts = {{"model.layers.#.self_attn.o_proj.bias", MODEL_DIM_HIDDEN}}},
    {.role = MODEL_NORM2,
     .rows = MODEL_DIM_HIDDEN,
     .cols = MODEL_DIM_ONE,
     .parts = {{"model.layers.#.post_attention_layernorm.weight", MODEL_DIM_HIDDEN}}},
    {.role = MODEL_UP,
     .rows = MODEL_DIM_UP,
     .cols = MODEL_DIM_HIDDEN,
     .decay = true,
     .parts = {{"model.layers.#.mlp.gate_proj.weight", MODEL_DIM_INNER},
               {"model.layers.#.mlp.up_proj.weight", MODEL_DIM_INNER}}},
    {.role = MODEL_UP_BIAS,
     .rows = MODEL_DIM_UP,
     .cols = MODEL_DIM_ONE,
     .when = MODEL_WHEN_MLP_BIAS,
     .parts = {{"model.layers.#.mlp.gate_proj.bias", MODEL_DIM_INNER},
               {"model.layers.#.mlp.up_proj.bias", MODEL_DIM_INNER}}},
    {.role = MODEL_DOWN,
     .rows = MODEL_DIM_HIDDEN,
     .cols = MODEL_DIM_INNER,
     .decay = true,
     .parts = {{"model.layers.#.mlp.down_proj.weight", MODEL_DIM_HIDDEN}}},
    {.role = MODEL_DOWN_BIAS,
     .rows = MODEL_DIM_HIDDEN,
     .cols = MODEL_DIM_ONE,
     .when = MODEL_WHEN_MLP_BIAS,
     .parts = {{"model.layers.#.mlp.down_proj.bias", MODEL_DIM_HIDDEN}}},
};

const struct model_param_row model_rotary_head[MODEL_ROTARY_HEAD_PARAMS] = {
    {.role = MODEL_FINAL_NORM,
     .rows = MODEL_DIM_HIDDEN,
     .cols = MODEL_DIM_ONE,
     .parts = {{"model.norm.weight", MODEL_DIM_HIDDEN}}},
    {.role = MODEL_HEAD,
     .rows = MODEL_DIM_VOCAB,
     .cols = MODEL_DIM_HIDDEN,
     .decay = true,
     .when = MODEL_WHEN_UNTIED,
     .parts = {{"lm_head.weight", MODEL_DIM_VOCAB}}},
};

const char *const model_rotary_dropout_keys[] = {"attention_dropout", NULL};
const char *const model_rotary_surplus[] = {".rotary_emb.inv_freq", NULL};
