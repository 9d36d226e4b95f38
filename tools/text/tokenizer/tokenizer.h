/* tokenizer.h: encodes text and decodes ids by a model's tokenizer.json. A tokenizer is immutable:
 * threads may use it, each with its own scratch, which holds caches and results. */
#ifndef TOOLS_TEXT_TOKENIZER_TOKENIZER_H
#define TOOLS_TEXT_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/text/tokenizer/span.h"

struct text_tokenizer;
struct text_scratch; /* each thread needs its own */

enum { TEXT_BYTES_MAX = 1 << 30 }; /* limit of one text */

/* `path`: a folder with tokenizer.json, or the file. Errors name the file and the key. */
int text_tokenizer_load(const char *path, struct text_tokenizer **out);
/* Loads from memory; `source` is the name in messages; `folder` has the model's other files (NULL:
 * none). */
int text_tokenizer_parse(const char *json, size_t bytes, const char *source, const char *folder,
                         struct text_tokenizer **out);
void text_tokenizer_destroy(struct text_tokenizer *tokenizer);

/* `tokenizer` must outlive the scratch. */
int text_scratch_create(const struct text_tokenizer *tokenizer, struct text_scratch **out);
void text_scratch_destroy(struct text_scratch *scratch);
/* Frees buffers that grow with texts. */
void text_scratch_trim(struct text_scratch *scratch);

enum {
    TEXT_ENCODE_SPECIAL = 1, /* add the post-processor's tokens: <s>, </s> ... */
    TEXT_ENCODE_SPANS = 2,   /* return the bytes that a token was made of */
};

/* Borrowed from the scratch until its next use. */
struct text_encoding {
    const uint32_t *ids;
    const struct text_span *spans; /* NULL unless requested */
    size_t count;
};

/* -EILSEQ: the text is not UTF-8 (the message has the index of the byte); -E2BIG: it is longer than
 * TEXT_BYTES_MAX. */
int text_tokenizer_encode(struct text_scratch *scratch, const char *text, size_t bytes,
                          unsigned flags, struct text_encoding *out);

/* Decodes ids into a NUL-terminated text, borrowed from the scratch until its next use. Bytes that
 * are not UTF-8 become U+FFFD. Returns -ERANGE for an unknown id. */
int text_tokenizer_decode(struct text_scratch *scratch, const uint32_t *ids, size_t count,
                          bool skip_special, const char **text, size_t *bytes);

/* Returns the highest id + 1. Some ids may have no token. */
size_t text_tokenizer_size(const struct text_tokenizer *tokenizer);
/* Returns the id of a token, or -1. */
int64_t text_tokenizer_id(const struct text_tokenizer *tokenizer, const char *token, size_t bytes);
/* Returns the text of a token as in the file, without a NUL; empty for an id without a token; NULL
 * above the highest id. */
const char *text_tokenizer_token(const struct text_tokenizer *tokenizer, uint32_t id,
                                 size_t *bytes);

struct text_added {
    uint32_t id;
    const char *content; /* NUL-terminated */
    size_t bytes;
    bool special; /* dropped by skip_special */
    bool single_word;
    bool lstrip;
    bool rstrip;
    bool normalized;
};
/* Returns an added token by its index: those of tokenizer.json in their order, then those of other
 * files; NULL after the last one. */
const struct text_added *text_tokenizer_added(const struct text_tokenizer *tokenizer, size_t index);

/* Refuses a tokenizer.json that has ids beyond the `vocab_size` embeddings of a model. */
int text_tokenizer_check(const struct text_tokenizer *tokenizer, size_t vocab_size);

#endif
