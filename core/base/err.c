/* err.c: each thread has one buffer for the message of its last error. */
#include "core/base/err.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/utf8.h"

static _Thread_local char message_of_thread[CORE_ERR_MESSAGE_BYTES];

__attribute__((format(printf, 1, 0))) static void write_message(const char *format, va_list list)
{
    char text[CORE_ERR_MESSAGE_BYTES];
    int length = vsnprintf(text, sizeof text, format, list);
    if (length < 0) {
        text[0] = '\0';
    } else if ((size_t)length >= sizeof text) {
        core_utf8_mark_cut(text, sizeof text);
    }
    memcpy(message_of_thread, text, strlen(text) + 1);
}

int core_err_set(int code, const char *format, ...)
{
    assert(code < 0);
    va_list list;
    va_start(list, format);
    write_message(format, list);
    va_end(list);
    core_log(CORE_LOG_DEBUG, "error %d: %s", code, message_of_thread);
    return code;
}

int core_err_prefix(int code, const char *format, ...)
{
    assert(code < 0);
    char front[CORE_ERR_MESSAGE_BYTES / 2];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(front, sizeof front, format, list);
    va_end(list);
    if (length < 0) {
        return code;
    }
    if ((size_t)length >= sizeof front) {
        core_utf8_mark_cut(front, sizeof front);
    }
    char whole[sizeof front + CORE_ERR_MESSAGE_BYTES + 2];
    snprintf(whole, sizeof whole, "%s: %s", front, message_of_thread);
    if (strlen(whole) >= sizeof message_of_thread) {
        core_utf8_mark_cut(whole, sizeof message_of_thread);
    }
    memcpy(message_of_thread, whole, strlen(whole) + 1);
    return code;
}

int core_err_adopt(int code, const char *message)
{
    assert(code < 0);
    if (message != message_of_thread) {
        snprintf(message_of_thread, sizeof message_of_thread, "%s", message);
    }
    return code;
}

const char *core_err_message(void)
{
    return message_of_thread;
}

struct core_err core_err_keep(int rc)
{
    assert(rc <= 0);
    struct core_err kept = {.code = rc};
    if (rc != 0) {
        memcpy(kept.message, message_of_thread, sizeof kept.message);
    }
    return kept;
}

int core_err_first(const struct core_err *kept, int later)
{
    return kept->code != 0 ? core_err_adopt(kept->code, kept->message) : later;
}
