/* quote.h: quotes a text as one word of a shell, for the commands that messages recommend. Any
 * thread. */
#ifndef CORE_BASE_QUOTE_H
#define CORE_BASE_QUOTE_H

enum { CORE_QUOTE_BYTES = 512 };

/* Writes `text` to `out` in single quotes, inside which only a single quote needs escaping:
 * 'it'\''s'. A text that does not fit becomes "..." in quotes, never a partial word. A text that
 * begins with "-" gets "./" in front, so that a command does not take it for an option. Returns
 * `out`. */
const char *core_quote(const char *text, char out[CORE_QUOTE_BYTES]);

#endif
