/* records.h: the rows of several files as JSON texts. At most 16 files are open, plus those
 * that cannot be reopened. Shuffled: blocks of TEXT_BLOCK_BYTES follow in a seeded
 * order, and the rows of TEXT_WINDOW_BLOCKS blocks are mixed. The order depends only on seed, epoch
 * and files. One thread. */
#ifndef TOOLS_TEXT_DATA_RECORDS_H
#define TOOLS_TEXT_DATA_RECORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text_records;

enum {
    TEXT_ROW_BYTES_MAX = 256 << 20, /* limit of one row as JSON */
    TEXT_FILES_MAX = 4096,
    TEXT_BLOCK_BYTES = 1 << 16,
    TEXT_WINDOW_BLOCKS = 256,
};

struct text_records_options {
    const char *const *paths; /* files, patterns ("data/part-?.jsonl"), "-" */
    size_t paths_count;
    uint64_t seed;
    bool shuffle;
    bool again;       /* rows are read more than once: pipes are copied to a nameless file */
    int input;        /* meaning of "-": a descriptor of text_spool_input(); 0: standard input */
    size_t row_bytes; /* longer rows are returned without text; 0: TEXT_ROW_BYTES_MAX */
};

/* Position of the next row. In order: file, byte in it, rows before it. Shuffled: `file` is the
 * window, `row` the index in it, `offset` 0. */
struct text_place {
    uint64_t file;
    uint64_t offset;
    uint64_t row;
};

struct text_record {
    const char *text; /* borrowed until the next call; NULL: longer than the limit */
    uint64_t bytes;
    uint32_t file; /* index */
    uint64_t offset;
    uint64_t row; /* line or element, from 1; 0: not counted, see text_records_name() */
};

/* Opens the files of `paths`, those of a pattern in the order of names; fails if there are
 * none. */
int text_records_open(const struct text_records_options *options, struct text_records **out);
void text_records_close(struct text_records *records);

const char *text_records_file(const struct text_records *records, size_t file);
/* Returns what messages call a path: itself, or "standard input" for "-". */
const char *text_records_called(const char *path);
/* Returns whether `name` (a path, a pattern or "-") refers to the file `path`. */
bool text_records_means(const char *name, const char *path);
/* Returns a hash of the names (without folders) and sizes of the files and, if they are shuffled,
 * the seed. */
uint64_t text_records_mark(const struct text_records *records);

/* Returns about the share of the epoch's bytes that were read, 0 to 1; negative: unknown. */
double text_records_part(const struct text_records *records);

/* Continues at a place of an epoch. All zero is the beginning. */
int text_records_seek(struct text_records *records, uint64_t epoch, struct text_place place);
struct text_place text_records_place(const struct text_records *records);

/* Returns 1 and the next row that is not blank; 0 at the end of the epoch; -errno. */
int text_records_next(struct text_records *records, struct text_record *out);

enum { TEXT_NAME_BYTES = 512 };
/* Writes the name of a row for messages to `out` and returns it: "data.jsonl:12", "data.json: row
 * 12". May invalidate record->text. */
const char *text_records_name(struct text_records *records, const struct text_record *record,
                              char out[TEXT_NAME_BYTES]);

#endif
