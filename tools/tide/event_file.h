/* event_file.h: figures as TensorBoard reads them: a file of records, each framed with its length and
 * masked CRC-32C, each a protobuf `Event`. A file is begun for every run, also for one that goes on
 * from a checkpoint; what is in the folder stays as it is. Every step arrives at once. One thread. */
#ifndef TOOLS_TIDE_EVENT_FILE_H
#define TOOLS_TIDE_EVENT_FILE_H

#include <stddef.h>
#include <stdint.h>

struct event_file;

/* Makes the folder, and those above it, where they are missing, and a file in it whose name comes
 * after those that are there. -errno with the path. */
int event_file_open(const char *folder, struct event_file **out);
/* 0, or what went wrong at the end. NULL is fine. */
int event_file_close(struct event_file *file);
/* Removes it: its run did not begin. NULL is fine. */
void event_file_discard(struct event_file *file);
const char *event_file_path(const struct event_file *file);

/* From here on the steps are told again, beginning with `step`: those of older files of the folder
 * from this one on are not shown any more. */
int event_file_restart(struct event_file *file, uint64_t step);

/* The figures of one step: begin, a value each, end. A tag has at most EVENT_TAG_BYTES_MAX bytes, and
 * a step EVENT_VALUES_MAX values. `end` returns the first failure, and after one nothing is written. */
enum { EVENT_TAG_BYTES_MAX = 64, EVENT_VALUES_MAX = 64 };
void event_file_begin(struct event_file *file, uint64_t step);
void event_file_value(struct event_file *file, const char *tag, double value);
int event_file_end(struct event_file *file);

/* CRC-32C (Castagnoli) of some bytes. */
uint32_t event_file_crc(const void *bytes, size_t count);

#endif
