/* file.h: a whole small file into memory, with a limit; all of an array into a file that is open; whether
 * two names are one file. No state; any thread. */
#ifndef CORE_BASE_FILE_H
#define CORE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads `path` ("-": standard input) up to `bytes_max` bytes. The text is the caller's, to be
 * freed, and has a NUL behind its last byte. -EISDIR, -EFBIG, -EACCES, -ENOENT ... each with a
 * sentence that names the path; pipes are read to their end. */
int core_file_read(const char *path, size_t bytes_max, char **text, size_t *bytes);

/* The same for a file that belongs to a folder (config.json of a model): what is no regular file, links
 * followed, is refused with -EINVAL, where a pipe would be waited for. */
int core_file_read_regular(const char *path, size_t bytes_max, char **text, size_t *bytes);

/* All `bytes`, whatever the system takes at once: behind what was written last, or from byte `at`. 0 or
 * -errno without a sentence, because the caller has the name; what was written by then stays. */
int core_file_write(int fd, const void *from, size_t bytes);
int core_file_write_at(int fd, const void *from, size_t bytes, uint64_t at);

/* Whether two names lead to one file or folder, so that what is written into the one destroys the other.
 * Devices and pipes do not count, nor what is not there. */
bool core_file_is_same(const char *one, const char *other);

#endif
