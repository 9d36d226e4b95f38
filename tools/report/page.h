/* page.h: writes one HTML file with the run's data as JSON and a script that draws it. Loads no
 * other file. */
#ifndef TOOLS_REPORT_PAGE_H
#define TOOLS_REPORT_PAGE_H

#include <stdio.h>

struct report_run;

/* The caller checks the stream for errors. */
int report_page_write(FILE *out, const struct report_run *run);

#endif
