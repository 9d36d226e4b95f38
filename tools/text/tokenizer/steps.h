/* steps.h: the steps from a text to ids and back: their data, and the functions by which they call
 * each other (private to tools/text/tokenizer). struct text_tokenizer is immutable after loading;
 * struct text_scratch belongs to one thread. */
#ifndef TOOLS_TEXT_TOKENIZER_STEPS_H
#define TOOLS_TEXT_TOKENIZER_STEPS_H

#include "core/json/json.h"
#include "tools/text/tokenizer/form.h"
#include "tools/text/tokenizer/model.h"
#include "tools/text/tokenizer/regex.h"
#include "tools/text/tokenizer/text.h"
#include "tools/text/tokenizer/unicode.h"

struct text_added;

enum { TOKEN_STEPS_MAX = 32 }; /* steps of a pipeline, sequences expanded */

enum token_normalizer_kind {
    TOKEN_NORM_FORM,
    TOKEN_NORM_PREPEND,
    TOKEN_NORM_REPLACE,
    TOKEN_NORM_LOWER,
    TOKEN_NORM_STRIP
};
struct token_norm {
    enum token_normalizer_kind kind;
    struct token_form *form;    /* owned */
    struct token_search search; /* REPLACE */
    char *content;              /* owned; PREPEND, REPLACE */
    size_t content_bytes;
    bool left; /* STRIP */
    bool right;
};

enum token_behaviour {
    TOKEN_REMOVED,
    TOKEN_ISOLATED,
    TOKEN_MERGED_PREVIOUS,
    TOKEN_MERGED_NEXT,
    TOKEN_CONTIGUOUS
};
enum token_pre_tokenizer_kind {
    TOKEN_SPLIT_SEARCH, /* splits at matches of a search */
    TOKEN_SPLIT_FLAG,   /* splits at characters with a flag */
    TOKEN_SPLIT_CHAR,   /* splits at one character */
    TOKEN_SPLIT_SPACE,  /* puts a space before a piece that does not begin with one */
    TOKEN_SPLIT_META,   /* replaces spaces by `content`, which also precedes the pieces that
                           `scheme` selects */
};
enum token_scheme { TOKEN_SCHEME_ALWAYS, TOKEN_SCHEME_FIRST, TOKEN_SCHEME_NEVER };
struct token_split {
    enum token_pre_tokenizer_kind kind;
    enum token_behaviour behaviour;
    bool invert;
    unsigned flag;
    struct token_search search;
    char content[8]; /* CHAR, SPACE, META: one character */
    unsigned content_bytes;
    enum token_scheme scheme;
};

enum token_decoder_kind {
    TOKEN_DECODE_BYTES,
    TOKEN_DECODE_META,
    TOKEN_DECODE_FALLBACK,
    TOKEN_DECODE_FUSE,
    TOKEN_DECODE_STRIP,
    TOKEN_DECODE_REPLACE
};
struct token_decode {
    enum token_decoder_kind kind;
    struct token_search search; /* REPLACE */
    char *content;              /* owned; REPLACE: the new text; STRIP, META: a character */
    size_t content_bytes;
    bool strips_first; /* META */
    size_t start;      /* STRIP */
    size_t stop;
};

/* Ids that the post-processor puts before and after a text. */
struct token_post_processor {
    uint32_t *before; /* owned */
    uint32_t *after;  /* owned */
    size_t before_count;
    size_t after_count;
};

/* A trie of added tokens. Finds the longest token at the first place that has one. */
struct token_trie {
    struct token_node {
        uint32_t child; /* first child; TOKEN_NONE: none */
        uint32_t next;  /* next sibling */
        uint32_t added; /* index of the token that ends here; TOKEN_NONE: none */
        unsigned char byte;
    } * nodes; /* owned */
    size_t count;
    uint32_t root[256];
};

struct text_tokenizer {
    char *source;                  /* owned */
    struct token_unicode *unicode; /* owned */
    struct token_model *model;     /* owned */
    struct text_added *added;      /* owned, as are their contents */
    char **shown;                  /* owned: text of a decoded token; NULL: its content */
    uint32_t *added_of;            /* owned: by id, an index in `added`, or TOKEN_NONE */
    size_t added_count;
    uint32_t file_count;     /* lower ids are from tokenizer.json, others from files beside it */
    struct token_trie early; /* tokens that are searched for in the original text */
    struct token_trie late;  /* tokens that are searched for in the normalised text */
    struct token_norm norm[TOKEN_STEPS_MAX];
    struct token_split split[TOKEN_STEPS_MAX];
    struct token_decode decode[TOKEN_STEPS_MAX];
    size_t norms;
    size_t splits;
    size_t decodes;
    bool needs_spans;  /* encoding needs spans even if the caller does not */
    bool decodes_bare; /* no decoder: tokens are joined with spaces */
    struct token_post_processor frame;
};

