/* event_file.h: event files for TensorBoard. Each record is a protobuf `Event`, framed with its
 * length and masked CRC-32C. Every run creates a new file, including a run that resumes from a
 * checkpoint; existing files are not changed. Each step is flushed at once. One thread. */
#ifndef TOOLS_TIDE_EVENT_FILE_H
#define TOOLS_TIDE_EVENT_FILE_H

#include <stddef.h>
#include <stdint.h>

struct event_file;

/* Creates the folder with its missing parents, and in it a file whose name sorts after those of
 * existing event files. Returns 0, or -errno with a message that names the path. */
int event_file_open(const char *folder, struct event_file **out);
/* Returns 0 or the first failure of a write. NULL is allowed. */
int event_file_close(struct event_file *file);
/* Closes and removes the file of a run that did not begin. NULL is allowed. */
void event_file_discard(struct event_file *file);

/* Writes the head of the file, which marks a restart at `step`: TensorBoard hides events of the
 * folder's older files from this step on. Call it first. Returns 0 or the first failure, with a
 * message. */
int event_file_restart(struct event_file *file, uint64_t step);

enum { EVENT_TAG_BYTES_MAX = 64, EVENT_VALUES_MAX = 64 };

/* Writes the figures of one step: begin, one call for each value, end. A tag has at most
 * EVENT_TAG_BYTES_MAX bytes, a step at most EVENT_VALUES_MAX values. `end` returns 0 or the first
 * failure, with a message; after a failure nothing more is written. */
void event_file_begin(struct event_file *file, uint64_t step);
void event_file_value(struct event_file *file, const char *tag, double value);
int event_file_end(struct event_file *file);

/* Returns the CRC-32C (Castagnoli) of `count` bytes. */
uint32_t event_file_crc(const void *bytes, size_t count);

#endif
