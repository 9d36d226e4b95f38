/* line.h: what one line of a log holds. One thread. */
#ifndef TOOLS_REPORT_LINE_H
#define TOOLS_REPORT_LINE_H

#include "tools/report/run.h"

enum report_line_kind { REPORT_LINE_STEP, REPORT_LINE_SUMMARY };

struct report_line {
    const char *path; /* borrowed, as `text` */
    uint64_t number;  /* from 1 */
    const char *text;
    size_t bytes;
};

/* A step and its figures, or that it is the summary. `*more` says that it also holds objects which
 * report_head_take() reads. -EINVAL with file, line and key. */
int report_line_read(const struct report_line *line, enum report_line_kind *kind,
                     struct report_values *values, bool *more);

/* "run", "plan" and "events" of a line of a step, or the figures of the summary. */
int report_head_take(const struct report_line *line, enum report_line_kind kind, uint64_t step,
                     struct report_run *run);

#endif
