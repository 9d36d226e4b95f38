/* pcre.h: the wrapper of PCRE2 (private to tools/text/tokenizer). An expression is immutable after
 * create; a scratch belongs to one thread. Without the library, create fails with -ENOTSUP. */
#ifndef TOOLS_TEXT_TOKENIZER_PCRE_H
#define TOOLS_TEXT_TOKENIZER_PCRE_H

#include <stdbool.h>
#include <stddef.h>

struct token_pcre;
struct token_pcre_scratch;

/* `what` names the file and key in messages. */
int token_pcre_create(const char *regex, size_t bytes, const char *what, struct token_pcre **out);
void token_pcre_destroy(struct token_pcre *pcre);

/* Returns whether \p{sc:NAME} names a script; true without the library. */
bool token_pcre_has_script(const char *name, size_t bytes);

int token_pcre_scratch_create(struct token_pcre_scratch **out);
void token_pcre_scratch_destroy(struct token_pcre_scratch *scratch);

/* Finds the next match at or after `from` in valid UTF-8. Returns 1 and its bounds; 0: none; -E2BIG
 * if PCRE2 fails, for example at one of its limits. */
int token_pcre_find(const struct token_pcre *pcre, struct token_pcre_scratch *scratch,
                    const char *text, size_t bytes, size_t from, size_t bounds[2]);

#endif
