/* config_rope.h: the parts of config.json about rotary embeddings; only for config_read.c. */
#ifndef OFFLOAD_MODEL_CONFIG_ROPE_H
#define OFFLOAD_MODEL_CONFIG_ROPE_H

struct core_json;
struct model_config;

/* Reads `rope_theta` and `rope_scaling` (transformers 4) or `rope_parameters` (5) into
 * config->rope, and sets config->length_max. Sizes must be set. */
int model_config_read_rope(const struct core_json *doc, struct model_config *config);

#endif
