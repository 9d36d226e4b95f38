/* config.c: settings of a layer, and the hash of a configuration. */
#include "offload/model/config.h"

#include <math.h>

#include "core/base/hash.h"

int64_t model_config_window(const struct model_config *config, int64_t layer)
{
    return config->sliding[layer] ? config->window : 0;
}

double model_config_scale(const struct model_config *config, int64_t layer)
{
    double scale = config->scale_scores ? 1.0 / sqrt((double)config->head_dim) : 1.0;
    return config->scale_by_layer ? scale / (double)(layer + 1) : scale;
}

uint64_t model_config_hash(const struct model_config *config)
{
    const struct kern_rope_config *rope = &config->rope;
    const double values[] = {
        config->eps,
        config->act,
        (double)config->padding_id,
        rope->kind,
        rope->theta,
        (double)rope->rotary,
        (double)rope->max_positions,
        rope->factor,
        (double)rope->original_max_positions,
        rope->low_freq_factor,
        rope->high_freq_factor,
        rope->beta_fast,
        rope->beta_slow,
        rope->attention_factor,
        rope->mscale,
        rope->mscale_all_dim,
        rope->exact_range,
    };
    uint64_t hash = core_hash(values, sizeof values, 0);
    for (int64_t layer = 0; layer < config->layers; layer++) {
        const double of_layer[] = {(double)model_config_window(config, layer),
                                   model_config_scale(config, layer)};
        hash = core_hash(of_layer, sizeof of_layer, hash);
    }
    return hash != 0 ? hash : 1;
}
