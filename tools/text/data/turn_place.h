/* turn_place.h: finds where a turn is in the text of a whole conversation, by comparing this text
 * with that of the first messages alone, in which the template may write earlier turns or the turn
 * itself differently. Private to turns.c. One thread. */
#ifndef TOOLS_TEXT_DATA_TURN_PLACE_H
#define TOOLS_TEXT_DATA_TURN_PLACE_H

#include <stdbool.h>
#include <stddef.h>

struct core_json_value;
struct text_added;
struct jinja_rendering;
struct text_tokenizer;

/* One place, as an offset in the text of the whole conversation and as one in the text of its first
 * messages. */
struct text_turn_place {
    bool known;
    size_t whole;
    size_t part;
    size_t end; /* end of a turn in the whole; `whole` may be before its last token */
};

/* Returns the number of bytes after a place that are the same in both texts. */
size_t text_turn_place_common(const struct jinja_rendering *whole,
                              const struct jinja_rendering *part,
                              const struct text_turn_place *from);

/* Returns the special token that a text ends with, ignoring white space after it, which belongs to
 * the template; NULL: none. `end` becomes the place after the token. */
const struct text_added *text_turn_place_end_token(const struct text_tokenizer *tokenizer,
                                                   const char *text, size_t begin, size_t *end);
/* Returns the special token that a text begins with; NULL if there is none. */
const struct text_added *text_turn_place_token(const struct text_tokenizer *tokenizer,
                                               const char *text, size_t bytes);
/* Returns where the special token that contains `at` begins; `at` itself if no token does. */
size_t text_turn_place_before_token(const struct text_tokenizer *tokenizer, const char *text,
                                    size_t at);

/* Finds where the generation prompt begins in `prompted`, the text of the conversation with that
 * prompt: after the whole or, if the whole ends with a token that `prompted` lacks, at the token
 * that `prompted` has instead. Returns false if unknown. */
bool text_turn_place_prompt(const struct text_tokenizer *tokenizer,
                            const struct jinja_rendering *whole,
                            const struct jinja_rendering *prompted, size_t *begin);

/* Finds the first place in a text where the prompt is, and writes the prompt's end to *out. If the
 * text has only a beginning of the prompt, *cut is true, and *out is the end of the longest one.
 * Returns false if the text has no beginning of the prompt that is long enough to be one. */
bool text_turn_place_first(const struct text_tokenizer *tokenizer,
                           const struct jinja_rendering *text, const struct jinja_rendering *prompt,
                           size_t *out, bool *cut);

/* Finds the end of the turn that both texts begin with; `part` ends with the turn, `text`
 * continues. `message` is the message of the turn. Returns false if unknown; out->whole is then the
 * common length of both. */
bool text_turn_place_end(const struct text_tokenizer *tokenizer, const struct jinja_rendering *text,
                         const struct jinja_rendering *part, const struct core_json_value *message,
                         struct text_turn_place *out);

#endif
