/* span.h: a range of bytes of a text. */
#ifndef TOOLS_TEXT_TOKENIZER_SPAN_H
#define TOOLS_TEXT_TOKENIZER_SPAN_H

#include <stdint.h>

/* Bytes [begin, end) of a text. Of a token: the bytes it was made of; empty if a post-processor
 * added it. */
struct text_span {
    uint32_t begin;
    uint32_t end;
};

#endif
