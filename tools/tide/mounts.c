/* mounts.c: finds the longest mount point above a path in /proc/self/mountinfo; of equal ones, the
 * last. */
#include "tools/tide/mounts.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 8192 };

/* \040 is a space. */
static void decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; to++) {
        unsigned value;
        if (from[0] == '\\' && sscanf(from + 1, "%3o", &value) == 1 && strlen(from) >= 4) {
            *to = (char)value;
            from += 4;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
}

static bool find_existing(const char *path, char real[PATH_MAX])
{
    char at[PATH_MAX];
    if (snprintf(at, sizeof at, "%s", path) >= (int)sizeof at) {
        return false;
    }
    while (realpath(at, real) == NULL) {
        char *slash = strrchr(at, '/');
        if (slash == NULL) {
            return realpath(".", real) != NULL;
        }
        slash[slash == at] = '\0';
    }
    return true;
}

static bool is_above(const char *point, const char *path)
{
    const size_t length = strlen(point);
    return strcmp(point, "/") == 0 ||
           (strncmp(point, path, length) == 0 && (path[length] == '/' || path[length] == '\0'));
}

void cli_mount_find(const char *path, struct cli_mount *out)
{
    char real[PATH_MAX];
    char line[LINE_BYTES];
    *out = (struct cli_mount){.device = ""};
    FILE *file = find_existing(path, real) ? fopen("/proc/self/mountinfo", "re") : NULL;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        struct cli_mount one = {.device = ""};
        const char *rest = strstr(line, " - ");
        if (rest == NULL || sscanf(line, "%*s %*s %*s %*s %511s", one.point) != 1 ||
            sscanf(rest, " - %63s %255s", one.type, one.device) != 2) {
            continue;
        }
        decode(one.point);
        decode(one.device);
        if (is_above(one.point, real) && strlen(one.point) >= strlen(out->point)) {
            *out = one;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}
