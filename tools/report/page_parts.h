/* page_parts.h: what is in page.css and page.js, as lines; the build makes it. NULL at the end. */
#ifndef TOOLS_REPORT_PAGE_PARTS_H
#define TOOLS_REPORT_PAGE_PARTS_H

extern const char *const report_page_css[];
extern const char *const report_page_js[];

#endif
