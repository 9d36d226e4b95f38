/* chat.h: renders conversations by the template of a model or a named format, and finds special
 * tokens by name. Immutable after loading: any thread, with a jinja_run of its own. */
#ifndef TOOLS_TEXT_DATA_CHAT_H
#define TOOLS_TEXT_DATA_CHAT_H

#include "tools/text/jinja/jinja.h"

struct text_chat;
struct text_row;

/* Reads chat_template.jinja and additional_chat_templates, else the template in
 * tokenizer_config.json; special.h's files; generation_config.json; config.json. `folder` may be
 * NULL. `format` replaces the templates. `now`: see text_feed_options. */
int text_chat_load(const char *folder, const char *format, int64_t now, struct text_chat **out);
void text_chat_destroy(struct text_chat *chat);

/* Returns the template for rows with or without tools; NULL if the model has none. */
const struct jinja_template *text_chat_template(const struct text_chat *chat, bool tools);
/* Returns the text of a special token ("eos_token"); NULL if the model does not name it. */
const char *text_chat_token(const struct text_chat *chat, const char *name);
/* Returns the eos_token_id of generation_config.json or config.json; -1: none. */
int64_t text_chat_end(const struct text_chat *chat);
/* Returns whether a template may write the time (strftime_now). */
bool text_chat_dated(const struct text_chat *chat);

/* Renders the first `messages` messages of a row (0: all), with the generation prompt if
 * `prompt`. */
int text_chat_render(const struct text_chat *chat, struct jinja_run *run,
                     const struct text_row *row, size_t messages, bool prompt,
                     struct jinja_rendering *out);

/* Return the format names, separated by "|", and the source of a format (NULL: unknown). */
const char *text_chat_formats(void);
const char *text_chat_format(const char *name);
/* Refuses an unknown name; NULL is allowed. */
int text_chat_check_format(const char *format);

#endif
