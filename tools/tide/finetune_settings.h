/* finetune_settings.h: what a run does: flags override a ds_config.json, which overrides defaults.
 * If a flag and the file contradict each other, a warning says so. Main thread. */
#ifndef TOOLS_TIDE_FINETUNE_SETTINGS_H
#define TOOLS_TIDE_FINETUNE_SETTINGS_H

#include <stdbool.h>
#include <tide/engine.h>
#include <tide/inspect.h>

#include "tools/tide/finetune_config.h"
#include "tools/tide/finetune_data.h"
#include "tools/tide/finetune_flags.h"
#include "tools/tide/schedule.h"

enum { FINETUNE_LENGTH_UNKNOWN = 1024 };

enum { FINETUNE_NAMES_MAX = 64, FINETUNE_NAMES_BYTES = 4096 };

/* Names that a flag separates by commas. */
struct finetune_names {
    const char *items[FINETUNE_NAMES_MAX];
    size_t count;
    char text[FINETUNE_NAMES_BYTES];
};

struct finetune_settings {
    struct tide_engine_options engine; /* `length` is 0 until finetune_settings_fit() */
    struct schedule schedule;          /* `total` is 0 until then, too, unless it was given */
    int64_t steps;                     /* 0: `epochs` is given */
    double epochs;                     /* 0: `steps` is given */
    int64_t length;                    /* --seq-len; 0: not given */
    int64_t length_max; /* limit of a row: --seq-len, or the positions of the model */
    int64_t vocab;
    uint64_t row_bytes; /* memory limit of one row of data; 0: chosen */
    int64_t now;        /* time for chat templates: that of the first start of the run */
    int64_t begun;      /* steps made before the run is resumed; 0: none */
    struct finetune_data_place place; /* where a resumed run continues */
    bool shuffle, pack, split, skip_bad, drop_last, train_on_all;
    const char *chat_format; /* NULL: the model's */
    int64_t print_every;     /* in a pipe: steps between two lines of progress */
    const char *csv;         /* file for the CSV table; NULL: none */
    const char *board;       /* folder for TensorBoard; NULL: none */

    /* Private to finetune_settings.c. */
    struct finetune_config config;
    bool total_unknown; /* the schedule is as long as the run */
    struct finetune_names lora_targets, modules_to_save;
    char cache[PATH_MAX]; /* "": no cache */
};

/* `flags` must outlive `out`, which must not move. On failure there is nothing to fini. Returns 0,
 * or -errno with a message. */
int finetune_settings_init(struct finetune_settings *out, const struct finetune_flags *flags,
                           const struct tide_inspection *model);
void finetune_settings_fini(struct finetune_settings *settings);

/* Returns how to read a file of rows. Evaluation (`trains` false) takes all rows in the order of
 * the file. `path` is borrowed. */
struct finetune_data_options finetune_settings_data(const struct finetune_settings *settings,
                                                    const char *path, bool trains);

/* Sets what depends on the data: tokens of a row (info->rows is 0 without data) and steps of the
 * run (0: unknown; then schedules use their own length). Returns 0, or -EINVAL with a message. */
int finetune_settings_fit(struct finetune_settings *settings, const struct finetune_data_info *info,
                          int64_t steps);

#endif
