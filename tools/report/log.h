/* log.h: reads the JSONL log of a run. Its size does not matter: two passes, one line in memory. */
#ifndef TOOLS_REPORT_LOG_H
#define TOOLS_REPORT_LOG_H

struct report_run;

/* `path` outlives `out`. A last line that is not whole is left out, and steps that were made again
 * after a resume count once. -EINVAL with file, line and key for what is no log; -ENOENT ... */
int report_log_read(const char *path, struct report_run *out);

#endif
