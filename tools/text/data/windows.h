/* windows.h: windows of documents fitted into rows, one after another, epoch after epoch. While rows of
 * one are used, the next is filled a row of the files at a time, so that no batch has to wait for a
 * whole window. What a window holds and says does not depend on that. Private to batches.c; one thread. */
#ifndef TOOLS_TEXT_DATA_WINDOWS_H
#define TOOLS_TEXT_DATA_WINDOWS_H

#include "tools/text/data/pack.h"

struct text_windows;

/* The options are kept by reference. Then comes a seek. */
int text_windows_open(const struct text_feed_options *options, struct text_windows **out);
void text_windows_close(struct text_windows *windows);

/* A number of what is read and how. */
uint64_t text_windows_mark(const struct text_windows *windows);

/* What comes next is the window that begins there. */
int text_windows_seek(struct text_windows *windows, uint64_t epoch, struct text_place place);

/* The next window of the epoch: 1; 0 at its end; -errno. */
int text_windows_next(struct text_windows *windows);
/* Behind the end: on with the next epoch. */
void text_windows_turn(struct text_windows *windows);
/* Fills some more of the next window; false where there is nothing to be done now. What goes wrong is
 * kept for text_windows_next(). */
bool text_windows_ahead(struct text_windows *windows);

/* Of the window that came last: its rows, where it begins, what comes behind it, how much of the
 * epoch's bytes was read until then (negative: not known), and the counts of all until then. */
const struct text_pack *text_windows_rows(const struct text_windows *windows);
struct text_place text_windows_place(const struct text_windows *windows);
struct text_place text_windows_after(const struct text_windows *windows);
double text_windows_part(const struct text_windows *windows);
void text_windows_count(const struct text_windows *windows, struct text_counts *counts);

#endif
