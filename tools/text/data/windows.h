/* windows.h: windows of documents, packed into rows, one after another, epoch after epoch. While
 * the rows of one window are used, the next is filled row by row, so that no batch has to wait
 * for a whole window; the content of windows does not depend on this. Private to batches.c; one
 * thread. */
#ifndef TOOLS_TEXT_DATA_WINDOWS_H
#define TOOLS_TEXT_DATA_WINDOWS_H

#include "tools/text/data/pack.h"

struct text_windows;

/* Keeps a pointer to the options. Seek before anything else. */
int text_windows_open(const struct text_feed_options *options, struct text_windows **out);
void text_windows_close(struct text_windows *windows);

/* Returns text_reader_mark(). */
uint64_t text_windows_mark(const struct text_windows *windows);

/* Makes the next window begin at this place. */
int text_windows_seek(struct text_windows *windows, uint64_t epoch, struct text_place place);

/* Moves to the next window of the epoch. Returns 1; 0 at its end; -errno. */
int text_windows_next(struct text_windows *windows);
/* Continues with the next epoch, after text_windows_next() has returned 0. */
void text_windows_turn(struct text_windows *windows);
/* Adds a row to the next window. Returns false if there is nothing to do now. An error is returned
 * by text_windows_next(). */
bool text_windows_ahead(struct text_windows *windows);

/* Describe the current window: its rows; the places of its beginning and of its end; the share of
 * the epoch's bytes that was read up to its end (negative: unknown). text_windows_count() writes
 * all counts up to its end. */
const struct text_pack *text_windows_rows(const struct text_windows *windows);
struct text_place text_windows_place(const struct text_windows *windows);
struct text_place text_windows_after(const struct text_windows *windows);
double text_windows_part(const struct text_windows *windows);
void text_windows_count(const struct text_windows *windows, struct text_counts *counts);

#endif
