/* text.h: growing arrays and texts of a tokenizer (private to tools/text/tokenizer). */
#ifndef TOOLS_TEXT_TOKENIZER_TEXT_H
#define TOOLS_TEXT_TOKENIZER_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/text/tokenizer/span.h"

/* Makes room for `more` elements of `size` bytes in an owned array of `count`. */
int token_grow(void **array, size_t *room, size_t count, size_t more, size_t size);

/* A text that steps change; with `tracks`, also the original bytes that each byte was made of. */
struct token_text {
    char *at;                /* owned */
    struct text_span *spans; /* owned; NULL unless tracks */
    size_t bytes;
    size_t room;
    bool tracks;
};

int token_text_reserve(struct token_text *text, size_t more);
/* Appends bytes made of `span`. */
int token_text_put(struct token_text *text, const char *at, size_t bytes, struct text_span span);
/* Appends from[begin, end) with its spans. */
int token_text_copy(struct token_text *text, const struct token_text *from, size_t begin,
                    size_t end);
/* Returns the original bytes of byte `at`; empty if not tracked. */
struct text_span token_text_span(const struct token_text *text, size_t at);
void token_text_free(struct token_text *text);

struct token_pieces {
    struct text_span *at; /* owned; ranges of a token_text */
    size_t count;
    size_t room;
};
int token_pieces_put(struct token_pieces *pieces, size_t begin, size_t end);

#endif
