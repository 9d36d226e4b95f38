/* row_chat.h: checks and normalises the turns of a conversation. Private to row.c. */
#ifndef TOOLS_TEXT_DATA_ROW_CHAT_H
#define TOOLS_TEXT_DATA_ROW_CHAT_H

#include <stddef.h>

struct core_json;
struct core_json_value;

/* Finds a member that is not null. */
const struct core_json_value *text_row_find(const struct core_json_value *object, const char *key);

struct text_row_turns {
    const char *key; /* key of the list in the row, for messages */
    const struct core_json_value *list;
    const struct core_json_value *system; /* NULL: none */
};

/* Makes a document [{"role": ...}, ...] of the turns of one or two lists. */
int text_row_chat_make(const struct text_row_turns *first, const struct text_row_turns *second,
                       struct core_json **out);
/* Returns the number of turns that are added before the list. */
size_t text_row_chat_adds(const struct text_row_turns *turns);

struct text_row_instruction {
    const struct core_json_value *instruction; /* a string, like `input` and `output` */
    const struct core_json_value *input;       /* NULL: none */
    const struct core_json_value *output;
    const struct core_json_value *system; /* NULL: none */
};

/* Makes a document of the system turn (if any), the user's turn and the answer. The user's turn
 * keeps the keys instruction and input. */
int text_row_chat_instruct(const struct text_row_instruction *parts, struct core_json **out);

#endif
