/* rows.c: lines of a stream, and the two lists in each. */
#include "tools/rows/rows.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/base/err.h"
#include "core/base/json_scan.h"

enum { IGNORED = -100, BUFFER_BYTES = 1 << 20 };

struct list {
    int32_t *items; /* owned */
    size_t count;
    size_t capacity;
    bool found; /* in this line */
};

struct rows {
    FILE *file; /* owned, unless it is standard input */
    char *path; /* owned */
    char *text; /* owned: lines not yet read stand at [begin, end) */
    size_t begin;
    size_t end;
    size_t room;
    size_t line; /* the newest */
    struct rows_options options;
    struct list ids;
    struct list labels;
};

int rows_open(const char *path, const struct rows_options *options, struct rows **out)
{
    struct rows *rows = calloc(1, sizeof *rows);
    if (rows == NULL || (rows->path = strdup(path)) == NULL) {
        free(rows);
        return core_err_set(-ENOMEM, "no memory to read %s", path);
    }
    rows->options = options != NULL ? *options : (struct rows_options){0};
    struct stat info;
    rows->file = strcmp(path, "-") == 0 ? stdin : fopen(path, "rbe");
    int rc = 0;
    if (rows->file == NULL || fstat(fileno(rows->file), &info) != 0) {
        rc = core_err_set(-errno, "%s cannot be opened: %s", path, strerror(errno));
    } else if (S_ISDIR(info.st_mode)) {
        rc = core_err_set(-EISDIR, "%s is a folder, and a file of rows was expected", path);
    } else if (rows->file != stdin) {
        setvbuf(rows->file, NULL, _IONBF, 0); /* reads are large as they are */
    }
    if (rc != 0) {
        rows_close(rows);
        return rc;
    }
    *out = rows;
    return 0;
}

void rows_close(struct rows *rows)
{
    if (rows == NULL) {
        return;
    }
    if (rows->file != NULL && rows->file != stdin) {
        fclose(rows->file);
    }
    free(rows->ids.items);
    free(rows->labels.items);
    free(rows->text);
    free(rows->path);
    free(rows);
}

int rows_rewind(struct rows *rows)
{
    if (fseek(rows->file, 0, SEEK_SET) != 0) {
        return core_err_set(-errno, "%s cannot be read again from its beginning: %s", rows->path,
                            strerror(errno));
    }
    rows->begin = rows->end = rows->line = 0;
    return 0;
}

/* More of the file behind what is there: 1, 0 at the end, or -errno. */
static int fill(struct rows *rows)
{
    if (rows->begin > 0) {
        memmove(rows->text, rows->text + rows->begin, rows->end - rows->begin);
        rows->end -= rows->begin;
        rows->begin = 0;
    }
    if (rows->end == rows->room) {
        size_t room = rows->room == 0 ? BUFFER_BYTES : rows->room * 2;
        if (room > ROWS_LINE_BYTES_MAX) {
            return core_err_set(-EINVAL, "%s:%zu: the line has more than %d bytes", rows->path,
                                rows->line + 1, ROWS_LINE_BYTES_MAX / 2);
        }
        char *more = realloc(rows->text, room);
        if (more == NULL) {
            return core_err_set(-ENOMEM, "no memory for a line of %zu bytes", room);
        }
        rows->text = more;
        rows->room = room;
    }
    size_t got = fread(rows->text + rows->end, 1, rows->room - rows->end, rows->file);
    rows->end += got;
    if (got == 0 && ferror(rows->file)) {
        return core_err_set(-EIO, "%s cannot be read: %s", rows->path, strerror(errno));
    }
    return got > 0;
}

/* The next line without its end. 1, 0 at the end of the file, or -errno. */
static int read_line(struct rows *rows, const char **line, size_t *bytes)
{
    size_t seen = 0; /* of what is there, already searched */
    for (;;) {
        char *begin = rows->text + rows->begin;
        const size_t there = rows->end - rows->begin;
        char *end = there > seen ? memchr(begin + seen, '\n', there - seen) : NULL;
        int more = 1;
        if (end == NULL) {
            seen = there;
            more = fill(rows);
        }
        if (more < 0 || (more == 0 && there == 0)) {
            return more;
        }
        if (end != NULL || more == 0) {
            *line = rows->text + rows->begin;
            *bytes = end != NULL ? (size_t)(end - begin) : there;
            rows->begin += *bytes + (end != NULL);
            rows->line++;
            return 1;
        }
    }
}

static int refuse(const struct rows *rows, const char *what)
{
    return core_err_set(-EINVAL, "%s:%zu: %s", rows->path, rows->line, what);
}

