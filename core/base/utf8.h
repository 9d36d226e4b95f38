/* utf8.h: checks UTF-8 (no surrogates, nothing overlong, nothing above U+10FFFF). */
#ifndef CORE_BASE_UTF8_H
#define CORE_BASE_UTF8_H

#include <stddef.h>

/* Returns the length of the sequence that begins at `text`, or 0 if it is invalid. `bytes` bytes
 * can be read. */
size_t core_utf8_sequence(const char *text, size_t bytes);

#endif
