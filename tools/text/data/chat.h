/* chat.h: how a model's conversations become text: its own template, or a named format; and its
 * special tokens by name. Never changes after it was made: any thread may use it, with runs of its
 * own (jinja/jinja.h). */
#ifndef TOOLS_TEXT_DATA_CHAT_H
#define TOOLS_TEXT_DATA_CHAT_H

#include "tools/text/jinja/jinja.h"

struct text_chat;
struct text_row;

/* Of the folder's chat_template.jinja and additional_chat_templates (else tokenizer_config.json), the
 * files of special.h, generation_config.json and config.json, whichever are there. `format` NULL:
 * the model's own template, if it has one; -EINVAL for a name that is no format. `folder` may be
 * NULL. `now` is what strftime_now() of a template writes: see text_feed_options. */
int text_chat_load(const char *folder, const char *format, int64_t now, struct text_chat **out);
void text_chat_destroy(struct text_chat *chat);

/* The template for rows with or without tools; NULL where the model has none. */
const struct jinja_template *text_chat_template(const struct text_chat *chat, bool tools);
/* A special token's text: "bos_token", "eos_token" ...; NULL where the model names none. */
const char *text_chat_token(const struct text_chat *chat, const char *name);
/* The id that generation_config.json or config.json ends texts with; -1: none. */
int64_t text_chat_end(const struct text_chat *chat);
/* Of what is read: changes with template and special tokens. */
uint64_t text_chat_mark(const struct text_chat *chat);
/* Whether a template asks for the time. */
bool text_chat_dated(const struct text_chat *chat);

/* Renders the first `messages` of a row (0: all). */
int text_chat_render(const struct text_chat *chat, struct jinja_run *run,
                     const struct text_row *row, size_t messages, bool prompt,
                     struct jinja_rendering *out);

/* The names of formats with "|" between them, and the source of one; NULL where there is none. */
const char *text_chat_formats(void);
const char *text_chat_format(const char *name);

#endif
