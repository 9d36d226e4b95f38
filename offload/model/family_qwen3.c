/* family_qwen3.c: Qwen3: Llama with q and k normalised per head, and windows by layer. */
#include <errno.h>
#include <stddef.h>

#include "core/json/json.h"
#include "offload/model/family_rotary.h"

static const struct model_param_row layer[] = {
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
    {.role = MODEL_Q_NORM,
     .rows = MODEL_DIM_HEAD,
     .cols = MODEL_DIM_ONE,
     .parts = {{"model.layers.#.self_attn.q_norm.weight", MODEL_DIM_HEAD}}},
    {.role = MODEL_K_NORM,
     .rows = MODEL_DIM_HEAD,
     .cols = MODEL_DIM_ONE,
     .parts = {{"model.layers.#.self_attn.k_norm.weight", MODEL_DIM_HEAD}}},
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
    {.role = MODEL_DOWN,
     .rows = MODEL_DIM_HIDDEN,
     .cols = MODEL_DIM_INNER,
     .decay = true,
     .parts = {{"model.layers.#.mlp.down_proj.weight", MODEL_DIM_HIDDEN}}},
};

static int finish(const struct core_json *doc, struct model_config *config)
{
    int rc = core_json_get_bool(doc, core_json_root(doc), "attention_bias", &config->qkv_bias);
    config->output_bias = config->qkv_bias;
    return rc == 0 || rc == -ENOENT ? model_finish_qwen(doc, config) : rc;
}

const struct model_family model_family_qwen3 = {
    .name = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .defaults = {.vocab = 151936,
                 .hidden = 4096,
                 .inner = 22016,
                 .layers = 32,
                 .heads = 32,
                 .kv_heads = 32,
                 .head_dim = 128,
                 .positions = 32768,
                 .eps = 1e-6,
                 .act = KERN_ACT_SILU,
                 .scale_scores = true,
                 .window = 4096,
                 .rope = {.theta = 10000.0}},
    .finish = finish,
    .layer = {layer, sizeof layer / sizeof layer[0], model_ops_layer_qk_norm,
              sizeof model_ops_layer_qk_norm / sizeof model_ops_layer_qk_norm[0]},
    MODEL_ROTARY_MEMBERS,
};
