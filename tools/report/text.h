/* text.h: numbers and words as a page shows them. Any thread. */
#ifndef TOOLS_REPORT_TEXT_H
#define TOOLS_REPORT_TEXT_H

#include <stddef.h>
#include <stdio.h>

enum report_unit {
    REPORT_PLAIN,   /* 2.667, 5e-05 */
    REPORT_COUNT,   /* 12, 1.2M */
    REPORT_TIME,    /* seconds: 250 ms, 1.5 s, 3.2 min */
    REPORT_BYTES,   /* 4.2 MB; 1 MB is 1e6 */
    REPORT_GB,      /* the same of figures that are in 1e9 bytes */
    REPORT_PER_SEC, /* tokens a second */
};

enum { REPORT_NUMBER_BYTES = 32 };

/* Into `out` of REPORT_NUMBER_BYTES, which it returns; a dash where it is no number. */
const char *report_number(double value, enum report_unit unit, char *out);

/* The same without zeros at the end: for round numbers. */
const char *report_tick(double value, enum report_unit unit, char *out);

/* How page.js knows the unit. */
const char *report_unit_name(enum report_unit unit);

/* Text inside elements and quoted attributes. */
void report_escape(FILE *out, const char *text);

#endif
