/* finetune_log.h: figures of a run in files: one JSON object a step (--log), one line a step (--csv),
 * event files for TensorBoard (--tensorboard), and the summary. What happens where a file cannot be
 * written: it is told once, the run goes on, and tune_log_close() returns it. Main thread. */
#ifndef TOOLS_TIDE_FINETUNE_LOG_H
#define TOOLS_TIDE_FINETUNE_LOG_H

#include "tools/tide/finetune_events.h"
#include "tools/tide/finetune_figures.h"

struct tune_log;

/* Of the object "run" in the first line. */
enum { TUNE_LOG_VERSION = 1 };

struct tune_log_options {
    const char *json_path, *csv_path, *board_folder; /* NULL: not wanted */
    bool csv_folder; /* the table's folder is made where it is missing */
    bool append;     /* to what is there, as a run that is resumed does; else it is replaced */
    struct tune_events *events; /* borrowed; NULL: none */
};

/* What does not change from step to step; it goes into the first line. All borrowed until then. */
struct tune_log_head {
    const struct tide_plan *plan;
    const struct tide_engine_options *engine;
    int64_t steps;                  /* of the whole run */
    int64_t begun;                  /* of them before, where it was resumed */
    int64_t eval_every, save_every; /* 0: only at the end, never */
};

struct tune_summary {
    double median_seconds; /* of all steps but the first */
    double tokens_per_second;
    double peak_rss_gb;
    double peak_device_gb;
    double plan_host_gb;
    double plan_device_gb;
    double plan_seconds; /* a step, as predicted */
};

/* -errno with the path. */
int tune_log_open(const struct tune_log_options *options, struct tune_log **out);
/* Ends the files: 0, or the first failure of a write. NULL is fine. */
int tune_log_close(struct tune_log *log);

/* Before the first step. */
void tune_log_begin(struct tune_log *log, const struct tune_log_head *head);
void tune_log_step(struct tune_log *log, struct tune_record *record);
void tune_log_summary(struct tune_log *log, const struct tune_summary *summary);

#endif
