/* turn_place.h: where a turn lies in a whole conversation's text, told by the text of a beginning that may
 * write earlier turns, or the turn itself, otherwise. Private to turns.c. One thread. */
#ifndef TOOLS_TEXT_DATA_TURN_PLACE_H
#define TOOLS_TEXT_DATA_TURN_PLACE_H

#include <stdbool.h>
#include <stddef.h>

struct core_json_value;
struct text_added;
struct jinja_rendering;
struct text_tokenizer;

/* The same place in the text of the whole conversation and in that of a beginning. */
struct text_turn_place {
    bool known;
    size_t whole;
    size_t part;
    size_t end; /* where a turn ends in the whole; `whole` may be in front of its last token */
};

/* Number of bytes after a place that are the same in both texts. */
size_t text_turn_place_common(const struct jinja_rendering *whole,
                              const struct jinja_rendering *part,
                              const struct text_turn_place *from);

/* The special token that a text ends with, white space behind it aside, which belongs to the template;
 * NULL: none. `end` is then the place behind the token. */
const struct text_added *text_turn_place_end_token(const struct text_tokenizer *tokenizer,
                                                   const char *text, size_t begin, size_t *end);
/* The special token that a text begins with; NULL if there is none. */
const struct text_added *text_turn_place_token(const struct text_tokenizer *tokenizer,
                                               const char *text, size_t bytes);
/* Where the special token begins that contains `at`; `at` itself if none does. */
size_t text_turn_place_before_token(const struct text_tokenizer *tokenizer, const char *text,
                                    size_t at);

/* Where the prompt begins in the conversation's text with the prompt behind it: behind the whole, or, if
 * the whole ends with a token that the other does not have, at the token that stands there instead.
 * False: that cannot be told. */
bool text_turn_place_prompt(const struct text_tokenizer *tokenizer,
                            const struct jinja_rendering *whole,
                            const struct jinja_rendering *prompted, size_t *begin);

/* Writes to *out where the prompt ends at its first place in a text. If the text does not have all of it,
 * *cut is true, and *out is the end of the longest beginning of it that the text has. False: there is none
 * that begins a turn. */
bool text_turn_place_first(const struct text_tokenizer *tokenizer,
                           const struct jinja_rendering *text, const struct jinja_rendering *prompt,
                           size_t *out, bool *cut);

/* The end of the turn that both texts begin with, where `part` ends with it and `text` goes on. `message`
 * is the turn's. False: not known; out->whole is then what both have in common. */
bool text_turn_place_end(const struct text_tokenizer *tokenizer, const struct jinja_rendering *text,
                         const struct jinja_rendering *part, const struct core_json_value *message,
                         struct text_turn_place *out);

#endif
