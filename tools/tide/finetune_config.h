/* finetune_config.h: settings of a run from a ds_config.json. Main thread. */
#ifndef TOOLS_TIDE_FINETUNE_CONFIG_H
#define TOOLS_TIDE_FINETUNE_CONFIG_H

#include <limits.h>
#include <stdbool.h>
#include <tide/engine.h>
#include <tide/inspect.h>

#include "core/config/config.h"
#include "tools/tide/finetune_flags.h"
#include "tools/tide/schedule.h"

/* Zeroed by the caller. Must not move: the engine's options point into the struct. */
struct finetune_config {
    struct core_cfg *cfg; /* owned; NULL without --config */
    /* engine.stores points here: stores of the file, or of --store */
    struct tide_store_path store_paths[TIDE_STORES_MAX];
    char stores[TIDE_STORES_MAX][PATH_MAX]; /* their directories */
    bool has_total;                         /* the file sets the length of the schedule */
    bool drop_last;
    int64_t print_every;
    const char *csv;   /* file for the CSV table; NULL: none, or from a flag */
    const char *board; /* folder for TensorBoard; NULL: none, or from a flag */
    char csv_path[PATH_MAX];
    char board_path[PATH_MAX];
};

/* Reads flags->config, where flags replace "auto", into `engine` and `schedule`, which hold
 * the defaults. Warns of keys without effect. Call finetune_config_fini() even after an error. */
int finetune_config_load(struct finetune_config *out, const struct finetune_flags *flags,
                         const struct tide_inspection *model, struct tide_engine_options *engine,
                         struct schedule *schedule);
void finetune_config_fini(struct finetune_config *config);

/* Returns whether the file sets the key to a value other than "auto" and the key is not ignored.
 * *out is the key's note; "auto" has one, too. */
bool finetune_config_has(const struct finetune_config *config, const char *key,
                         struct core_cfg_note *out);

#endif
