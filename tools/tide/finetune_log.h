/* finetune_log.h: writes the figures of a run to files: one JSON object for each step (--log), one
 * CSV line for each step (--csv), event files for TensorBoard (--tensorboard), and the summary. If
 * a file cannot be written, an error is logged once, the run goes on, and finetune_log_close()
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
    bool csv_folder;                /* create the folder of the CSV table if it is missing */
    bool append;                    /* append, for a resumed run; otherwise replace the files */
    struct finetune_events *events; /* borrowed; NULL: none */
};

/* Figures that are the same for all steps. They are written in the first line and borrowed until
 * then. */
struct finetune_log_head {
    const struct tide_plan *plan;
    const struct tide_engine_options *engine;
    int64_t steps;                  /* number of steps of the whole run */
    int64_t begun;                  /* steps before the run was resumed */
    int64_t eval_every, save_every; /* 0: evaluate only at the end; never save */
};

struct finetune_summary {
    double median_seconds; /* median time of all steps but the first */
    double tokens_per_second;
    double peak_rss_gb;
    double peak_device_gb;
    double plan_host_gb;
    double plan_device_gb;
    double plan_seconds;                           /* predicted time of a step */
    struct finetune_drive drives[TIDE_STORES_MAX]; /* bytes of all steps of this process */
    size_t drive_count;
};

/* Opens a log. Returns 0, or -errno with a message. */
int finetune_log_open(const struct finetune_log_options *options, struct finetune_log **out);
/* Closes the files. Returns 0, or the first failure of a write. NULL is allowed. */
int finetune_log_close(struct finetune_log *log);

/* Empties the files of an earlier run, unless the log appends. Call it before the first step. */
void finetune_log_begin(struct finetune_log *log, const struct finetune_log_head *head);
void finetune_log_step(struct finetune_log *log, struct finetune_record *record);
void finetune_log_summary(struct finetune_log *log, const struct finetune_summary *summary);

#endif
