/* sysfile.c: reads files of the kernel, and parses their three forms of text. */
#include "core/base/sysfile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"

static int read_all(const char *path, char *text, size_t bytes)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        return -errno;
    }
    size_t length = 0;
    int rc = 0;
    while (length + 1 < bytes) {
        const ssize_t got = core_file_read_some(file, text + length, bytes - 1 - length);
        if (got <= 0) {
            rc = (int)got;
            break;
        }
        length += (size_t)got;
    }
    close(file);
    if (rc != 0) {
        return rc;
    }
    while (length > 0 && text[length - 1] == '\n') {
        length--;
    }
    text[length] = '\0';
    return (int)length;
}

__attribute__((format(printf, 4, 0))) static int
read_path(char *text, size_t bytes, const char *root, const char *format, va_list list)
{
    char path[PATH_MAX];
    int front = snprintf(path, sizeof path, "%s", root);
    if (front < 0 || (size_t)front >= sizeof path) {
        return -ENAMETOOLONG;
    }
    size_t left = sizeof path - (size_t)front;
    int rest = vsnprintf(path + front, left, format, list);
    if (rest < 0 || (size_t)rest >= left) {
        return -ENAMETOOLONG;
    }
    return read_all(path, text, bytes);
}

int core_sysfile_text(char *text, size_t bytes, const char *root, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int rc = read_path(text, bytes, root, format, list);
    va_end(list);
    return rc;
}

int core_sysfile_number(int64_t *out, const char *root, const char *format, ...)
{
    char text[64];
    va_list list;
    va_start(list, format);
    int rc = read_path(text, sizeof text, root, format, list);
    va_end(list);
    if (rc < 0) {
        return rc;
    }
    char *end = NULL;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0) {
        return -EINVAL;
    }
    *out = value;
    return 0;
}

int core_sysfile_field(const char *text, const char *key, uint64_t *out)
{
    size_t length = strlen(key);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) != 0) {
            continue;
        }
        char *end = NULL;
        const char *at = line + length;
        at += strspn(at, " \t");
        if (*at < '0' || *at > '9') {
            return -ENOENT;
        }
        unsigned long long value = strtoull(at, &end, 10);
        *out = strncmp(end, " kB", 3) == 0 ? value * 1024 : value;
        return 0;
    }
    return -ENOENT;
}

int core_sysfile_choice(char *choice, size_t bytes, const char *root, const char *path)
{
    char text[256];
    int rc = core_sysfile_text(text, sizeof text, root, "%s", path);
    if (rc < 0) {
        return rc;
    }
    const char *open_at = strchr(text, '[');
    const char *close_at = open_at != NULL ? strchr(open_at, ']') : NULL;
    if (close_at == NULL) {
        return -EINVAL;
    }
    snprintf(choice, bytes, "%.*s", (int)(close_at - open_at - 1), open_at + 1);
    return 0;
}
