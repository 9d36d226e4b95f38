/* config_quant.h: the parts of config.json about quantised weights; only for config_read.c. */
#ifndef OFFLOAD_MODEL_CONFIG_QUANT_H
#define OFFLOAD_MODEL_CONFIG_QUANT_H

struct core_json;
struct model_config;

/* Reads `quantization_config` into config->quant and config->whole; family and sizes must be
 * set. */
int model_config_read_quant(const struct core_json *doc, struct model_config *config);

#endif
