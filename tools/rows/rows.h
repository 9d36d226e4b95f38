/* rows.h: training rows of token ids, from a JSONL file, one after another:
 *     {"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}
 * `labels` may be left out (the ids are the labels then) and has as many numbers as `input_ids`;
 * -100 is not trained on. Other keys are passed over. The file is read as a stream: what stays in
 * memory is one line. One thread. */
#ifndef TOOLS_ROWS_ROWS_H
#define TOOLS_ROWS_ROWS_H

#include <stddef.h>
#include <stdint.h>

struct rows;

struct rows_options {
    int64_t vocab;      /* ids and labels are below it; 0: not checked */
    int64_t length_max; /* of a row in tokens; 0: not checked */
};

struct rows_row {
    const int32_t *ids; /* borrowed from the reader until the next call */
    const int32_t *labels;
    size_t count;
    size_t line; /* of the file, from 1 */
};

enum { ROWS_LINE_BYTES_MAX = 256 << 20 };

/* "-" is standard input. A directory, or what cannot be opened: -errno with a sentence. */
int rows_open(const char *path, const struct rows_options *options, struct rows **out);
void rows_close(struct rows *rows);

/* 1 and the next row; 0 at the end; -EINVAL with "file:line: ..." for a line that is none. Lines
 * without anything are passed over. */
int rows_next(struct rows *rows, struct rows_row *out);

/* From the first row again. -ESPIPE for what is no file. */
int rows_rewind(struct rows *rows);

#endif
