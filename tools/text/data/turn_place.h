/* turn_place.h: finds a turn in the text of a whole conversation by comparison with the text of the
 * first messages alone, where templates may write messages differently. Private to turns.c and
 * encode.c. One thread. */
#ifndef TOOLS_TEXT_DATA_TURN_PLACE_H
#define TOOLS_TEXT_DATA_TURN_PLACE_H

#include <stdbool.h>
#include <stddef.h>

struct core_json_value;
struct text_added;
struct jinja_rendering;
struct text_tokenizer;

/* A place as offsets in both texts. */
struct text_turn_place {
    bool known;
    size_t whole;
    size_t part;
    size_t end; /* end of a turn in the whole; `whole` may be before the last token of the turn */
};

/* Returns the number of equal bytes from a place on. */
size_t text_turn_place_common(const struct jinja_rendering *whole,
                              const struct jinja_rendering *part,
                              const struct text_turn_place *from);

/* Returns the special token at the end of a text, or NULL; ignores white space after it. `end`:
 * in, the end of the text; out, the end of the token. */
const struct text_added *text_turn_place_end_token(const struct text_tokenizer *tokenizer,
                                                   const char *text, size_t begin, size_t *end);
/* Returns the special token that a text begins with; NULL if there is none. */
const struct text_added *text_turn_place_token(const struct text_tokenizer *tokenizer,
                                               const char *text, size_t bytes);
/* Returns where the added token that contains `at` begins; `at` if there is none. */
size_t text_turn_place_before_token(const struct text_tokenizer *tokenizer, const char *text,
                                    size_t at);

/* Finds where the generation prompt begins in `prompted`, the conversation rendered with it: after
 * the whole or, if the whole ends with a token that `prompted` lacks, in place of that token.
 * Returns false if unknown. */
bool text_turn_place_prompt(const struct text_tokenizer *tokenizer,
                            const struct jinja_rendering *whole,
                            const struct jinja_rendering *prompted, size_t *begin);

/* Finds the end of the first occurrence of the prompt in a text. If only a beginning of the prompt
 * occurs, *cut is true and *out is the end of the longest such beginning. Returns false if none is
 * long enough. */
bool text_turn_place_first(const struct text_tokenizer *tokenizer,
                           const struct jinja_rendering *text, const struct jinja_rendering *prompt,
                           size_t *out, bool *cut);

/* Finds the end of the turn that `part` ends with; `text` continues. Returns false if unknown; then
 * out->end is the end of the common beginning. */
bool text_turn_place_end(const struct text_tokenizer *tokenizer, const struct jinja_rendering *text,
                         const struct jinja_rendering *part, const struct core_json_value *message,
                         struct text_turn_place *out);

#endif
