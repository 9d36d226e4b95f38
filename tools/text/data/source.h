/* source.h: the bytes of one file of training data, as they are or unpacked (gzip and zstd, told by
 * their first bytes). Offsets count unpacked bytes. Private to lines.c. One thread. */
#ifndef TOOLS_TEXT_DATA_SOURCE_H
#define TOOLS_TEXT_DATA_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text_source;

/* "-" is standard input, or where `input` is not 0 the plain file that this descriptor has open.
 * -ENOENT, -EISDIR ...; -ENOTSUP for data whose library is not built in. */
int text_source_open(const char *path, int input, struct text_source **out);
void text_source_close(struct text_source *source);

const char *text_source_name(const struct text_source *source);

/* Up to `bytes`, at least one: their count in *got; 0 at the end. */
int text_source_read(struct text_source *source, char *to, size_t bytes, size_t *got);

/* From this byte on. Packed data is unpacked from its beginning up to there where `offset` lies
 * behind. -ESPIPE for a pipe, unless nothing has to be read twice. */
int text_source_seek(struct text_source *source, uint64_t offset);

/* Plain data in a file: any byte can be reached at once. */
bool text_source_random(const struct text_source *source);
/* A file, which can be read again from its beginning. */
bool text_source_seeks(const struct text_source *source);
/* A file that its path leads to, so that it can be closed and opened again. */
bool text_source_reopens(const struct text_source *source);
/* Bytes of the file as it lies there, packed or not (0: not known), and how many were read. */
uint64_t text_source_bytes(const struct text_source *source);
uint64_t text_source_used(const struct text_source *source);

/* What the data becomes: its next piece, borrowed until the next call. 1, 0 at the end, -errno. */
typedef int text_source_piece(void *user, const char **piece, size_t *bytes);

/* Copies the pieces into a nameless file under TMPDIR (/var/tmp where that is unset or empty), which is read
 * from now on: any byte of it can be reached, and it can be read again. `piece` may read the source. */
int text_source_spool(struct text_source *source, text_source_piece *piece, void *user);

#endif
