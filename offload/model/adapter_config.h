/* adapter_config.h: adapter_config.json of a PEFT folder. */
#ifndef OFFLOAD_MODEL_ADAPTER_CONFIG_H
#define OFFLOAD_MODEL_ADAPTER_CONFIG_H

#include "offload/model/model.h"
#include "offload/model/save_folder.h"

/* `base`: the base model's folder, or NULL; `identity`: that of its weights (model_sums_identity),
 * or 0. */
int model_adapter_config_write(const struct model_folder *folder, const struct model *model,
                               const char *base, uint64_t identity);

#endif
