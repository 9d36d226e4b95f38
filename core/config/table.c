/* table.c: finds rows, names and choices in the table. */
#include "core/config/table.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct core_cfg_rows *const parts[] = {&core_cfg_rows_train, &core_cfg_rows_zero,
                                                    &core_cfg_rows_other};

size_t core_cfg_row_count(void)
{
    size_t count = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        count += parts[i]->count;
    }
    return count;
}

const struct core_cfg_row *core_cfg_row(size_t index)
{
    size_t part = 0;
    while (index >= parts[part]->count) {
        index -= parts[part++]->count;
        assert(part < sizeof parts / sizeof parts[0]);
    }
    return &parts[part]->rows[index];
}

size_t core_cfg_index(const char *path)
{
    size_t count = core_cfg_row_count();
    size_t index = 0;
    while (index < count && strcmp(core_cfg_row(index)->path, path) != 0) {
        index++;
    }
    assert(index < count);
    return index;
}

const char *core_cfg_leaf(const struct core_cfg_row *row)
{
    const char *point = strrchr(row->path, '.');
    return point != NULL ? point + 1 : row->path;
}

bool core_cfg_row_below(const struct core_cfg_row *row, const char *prefix)
{
    const char *leaf = core_cfg_leaf(row);
    size_t length = strlen(prefix);
    if (length == 0) {
        return leaf == row->path;
    }
    return strncmp(row->path, prefix, length) == 0 && leaf == row->path + length + 1;
}

bool core_cfg_is_named(const char *names, const char *name, size_t name_bytes)
{
    while (names != NULL && *names != '\0') {
        size_t length = strcspn(names, " ");
        if (length == name_bytes && memcmp(names, name, length) == 0) {
            return true;
        }
        names += length + (names[length] == ' ');
    }
    return false;
}

ptrdiff_t core_cfg_row_in(const char *prefix, const char *key, size_t key_bytes)
{
    size_t count = core_cfg_row_count();
    for (size_t i = 0; i < count; i++) {
        const struct core_cfg_row *row = core_cfg_row(i);
        if (!core_cfg_row_below(row, prefix)) {
            continue;
        }
        if (core_cfg_is_named(core_cfg_leaf(row), key, key_bytes) ||
            core_cfg_is_named(row->aliases, key, key_bytes)) {
            return (ptrdiff_t)i;
        }
    }
    return -1;
}

void core_cfg_choice_name(const struct core_cfg_row *row, int64_t index, char *out, size_t bytes)
{
    const char *at = row->choices;
    for (; index > 0; index--) {
        at = strchr(at, '|') + 1;
    }
    snprintf(out, bytes, "%.*s", (int)strcspn(at, "=|"), at);
}

int64_t core_cfg_choice_find(const struct core_cfg_row *row, const char *text, size_t bytes)
{
    bool any_case = (row->flags & CORE_CFG_ANY_CASE) != 0;
    int64_t index = 0;
    for (const char *at = row->choices; *at != '\0';) {
        size_t length = strcspn(at, "=|");
        if (length == bytes &&
            (any_case ? strncasecmp(at, text, bytes) : strncmp(at, text, bytes)) == 0) {
            return index;
        }
        index += at[length] == '|';
        at += length + (at[length] != '\0');
    }
    return -1;
}
