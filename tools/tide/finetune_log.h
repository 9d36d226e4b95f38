/* finetune_log.h: writes figures to files: --log (a JSON object per step, then the summary), --csv
 * (a line per step) and --tensorboard. If a write fails, the run goes on; finetune_log_close()
 * returns the error. Main thread. */
#ifndef TOOLS_TIDE_FINETUNE_LOG_H
#define TOOLS_TIDE_FINETUNE_LOG_H

#include "tools/tide/finetune_events.h"
#include "tools/tide/finetune_figures.h"

struct finetune_log;

/* Version of the object "run" in the first line. */
enum { FINETUNE_LOG_VERSION = 1 };

struct finetune_log_options {
    const char *json_path, *csv_path, *board_folder; /* NULL: not wanted */
    bool csv_monitor;                                /* of ds_config.json: create its folder */
    bool append;                                     /* for a resumed run; else replace the files */
    struct finetune_events *events;                  /* borrowed; NULL: none */
};

/* Figures that do not change, for the first line; borrowed until then. */
struct finetune_log_head {
    const struct tide_plan *plan;
    const struct tide_engine_options *engine;
    int64_t steps;                  /* of the whole run */
    int64_t begun;                  /* steps before the run was resumed */
    int64_t eval_every, save_every; /* eval_every 0: at the end; save_every 0: never */
};

struct finetune_summary {
    double median_seconds; /* of the steps, without the first if there are others */
    double tokens_per_second;
    double peak_rss_gb;
    double peak_device_gb;
    double plan_host_gb;
    double plan_device_gb;
    double plan_seconds;                           /* predicted time of a step */
    struct finetune_drive drives[TIDE_STORES_MAX]; /* of all steps of this process */
    size_t drive_count;
};

/* Refuses an existing log or table that an earlier run did not write (-EEXIST), or that a running
 * process writes (-EBUSY). Returns 0 or -errno; changes nothing. */
int finetune_log_check(const struct finetune_log_options *options);
/* Calls finetune_log_check(), opens the files and locks them until they are closed. */
int finetune_log_open(const struct finetune_log_options *options, struct finetune_log **out);
/* Returns the first failure of a write. NULL is allowed. */
int finetune_log_close(struct finetune_log *log);

/* Empties the files of an earlier run, unless the log appends. Call it before the first step. */
void finetune_log_begin(struct finetune_log *log, const struct finetune_log_head *head);
void finetune_log_step(struct finetune_log *log, struct finetune_record *record);
void finetune_log_summary(struct finetune_log *log, const struct finetune_summary *summary);

#endif
