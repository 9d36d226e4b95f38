/* utf8.h: checks UTF-8, counts characters, and marks where a text was cut. */
#ifndef CORE_BASE_UTF8_H
#define CORE_BASE_UTF8_H

#include <stddef.h>

/* Returns the length of the UTF-8 sequence at `text`, which has `bytes` bytes; 0: invalid. */
size_t core_utf8_sequence(const char *text, size_t bytes);

/* Returns the number of characters in valid UTF-8. */
size_t core_utf8_count(const char *text, size_t bytes);

/* Replaces the end of a text that fills a buffer of `bytes` (at least 4) by "...", after a whole
 * character. */
void core_utf8_mark_cut(char *text, size_t bytes);

#endif
