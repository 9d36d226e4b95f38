/* unicode.h: properties of characters (private to tools/text) from a table that agrees with
 * `tokenizers`, so that ids do not depend on libraries. Read-only after create; any thread. */
#ifndef TOOLS_TEXT_TOKENIZER_UNICODE_H
#define TOOLS_TEXT_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum token_category {
    TOKEN_CATEGORY_CN,
    TOKEN_CATEGORY_CC,
    TOKEN_CATEGORY_CF,
    TOKEN_CATEGORY_CO,
    TOKEN_CATEGORY_LL,
    TOKEN_CATEGORY_LM,
    TOKEN_CATEGORY_LO,
    TOKEN_CATEGORY_LT,
    TOKEN_CATEGORY_LU,
    TOKEN_CATEGORY_MC,
    TOKEN_CATEGORY_ME,
    TOKEN_CATEGORY_MN,
    TOKEN_CATEGORY_ND,
    TOKEN_CATEGORY_NL,
    TOKEN_CATEGORY_NO,
    TOKEN_CATEGORY_PC,
    TOKEN_CATEGORY_PD,
    TOKEN_CATEGORY_PE,
    TOKEN_CATEGORY_PF,
    TOKEN_CATEGORY_PI,
    TOKEN_CATEGORY_PO,
    TOKEN_CATEGORY_PS,
    TOKEN_CATEGORY_SC,
    TOKEN_CATEGORY_SK,
    TOKEN_CATEGORY_SM,
    TOKEN_CATEGORY_SO,
    TOKEN_CATEGORY_ZL,
    TOKEN_CATEGORY_ZP,
    TOKEN_CATEGORY_ZS,
    TOKEN_CATEGORIES,
};

enum {
    TOKEN_FLAG_SPACE = 1,       /* \s of a pattern */
    TOKEN_FLAG_WORD = 2,        /* \w of a pattern */
    TOKEN_FLAG_BLANK = 4,       /* white space outside of patterns */
    TOKEN_FLAG_WORD_BESIDE = 8, /* a word character beside a single_word token */
    TOKEN_FLAG_NUMERIC = 16,    /* a digit for Digits */
    TOKEN_FLAG_PUNCTUATION = 32 /* punctuation for Punctuation */
};

enum { TOKEN_KINDS_MAX = 64 };

/* Characters of a kind have equal properties. */
struct token_kind {
    uint8_t category;
    uint8_t flags;
};
extern const struct token_kind token_kinds[TOKEN_KINDS_MAX];
extern const char token_kind_letters[]; /* the letter of kind i */
/* Letter and count (none: 1) of runs from U+0000 on, in several texts; NULL ends the list. */
extern const char *const token_kind_runs[];

/* The kinds of characters by page. */
struct token_unicode {
    uint16_t page[0x110000 / 256];
    uint8_t *kinds; /* owned; 256 per page */
    size_t pages;
};

int token_unicode_create(struct token_unicode **out);
void token_unicode_destroy(struct token_unicode *unicode);

/* Returns the category of a character. Slow: reads the table from its beginning. */
enum token_category token_category_of(uint32_t point);

/* Return bit sets of the kinds with a flag, and of those in a category (L, Lu ...; 0: unknown). */
uint64_t token_kinds_flagged(unsigned flag);
uint64_t token_kinds_named(const char *name, size_t bytes);
/* Returns the kinds of \w. As in `tokenizers`, [\w] lacks numbers such as U+00B2. */
uint64_t token_kinds_word(bool in_class);

static inline uint8_t token_kind_of(const struct token_unicode *unicode, uint32_t point)
{
    return unicode->kinds[(size_t)unicode->page[point >> 8] * 256 + (point & 255)];
}

static inline unsigned token_flags_of(const struct token_unicode *unicode, uint32_t point)
{
    return token_kinds[token_kind_of(unicode, point)].flags;
}

/* Returns the character at `at`, which must be valid UTF-8, and its length. */
uint32_t token_point(const char *at, unsigned *bytes);
/* Returns the character before `end`, and its length; `begin` is the beginning of the text. */
uint32_t token_point_before(const char *begin, const char *end, unsigned *bytes);
/* Writes a character as UTF-8. Returns its length. */
unsigned token_point_write(uint32_t point, char out[4]);

#endif