static int check_item(const struct rows *rows, const char *key, bool labels, int64_t value)
{
    const int64_t vocab = rows->options.vocab;
    if (labels && value == IGNORED) {
        return 0;
    }
    if (value < 0 || value > INT32_MAX) {
        return core_err_set(-EINVAL, "%s:%zu: %s: %" PRId64 " is no token id", rows->path,
                            rows->line, key, value);
    }
    if (vocab > 0 && value >= vocab) {
        return core_err_set(-EINVAL,
                            "%s:%zu: %s: %" PRId64 " is outside the vocabulary of %" PRId64,
                            rows->path, rows->line, key, value, vocab);
    }
    return 0;
}

static int add_item(struct rows *rows, struct list *list, const char *key, int64_t value)
{
    int rc = check_item(rows, key, list == &rows->labels, value);
    if (rc != 0) {
        return rc;
    }
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 1024 : list->capacity * 2;
        int32_t *more = realloc(list->items, capacity * sizeof *more);
        if (more == NULL) {
            return core_err_set(-ENOMEM, "no memory for a row of %zu tokens", capacity);
        }
        list->items = more;
        list->capacity = capacity;
    }
    list->items[list->count++] = (int32_t)value;
    return 0;
}

/* [1, 2, ...] behind the key. */
static int read_list(struct rows *rows, struct core_json_scan *scan, struct list *list,
                     const char *key)
{
    struct core_json_token token;
    if (list->found) {
        return core_err_set(-EINVAL, "%s:%zu: %s stands twice", rows->path, rows->line, key);
    }
    list->found = true;
    list->count = 0;
    int rc = core_json_scan_next(scan, &token);
    if (rc == 0 && token.kind != CORE_JSON_TOKEN_ARRAY_BEGIN) {
        return core_err_set(-EINVAL, "%s:%zu: %s is no list", rows->path, rows->line, key);
    }
    while (rc == 0) {
        rc = core_json_scan_next(scan, &token);
        if (rc != 0 || token.kind == CORE_JSON_TOKEN_ARRAY_END) {
            break;
        }
        if (token.kind != CORE_JSON_TOKEN_INTEGER) {
            return core_err_set(-EINVAL, "%s:%zu: %s has something but whole numbers", rows->path,
                                rows->line, key);
        }
        rc = add_item(rows, list, key, core_json_token_integer(&token));
    }
    return rc;
}

static int read_object(struct rows *rows, struct core_json_scan *scan)
{
    struct core_json_token token;
    int rc = core_json_scan_next(scan, &token);
    if (rc == 0 && token.kind != CORE_JSON_TOKEN_OBJECT_BEGIN) {
        return refuse(rows, "a row is an object, {\"input_ids\": [...]}");
    }
    while (rc == 0) {
        rc = core_json_scan_next(scan, &token);
        if (rc != 0 || token.kind == CORE_JSON_TOKEN_OBJECT_END) {
            break;
        }
        if (core_json_token_equals(&token, "input_ids", 9)) {
            rc = read_list(rows, scan, &rows->ids, "input_ids");
        } else if (core_json_token_equals(&token, "labels", 6)) {
            rc = read_list(rows, scan, &rows->labels, "labels");
        } else {
            rc = core_json_scan_skip(scan, &token);
        }
    }
    return rc != 0 ? rc : core_json_scan_next(scan, &token);
}

static int parse_line(struct rows *rows, const char *line, size_t bytes, struct rows_row *out)
{
    struct core_json_scan scan;
    rows->ids.found = rows->labels.found = false;
    core_json_scan_init(&scan, line, bytes, "row");
    int rc = read_object(rows, &scan);
    if (rc != 0) {
        return strncmp(core_err_sentence(), rows->path, strlen(rows->path)) == 0
                   ? rc
                   : core_err_prefix(rc, "%s:%zu", rows->path, rows->line);
    }
    if (!rows->ids.found || rows->ids.count == 0) {
        return refuse(rows, rows->ids.found ? "input_ids is empty" : "the row has no input_ids");
    }
    if (rows->labels.found && rows->labels.count != rows->ids.count) {
        return core_err_set(-EINVAL, "%s:%zu: %zu labels for %zu input_ids", rows->path, rows->line,
                            rows->labels.count, rows->ids.count);
    }
    if (rows->options.length_max > 0 && rows->ids.count > (size_t)rows->options.length_max) {
        return core_err_set(-EINVAL, "%s:%zu: the row has %zu tokens, and %" PRId64 " are possible",
                            rows->path, rows->line, rows->ids.count, rows->options.length_max);
    }
    *out = (struct rows_row){.ids = rows->ids.items,
                             .labels = rows->labels.found ? rows->labels.items : rows->ids.items,
                             .count = rows->ids.count,
                             .line = rows->line};
    return 1;
}

static bool is_blank(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r') {
            return false;
        }
    }
    return true;
}

int rows_next(struct rows *rows, struct rows_row *out)
{
    const char *line = NULL;
    size_t bytes = 0;
    int rc;
    do {
        rc = read_line(rows, &line, &bytes);
    } while (rc == 1 && is_blank(line, bytes));
    return rc == 1 ? parse_line(rows, line, bytes, out) : rc;
}
