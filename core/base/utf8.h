/* utf8.h: checks UTF-8 (no surrogates, nothing overlong, nothing above U+10FFFF), and marks where
 * a text was cut. */
#ifndef CORE_BASE_UTF8_H
#define CORE_BASE_UTF8_H

#include <stddef.h>

/* Returns the length of the sequence that begins at `text`, or 0 if it is invalid. `bytes` bytes
 * can be read. */
size_t core_utf8_sequence(const char *text, size_t bytes);

/* Ends a text that fills a buffer of `bytes` with "...", without a partial character before it.
 * `bytes` is at least 4. */
void core_utf8_mark_cut(char *text, size_t bytes);

#endif
