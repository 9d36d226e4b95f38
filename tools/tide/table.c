/* table.c: tables, and text from data, printed for people. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/utf8.h"
#include "tools/tide/cli.h"

/* Returns true for control characters, line separators and marks of direction. */
static bool is_steering(uint32_t point)
{
    return point < 0x20 || (point >= 0x7F && point < 0xA0) || point == 0x200E || point == 0x200F ||
           (point >= 0x2028 && point <= 0x202E) || (point >= 0x2066 && point <= 0x2069);
}

void cli_print_text(FILE *stream, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const unsigned char *byte = (const unsigned char *)text + at;
        const size_t length = core_utf8_sequence(text + at, bytes - at);
        uint32_t point = length < 2    ? *byte
                         : length == 2 ? *byte & 0x1Fu
                         : length == 3 ? *byte & 0x0Fu
                                       : *byte & 0x07u;
        for (size_t i = 1; i < length; i++) {
            point = point << 6 | (byte[i] & 0x3Fu);
        }
        if (length > 0 && !is_steering(point)) {
            fwrite(byte, 1, length, stream);
        } else if (length == 1 && (point == '\n' || point == '\t')) {
            fputs(point == '\n' ? "\\n" : "\\t", stream);
        } else {
            fprintf(stream, length < 2 ? "\\x%02x" : "\\u%04x", (unsigned)point);
        }
        at += length > 0 ? length : 1;
    }
}

struct cli_table {
    size_t columns;
    size_t rows, rows_room;
    char **cells; /* owned, like each cell; row by row */
};

static int no_memory(void)
{
    return core_err_set(-ENOMEM, "no memory for a table");
}

int cli_table_create(size_t columns, struct cli_table **out)
{
    struct cli_table *table = calloc(1, sizeof *table);
    if (table == NULL) {
        return no_memory();
    }
    table->columns = columns;
    *out = table;
    return 0;
}

void cli_table_destroy(struct cli_table *table)
{
    if (table == NULL) {
        return;
    }
    for (size_t i = 0; i < table->rows * table->columns; i++) {
        free(table->cells[i]);
    }
    free(table->cells);
    free(table);
}

int cli_table_add(struct cli_table *table, const char *const *cells)
{
    if (table->rows == table->rows_room) {
        size_t room = table->rows_room * 2 + 16;
        char **larger = realloc(table->cells, room * table->columns * sizeof *larger);
        if (larger == NULL) {
            return no_memory();
        }
        table->cells = larger;
        table->rows_room = room;
    }
    char **row = table->cells + table->rows * table->columns;
    for (size_t i = 0; i < table->columns; i++) {
        row[i] = strdup(cells[i] != NULL ? cells[i] : "");
        if (row[i] == NULL) {
            while (i > 0) {
                free(row[--i]);
            }
            return no_memory();
        }
    }
    table->rows++;
    return 0;
}

static size_t width_of(const char *text)
{
    return core_utf8_count(text, strlen(text));
}

static size_t column_width(const struct cli_table *table, size_t column)
{
    size_t widest = 0;
    for (size_t row = 0; row < table->rows; row++) {
        size_t width = width_of(table->cells[row * table->columns + column]);
        widest = width > widest ? width : widest;
    }
    return widest;
}

/* Returns whether this column must be padded. */
static bool more_follows(char *const *row, size_t column, size_t columns)
{
    for (size_t i = column + 1; i < columns; i++) {
        if (row[i][0] != '\0') {
            return true;
        }
    }
    return false;
}

void cli_table_print(const struct cli_table *table, FILE *stream, const char *indent)
{
    for (size_t row = 0; row < table->rows; row++) {
        char *const *cells = table->cells + row * table->columns;
        fputs(indent, stream);
        for (size_t column = 0; column < table->columns; column++) {
            cli_print_text(stream, cells[column], strlen(cells[column]));
            if (!more_follows(cells, column, table->columns)) {
                break;
            }
            size_t pad = column_width(table, column) - width_of(cells[column]) + 2;
            fprintf(stream, "%*s", (int)pad, "");
        }
        fputc('\n', stream);
    }
}
