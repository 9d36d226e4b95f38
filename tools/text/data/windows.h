/* windows.h: windows of documents, packed into rows, epoch after epoch. The next window is filled
 * row by row while the current one is used, so that no batch waits for a whole window. Private to
 * batches.c; one thread. */
#ifndef TOOLS_TEXT_DATA_WINDOWS_H
#define TOOLS_TEXT_DATA_WINDOWS_H

#include "tools/text/data/pack.h"

struct text_windows;

/* Borrows the options. Seek before anything else. */
int text_windows_open(const struct text_feed_options *options, struct text_windows **out);
void text_windows_close(struct text_windows *windows);

/* Returns text_reader_mark(). */
uint64_t text_windows_mark(const struct text_windows *windows);

/* Makes the next window begin at this place. */
int text_windows_seek(struct text_windows *windows, uint64_t epoch, struct text_place place);

/* Moves to the next window of the epoch. Returns 1; 0 at the end of the epoch; -errno. */
int text_windows_next(struct text_windows *windows);
/* Continues with the next epoch after text_windows_next() returned 0. */
void text_windows_turn(struct text_windows *windows);
/* Adds a row to the next window. Returns false if there is nothing to do now; text_windows_next()
 * returns errors. */
bool text_windows_ahead(struct text_windows *windows);

/* Describe the current window: rows; places of its beginning and end; share of the epoch's bytes
 * read up to its end (negative: unknown); counts up to its end. */
const struct text_pack *text_windows_rows(const struct text_windows *windows);
struct text_place text_windows_place(const struct text_windows *windows);
struct text_place text_windows_after(const struct text_windows *windows);
double text_windows_part(const struct text_windows *windows);
void text_windows_count(const struct text_windows *windows, struct text_counts *counts);

#endif
