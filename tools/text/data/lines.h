/* lines.h: the rows of one file as JSON texts: lines of JSONL, or elements of an array if the file
 * begins with "[". Needs memory for about one row. Private to records.c. One thread. */
#ifndef TOOLS_TEXT_DATA_LINES_H
#define TOOLS_TEXT_DATA_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text_lines;

struct text_line {
    const char *text; /* borrowed until the next call; NULL: longer than the limit */
    uint64_t bytes;
    uint64_t offset;
    uint64_t row; /* from 1, counted from the `row` of the last seek */
};

/* `input`: see source.h. Rows longer than `row_bytes` are returned without text. */
int text_lines_open(const char *path, int input, size_t row_bytes, struct text_lines **out);
void text_lines_close(struct text_lines *lines);

bool text_lines_array(const struct text_lines *lines);
/* Return the size of the file on disk (0: unknown), and about how many of its bytes were used. */
uint64_t text_lines_bytes(const struct text_lines *lines);
uint64_t text_lines_used(const struct text_lines *lines);
/* Returns whether the file can be closed and opened again. */
bool text_lines_reopens(const struct text_lines *lines);

/* Copies the file to a nameless one unless it can be read again and, with `lines_only`, from any
 * byte. With `lines_only`, elements of an array become lines. */
int text_lines_spool(struct text_lines *lines, bool lines_only);

/* Continues at a byte where a row begins, after `row` rows. */
int text_lines_seek(struct text_lines *lines, uint64_t offset, uint64_t row);
/* Returns where reading continues: after a line, at the next line; after an element of an array, at
 * its end. */
uint64_t text_lines_offset(const struct text_lines *lines);

/* Frees the buffer; the file stays open. Seek before the next read. */
void text_lines_trim(struct text_lines *lines);

/* Returns 1 and the next row that is not blank; 0 at the end; -errno. */
int text_lines_next(struct text_lines *lines, struct text_line *out);

/* Continues with the first line that begins at or after `offset`. */
int text_lines_seek_near(struct text_lines *lines, uint64_t offset);
/* Counts the lines that begin before `offset`. Call text_lines_seek() before the next read. */
int text_lines_count(struct text_lines *lines, uint64_t offset, uint64_t *rows);

#endif
