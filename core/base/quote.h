/* quote.h: quotes a word for the shell commands in messages. Any thread. */
#ifndef CORE_BASE_QUOTE_H
#define CORE_BASE_QUOTE_H

enum { CORE_QUOTE_BYTES = 512 };

/* Writes `text` in single quotes, and quotes inside it as '\''. A text that does not fit becomes
 * "..."; a text that begins with "-" gets "./" in front, so that no command takes it for an option.
 * Returns `out`. */
const char *core_quote(const char *text, char out[CORE_QUOTE_BYTES]);

#endif
