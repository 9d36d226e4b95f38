/* regex.h: searches texts for literals and for regular expressions, which run as patterns of
 * pattern.h or, rewritten, in PCRE2 (private to tools/text/tokenizer). Immutable after create; any
 * thread. */
#ifndef TOOLS_TEXT_TOKENIZER_REGEX_H
#define TOOLS_TEXT_TOKENIZER_REGEX_H

#include "tools/text/tokenizer/pattern.h"
#include "tools/text/tokenizer/pcre.h"
#include "tools/text/tokenizer/unicode.h"

/* A literal, a pattern, or an expression of PCRE2. */
struct token_search {
    char *literal; /* owned */
    size_t literal_bytes;
    struct token_pattern *pattern; /* owned */
    struct token_pcre *pcre;       /* owned */
};
int token_search_create(const struct token_unicode *unicode, const char *regex, size_t bytes,
                        bool literal, const char *what, struct token_search *out);
void token_search_free(struct token_search *search);
/* Finds the next match at or after `from`. Returns 1 and its bounds; 0: none; -errno. */
int token_search_find(const struct token_search *search, struct token_pcre_scratch *scratch,
                      const char *text, size_t bytes, size_t from, size_t bounds[2]);

/* Rewrites an expression for PCRE2; the caller frees *out. Returns -ENOTSUP, naming `what` and the
 * place, if PCRE2 would interpret a part differently. */
int token_regex_translate(const struct token_unicode *unicode, const char *regex, size_t bytes,
                          const char *what, char **out, size_t *out_bytes);

#endif
