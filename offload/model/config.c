/* config.c: what a configuration says about one layer. */
#include "offload/model/config.h"

#include <math.h>

int64_t model_config_window(const struct model_config *config, int64_t layer)
{
    return config->sliding[layer] ? config->window : 0;
}

double model_config_scale(const struct model_config *config, int64_t layer)
{
    double scale = config->scale_scores ? 1.0 / sqrt((double)config->head_dim) : 1.0;
    return config->scale_by_layer ? scale / (double)(layer + 1) : scale;
}
