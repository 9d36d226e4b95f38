/* form.h: the wrapper of utf8proc: normal forms of Unicode and the case of letters (private to
 * tools/text). Immutable after create; any thread. Without the library, create fails with
 * -ENOTSUP. */
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

/* Returns the length of the beginning, in whole characters, that the form leaves unchanged whatever
 * follows. */
size_t token_form_pass(const struct token_form *form, const char *text, size_t bytes);
/* Returns how many bytes must be normalised together. Call it where token_form_pass() stopped. */
size_t token_form_reach(const struct token_form *form, const char *text, size_t bytes);
/* A character of the normal form, made of the next `taken` characters of the text; 0: a further
 * part of the previous one. */
struct token_form_char {
    uint32_t point;
    uint32_t taken;
    uint32_t order;
    int class; /* canonical combining class */
};
/* The caller frees *out with core_charge_free(). */
int token_form_apply(const struct token_form *form, const char *text, size_t bytes,
                     struct token_form_char **out, size_t *count);

/* Write the lower or upper case of a character. Return the number of characters, 1 or 2; -ENOTSUP
 * without the library. */
int token_form_lower(uint32_t point, uint32_t out[2]);
int token_form_upper(uint32_t point, uint32_t out[2]);
/* Writes the category of a character by the library or, without it, by the tokenizer's table.
 * Returns 0. */
int token_form_category(uint32_t point, enum token_category *out);

#endif
