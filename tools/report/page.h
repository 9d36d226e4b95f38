/* page.h: writes the page of a run: one HTML file with the data of the run as JSON and a script
 * that draws it. The page loads no other file. */
#ifndef TOOLS_REPORT_PAGE_H
#define TOOLS_REPORT_PAGE_H

#include <stdio.h>

struct report_run;

/* Returns 0 or -ENOMEM. The caller checks the stream for errors. */
int report_page_write(FILE *out, const struct report_run *run);

#endif
