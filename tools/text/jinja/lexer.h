/* lexer.h: divides the source of a template into words (private to tools/text/jinja). */
#ifndef TOOLS_TEXT_JINJA_LEXER_H
#define TOOLS_TEXT_JINJA_LEXER_H

#include "tools/text/jinja/value.h"

enum jinja_word {
    JINJA_WORD_END,
    JINJA_WORD_DATA,
    JINJA_WORD_VARIABLE_BEGIN,
    JINJA_WORD_VARIABLE_END,
    JINJA_WORD_BLOCK_BEGIN,
    JINJA_WORD_BLOCK_END,
    JINJA_WORD_NAME,
    JINJA_WORD_STRING,
    JINJA_WORD_INTEGER,
    JINJA_WORD_REAL,
    /* A sign; its characters are the text of the word. */
    JINJA_WORD_SIGN,
};

struct jinja_token {
    enum jinja_word word;
    unsigned line;
    const char *text; /* DATA, NAME, STRING (unescaped), SIGN */
    size_t bytes;
    int64_t integer;
    double real;
};

struct jinja_tokens {
    struct jinja_token *items;
    size_t count;
    size_t room;
};

/* Reads all words; the last one is JINJA_WORD_END. Fails the run on errors. */
void jinja_lex(struct jinja_run *run, const char *source, size_t bytes, struct jinja_tokens *out);

#endif
