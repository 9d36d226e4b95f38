/* file.h: a whole small file into memory, with a limit. */
#ifndef CORE_BASE_FILE_H
#define CORE_BASE_FILE_H

#include <stddef.h>

/* Reads `path` ("-": standard input) up to `bytes_max` bytes. The text is the caller's, to be
 * freed, and has a NUL behind its last byte. -EISDIR, -EFBIG, -EACCES, -ENOENT ... each with a
 * sentence that names the path; pipes are read to their end. */
int core_file_read(const char *path, size_t bytes_max, char **text, size_t *bytes);

#endif
