/* pattern.h: the regular expressions of known tokenizers (private to tools/text/tokenizer):
 * alternatives of runs of character classes, with one level of groups and a look-ahead of one
 * character. PCRE2 runs all others. The first alternative that fits matches. Immutable after
 * create; any thread. */
#ifndef TOOLS_TEXT_TOKENIZER_PATTERN_H
#define TOOLS_TEXT_TOKENIZER_PATTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/text/tokenizer/unicode.h"

enum { TOKEN_CLASSES_MAX = 64, TOKEN_ITEMS_MAX = 160, TOKEN_BRANCHES_MAX = 64, TOKEN_TOP_MAX = 32 };
#define TOKEN_ENDLESS UINT32_MAX

enum token_item_kind { TOKEN_ITEM_RUN, TOKEN_ITEM_LOOK, TOKEN_ITEM_GROUP };

struct token_item {
    enum token_item_kind kind;
    bool positive;   /* LOOK: the class must follow; else it must not */
    bool possessive; /* RUN: gives no characters back */
    uint8_t class;
    uint32_t min; /* GROUP: 0 or 1 */
    uint32_t max;
    uint16_t branch; /* GROUP: index of the first alternative, and number of alternatives */
    uint16_t branches;
};

struct token_branch {
    uint16_t item;
    uint16_t items;
};

/* A range of characters that a class has, or lacks, whatever their kinds. */
struct token_stretch {
    uint32_t from;
    uint32_t to;
    uint64_t mask; /* bit of the class */
    bool in;
};

struct token_pattern {
    const struct token_unicode *unicode; /* borrowed from the tokenizer */
    uint64_t ascii[128];                 /* a bit for each class of the character */
    uint64_t kind[TOKEN_KINDS_MAX];
    struct token_stretch stretch[64];
    struct token_item item[TOKEN_ITEMS_MAX];
    struct token_branch branch[TOKEN_BRANCHES_MAX];
    uint32_t starts_ascii[128]; /* bit sets of top branches that may begin with the character */
    uint32_t starts_other;
    unsigned classes;
    unsigned stretches;
    unsigned items;
    unsigned branches;
    unsigned top; /* the alternatives are branch[0 ... top) */
};

/* Returns -ENOTSUP, without a message, if PCRE2 must run the expression. */
int token_pattern_create(const struct token_unicode *unicode, const char *regex, size_t bytes,
                         struct token_pattern **out);
void token_pattern_destroy(struct token_pattern *pattern);

/* Returns the end of the match that begins at `at`, or SIZE_MAX. */
size_t token_pattern_match(const struct token_pattern *pattern, const char *text, size_t bytes,
                           size_t at);

/* Returns a bit for each class that has the character at `at`; *bytes is its length. */
static inline uint64_t token_pattern_mask(const struct token_pattern *pattern, const char *at,
                                          unsigned *bytes)
{
    if ((unsigned char)*at < 0x80) {
        *bytes = 1;
        return pattern->ascii[(unsigned char)*at];
    }
    uint32_t point = token_point(at, bytes);
    uint64_t mask = pattern->kind[token_kind_of(pattern->unicode, point)];
    for (unsigned i = 0; i < pattern->stretches; i++) {
        const struct token_stretch *s = &pattern->stretch[i];
        if (point >= s->from && point <= s->to) {
            mask = s->in ? mask | s->mask : mask & ~s->mask;
        }
    }
    return mask;
}

#endif
