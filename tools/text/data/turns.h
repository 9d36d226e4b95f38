/* turns.h: finds what the assistant wrote in the text of a conversation whose template does not
 * mark it: the part between the renderings of the messages before a turn and of those up to its
 * end, even if the template writes these messages differently in the whole (docs/data.md, chat
 * templates). Private to encode.c. One thread. */
#ifndef TOOLS_TEXT_DATA_TURNS_H
#define TOOLS_TEXT_DATA_TURNS_H

#include <stdbool.h>

#include "tools/text/jinja/jinja.h"

struct text_chat;
struct text_row;
struct text_tokenizer;

struct text_turns {
    struct jinja_span *spans; /* owned: spans of the last conversation, in order */
    size_t count;
    size_t room;
    struct jinja_run *run; /* owned: renders the beginnings */
    char *prompt_text;     /* owned */
    size_t prompt_room;
    /* the generation prompt of this conversation, in prompt_text; text NULL: unknown */
    struct jinja_rendering prompt;
    bool prompt_asked;
    _Atomic bool *said_ambiguous; /* borrowed: shared by several encoders; orders nothing */
};

int text_turns_init(struct text_turns *turns, _Atomic bool *said_ambiguous);
void text_turns_fini(struct text_turns *turns);

/* Appends a span. Returns 0 or -ENOMEM. */
int text_turns_add(struct text_turns *turns, size_t begin, size_t end);

/* A conversation: its row, the text that the template renders, and the tokenizer whose special
 * tokens end turns. */
struct text_turns_whole {
    const struct text_chat *chat;
    const struct text_tokenizer *tokenizer;
    const struct text_row *row;
    const struct jinja_rendering *text;
};

/* Fills the list for one conversation. Returns -EINVAL if the template refuses to render only its
 * first messages. */
int text_turns_find(struct text_turns *turns, const struct text_turns_whole *whole);

#endif
