/* config_read.h: reads a model's configuration from Hugging Face's config.json. Any thread. */
#ifndef OFFLOAD_MODEL_CONFIG_READ_H
#define OFFLOAD_MODEL_CONFIG_READ_H

#include "offload/model/config.h"

struct core_json;

/* Fills `out` from FOLDER/config.json. Returns -ENOENT or -EINVAL with a message that names file
 * and key. If a tied model has a head of its own in its files, `out` is not tied, with a log
 * line. */
int model_config_load(const char *folder, struct model_config *out);
/* Fills `out` from a document, without the weights' files. */
int model_config_parse(const struct core_json *doc, struct model_config *out);

#endif
