/* say.c: passes a finding to the application. One thread. */
#include <stdarg.h>
#include <stdio.h>

#include "offload/doctor/doctor.h"

static const char *given(const char *text)
{
    return text != NULL ? text : "";
}

void doctor_say(struct doctor *doctor, const struct doctor_line *line, const char *format, ...)
{
    char text[DOCTOR_TEXT_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    const struct tide_finding finding = {
        .struct_bytes = sizeof finding,
        .verdict = line->verdict,
        .topic = line->topic,
        .subject = given(line->subject),
        .text = text,
        .cure = given(line->cure),
        .figure = given(line->figure),
        .value = line->value,
    };
    if (line->verdict > doctor->worst) {
        doctor->worst = line->verdict;
    }
    doctor->finding(doctor->user, &finding);
}

const char *doctor_size(uint64_t bytes, char text[DOCTOR_SIZE_BYTES])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double size = (double)bytes;
    unsigned unit = 0;
    while (size >= 1024.0 && unit < 5) {
        size /= 1024.0;
        unit++;
    }
    snprintf(text, DOCTOR_SIZE_BYTES, unit == 0 || size >= 100.0 ? "%.0f %s" : "%.1f %s", size,
             units[unit]);
    return text;
}
