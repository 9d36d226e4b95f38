/* quote.h: a text as one word of a shell, for the commands that messages recommend. Any thread. */
#ifndef CORE_BASE_QUOTE_H
#define CORE_BASE_QUOTE_H

enum { CORE_QUOTE_BYTES = 512 };

/* In single quotes, which hold everything but a single quote: 'it'\''s'. A text that does not fit
 * becomes "..." in quotes, never half a word; one that begins with "-" gets "./" in front, so that
 * it is no option. Returns out. */
const char *core_quote(const char *text, char out[CORE_QUOTE_BYTES]);

#endif
