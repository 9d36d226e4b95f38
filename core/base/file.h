/* file.h: a whole small file into memory, with a limit; all of an array into a file that is open or out
 * of it; a file's size and space; whether two names are one file. No state; any thread. */
#ifndef CORE_BASE_FILE_H
#define CORE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Calls in a row that a signal may interrupt before that is an error. */
enum { CORE_FILE_INTERRUPTS_MAX = 1000 };

/* Reads `path` ("-": standard input) up to `bytes_max` bytes. The text is the caller's, to be
 * freed, and ends with a NUL. -EISDIR, -E2BIG, -EACCES, -ENOENT ... each with a
 * sentence that names the path; pipes are read to their end. */
int core_file_read(const char *path, size_t bytes_max, char **text, size_t *bytes);

/* The same for a file that belongs to a folder (config.json of a model): what is no regular file, links
 * followed, is refused with -EINVAL, where a pipe would be waited for. */
int core_file_read_regular(const char *path, size_t bytes_max, char **text, size_t *bytes);

/* All `bytes`, whatever the system takes at once: behind what was written last, or from byte `at`. 0 or
 * -errno without a sentence, because the caller has the name; what was written by then stays. */
int core_file_write(int fd, const void *from, size_t bytes);
int core_file_write_at(int fd, const void *from, size_t bytes, uint64_t at);

/* One read(2): what is there, up to `bytes`; repeated where a signal interrupts it. How many, 0 at the end,
 * or -errno without a sentence. */
ssize_t core_file_read_some(int fd, void *to, size_t bytes);
/* All `bytes` from byte `at` on, fewer only where the file ends. How many, or -errno without a sentence. */
ssize_t core_file_read_at(int fd, void *to, size_t bytes, uint64_t at);

/* The sum of a file's bytes: over its pieces of CORE_FILE_SUM_BYTES, each hashed with its place. Bytes from `at`
 * on, a multiple of that, add `core_file_sum_bytes` to it. */
enum { CORE_FILE_SUM_BYTES = 1 << 16 };
uint64_t core_file_sum_bytes(const void *bytes, size_t count, uint64_t at);
/* That of a whole file; 0, or -errno without a sentence. */
int core_file_sum(int fd, uint64_t *out);

/* Gives a file this size and, where the file system can reserve space, all of it: *reserved says so. 0,
 * or -errno without a sentence. */
int core_file_reserve(int fd, uint64_t bytes, bool *reserved);

/* Whether a name is one that the weights of a model have in its folder: "model.safetensors",
 * "model-00001-of-00003.safetensors", "model.safetensors.index.json". */
bool core_file_is_weights(const char *name);

/* Whether two names lead to one file or folder, so that what is written into the one destroys the other.
 * Devices and pipes do not count, nor what is not there. */
bool core_file_is_same(const char *one, const char *other);

#endif
