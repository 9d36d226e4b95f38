/* log.h: reads the JSONL log of a run of any size: two passes, one line in memory. */
#ifndef TOOLS_REPORT_LOG_H
#define TOOLS_REPORT_LOG_H

struct report_run;

/* `path` must outlive `out`. An incomplete last line is ignored, and steps that were repeated after
 * a resume count once. Returns 0, or -errno with a message; -EINVAL with file, line and key if the
 * file is not a log. */
int report_log_read(const char *path, struct report_run *out);

#endif
