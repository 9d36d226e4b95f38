/* chars.h: characters as Python's str sees them (private to tools/text/jinja). Without utf8proc,
 * letters are those of the tokenizer's table. Pure functions; any thread. */
#ifndef TOOLS_TEXT_JINJA_CHARS_H
#define TOOLS_TEXT_JINJA_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum jinja_char_class {
    JINJA_CHAR_SPACE,
    JINJA_CHAR_ALPHA,
    JINJA_CHAR_DECIMAL,
    JINJA_CHAR_NUMERIC,
    JINJA_CHAR_UPPER,
    JINJA_CHAR_LOWER,
    JINJA_CHAR_PRINTABLE,
};

/* The text must be valid UTF-8. */
size_t jinja_char_bytes(const char *at);
/* Returns the length of the character just before `end`. */
size_t jinja_char_before(const char *begin, const char *end);
uint32_t jinja_char_point(const char *at);
size_t jinja_char_write(uint32_t point, char out[4]);
/* Returns the byte offset of character `index`, or `bytes` beyond the last one. */
size_t jinja_char_offset(const char *text, size_t bytes, size_t index);

bool jinja_char_is(uint32_t point, enum jinja_char_class class_);
/* Convert the case of a character. Return the number of code points written, 1 or 2; -ENOTSUP
 * beyond ASCII without utf8proc. */
int jinja_char_upper(uint32_t point, uint32_t out[2]);
int jinja_char_lower(uint32_t point, uint32_t out[2]);

#endif
