/* family_qwen2.c: Qwen2 and 2.5: Llama with biases on q, k and v, and windows by layer. */
#include <stddef.h>

#include "offload/model/family_rotary.h"

const struct model_family model_family_qwen2 = {
    .name = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .defaults = {.vocab = 151936,
                 .hidden = 4096,
                 .inner = 22016,
                 .layers = 32,
                 .heads = 32,
                 .kv_heads = 32,
                 .positions = 32768,
                 .eps = 1e-6,
                 .act = KERN_ACT_SILU,
                 .qkv_bias = true,
                 .scale_scores = true,
                 .window = 4096,
                 .rope = {.theta = 10000.0}},
    .finish = model_finish_qwen,
    .layer = MODEL_ROTARY_LAYER,
    MODEL_ROTARY_MEMBERS,
};
