/* quote.h: quotes a word for the shell commands in messages. Any thread. */
#ifndef CORE_BASE_QUOTE_H
#define CORE_BASE_QUOTE_H

enum { CORE_QUOTE_BYTES = 512 };

/* Writes `text` in single quotes, a quote inside as '\''. A text that does not fit becomes "...";
 * one that begins with "-" gets "./" in front, so that it is not an option. Returns `out`. */
const char *core_quote(const char *text, char out[CORE_QUOTE_BYTES]);

#endif
