/* config_read.h: reads a model's configuration from Hugging Face's config.json. Any thread. */
#ifndef OFFLOAD_MODEL_CONFIG_READ_H
#define OFFLOAD_MODEL_CONFIG_READ_H

#include "offload/model/config.h"

struct core_json;

/* Fills `out` from FOLDER/config.json. If the files of a tied model have a head that differs from
 * the token table, `out` is not tied, and a log line says so. */
int model_config_load(const char *folder, struct model_config *out);
/* Fills `out` from a document, without reading the files of weights. */
int model_config_parse(const struct core_json *doc, struct model_config *out);

#endif
