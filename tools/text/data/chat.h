/* chat.h: renders conversations as text, by the template of a model or a named format, and finds
 * the special tokens of the model by name. Immutable after loading: any thread may use it, with a
 * run of its own (jinja/jinja.h). */
#ifndef TOOLS_TEXT_DATA_CHAT_H
#define TOOLS_TEXT_DATA_CHAT_H

#include "tools/text/jinja/jinja.h"

struct text_chat;
struct text_row;

/* Reads the files that the folder has: chat_template.jinja and additional_chat_templates or,
 * without these, the template in tokenizer_config.json; the files of special.h;
 * generation_config.json and config.json. A `format` replaces the templates; -EINVAL for an unknown
 * one. `folder` may be NULL. `now` is the time for strftime_now() in templates: see
 * text_feed_options. */
int text_chat_load(const char *folder, const char *format, int64_t now, struct text_chat **out);
void text_chat_destroy(struct text_chat *chat);

/* Returns the template for rows with or without tools; NULL if the model has none. */
const struct jinja_template *text_chat_template(const struct text_chat *chat, bool tools);
/* Returns the text of a special token, "bos_token", "eos_token" ...; NULL if the model does not
 * name it. */
const char *text_chat_token(const struct text_chat *chat, const char *name);
/* Returns the eos_token_id of generation_config.json or config.json; -1: none. */
int64_t text_chat_end(const struct text_chat *chat);
/* Returns whether a template uses the time. */
bool text_chat_dated(const struct text_chat *chat);

/* Renders the first `messages` messages of a row (0: all), with the generation prompt if `prompt`.
 * Returns 0, or -errno with a message. */
int text_chat_render(const struct text_chat *chat, struct jinja_run *run,
                     const struct text_row *row, size_t messages, bool prompt,
                     struct jinja_rendering *out);

/* Return the names of the formats, separated by "|", and the source of a format (NULL: unknown). */
const char *text_chat_formats(void);
const char *text_chat_format(const char *name);
/* Returns -EINVAL for an unknown name; NULL is allowed. */
int text_chat_check_format(const char *format);

#endif
