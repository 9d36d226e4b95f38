/* file.h: reads, writes, opens, reserves, hashes and compares files, and recognises names of model
 * files. No state; any thread. */
#ifndef CORE_BASE_FILE_H
#define CORE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* limit of interrupted calls in a row; then -EINTR */
enum { CORE_FILE_INTERRUPTS_MAX = 1000 };

/* Reads all of `path` ("-": standard input). The caller frees the text, which ends with a NUL.
 * -E2BIG: the file has more than `bytes_max` bytes. -EINVAL: a named FIFO, because a read might
 * wait for ever. */
int core_file_read(const char *path, size_t bytes_max, char **text, size_t *bytes);

/* Like core_file_read(), for a file inside a folder that a user named (config.json of a model). A
 * FIFO or a device is refused with -EINVAL; "-" is an ordinary name. */
int core_file_read_regular(const char *path, size_t bytes_max, char **text, size_t *bytes);

/* Returns whether `path` is a named FIFO, whose opening waits for another process. False for a pipe
 * of the shell (/dev/fd/63). */
bool core_file_is_fifo(const char *path);

/* Opens a file that a user named, to replace its content or to append; the caller closes it. A FIFO
 * that no process reads is refused with -EINVAL, without waiting. Returns 0, or -errno with a
 * message. */
int core_file_open_output(const char *path, bool append, FILE **out);

/* Creates the folder that the first `bytes` bytes of `path` name, and missing ones above it.
 * Returns 0, or -errno with a message. */
int core_file_make_folders(const char *path, size_t bytes);

/* Write all `bytes`, at the descriptor's position or from byte `at` on. Return 0, or -errno without
 * a message; bytes written before an error stay. */
int core_file_write(int fd, const void *from, size_t bytes);
int core_file_write_at(int fd, const void *from, size_t bytes, uint64_t at);

/* Makes one read(2), repeated if a signal interrupts it. Returns the number of bytes, 0 at the end,
 * or -errno without a message. */
ssize_t core_file_read_some(int fd, void *to, size_t bytes);
/* Reads `bytes` from byte `at` on, fewer if the file ends. Returns their number, or -errno without
 * a message. */
ssize_t core_file_read_at(int fd, void *to, size_t bytes, uint64_t at);

/* Opens `name` in `folder` for direct I/O if the file system has it (*direct), else through the
 * page cache. Follows no link and does not wait for a FIFO's writer. Returns a descriptor, or
 * -errno without a message. */
int core_file_open_direct(int folder, const char *name, int flags, bool *direct);

/* A file's checksum is the sum of the hashes of its pieces of this size, seeded with their
 * positions. */
enum { CORE_FILE_SUM_BYTES = 1 << 16 };
/* Returns what bytes [at, at + count) of a file add to its checksum. `at` and, except at the end of
 * the file, `count` are multiples of CORE_FILE_SUM_BYTES. */
uint64_t core_file_sum_bytes(const void *bytes, size_t count, uint64_t at);
/* Computes the checksum of a whole file. Returns 0, or -errno without a message. */
int core_file_sum(int fd, uint64_t *out);

/* Extends a file of at most `bytes` to `bytes`, and reserves the space if the file system can
 * (*reserved). Returns 0, or -errno without a message. */
int core_file_reserve(int fd, uint64_t bytes, bool *reserved);

/* Returns whether `name` is that of model weights ("model.safetensors",
 * "model-00001-of-00003.safetensors", "model.safetensors.index.json") or of an adapter
 * ("adapter_model.safetensors", "adapter_config.json"). */
bool core_file_is_weights(const char *name);
/* Returns whether `name` is "config.json" or passes core_file_is_weights(). A run may replace or
 * remove such files in its output folder. */
bool core_file_is_of_model(const char *name);

/* Returns whether `name` is `prefix`, a decimal number without leading zeros, and `end`; if so,
 * sets *number. */
bool core_file_is_numbered(const char *name, const char *prefix, const char *end, uint64_t *number);

/* Returns whether two names refer to one file or folder. False for devices, pipes and missing
 * names. */
bool core_file_is_same(const char *one, const char *other);

#endif
