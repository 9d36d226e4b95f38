/* finetune_config.h: the settings of a run that come from a ds_config.json. Main thread. */
#ifndef TOOLS_TIDE_FINETUNE_CONFIG_H
#define TOOLS_TIDE_FINETUNE_CONFIG_H

#include <limits.h>
#include <stdbool.h>
#include <tide/engine.h>
#include <tide/inspect.h>

#include "core/config/config.h"
#include "tools/tide/finetune_flags.h"
#include "tools/tide/schedule.h"

/* The caller zeroes it. The engine's options point into it, so it must not move. */
struct finetune_config {
    struct core_cfg *cfg; /* owned; NULL without --config */
    /* engine.stores points here; --store adds to them, too */
    struct tide_store_path store_paths[TIDE_STORES_MAX];
    char stores[TIDE_STORES_MAX][PATH_MAX]; /* their directories */
    bool has_total;                         /* the file says how long the schedule is */
    bool drop_last;
    int64_t print_every;
    const char *csv;   /* file for the CSV table; NULL: none, or a flag names it */
    const char *board; /* folder for TensorBoard; NULL: none, or a flag names it */
    char csv_path[PATH_MAX];
    char board_path[PATH_MAX];
};

/* Reads flags->config, in which flags replace "auto", and copies the settings of the file to
 * `engine` and `schedule`, which the caller has set to defaults. Warns of keys without effect.
 * Returns 0, or -errno with a message. The caller calls finetune_config_fini() even after a
 * failure. */
int finetune_config_load(struct finetune_config *out, const struct finetune_flags *flags,
                         const struct tide_inspection *model, struct tide_engine_options *engine,
                         struct schedule *schedule);
void finetune_config_fini(struct finetune_config *config);

/* Returns whether the file gives the key a value other than "auto". If the file has the key, even
 * with "auto", writes its note to *out. */
bool finetune_config_has(const struct finetune_config *config, const char *key,
                         struct core_cfg_note *out);

#endif
