/* model.h: a BPE model, the key "model" of tokenizer.json (private to tools/text/tokenizer).
 * Read-only after loading. */
#ifndef TOOLS_TEXT_TOKENIZER_MODEL_H
#define TOOLS_TEXT_TOKENIZER_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/json/scan.h"
#include "tools/text/tokenizer/span.h"

#define TOKEN_NONE UINT32_MAX

/* Finds tokens by text and by id. */
struct token_vocab {
    char *text;               /* owned: adjacent tokens */
    struct text_span *tokens; /* owned: by id; begin > end: no token */
    size_t text_bytes;
    size_t text_room;
    size_t tokens_room;
    size_t used; /* occupied slots */
    struct token_slot {
        uint32_t hash;
        uint32_t id;
    } * slots; /* owned; free if `id` is TOKEN_NONE */
    size_t mask;
    uint32_t count;       /* highest id + 1; some ids may have no token */
    uint32_t model_count; /* highest id of model.vocab + 1; added tokens may fill gaps below it */
};
int token_vocab_add(struct token_vocab *vocab, const char *text, size_t bytes, uint32_t id);
/* Returns the id of a token; TOKEN_NONE if unknown. */
uint32_t token_vocab_find(const struct token_vocab *vocab, const char *text, size_t bytes);
/* Returns the text of an id; "" for an id without a token; NULL above the highest id. */
const char *token_vocab_text(const struct token_vocab *vocab, uint32_t id, size_t *bytes);

struct token_merge {
    uint32_t left; /* TOKEN_NONE: free */
    uint32_t right;
    uint32_t rank;
    uint32_t id;
};

enum { TOKEN_JOIN_BITS = 1 << 19 };

struct token_model {
    struct token_vocab vocab;
    struct token_merge *merges; /* owned */
    size_t mask;
    size_t merges_count;
    bool byte_level; /* symbols are bytes, written as 256 letters (ByteLevel) */
    bool byte_fallback;
    bool fuse_unk;
    bool ignore_merges;
    uint32_t unk;           /* TOKEN_NONE: none */
    char *prefix;           /* owned; continuing_subword_prefix */
    char *suffix;           /* owned; end_of_word_suffix */
    char *unk_token;        /* owned */
    uint32_t byte_ids[256]; /* ids of <0xNN>, or of the byte's letter; TOKEN_NONE: none */
    bool cuts;              /* words may be cut between two characters that no merge joins */
    uint64_t joins[TOKEN_JOIN_BITS / 64];
};

struct token_merge const *token_model_merge(const struct token_model *model, uint32_t left,
                                            uint32_t right);
/* Returns whether a merge may join `left` and `right`, the characters at the border of two
 * symbols. */
bool token_model_joins(const struct token_model *model, uint32_t left, uint32_t right);
uint32_t token_byte_letter(unsigned byte); /* the letter of a byte in ByteLevel */
int token_letter_byte(uint32_t letter);    /* -1: no such letter */
/* Reads the value of the key "model" at the scanner. */
int token_model_load(struct token_model *model, struct core_json_scan *scan);
/* Prepares encoding, after everything is loaded. */
int token_model_finish(struct token_model *model, const char *source);
void token_model_free(struct token_model *model);

#endif
