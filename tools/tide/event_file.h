/* event_file.h: event files for TensorBoard. A run, also a resumed one, creates a new file;
 * existing files are not changed. Steps are flushed at once. One thread. */
#ifndef TOOLS_TIDE_EVENT_FILE_H
#define TOOLS_TIDE_EVENT_FILE_H

#include <stddef.h>
#include <stdint.h>

struct event_file;

/* Creates the folder with its parents, and a file whose name sorts last. */
int event_file_open(const char *folder, struct event_file **out);
/* Returns the first failure of a write. NULL is allowed. */
int event_file_close(struct event_file *file);
/* Closes and removes the file, for a run that did not begin. NULL is allowed. */
void event_file_discard(struct event_file *file);

/* Writes the head of the file: TensorBoard then hides events of older files from `step` on. Call it
 * first. */
int event_file_restart(struct event_file *file, uint64_t step);

enum { EVENT_TAG_BYTES_MAX = 64, EVENT_VALUES_MAX = 64 };

/* Writes the figures of a step: begin, a call for each value, end. Tags have at most
 * EVENT_TAG_BYTES_MAX bytes, steps at most EVENT_VALUES_MAX values. `end` returns 0 or the first
 * failure; after a failure nothing is written. */
void event_file_begin(struct event_file *file, uint64_t step);
void event_file_value(struct event_file *file, const char *tag, double value);
int event_file_end(struct event_file *file);

/* Returns the CRC-32C (Castagnoli) of `count` bytes. */
uint32_t event_file_crc(const void *bytes, size_t count);

#endif
