/* checkpoint_files.h: the small files of a checkpoint, which are read and written as a whole with
 * buffered I/O. For checkpoint*.c. */
#ifndef OFFLOAD_STORE_CHECKPOINT_FILES_H
#define OFFLOAD_STORE_CHECKPOINT_FILES_H

#include "offload/store/manifest.h"

/* Reads a file from the disk; `where` is the folder's path, for messages. Returns -EINVAL if it is
 * not a regular file or has more than `most` bytes. The caller frees the text. */
int store_file_read(int folder, const char *where, const char *name, uint64_t most, char **text,
                    size_t *bytes);
/* Sets size and hash of the file `file->name`. */
int store_file_look(int folder, const char *where, struct store_file *file);
/* Returns -EINVAL if the file has another size than `file` says, -EBADMSG if another hash. */
int store_file_check(int folder, const char *where, const struct store_file *file);

/* Prints the file of all checksums: safetensors with one tensor per stream. The caller frees the
 * text. */
int store_sums_print(const struct store_image *image, uint64_t *const sums[STORE_STREAM_COUNT],
                     char **text, size_t *bytes);
/* Parses such a file into `sums`. Returns -EINVAL if its size or the JSON of its header is not what
 * store_sums_print prints. */
int store_sums_parse(const struct store_image *image, const char *where, const char *text,
                     size_t bytes, uint64_t *const sums[STORE_STREAM_COUNT]);

#endif
