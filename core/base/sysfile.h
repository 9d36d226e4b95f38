/* sysfile.h: reads small text files of the kernel (/proc, /sys). `root` precedes the path: "" on a
 * live system, else a folder of copies. No state; any thread. */
#ifndef CORE_BASE_SYSFILE_H
#define CORE_BASE_SYSFILE_H

#include <stddef.h>
#include <stdint.h>

/* Reads a file without its final newlines, cut to `bytes` - 1. The path is `root` and the formatted
 * rest. Returns the length, or -errno without a message. */
int core_sysfile_text(char *text, size_t bytes, const char *root, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Reads a decimal number. Returns 0, or -errno without a message; -EINVAL for other contents. */
int core_sysfile_number(int64_t *out, const char *root, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Reads the number after the `key` that begins a line, times 1024 if "kB" follows. Returns -ENOENT
 * if there is none. */
int core_sysfile_field(const char *text, const char *key, uint64_t *out);

/* Copies the word in brackets from "a b [c] d". Returns 0, or -errno without a message. */
int core_sysfile_choice(char *choice, size_t bytes, const char *root, const char *path);

#endif
