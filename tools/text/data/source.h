/* source.h: the bytes of a file, decompressed if it begins like gzip or zstd. Offsets count
 * decompressed bytes. Private to lines.c. One thread. */
#ifndef TOOLS_TEXT_DATA_SOURCE_H
#define TOOLS_TEXT_DATA_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text_source;

/* "-" is standard input or, unless `input` is 0, the file of that descriptor. Any other path must
 * be a regular file; opening never waits. -ENOTSUP: the library for the data is not built in. */
int text_source_open(const char *path, int input, struct text_source **out);
void text_source_close(struct text_source *source);

const char *text_source_name(const struct text_source *source);

/* Reads 1 to `bytes` bytes; *got is their number, 0 at the end. */
int text_source_read(struct text_source *source, char *to, size_t bytes, size_t *got);

/* Continues at this byte. Compressed data is decompressed up to it, from the beginning if
 * necessary. A pipe cannot go back. */
int text_source_seek(struct text_source *source, uint64_t offset);

/* Returns whether any byte can be reached directly: plain data in a file. */
bool text_source_random(const struct text_source *source);
/* Returns whether the source can be read again from its beginning: a file. */
bool text_source_seeks(const struct text_source *source);
/* Returns whether the source can be closed and opened again: a file with a path. */
bool text_source_reopens(const struct text_source *source);
/* Return the size of the file on disk (0: unknown), and how many of these bytes were read. */
uint64_t text_source_bytes(const struct text_source *source);
uint64_t text_source_used(const struct text_source *source);

/* Gets the next piece of the copy, borrowed until the next call. Returns 1; 0 at the end;
 * -errno. */
typedef int text_source_piece(void *user, const char **piece, size_t *bytes);

/* Replaces the file by a nameless one (spool.h) with the pieces, which can be read at any byte.
 * `piece` may read the source. */
int text_source_spool(struct text_source *source, text_source_piece *piece, void *user);

#endif
