/* scale.h: from values to places on an axis, and the values that stand beside it. Any thread. */
#ifndef TOOLS_REPORT_SCALE_H
#define TOOLS_REPORT_SCALE_H

#include <stdbool.h>
#include <stddef.h>

enum { REPORT_TICKS_MAX = 12 };

struct report_scale {
    double low, high; /* low < high; above 0 where it is logarithmic */
    bool logarithmic;
    double ticks[REPORT_TICKS_MAX];
    size_t tick_count;
};

/* An axis with round numbers on it that holds low..high, about `ticks` of them. What cannot be an axis
 * (no numbers, all the same) becomes one around it. */
void report_scale_linear(struct report_scale *scale, double low, double high, int ticks);
/* Powers of ten, and what is between them where they are few. `low` is above 0. */
void report_scale_log(struct report_scale *scale, double low, double high);

/* 0 at the low end, 1 at the high one; kept within. */
double report_scale_place(const struct report_scale *scale, double value);

#endif
