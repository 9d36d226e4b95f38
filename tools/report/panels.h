/* panels.h: the parts of the page below its head. The caller's thread. */
#ifndef TOOLS_REPORT_PANELS_H
#define TOOLS_REPORT_PANELS_H

#include <stdio.h>

struct report_run;

/* What was learnt, and how fast: the charts over the steps. */
void report_panels_charts(FILE *out, const struct report_run *run);
/* Where the time of the whole run went. */
void report_panels_causes(FILE *out, const struct report_run *run);
/* What was planned beside what was measured. */
void report_panels_plan(FILE *out, const struct report_run *run);
/* Who takes how much of a tier. */
void report_panels_tiers(FILE *out, const struct report_run *run);
/* What happened that is no figure. */
void report_panels_events(FILE *out, const struct report_run *run);

#endif
