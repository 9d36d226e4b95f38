/* special.h: the special tokens named by files beside tokenizer.json, as in transformers:
 * tokenizer_config.json and, unless it has added_tokens_decoder, special_tokens_map.json. Immutable
 * after loading; any thread. */
#ifndef TOOLS_TEXT_TOKENIZER_SPECIAL_H
#define TOOLS_TEXT_TOKENIZER_SPECIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEXT_SPECIAL_NAMES_MAX = 400 }; /* limit of tokens with names */

struct text_special_token {
    char *name;    /* owned: "eos_token" ...; NULL: from a list */
    char *content; /* owned; not empty */
    int64_t id;    /* in added_tokens_decoder; -1: none */
    bool special;
    bool lstrip;
    bool rstrip;
    bool single_word;
    bool normalized;
};

enum text_special_adds { TEXT_SPECIAL_UNSAID, TEXT_SPECIAL_NO, TEXT_SPECIAL_YES };

/* The special tokens, in the order in which transformers adds those that are missing. */
struct text_special {
    struct text_special_token *tokens; /* owned */
    size_t count;
    char *tokenizer_class; /* owned; NULL: none */
    enum text_special_adds adds_bos;
    enum text_special_adds adds_eos;
};

/* Loads the files that the folder has. Messages name file and key. On failure there is nothing to
 * free. */
int text_special_load(const char *folder, struct text_special *out);
void text_special_fini(struct text_special *special);

/* Returns the content of a named token, or NULL. */
const char *text_special_find(const struct text_special *special, const char *name);

struct core_json;
/* Parses the JSON object FOLDER/NAME; *out is NULL if there is no such file. */
int text_special_read(const char *folder, const char *name, struct core_json **out);

#endif
