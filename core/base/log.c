/* log.c: formats a line and hands it to the sink of the thread. */
#include "core/base/log.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

enum { LINE_BYTES = 2048 };

static _Thread_local const struct core_log *sink_of_thread; /* borrowed from the application */

void core_log_bind(const struct core_log *sink)
{
    sink_of_thread = sink;
}

const struct core_log *core_log_bound(void)
{
    return sink_of_thread;
}

void core_log(enum core_log_level level, const char *format, ...)
{
    const struct core_log *sink = sink_of_thread;
    if (sink == NULL || sink->write == NULL || level > sink->level) {
        return;
    }
    char line[LINE_BYTES];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (length >= 0) {
        sink->write(sink->user, level, line);
    }
}

const char *core_log_level_name(enum core_log_level level)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    return names[level];
}
