/* row.h: a row of data, recognised by its keys and normalised for templates: sharegpt names become
 * roles, null keys are dropped, `system` becomes a turn. One thread. */
#ifndef TOOLS_TEXT_DATA_ROW_H
#define TOOLS_TEXT_DATA_ROW_H

#include <stdbool.h>
#include <stddef.h>

struct core_json;
struct core_json_value;

enum text_row_kind {
    TEXT_ROW_TEXT,            /* text */
    TEXT_ROW_COMPLETION,      /* prompt and completion as texts */
    TEXT_ROW_CHAT,            /* messages; conversations */
    TEXT_ROW_CHAT_COMPLETION, /* prompt and completion as messages; instruction, input, output */
    TEXT_ROW_PAIR,            /* chosen and rejected as texts, with or without prompt */
    TEXT_ROW_CHAT_PAIR,       /* chosen and rejected as messages, with or without prompt */
};

struct text_row {
    enum text_row_kind kind;
    /* the Alpaca format is used if the model has no template */
    bool instruction;
    struct core_json *source;        /* owned */
    struct core_json *made;          /* owned: the messages; NULL for plain text */
    struct core_json *made_rejected; /* owned: CHAT_PAIR: prompt and rejected answer */
    struct core_json *parsed;        /* owned: tools that were given as text */
    /* borrowed from source: TEXT, or the prompt of COMPLETION and PAIR; NUL-terminated except in
     * PAIR */
    const char *text;
    size_t text_bytes;
    const char *completion; /* the completion, or the chosen answer */
    size_t completion_bytes;
    const char *rejected; /* PAIR: the rejected answer */
    size_t rejected_bytes;
    /* borrowed, as are the members below; CHAT_PAIR: prompt and chosen answer */
    const struct core_json_value *messages;
    const struct core_json_value *rejected_messages; /* CHAT_PAIR: prompt and rejected answer */
    const struct core_json_value *tools;             /* NULL: none */
    const struct core_json_value *documents;         /* NULL: none */
    const struct core_json_value *variables;         /* chat_template_kwargs; NULL: none */
    size_t prompt_messages; /* CHAT_COMPLETION, CHAT_PAIR: messages of the prompt */
};

/* Parses a row; messages name the wrong key. On failure there is nothing to free. */
int text_row_parse(const char *json, size_t bytes, struct text_row *out);
/* Parses a row that must be a pair; text_row_parse() refuses pairs. */
int text_row_parse_pair(const char *json, size_t bytes, struct text_row *out);
void text_row_fini(struct text_row *row);

#endif
