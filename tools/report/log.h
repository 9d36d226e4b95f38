/* log.h: reads a run's JSONL log of any size, in two passes with one line in memory. */
#ifndef TOOLS_REPORT_LOG_H
#define TOOLS_REPORT_LOG_H

struct report_run;

/* `path` must outlive `out`. Ignores an incomplete last line; repeated steps count once.
 * Messages name file, line and key. */
int report_log_read(const char *path, struct report_run *out);

#endif
