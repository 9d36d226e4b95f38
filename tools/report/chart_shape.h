/* chart_shape.h: lines, bands and areas of a chart, in the coordinates of its SVG: 0..1000 both ways.
 * Private to chart.c. */
#ifndef TOOLS_REPORT_CHART_SHAPE_H
#define TOOLS_REPORT_CHART_SHAPE_H

#include "tools/report/chart.h"
#include "tools/report/scale.h"

/* Where a step stands: 0 at the left end, 1 at the right one. */
double report_shape_place(const struct report_run *run, double step);

/* Means as lines, what lies between the lowest and the highest of a bucket as bands; dots; a mark at
 * the bottom where a value was no number. */
void report_shape_lines(FILE *out, const struct report_run *run, const struct report_chart *chart,
                        const struct report_scale *scale);
/* Means as columns on top of each other. */
void report_shape_stack(FILE *out, const struct report_run *run, const struct report_chart *chart,
                        const struct report_scale *scale);

#endif
