/* finetune_settings.h: what a run does: flags win over a ds_config.json (with a warning), and the
 * file wins over defaults. Main thread. */
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

/* Names of a flag, separated by commas. */
struct finetune_names {
    const char *items[FINETUNE_NAMES_MAX];
    size_t count;
    char text[FINETUNE_NAMES_BYTES];
};

struct finetune_settings {
    struct tide_engine_options engine; /* `length` is 0 until finetune_settings_fit() */
    struct schedule schedule;          /* `total` is also 0 until then, unless given */
    int64_t steps;                     /* 0: `epochs` is given */
    double epochs;                     /* 0: `steps` is given */
    int64_t length;                    /* --seq-len; 0: none */
    int64_t length_max;                /* --seq-len, or the positions of the model */
    int64_t vocab;
    uint64_t row_bytes;               /* memory limit of a row; 0: chosen */
    int64_t now;                      /* time of the first start, for chat templates */
    int64_t begun;                    /* steps before the run is resumed */
    struct finetune_data_place place; /* where a resumed run continues */
    bool shuffle, pack, split, skip_bad, drop_last, train_on_all;
    const char *chat_format; /* NULL: the model's */
    int64_t print_every;     /* steps between lines in a pipe */
    const char *csv;         /* NULL: none */
    const char *board;       /* TensorBoard; NULL: none */

    /* Private to finetune_settings.c. */
    struct finetune_config config;
    bool total_unknown; /* the schedule is as long as the run */
    struct finetune_names lora_targets, modules_to_save;
    char cache[PATH_MAX]; /* "": no cache */
};

/* `flags` must outlive `out`, which must not move. After a failure there is nothing to fini. */
int finetune_settings_init(struct finetune_settings *out, const struct finetune_flags *flags,
                           const struct tide_inspection *model);
void finetune_settings_fini(struct finetune_settings *settings);

/* Returns how to read a file of rows; for evaluation (`trains` false), the whole file in order. The
 * result borrows `path` and strings of `settings`. */
struct finetune_data_options finetune_settings_data(const struct finetune_settings *settings,
                                                    const char *path, bool trains);

/* Sets what depends on the data: length, batch, accumulation, tokens per row, and the steps of the
 * run. `steps` 0: unknown; the schedule is then not changed. */
int finetune_settings_fit(struct finetune_settings *settings, const struct finetune_data_info *info,
                          int64_t steps);

#endif
