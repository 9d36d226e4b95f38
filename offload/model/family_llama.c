/* family_llama.c: Llama 2 and 3.x: biases where `attention_bias` and `mlp_bias` ask for them. */
#include <errno.h>
#include <stddef.h>

#include "core/json/json.h"
#include "offload/model/family_rotary.h"

static int finish(const struct core_json *doc, struct model_config *config)
{
    const struct core_json_value *root = core_json_root(doc);
    int rc = core_json_get_bool(doc, root, "attention_bias", &config->qkv_bias);
    config->output_bias = config->qkv_bias;
    if (rc == 0 || rc == -ENOENT) {
        rc = core_json_get_bool(doc, root, "mlp_bias", &config->mlp_bias);
    }
    return rc == -ENOENT ? 0 : rc;
}

const struct model_family model_family_llama = {
    .name = "llama",
    .architecture = "LlamaForCausalLM",
    .defaults = {.vocab = 32000,
                 .hidden = 4096,
                 .inner = 11008,
                 .layers = 32,
                 .heads = 32,
                 .positions = 2048,
                 .eps = 1e-6,
                 .act = KERN_ACT_SILU,
                 .scale_scores = true,
                 .rope = {.theta = 10000.0}},
    .finish = finish,
    .layer = MODEL_ROTARY_LAYER,
    MODEL_ROTARY_MEMBERS,
};
