/* row_chat.h: turns of a conversation, checked and made plain. Private to row.c. */
#ifndef TOOLS_TEXT_DATA_ROW_CHAT_H
#define TOOLS_TEXT_DATA_ROW_CHAT_H

#include <stddef.h>

struct core_json;
struct core_json_value;

struct text_row_turns {
    const char *key; /* of the list in the row, for messages */
    const struct core_json_value *list;
    const struct core_json_value *system; /* NULL: none */
};

/* The turns of one list, or of two after each other, as a document: [{"role": ...}, ...]. */
int text_row_chat_make(const struct text_row_turns *first, const struct text_row_turns *second,
                       struct core_json **out);
/* How many turns come in front of the list's. */
size_t text_row_chat_adds(const struct text_row_turns *turns);

struct text_row_instruction {
    const struct core_json_value *instruction; /* a string, as the next two */
    const struct core_json_value *input;       /* NULL: none */
    const struct core_json_value *output;
    const struct core_json_value *system; /* NULL: none */
};

/* A turn of the user, in which instruction and input also stand by themselves, and its answer. */
int text_row_chat_instruct(const struct text_row_instruction *parts, struct core_json **out);

#endif
