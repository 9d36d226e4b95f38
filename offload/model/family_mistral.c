/* family_mistral.c: Mistral: Llama with a sliding window, in all layers or in those of
 * `layer_types`. */
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>

#include "core/json/json.h"
#include "offload/model/family_rotary.h"

enum { WINDOW_DEFAULT = 4096 };

/* An absent sliding_window has transformers' default; null means no window. */
static int finish(const struct core_json *doc, struct model_config *config)
{
    const struct core_json_value *root = core_json_root(doc);
    const struct core_json_value *value = core_json_find(root, "sliding_window");
    config->window = WINDOW_DEFAULT;
    if (value != NULL && core_json_kind(value) == CORE_JSON_NULL) {
        config->window = 0;
    } else if (value != NULL) {
        int rc = core_json_get_integer(doc, root, "sliding_window", &config->window);
        if (rc != 0) {
            return rc;
        }
        if (config->window <= 0 || config->window > INT32_MAX) {
            return core_json_refuse(doc, root, "sliding_window", 0, -EINVAL,
                                    "%" PRId64 " is not a valid window; null means none",
                                    config->window);
        }
    }
    const int rc = model_read_layer_types(doc, config);
    for (int64_t i = 0; rc == -ENOENT && i < config->layers; i++) {
        config->sliding[i] = config->window > 0;
    }
    return rc == -ENOENT ? 0 : rc;
}

const struct model_family model_family_mistral = {
    .name = "mistral",
    .architecture = "MistralForCausalLM",
    .defaults = {.vocab = 32000,
                 .hidden = 4096,
                 .inner = 14336,
                 .layers = 32,
                 .heads = 32,
                 .kv_heads = 8,
                 .positions = 4096 * 32,
                 .eps = 1e-6,
                 .act = KERN_ACT_SILU,
                 .scale_scores = true,
                 .rope = {.theta = 10000.0}},
    .finish = finish,
    .layer = MODEL_ROTARY_LAYER,
    MODEL_ROTARY_MEMBERS,
};
