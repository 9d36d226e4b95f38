/* checkpoint_files.h: small files of a checkpoint, with buffered I/O; for checkpoint*.c. */
#ifndef OFFLOAD_STORE_CHECKPOINT_FILES_H
#define OFFLOAD_STORE_CHECKPOINT_FILES_H

#include "offload/store/manifest.h"

/* Reads a file from the disk; `where` is the folder's path, for messages. Returns -EINVAL if the
 * file is not regular or has more than `most` bytes. The caller frees the text. */
int store_file_read(int folder, const char *where, const char *name, uint64_t most, char **text,
                    size_t *bytes);
/* Sets size and hash of the file `file->name`. */
int store_file_look(int folder, const char *where, struct store_file *file);
/* Returns -EINVAL if the file's size differs from `file`, -EBADMSG if the hash differs. */
int store_file_check(int folder, const char *where, const struct store_file *file);

/* Prints the checksums as safetensors, one tensor per stream. The caller frees the text. */
int store_sums_print(const struct store_image *image, uint64_t *const sums[STORE_STREAM_COUNT],
                     char **text, size_t *bytes);
/* Parses the file of checksums. Returns -EINVAL if its size or header is not what store_sums_print
 * prints. */
int store_sums_parse(const struct store_image *image, const char *where, const char *text,
                     size_t bytes, uint64_t *const sums[STORE_STREAM_COUNT]);

#endif
