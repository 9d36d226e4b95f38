/* finetune_config.h: a ds_config.json as settings; private to finetune_settings.c and
 * finetune_config.c. */
#ifndef TOOLS_TIDE_FINETUNE_CONFIG_H
#define TOOLS_TIDE_FINETUNE_CONFIG_H

#include "core/config/config.h"
#include "tools/tide/finetune_settings.h"

/* Reads the file that `flags` name and puts what it says into `settings`, whose defaults stand. The
 * configuration is kept in `settings`, also where this fails. */
int tune_config_take(struct tune_settings *settings, const struct tune_flags *flags,
                     const struct tide_inspection *model);

/* Was the key given with a value of its own, and not as "auto"? */
bool tune_config_given(const struct tune_settings *settings, const char *key,
                       struct core_cfg_note *out);

#endif
