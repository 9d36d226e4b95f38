/* line.h: reads one line of a log. One thread. */
#ifndef TOOLS_REPORT_LINE_H
#define TOOLS_REPORT_LINE_H

#include "tools/report/run.h"

enum report_line_kind { REPORT_LINE_STEP, REPORT_LINE_SUMMARY };

struct report_line {
    const char *path; /* borrowed, like `text` */
    uint64_t number;  /* from 1 */
    const char *text;
    size_t bytes;
};

/* Reads a step and its figures, or finds the summary. *more: there are members for
 * report_head_take(). */
int report_line_read(const struct report_line *line, enum report_line_kind *kind,
                     struct report_values *values, bool *more);

/* Adds the line's events to `run`, and "run" and "plan" of a step or the figures of the summary. */
int report_head_take(const struct report_line *line, enum report_line_kind kind, uint64_t step,
                     struct report_run *run);

#endif