/* An entry of the cache of words. */
struct token_word {
    uint32_t hash;
    uint8_t bytes;
    uint8_t count;
    uint8_t unused[2];
    char text[40];
    uint32_t ids[16];
    uint8_t lengths[16];
};
enum { TOKEN_WORD_BYTES = 40, TOKEN_WORD_IDS = 16, TOKEN_WORDS = 1 << 14 };

struct token_symbol {
    uint32_t id;
    uint32_t bytes;
    uint32_t previous;
    uint32_t next;
    uint32_t rank; /* of the merge with the next symbol; TOKEN_NONE: none */
    uint32_t merged;
};

struct text_scratch {
    const struct text_tokenizer *tokenizer; /* borrowed from the caller */
    struct token_pcre_scratch *pcre;        /* owned */
    struct token_word *words;               /* owned */
    struct token_text text[3];              /* [0]: the normalised text; others: for steps */
    const struct token_text *now;           /* borrowed: the text that `pieces` refer to */
    struct token_pieces pieces[2];
    struct token_pieces marks;    /* parts of a piece; top bit of `end`: the part matched */
    struct token_symbol *symbols; /* owned */
    size_t symbols_room;
    uint64_t *heap; /* owned */
    size_t heap_count;
    size_t heap_room;
    struct text_span *spans; /* owned: of the tokens */
    uint32_t *ids;           /* owned */
    size_t count;
    size_t room;
    bool tracks;
};

/* The load functions load one section; token_added_finish() prepares the search, after all of
 * them. */
int token_added_load(struct text_tokenizer *tokenizer, const struct core_json *doc);
int token_added_finish(struct text_tokenizer *tokenizer);
int token_normalizer_load(struct text_tokenizer *tokenizer, const struct core_json *doc);
int token_pre_tokenizer_load(struct text_tokenizer *tokenizer, const struct core_json *doc);
int token_decoder_load(struct text_tokenizer *tokenizer, const struct core_json *doc);
int token_post_processor_load(struct text_tokenizer *tokenizer, const struct core_json *doc);
struct text_special;
/* Adds tokens that are missing in tokenizer.json, and warns of settings that differ from it.
 * `folder` is for messages. */
int token_added_extend(struct text_tokenizer *tokenizer, const struct text_special *special,
                       const char *folder);
void token_added_free(struct text_tokenizer *tokenizer);

/* Normalises a text into scratch->text[0]. `offset`: where the text begins in the original. */
int token_normalizer_run(struct text_scratch *scratch, const char *text, size_t bytes,
                         uint32_t offset);
/* Splits text[0][begin, end) and encodes the pieces. `first`: the text begins here. */
int token_pre_tokenizer_run(struct text_scratch *scratch, size_t begin, size_t end, bool first);
/* Encodes a piece of `text` and appends its ids. */
int token_bpe_run(struct text_scratch *scratch, const struct token_text *text, size_t begin,
                  size_t end);
int token_emit(struct text_scratch *scratch, uint32_t id, struct text_span span);
/* Finds the first added token at or after `from`, as `tokenizers` does. Writes the index and the
 * bounds of the token, including the spaces that the token strips (none before `done`); `from`
 * becomes the end of the token without spaces. Returns false if there is none. */
bool token_added_find(const struct text_tokenizer *tokenizer, const struct token_trie *trie,
                      const char *text, size_t bytes, size_t *from, size_t done, size_t bounds[2],
                      uint32_t *added);

/* A section being loaded. token_section_walk() calls the member function, with the type, for the
 * section's object or, if that is a Sequence, for the objects in it. */
struct token_section {
    struct text_tokenizer *tokenizer;
    const struct core_json *doc;
    const char *key; /* "normalizer" */
};
typedef int token_section_member(struct token_section *section, const struct core_json_value *value,
                                 const char *type);
int token_section_walk(struct token_section *section, const struct core_json_value *value,
                       const char *list, token_section_member *member);
int token_section_search(struct token_section *section, const struct core_json_value *object,
                         struct token_search *out);
/* Reads an optional member; *out becomes `otherwise` if the key is missing or null. */
int token_section_bool(struct token_section *section, const struct core_json_value *object,
                       const char *key, bool otherwise, bool *out);
int token_section_string(struct token_section *section, const struct core_json_value *object,
                         const char *key, char **out, size_t *bytes);
int token_section_refuse(struct token_section *section, const char *what, const char *name);

#endif
