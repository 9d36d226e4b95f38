/* page.h: the whole page of a run: one file that needs no other and asks nothing of a network. */
#ifndef TOOLS_REPORT_PAGE_H
#define TOOLS_REPORT_PAGE_H

#include <stdio.h>

struct report_run;

/* Errors of the stream are the caller's to look for. */
void report_page_write(FILE *out, const struct report_run *run);

#endif
