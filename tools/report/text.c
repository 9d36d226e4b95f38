/* text.c: three digits and a prefix; page.js does the same. */
#include "tools/report/text.h"

#include <math.h>
#include <string.h>

const char *report_unit_name(enum report_unit unit)
{
    static const char *const names[] = {"plain", "count", "time", "bytes", "gb", "rate"};
    return names[unit];
}

/* Three digits that count: 0.123, 1.23, 12.3, 123, 1234. */
static int digits_of(double value)
{
    const double size = fabs(value);
    return size >= 99.95 || size == 0 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
}

static void print_prefixed(double value, const char *unit, char *out)
{
    static const char *const prefixes[] = {"", "k", "M", "G", "T", "P"};
    int at = 0;
    for (; at < 5 && fabs(value) >= 999.5; at++) {
        value /= 1000;
    }
    const int digits = at == 0 && value == floor(value) ? 0 : digits_of(value);
    snprintf(out, REPORT_NUMBER_BYTES, "%.*f%s%s%s", digits, value,
             unit[0] != '\0' || at > 0 ? " " : "", prefixes[at], unit);
}

static void print_time(double seconds, char *out)
{
    static const struct {
        double from, unit;
        const char *name;
    } units[] = {{172800, 86400, "d"}, {5400, 3600, "h"},       {120, 60, "min"},
                 {0.9995, 1, "s"},     {0.0009995, 1e-3, "ms"}, {0, 1e-6, "us"}};
    int at = 0;
    while (at < 5 && fabs(seconds) < units[at].from) {
        at++;
    }
    const double value = seconds / units[at].unit;
    snprintf(out, REPORT_NUMBER_BYTES, "%.*f %s", digits_of(value), value, units[at].name);
}

const char *report_number(double value, enum report_unit unit, char *out)
{
    if (!isfinite(value)) {
        snprintf(out, REPORT_NUMBER_BYTES, "\xe2\x80\x93");
        return out;
    }
    switch (unit) {
    case REPORT_PLAIN: snprintf(out, REPORT_NUMBER_BYTES, "%.4g", value); break;
    case REPORT_COUNT: print_prefixed(value, "", out); break;
    case REPORT_TIME:
        if (value == 0) {
            snprintf(out, REPORT_NUMBER_BYTES, "0 s");
        } else {
            print_time(value, out);
        }
        break;
    case REPORT_BYTES: print_prefixed(value, "B", out); break;
    case REPORT_GB: print_prefixed(value * 1e9, "B", out); break;
    case REPORT_PER_SEC:
        if (fabs(value) < 1e5) {
            snprintf(out, REPORT_NUMBER_BYTES, "%.*f tok/s", digits_of(value), value);
        } else {
            print_prefixed(value, "tok/s", out);
        }
        break;
    }
    return out;
}

const char *report_tick(double value, enum report_unit unit, char *out)
{
    report_number(value, unit, out);
    char *point = strchr(out, '.');
    size_t digits = point != NULL ? strspn(point + 1, "0123456789") : 0;
    const size_t whole = digits + 1;
    if (point == NULL || point[whole] == 'e') {
        return out;
    }
    while (digits > 0 && point[digits] == '0') {
        digits--;
    }
    memmove(point + (digits > 0 ? digits + 1 : 0), point + whole, strlen(point + whole) + 1);
    return out;
}

void report_escape(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc((unsigned char)*text < 0x20 ? ' ' : *text, out);
        }
    }
}
