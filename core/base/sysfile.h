/* sysfile.h: reads the small text files in which the kernel describes the machine (/proc, /sys).
 * Every reader takes a `root` that is prepended to the path: "" on a live system, a folder with
 * copies of the files in a test. Nothing is kept; any thread. */
#ifndef CORE_BASE_SYSFILE_H
#define CORE_BASE_SYSFILE_H

#include <stddef.h>
#include <stdint.h>

/* Reads the file into `text`, without newlines at its end, cut at `bytes` - 1. The path is `root`
 * followed by the formatted rest. Returns the length, or -errno without a message, because a
 * missing file is normal here. */
int core_sysfile_text(char *text, size_t bytes, const char *root, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Reads a file that holds one decimal number. Returns 0, -errno, or -EINVAL for any other contents,
 * without a message. */
int core_sysfile_number(int64_t *out, const char *root, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Finds a line of `text` that starts with `key` and reads the number after it, multiplied by 1024
 * if "kB" follows. Returns -ENOENT if there is no such line or it has no number. */
int core_sysfile_field(const char *text, const char *key, uint64_t *out);

/* Reads a list of the form "a b [c] d" and copies the word in brackets. Returns 0, or -errno
 * without a message. */
int core_sysfile_choice(char *choice, size_t bytes, const char *root, const char *path);

#endif
