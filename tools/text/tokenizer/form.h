/* form.h: utf8proc's door: the four normal forms of Unicode, and the case of letters
 * (private to tools/text). Never changes after create; any thread. Without the library, create
 * refuses. */
#ifndef TOOLS_TEXT_TOKENIZER_FORM_H
#define TOOLS_TEXT_TOKENIZER_FORM_H

#include <stddef.h>
#include <stdint.h>

#include "tools/text/tokenizer/unicode.h"

enum token_form_kind { TOKEN_FORM_NFC, TOKEN_FORM_NFD, TOKEN_FORM_NFKC, TOKEN_FORM_NFKD };

struct token_form;

/* `what` names the file and key in messages. */
int token_form_create(enum token_form_kind kind, const char *what, struct token_form **out);
void token_form_destroy(struct token_form *form);

/* The bytes at the start of the text, up to a character's end, that the form leaves as they are
 * whatever follows. */
size_t token_form_pass(const struct token_form *form, const char *text, size_t bytes);
/* The bytes at the start of the text, which token_form_pass() would not pass, that are changed
 * together. */
size_t token_form_reach(const struct token_form *form, const char *text, size_t bytes);
/* A character of the normal form, and of how many of the text's it is made, which come one after the
 * other; 0: of a part of the one before. */
struct token_form_char {
    uint32_t point;
    uint32_t taken;
    uint32_t order;
    int class; /* canonical combining class */
};
/* Normalises `bytes` of text, to be freed by the caller. */
int token_form_apply(const struct token_form *form, const char *text, size_t bytes,
                     struct token_form_char **out, size_t *count);

/* The lower case of a character: 1 or 2 of them. -ENOTSUP without the library. */
int token_form_lower(uint32_t point, uint32_t out[2]);
/* The same for its upper case. */
int token_form_upper(uint32_t point, uint32_t out[2]);
/* What the library takes a character for; without it, what the tokenizer's table does. 0. */
int token_form_category(uint32_t point, enum token_category *out);

#endif
