/* special.h: the special tokens that a model folder names beside its tokenizer.json, gathered as
 * transformers does: tokenizer_config.json, and special_tokens_map.json where the former has no
 * added_tokens_decoder. Plain values, filled once; any thread may read them. */
#ifndef TOOLS_TEXT_DATA_SPECIAL_H
#define TOOLS_TEXT_DATA_SPECIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TEXT_SPECIAL_NAMES_MAX = 400 }; /* tokens with names */

struct text_special_token {
    char *name;    /* owned: "eos_token" ...; NULL: of a list */
    char *content; /* owned; not empty */
    int64_t id;    /* that added_tokens_decoder gives it; -1: none */
    bool special;
    bool lstrip;
    bool rstrip;
    bool single_word;
    bool normalized;
};

enum text_special_adds { TEXT_SPECIAL_UNSAID, TEXT_SPECIAL_NO, TEXT_SPECIAL_YES };

/* In the order in which transformers adds those that the tokenizer does not have. */
struct text_special {
    struct text_special_token *tokens; /* owned */
    size_t count;
    char *tokenizer_class; /* owned; NULL: none */
    enum text_special_adds adds_bos;
    enum text_special_adds adds_eos;
};

/* An empty list where the folder has none of the files; -EINVAL with file and key. On failure there
 * is nothing to free. */
int text_special_load(const char *folder, struct text_special *out);
void text_special_fini(struct text_special *special);

/* The content of a named token; NULL where there is none. */
const char *text_special_find(const struct text_special *special, const char *name);

struct core_json;
/* FOLDER/NAME as a JSON object; *out NULL where there is no such file. */
int text_special_read(const char *folder, const char *name, struct core_json **out);

#endif
