/* regex.h: expressions of tokenizers rewritten for PCRE2 (private to the tokenizer,
 * tools/text/token*). */
#ifndef TOOLS_TEXT_TOKENIZER_REGEX_H
#define TOOLS_TEXT_TOKENIZER_REGEX_H

#include "tools/text/tokenizer/unicode.h"

/* *out is the caller's to free. -ENOTSUP, naming `what` and the place, for what PCRE2 would take for
 * something else. */
int token_regex_translate(const struct token_unicode *unicode, const char *regex, size_t bytes,
                          const char *what, char **out, size_t *out_bytes);

#endif
