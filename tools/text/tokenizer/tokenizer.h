/* tokenizer.h: text to token ids and back, by a model folder's tokenizer.json.
 * A tokenizer never changes after it was made: any number of threads may encode with it, each with
 * a scratch of its own, which holds the caches and the results. */
#ifndef TOOLS_TEXT_TOKENIZER_TOKENIZER_H
#define TOOLS_TEXT_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/text/tokenizer/span.h"

struct text_tokenizer;
struct text_scratch; /* one a thread */

enum { TEXT_BYTES_MAX = 1 << 30 }; /* of one text */

/* Loads FOLDER/tokenizer.json, or the file itself where `path` is one. A broken file, an unknown
 * kind of model and contradictions are errors that name the file and the key. */
int text_tokenizer_load(const char *path, struct text_tokenizer **out);
/* The same from memory; `source` is the text's name in messages. */
int text_tokenizer_parse(const char *json, size_t bytes, const char *source,
                         struct text_tokenizer **out);
void text_tokenizer_destroy(struct text_tokenizer *tokenizer);

/* `tokenizer` outlives the scratch. */
int text_scratch_create(const struct text_tokenizer *tokenizer, struct text_scratch **out);
void text_scratch_destroy(struct text_scratch *scratch);
/* Frees what grows with texts. */
void text_scratch_trim(struct text_scratch *scratch);

enum {
    TEXT_ENCODE_SPECIAL = 1, /* with what the post-processor adds: <s>, </s> ... */
    TEXT_ENCODE_SPANS = 2,   /* with the bytes of the text that each token stands for */
};

/* Borrowed from the scratch, until its next use. */
struct text_encoding {
    const uint32_t *ids;
    const struct text_span *spans; /* NULL unless asked for */
    size_t count;
};

/* -EILSEQ with the byte's number where the text is not UTF-8; -E2BIG above TEXT_BYTES_MAX. */
int text_tokenizer_encode(struct text_scratch *scratch, const char *text, size_t bytes,
                          unsigned flags, struct text_encoding *out);

/* The text of ids, borrowed from the scratch until its next use, with a NUL behind it. What is not
 * UTF-8 becomes U+FFFD. -ERANGE for an id that is no token. */
int text_tokenizer_decode(struct text_scratch *scratch, const uint32_t *ids, size_t count,
                          bool skip_special, const char **text, size_t *bytes);

/* Ids are 0 ... size - 1, special tokens included. */
size_t text_tokenizer_size(const struct text_tokenizer *tokenizer);
/* -1 where there is no such token. */
int64_t text_tokenizer_id(const struct text_tokenizer *tokenizer, const char *token, size_t bytes);
/* A token as the file writes it, with no NUL behind it; NULL where there is no such id. */
const char *text_tokenizer_token(const struct text_tokenizer *tokenizer, uint32_t id,
                                 size_t *bytes);

/* The tokens of `added_tokens`, in the order of the file; NULL past the last one. */
struct text_added {
    uint32_t id;
    const char *content; /* NUL-terminated */
    size_t bytes;
    bool special; /* dropped by decode's skip_special */
    bool single_word;
    bool lstrip;
    bool rstrip;
    bool normalized;
};
const struct text_added *text_tokenizer_added(const struct text_tokenizer *tokenizer, size_t index);

/* -EINVAL where the tokenizer has ids that a model of `vocab_size` embeddings has not. */
int text_tokenizer_check(const struct text_tokenizer *tokenizer, size_t vocab_size);

#endif
