/* records.h: the rows of several files as JSON texts, one after another: lines of JSONL, or the
 * elements of one JSON array. What stays in memory is one row, and open are 16 files and those that
 * cannot be opened again. One thread.
 *
 * In order: file after file. Shuffled: the files are cut into blocks of TEXT_BLOCK_BYTES, the blocks
 * are visited in a seeded order, TEXT_WINDOW_BLOCKS of them at a time, and the rows that begin in
 * those are mixed (files that are smaller than that altogether: all rows are). The order depends on
 * (seed, epoch) and the files alone, and a place in it is three numbers, from which reading goes on
 * without looking at what came before. */
#ifndef TOOLS_TEXT_DATA_RECORDS_H
#define TOOLS_TEXT_DATA_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text_records;

enum {
    TEXT_ROW_BYTES_MAX = 256 << 20, /* of one row as JSON */
    TEXT_FILES_MAX = 4096,
    TEXT_BLOCK_BYTES = 1 << 16,
    TEXT_WINDOW_BLOCKS = 256,
};

struct text_records_options {
    const char *const *paths; /* files, patterns ("data/part-?.jsonl"), "-" */
    size_t paths_count;
    uint64_t seed;
    bool shuffle;
    bool again; /* the rows will be read more than once: pipes are kept in a nameless file */
    int input;  /* what "-" means: a descriptor of text_spool_input(); 0: standard input itself */
    size_t row_bytes; /* longer rows come without their text; 0: TEXT_ROW_BYTES_MAX */
};

/* Where reading goes on: in order, the file, the byte and how many lines or elements came before;
 * shuffled, the window and the row in it. */
struct text_place {
    uint64_t file;
    uint64_t offset;
    uint64_t row;
};

struct text_record {
    const char *text; /* borrowed from the reader until the next call; NULL: too long to be held */
    uint64_t bytes;
    uint32_t file; /* index of its file */
    uint64_t offset;
    uint64_t row; /* line or element, from 1; 0: not counted, ask text_records_name() */
};

/* Opens what `paths` means, patterns in the order of their names. -ENOENT where there is nothing. */
int text_records_open(const struct text_records_options *options, struct text_records **out);
void text_records_close(struct text_records *records);

/* Files, and their names in messages. */
size_t text_records_files(const struct text_records *records);
const char *text_records_file(const struct text_records *records, size_t file);
/* Is `path` one of the files that a name, a pattern or "-" means? */
bool text_records_means(const char *name, const char *path);
/* A number of what is read: of the files' names and sizes, the seed and the order. */
uint64_t text_records_mark(const struct text_records *records);

/* How much of the epoch's bytes was read, 0 to 1; negative where that is not known. */
double text_records_part(const struct text_records *records);

/* To this place of an epoch. All zero is the beginning. */
int text_records_seek(struct text_records *records, uint64_t epoch, struct text_place place);
/* Of the row that comes next. */
struct text_place text_records_place(const struct text_records *records);

/* 1 and the next row; 0 at the end of the epoch; -EINVAL for an array that is none, -EIO ... Lines
 * with nothing on them are passed over. */
int text_records_next(struct text_records *records, struct text_record *out);

enum { TEXT_NAME_BYTES = 512 };
/* "data.jsonl:12" for a line, "data.json: row 12" for an element. Returns `out`. Counts lines, where
 * that was not done while reading; the record's text is gone then. */
const char *text_records_name(struct text_records *records, const struct text_record *record,
                              char out[TEXT_NAME_BYTES]);

#endif
