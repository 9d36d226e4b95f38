/* file.h: reads, writes, opens, reserves, hashes and compares files, creates folders, and
 * recognises the names of model files. No state; any thread. */
#ifndef CORE_BASE_FILE_H
#define CORE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

/* After this many interrupted calls in a row, -EINTR is returned. */
enum { CORE_FILE_INTERRUPTS_MAX = 1000 };

/* Reads all of `path` ("-": standard input). The caller frees the text, which ends with a NUL.
 * Returns 0, -E2BIG if there are more than `bytes_max` bytes, or another -errno (-EISDIR, -EACCES,
 * -ENOENT ...), each with a message that names the path. Pipes are read to their end. A FIFO with a
 * name in a folder is refused with -EINVAL, because no process might ever open it for writing. */
int core_file_read(const char *path, size_t bytes_max, char **text, size_t *bytes);

/* Like core_file_read(), for a file that belongs to a folder (config.json of a model). A FIFO or a
 * device, or a link to one, is refused with -EINVAL, because reading it might wait for ever; "-" is
 * a name like any other. */
int core_file_read_regular(const char *path, size_t bytes_max, char **text, size_t *bytes);

/* Returns whether `path` names a FIFO in a folder. Opening such a FIFO waits until another process
 * opens its other end; opening a pipe of the shell (/dev/fd/63) never waits. */
bool core_file_is_fifo(const char *path);

/* Opens a file that a user named, to replace its content or to append to it; the caller closes it.
 * Never waits: a FIFO that no process reads is refused with -EINVAL. Returns 0, or -errno with a
 * message that names the path. */
int core_file_open_output(const char *path, bool append, FILE **out);

/* Creates the folder that the first `bytes` bytes of `path` name, and those above it; they may
 * exist already. Returns 0, or -errno with a message that names the folder. */
int core_file_make_folders(const char *path, size_t bytes);

/* Write all `bytes`, in as many calls as needed: at the descriptor's position, or from byte `at`
 * on. Return 0, or -errno without a message, because only the caller knows the name; bytes that
 * were written before an error stay. */
int core_file_write(int fd, const void *from, size_t bytes);
int core_file_write_at(int fd, const void *from, size_t bytes, uint64_t at);

/* Makes one read(2) of up to `bytes`, repeated if a signal interrupts it. Returns the number of
 * bytes read, 0 at the end, or -errno without a message. */
ssize_t core_file_read_some(int fd, void *to, size_t bytes);
/* Reads all `bytes` from byte `at` on, or fewer if the file ends. Returns their number, or -errno
 * without a message. */
ssize_t core_file_read_at(int fd, void *to, size_t bytes, uint64_t at);

/* Opens `name` in `folder` for direct I/O, or through the page cache if the file system has no
 * direct I/O: *direct says which. Follows no link, and does not wait for the writer of a pipe.
 * Returns a descriptor, or -errno without a message. */
int core_file_open_direct(int folder, const char *name, int flags, bool *direct);

/* The checksum of a file is the sum of the hashes of its pieces of this size; the seed of a hash is
 * the position of the piece. */
enum { CORE_FILE_SUM_BYTES = 1 << 16 };
/* Returns what `count` bytes of a file from byte `at` on add to its checksum. `at` is a multiple of
 * CORE_FILE_SUM_BYTES, and so is `count` unless the bytes are the end of the file. */
uint64_t core_file_sum_bytes(const void *bytes, size_t count, uint64_t at);
/* Computes the checksum of a whole file. Returns 0, or -errno without a message. */
int core_file_sum(int fd, uint64_t *out);

/* Extends a file to `bytes` and reserves its space if the file system can. *reserved says whether
 * the space is reserved. A file that is longer may keep its length. Returns 0, or -errno without a
 * message. */
int core_file_reserve(int fd, uint64_t bytes, bool *reserved);

/* Returns whether `name` is that of a file of model weights ("model.safetensors",
 * "model-00001-of-00003.safetensors", "model.safetensors.index.json") or of an adapter
 * ("adapter_model.safetensors", "adapter_config.json"). */
bool core_file_is_weights(const char *name);
/* Returns whether `name` is "config.json" or a name that core_file_is_weights() accepts. In its
 * output folder, a run replaces or removes files with these names; it copies other files of the
 * input model. */
bool core_file_is_of_model(const char *name);

/* Returns whether `name` is `prefix`, a decimal number without leading zeros and `end`. Sets
 * *number only then. */
bool core_file_is_numbered(const char *name, const char *prefix, const char *end, uint64_t *number);

/* Returns whether two names refer to the same file or folder, so that writing one destroys the
 * other. False for devices, pipes and names that do not exist. */
bool core_file_is_same(const char *one, const char *other);

#endif
