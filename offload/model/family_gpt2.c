/* family_gpt2.c: GPT-2: learned positions, LayerNorm, biases, layers that files hold transposed. */
#include <stddef.h>

#include "offload/model/family.h"

static const struct model_key keys[] = {
    {"vocab_size", MODEL_KEY_SIZE, false, offsetof(struct model_config, vocab), NULL},
    {"n_positions", MODEL_KEY_SIZE, false, offsetof(struct model_config, positions),
     "max_position_embeddings"},
    {"n_embd", MODEL_KEY_SIZE, false, offsetof(struct model_config, hidden), "hidden_size"},
    {"n_layer", MODEL_KEY_SIZE, false, offsetof(struct model_config, layers), "num_hidden_layers"},
    {"n_head", MODEL_KEY_SIZE, false, offsetof(struct model_config, heads), "num_attention_heads"},
    {"n_inner", MODEL_KEY_SIZE, true, offsetof(struct model_config, inner), NULL},
    {"layer_norm_epsilon", MODEL_KEY_REAL, false, offsetof(struct model_config, eps), NULL},
    {"scale_attn_weights", MODEL_KEY_BOOL, false, offsetof(struct model_config, scale_scores),
     NULL},
    {"scale_attn_by_inverse_layer_idx", MODEL_KEY_BOOL, false,
     offsetof(struct model_config, scale_by_layer), NULL},
    {"tie_word_embeddings", MODEL_KEY_BOOL, false, offsetof(struct model_config, tied), NULL},
};

static const struct model_param_row embedding[] = {
    {.role = MODEL_TOKEN_TABLE,
     .rows = MODEL_DIM_VOCAB,
     .cols = MODEL_DIM_HIDDEN,
     .decay = true,
     .parts = {{"transformer.wte.weight", MODEL_DIM_VOCAB}}},
    {.role = MODEL_POSITION_TABLE,
     .rows = MODEL_DIM_POSITIONS,
     .cols = MODEL_DIM_HIDDEN,
     .decay = true,
     .parts = {{"transformer.wpe.weight", MODEL_DIM_POSITIONS}}},
};

#define VECTOR(what, dim, name)                                                                    \
    {                                                                                              \
        .role = (what), .rows = (dim), .cols = MODEL_DIM_ONE, .parts = { {name, dim} }             \
    }
#define MATRIX(what, to, from, name)                                                               \
    {                                                                                              \
        .role = (what), .rows = (to), .cols = (from), .transposed = true, .decay = true,           \
        .parts = {                                                                                 \
            {name, to}                                                                             \
        }                                                                                          \
    }

static const struct model_param_row layer[] = {
    VECTOR(MODEL_NORM1, MODEL_DIM_HIDDEN, "transformer.h.#.ln_1.weight"),
    VECTOR(MODEL_NORM1_BIAS, MODEL_DIM_HIDDEN, "transformer.h.#.ln_1.bias"),
    MATRIX(MODEL_QKV, MODEL_DIM_QKV, MODEL_DIM_HIDDEN, "transformer.h.#.attn.c_attn.weight"),
    VECTOR(MODEL_QKV_BIAS, MODEL_DIM_QKV, "transformer.h.#.attn.c_attn.bias"),
    MATRIX(MODEL_OUTPUT, MODEL_DIM_HIDDEN, MODEL_DIM_Q, "transformer.h.#.attn.c_proj.weight"),
    VECTOR(MODEL_OUTPUT_BIAS, MODEL_DIM_HIDDEN, "transformer.h.#.attn.c_proj.bias"),
    VECTOR(MODEL_NORM2, MODEL_DIM_HIDDEN, "transformer.h.#.ln_2.weight"),
    VECTOR(MODEL_NORM2_BIAS, MODEL_DIM_HIDDEN, "transformer.h.#.ln_2.bias"),
    MATRIX(MODEL_UP, MODEL_DIM_UP, MODEL_DIM_HIDDEN, "transformer.h.#.mlp.c_fc.weight"),
    VECTOR(MODEL_UP_BIAS, MODEL_DIM_UP, "transformer.h.#.mlp.c_fc.bias"),
    MATRIX(MODEL_DOWN, MODEL_DIM_HIDDEN, MODEL_DIM_INNER, "transformer.h.#.mlp.c_proj.weight"),
    VECTOR(MODEL_DOWN_BIAS, MODEL_DIM_HIDDEN, "transformer.h.#.mlp.c_proj.bias"),
};

static const struct model_param_row head[] = {
    VECTOR(MODEL_FINAL_NORM, MODEL_DIM_HIDDEN, "transformer.ln_f.weight"),
    VECTOR(MODEL_FINAL_NORM_BIAS, MODEL_DIM_HIDDEN, "transformer.ln_f.bias"),
    {.role = MODEL_HEAD,
     .rows = MODEL_DIM_VOCAB,
     .cols = MODEL_DIM_HIDDEN,
     .decay = true,
     .when = MODEL_WHEN_UNTIED,
     .parts = {{"lm_head.weight", MODEL_DIM_VOCAB}}},
};

static const char *const dropout_keys[] = {"resid_pdrop", "embd_pdrop", "attn_pdrop", NULL};
static const char *const surplus[] = {".attn.bias", ".attn.masked_bias", NULL};

const struct model_family model_family_gpt2 = {
    .name = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .defaults = {.vocab = 50257,
                 .positions = 1024,
                 .hidden = 768,
                 .layers = 12,
                 .heads = 12,
                 .eps = 1e-5,
                 .act = KERN_ACT_GELU_TANH,
                 .tied = true,
                 .scale_scores = true,
                 .qkv_bias = true,
                 .output_bias = true,
                 .mlp_bias = true},
    .keys = keys,
    .key_count = sizeof keys / sizeof keys[0],
    .act_key = "activation_function",
    .dropout_keys = dropout_keys,
    .dropout_default = 0.1,
    .prefix = "transformer.",
    .surplus = surplus,
    .norm = KERN_NORM_LAYER,
    .embedding = {embedding, sizeof embedding / sizeof embedding[0], model_ops_embedding,
                  sizeof model_ops_embedding / sizeof model_ops_embedding[0]},
    .layer = {layer, sizeof layer / sizeof layer[0], model_ops_layer,
              sizeof model_ops_layer / sizeof model_ops_layer[0]},
    .head = {head, sizeof head / sizeof head[0], model_ops_head,
             sizeof model_ops_head / sizeof model_ops_head[0]},
};
