/* finetune_log.h: figures of a run in files: one JSON object a step (--log), one line a step (--csv),
 * and the summary. What happens where a file cannot be written: it is told once, the run goes on,
 * and tune_log_close() returns it. Main thread. */
#ifndef TOOLS_TIDE_FINETUNE_LOG_H
#define TOOLS_TIDE_FINETUNE_LOG_H

#include <stdbool.h>
#include <tide/engine.h>

struct tune_log;

/* What is known when a step has ended. */
struct tune_record {
    struct tide_step step;
    struct tide_engine_memory memory;
    double lr;
    double data_wait; /* seconds before the step in which its rows were not there yet */
    bool evaluated;   /* after this step */
    double eval_loss;
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

/* Both paths may be NULL. A file that is there is replaced, or with `append` gone on with, as a run
 * that is resumed does. -errno with the path. */
int tune_log_open(const char *json_path, const char *csv_path, bool append, struct tune_log **out);
/* Ends the files: 0, or the first failure of a write. NULL is fine. */
int tune_log_close(struct tune_log *log);

void tune_log_step(struct tune_log *log, const struct tune_record *record);
void tune_log_summary(struct tune_log *log, const struct tune_summary *summary);

#endif
