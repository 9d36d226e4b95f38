/* turns.h: finds the replies of the assistant in a conversation whose template does not mark them:
 * the difference between renderings of the messages before and up to a turn (docs/data.md, chat
 * templates). Private to encode.c. One thread. */
#ifndef TOOLS_TEXT_DATA_TURNS_H
#define TOOLS_TEXT_DATA_TURNS_H

#include <stdbool.h>

#include "tools/text/jinja/jinja.h"

struct text_chat;
struct text_row;
struct text_tokenizer;

struct text_turns {
    struct jinja_span *spans; /* owned: in order */
    size_t count;
    size_t room;
    struct jinja_run *run; /* owned */
    char *prompt_text;     /* owned */
    size_t prompt_room;
    /* in prompt_text; text NULL: unknown */
    struct jinja_rendering prompt;
    bool prompt_asked;
    _Atomic bool *said_ambiguous; /* borrowed: shared by encoders; orders nothing */
};

int text_turns_init(struct text_turns *turns, _Atomic bool *said_ambiguous);
void text_turns_fini(struct text_turns *turns);

int text_turns_add(struct text_turns *turns, size_t begin, size_t end);

/* A conversation, its rendered text, and the tokenizer that knows the special tokens. */
struct text_turns_whole {
    const struct text_chat *chat;
    const struct text_tokenizer *tokenizer;
    const struct text_row *row;
    const struct jinja_rendering *text;
};

/* Finds the spans of one conversation. Fails if the template refuses to render the first messages
 * alone. */
int text_turns_find(struct text_turns *turns, const struct text_turns_whole *whole);

#endif
