/* lex.h: a template's source as words (private to tools/text/template). */
#ifndef TOOLS_TEXT_TEMPLATE_LEX_H
#define TOOLS_TEXT_TEMPLATE_LEX_H

#include "tools/text/template/value.h"

enum template_word {
    TEMPLATE_WORD_END,
    TEMPLATE_WORD_DATA,
    TEMPLATE_WORD_VARIABLE_BEGIN,
    TEMPLATE_WORD_VARIABLE_END,
    TEMPLATE_WORD_BLOCK_BEGIN,
    TEMPLATE_WORD_BLOCK_END,
    TEMPLATE_WORD_NAME,
    TEMPLATE_WORD_STRING,
    TEMPLATE_WORD_INTEGER,
    TEMPLATE_WORD_REAL,
    /* Signs: their characters are the word's text. */
    TEMPLATE_WORD_SIGN,
};

struct template_token {
    enum template_word word;
    unsigned line;
    const char *text; /* DATA, NAME, STRING (unescaped), SIGN */
    size_t bytes;
    int64_t integer;
    double real;
};

struct template_tokens {
    struct template_token *items;
    size_t count;
    size_t room;
};

/* All words, the last one TEMPLATE_WORD_END. Fails the run. */
void template_lex(struct text_template_run *run, const char *source, size_t bytes,
                  struct template_tokens *out);

#endif
