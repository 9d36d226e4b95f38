/* config_rope.h: the rope part of a config.json; for config.c and the family files only. */
#ifndef OFFLOAD_MODEL_CONFIG_ROPE_H
#define OFFLOAD_MODEL_CONFIG_ROPE_H

struct core_json;
struct model_config;

/* Reads `rope_theta` and `rope_scaling` (transformers 4) or `rope_parameters` (5) into
 * config->rope. The sizes in `config` are already resolved. */
int model_config_read_rope(const struct core_json *doc, struct model_config *config);

#endif
