/* finetune_settings.h: what a run does, from flags over a ds_config.json over defaults. Where the two
 * contradict each other the flag wins, and a warning says so. Main thread. */
#ifndef TOOLS_TIDE_FINETUNE_SETTINGS_H
#define TOOLS_TIDE_FINETUNE_SETTINGS_H

#include <stdbool.h>
#include <tide/engine.h>
#include <tide/inspect.h>

#include "tools/tide/finetune_data.h"
#include "tools/tide/finetune_flags.h"
#include "tools/tide/schedule.h"

enum { TUNE_PATH_BYTES = 1024, TUNE_LENGTH_UNKNOWN = 1024 };

struct core_cfg;

struct tune_settings {
    struct tide_engine_options engine; /* `length` is 0 until tune_settings_fit() */
    struct schedule schedule;          /* `total` likewise, where nobody said it */
    int64_t steps;                     /* 0: `epochs` say it */
    double epochs;                     /* 0: `steps` say it */
    int64_t length;                    /* --seq-len; 0: not given */
    int64_t length_max;                /* of a row: --seq-len, or the model's positions */
    int64_t vocab;
    uint64_t row_bytes; /* memory that one row of data may take; 0: chosen */
    int64_t
        now; /* that chat templates are given; the run's beginning, also of one that is resumed */
    bool shuffle, pack, split, skip_bad, drop_last, train_on_all;
    const char *chat_format; /* NULL: the model's */
    int64_t print_every;     /* steps between two lines of progress in a pipe */
    const char *csv;         /* the table of figures; NULL: none */
    const char *board;       /* the folder for TensorBoard; NULL: none */

    /* Private to finetune_settings.c. */
    struct core_cfg *cfg;                                /* owned; NULL without --config */
    bool total_unknown;                                  /* the schedule's length is the run's */
    struct tide_store_path store_paths[TIDE_STORES_MAX]; /* engine.stores */
    char stores[TIDE_STORES_MAX][TUNE_PATH_BYTES];
    char cache[TUNE_PATH_BYTES]; /* "": nothing is kept */
    char csv_path[TUNE_PATH_BYTES];
    char board_path[TUNE_PATH_BYTES];
};

/* `flags` outlive `out`. -EINVAL and others with a sentence; then there is nothing to fini. */
int tune_settings_init(struct tune_settings *out, const struct tune_flags *flags,
                       const struct tide_inspection *model);
void tune_settings_fini(struct tune_settings *settings);

/* How a file of rows is read: to train on it, or to evaluate, which leaves nothing out and mixes
 * nothing. `path` is borrowed. */
struct tune_data_options tune_settings_data(const struct tune_settings *settings, const char *path,
                                            bool trains);

/* Fills in what follows from the data: tokens a row (no rows: no data was given) and steps of the run
 * (0: not known; then schedules run over what they say themselves). */
int tune_settings_fit(struct tune_settings *settings, const struct tune_data_info *info,
                      int64_t steps);

#endif
