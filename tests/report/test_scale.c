/* Axes and numbers: round, ordered, within, for any values. */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/harness/test.h"
#include "tools/report/scale.h"
#include "tools/report/text.h"

static void check_scale(const struct report_scale *scale)
{
    check_true(isfinite(scale->low) && isfinite(scale->high));
    check_double(scale->low, <, scale->high);
    check_uint(scale->tick_count, >=, 2);
    for (size_t i = 0; i < scale->tick_count; i++) {
        const double place = report_scale_place(scale, scale->ticks[i]);
        check_true(place >= 0 && place <= 1);
        check_true(i == 0 || scale->ticks[i] > scale->ticks[i - 1]);
    }
}

/* Ends are round numbers that hold what was asked for. */
static void linear(void)
{
    struct report_scale scale;
    report_scale_linear(&scale, 2.1, 8.3, 4);
    check_double(scale.low, ==, 2);
    check_double(scale.high, ==, 10);
    check_uint(scale.tick_count, ==, 5);
    check_double(report_scale_place(&scale, 6), ==, 0.5);
    check_double(report_scale_place(&scale, 99), ==, 1);
    check_double(report_scale_place(&scale, -99), ==, 0);
    report_scale_linear(&scale, 5, 5, 4);
    check_true(scale.low < 5 && scale.high > 5);
    report_scale_linear(&scale, 0, 0, 4);
    check_double(scale.low, ==, 0);
    check_scale(&scale);
}

static void logarithmic(void)
{
    struct report_scale scale;
    report_scale_log(&scale, 0.02, 700);
    check_double(scale.low, ==, 0.01);
    check_double(scale.high, ==, 1000);
    check_double(fabs(report_scale_place(&scale, 1) - 0.4), <, 1e-9);
    check_double(report_scale_place(&scale, 0), ==, 0);
    check_scale(&scale);
    report_scale_log(&scale, 10, 10);
    check_scale(&scale);
    report_scale_log(&scale, 1e-300, 1e300);
    check_scale(&scale);
}

/* Whatever stands in a log, there is an axis. */
static void odd_values(void)
{
    static const double values[] = {
        0,        -0.0, 1,        -1,     1e-300,      -1e-300,          DBL_MIN,          DBL_MAX,
        -DBL_MAX, 1e15, 1e15 + 1, 5e-324, (double)NAN, (double)INFINITY, -(double)INFINITY};
    enum { COUNT = sizeof values / sizeof values[0] };
    for (size_t i = 0; i < COUNT; i++) {
        for (size_t j = 0; j < COUNT; j++) {
            struct report_scale scale;
            if (values[i] > values[j]) {
                continue;
            }
            report_scale_linear(&scale, values[i], values[j], 4);
            check_true(isfinite(scale.low) && scale.low < scale.high);
            check_true(report_scale_place(&scale, values[i]) <= 1 || isnan(values[i]));
        }
    }
}

/* Numbers as people read them. */
static void numbers(void)
{
    static const struct {
        double value;
        enum report_unit unit;
        const char *text;
    } cases[] = {
        {2.66667, REPORT_PLAIN, "2.667"},
        {5e-5, REPORT_PLAIN, "5e-05"},
        {0, REPORT_TIME, "0 s"},
        {0.25, REPORT_TIME, "250 ms"},
        {9.9999e-3, REPORT_TIME, "10.0 ms"},
        {1.5, REPORT_TIME, "1.50 s"},
        {3e-5, REPORT_TIME, "30.0 us"},
        {119, REPORT_TIME, "119 s"},
        {600, REPORT_TIME, "10.0 min"},
        {7200, REPORT_TIME, "2.00 h"},
        {864000, REPORT_TIME, "10.0 d"},
        {12, REPORT_COUNT, "12"},
        {1234567, REPORT_COUNT, "1.23 M"},
        {0, REPORT_BYTES, "0 B"},
        {999.6, REPORT_BYTES, "1.00 kB"},
        {2.2e9, REPORT_BYTES, "2.20 GB"},
        {0.161, REPORT_GB, "161 MB"},
        {1e18, REPORT_BYTES, "1000 PB"},
        {3368.4, REPORT_PER_SEC, "3368 tok/s"},
        {250000, REPORT_PER_SEC, "250 ktok/s"},
        {(double)NAN, REPORT_TIME, "\xe2\x80\x93"},
        {(double)INFINITY, REPORT_PLAIN, "\xe2\x80\x93"},
    };
    char out[REPORT_NUMBER_BYTES];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_string(report_number(cases[i].value, cases[i].unit, out), cases[i].text);
    }
    check_string(report_tick(2, REPORT_TIME, out), "2 s");
    check_string(report_tick(0.5, REPORT_COUNT, out), "0.5");
    check_string(report_tick(2.5e9, REPORT_BYTES, out), "2.5 GB");
    check_string(report_tick(1.5e-5, REPORT_PLAIN, out), "1.5e-05");
    check_string(report_tick(100, REPORT_COUNT, out), "100");
    check_string(report_unit_name(REPORT_PER_SEC), "rate");
}

/* Nothing that stands in a log becomes markup. */
static void escapes(void)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    report_escape(stream, "<script>\"&\x01\n'");
    fclose(stream);
    check_string(text, "&lt;script&gt;&quot;&amp;  '");
    free(text);
}

TEST_MAIN({"linear", linear}, {"logarithmic", logarithmic}, {"odd_values", odd_values},
          {"numbers", numbers}, {"escapes", escapes})
