/* span.h: a range of bytes of a text. */
#ifndef TOOLS_TEXT_TOKENIZER_SPAN_H
#define TOOLS_TEXT_TOKENIZER_SPAN_H

#include <stdint.h>

/* Bytes [begin, end) of a text. For a token: the bytes it was made of; empty for a token that a
 * post-processor added. */
struct text_span {
    uint32_t begin;
    uint32_t end;
};

#endif
