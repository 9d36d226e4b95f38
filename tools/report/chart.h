/* chart.h: one panel with a picture over the steps: HTML around an SVG that stretches, so that words
 * stay sharp on any screen. The caller's thread. */
#ifndef TOOLS_REPORT_CHART_H
#define TOOLS_REPORT_CHART_H

#include <stdio.h>

#include "tools/report/run.h"
#include "tools/report/text.h"

enum { REPORT_SERIES_MAX = 8 };

struct report_series {
    enum report_figure figure;
    const char *name;
    const char *colour; /* a class of page.css: "compute", "read" ... */
    bool dots;          /* single values, as evaluations are, instead of a line */
};

struct report_chart {
    const char *id;
    const char *title;
    const char *about; /* one sentence: what is seen */
    enum report_unit unit;
    struct report_series series[REPORT_SERIES_MAX];
    size_t count;
    bool stacked; /* areas on top of each other; else lines */
    bool from_zero;
    bool may_log; /* where values lie far apart */
    double limit; /* a line across; NaN: none */
    const char *limit_name;
    /* The legend says the whole, not the mean; few columns, for what comes and goes. */
    bool sums;
};

/* Writes nothing where the run has no value of any series. False then. */
bool report_chart_write(FILE *out, const struct report_run *run, const struct report_chart *chart);

#endif
