/* lines.h: the rows of one file as JSON texts: lines of JSONL, or, where the first character is
 * "[", the elements of the one array that the file then is. What stays in memory is one row, of
 * a length that has a limit. Private to records.c. One thread. */
#ifndef TOOLS_TEXT_DATA_LINES_H
#define TOOLS_TEXT_DATA_LINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text_lines;

struct text_line {
    const char *text; /* borrowed until the next call; NULL: too long to be held */
    uint64_t bytes;
    uint64_t offset; /* of its first byte */
    uint64_t row;    /* from 1, where reading began at the beginning */
};

/* `input`: see source.h. A row whose text does not fit into `row_bytes` is passed over, to find its end. */
int text_lines_open(const char *path, int input, size_t row_bytes, struct text_lines **out);
void text_lines_close(struct text_lines *lines);

bool text_lines_array(const struct text_lines *lines);
/* Of the file as it lies there; 0 where that is not known. About how many of them were used. */
uint64_t text_lines_bytes(const struct text_lines *lines);
uint64_t text_lines_used(const struct text_lines *lines);
/* Can it be closed and opened again? */
bool text_lines_reopens(const struct text_lines *lines);

/* Makes the file readable more than once, or, with `lines_only`, at any byte: then an array becomes
 * lines, one an element. */
int text_lines_spool(struct text_lines *lines, bool lines_only);

/* From a byte on at which a row begins, with `row` rows before it. */
int text_lines_seek(struct text_lines *lines, uint64_t offset, uint64_t row);
/* Where the next row begins or the one before has ended. */
uint64_t text_lines_offset(const struct text_lines *lines);

/* Gives back what was kept for reading on; the file stays open. */
void text_lines_trim(struct text_lines *lines);

/* 1 and the next row that is not blank; 0 at the end; -errno. */
int text_lines_next(struct text_lines *lines, struct text_line *out);

/* To the first row that begins at `offset` or behind it, in a file of lines. */
int text_lines_seek_near(struct text_lines *lines, uint64_t offset);
/* How many lines end before `offset`. Reading has to go on with a seek. */
int text_lines_count(struct text_lines *lines, uint64_t offset, uint64_t *rows);

#endif
