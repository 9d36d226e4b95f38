/* turn_place.c: compares a rendering of the first messages with that of the whole conversation. */
#include "tools/text/data/turn_place.h"

#include <string.h>

#include "core/json/json.h"
#include "tools/text/jinja/jinja.h"
#include "tools/text/tokenizer/tokenizer.h"

size_t text_turn_place_common(const struct jinja_rendering *whole,
                              const struct jinja_rendering *part,
                              const struct text_turn_place *from)
{
    enum { STRIDE_BYTES = 256 }; /* memcmp is fast, but does not return the place */
    size_t left = from->whole;
    size_t right = from->part;
    while (left + STRIDE_BYTES <= whole->bytes && right + STRIDE_BYTES <= part->bytes &&
           memcmp(whole->text + left, part->text + right, STRIDE_BYTES) == 0) {
        left += STRIDE_BYTES;
        right += STRIDE_BYTES;
    }
    while (left < whole->bytes && right < part->bytes && whole->text[left] == part->text[right]) {
        left++;
        right++;
    }
    return left - from->whole;
}

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

static bool ends_with(const char *text, size_t bytes, const struct text_added *token)
{
    return token->bytes > 0 && bytes >= token->bytes &&
           memcmp(text + bytes - token->bytes, token->content, token->bytes) == 0;
}

const struct text_added *text_turn_place_end_token(const struct text_tokenizer *tokenizer,
                                                   const char *text, size_t begin, size_t *end)
{
    size_t at = *end;
    while (at > begin && is_blank(text[at - 1])) {
        at--;
    }
    const struct text_added *added;
    for (size_t i = 0; (added = text_tokenizer_added(tokenizer, i)) != NULL; i++) {
        if (added->special && ends_with(text + begin, at - begin, added)) {
            *end = at;
            return added;
        }
    }
    return NULL;
}

const struct text_added *text_turn_place_token(const struct text_tokenizer *tokenizer,
                                               const char *text, size_t bytes)
{
    const struct text_added *added;
    for (size_t i = 0; (added = text_tokenizer_added(tokenizer, i)) != NULL; i++) {
        if (added->special && added->bytes > 0 && added->bytes <= bytes &&
            memcmp(text, added->content, added->bytes) == 0) {
            return added;
        }
    }
    return NULL;
}

size_t text_turn_place_before_token(const struct text_tokenizer *tokenizer, const char *text,
                                    size_t at)
{
    const struct text_added *added;
    for (size_t i = 0; (added = text_tokenizer_added(tokenizer, i)) != NULL; i++) {
        for (size_t back = 1; back < added->bytes && back <= at; back++) {
            if (strncmp(text + at - back, added->content, added->bytes) == 0) {
                return at - back;
            }
        }
    }
    return at;
}

static bool is_closing(const struct text_tokenizer *tokenizer, const struct jinja_rendering *text,
                       size_t at)
{
    while (at < text->bytes) {
        const struct text_added *token = text_turn_place_token(tokenizer, text->text + at,
                                                               text->bytes - at);
        if (token == NULL && !is_blank(text->text[at])) {
            return false;
        }
        at += token != NULL ? token->bytes : 1;
    }
    return true;
}

bool text_turn_place_prompt(const struct text_tokenizer *tokenizer,
                            const struct jinja_rendering *whole,
                            const struct jinja_rendering *prompted, size_t *begin)
{
    const struct text_turn_place start = {0};
    size_t at = text_turn_place_common(whole, prompted, &start);
    if (at < whole->bytes) {
        at = text_turn_place_before_token(tokenizer, prompted->text, at);
        if (!is_closing(tokenizer, whole, at)) {
            return false;
        }
        while (at < prompted->bytes && is_blank(prompted->text[at])) {
            at++;
        }
        /* If there are two tokens, the first one ends the turn. */
        const struct text_added *token = text_turn_place_token(tokenizer, prompted->text + at,
                                                               prompted->bytes - at);
        const size_t next = at + (token != NULL ? token->bytes : 0);
        if (token == NULL) {
            return false;
        }
        if (text_turn_place_token(tokenizer, prompted->text + next, prompted->bytes - next) !=
            NULL) {
            at = next;
        }
    }
    *begin = at;
    return true;
}

bool text_turn_place_first(const struct text_tokenizer *tokenizer,
                           const struct jinja_rendering *text, const struct jinja_rendering *prompt,
                           size_t *out, bool *cut)
{
    const char *found = memmem(text->text, text->bytes, prompt->text, prompt->bytes);
    const struct text_added *token = text_turn_place_token(tokenizer, prompt->text, prompt->bytes);
    *cut = found == NULL;
    if (found != NULL) {
        *out = (size_t)(found - text->text) + prompt->bytes;
        return true;
    }
    size_t most = 0;
    for (size_t at = 0; token != NULL && at < text->bytes; at++) {
        found = memmem(text->text + at, text->bytes - at, token->content, token->bytes);
        if (found == NULL) {
            break;
        }
        at = (size_t)(found - text->text);
        const struct text_turn_place from = {.whole = at};
        const size_t same = text_turn_place_common(text, prompt, &from);
        if (same > most) {
            most = same;
            *out = at;
        }
    }
    most = text_turn_place_before_token(tokenizer, prompt->text, most);
    *out += most;
    /* Turns of all roles may begin with the same token, so that token alone is not enough. */
    return token != NULL && most >= token->bytes &&
           (most > token->bytes ||
            text_turn_place_token(tokenizer, prompt->text + most, prompt->bytes - most) != NULL);
}

static bool message_ends_with(const struct core_json_value *message, const struct text_added *token)
{
    size_t bytes = 0;
    const struct core_json_value *content = core_json_find(message, "content");
    if (content == NULL || core_json_kind(content) != CORE_JSON_STRING) {
        return false;
    }
    const char *text = core_json_string(content, &bytes);
    while (bytes > 0 && is_blank(text[bytes - 1])) {
        bytes--;
    }
    return ends_with(text, bytes, token);
}

/* Case 1: the part and the whole differ only in the last token of the turn, because the
 * conversation continues. */
static bool find_other_token(const struct text_tokenizer *tokenizer,
                             const struct jinja_rendering *whole,
                             const struct jinja_rendering *part,
                             const struct core_json_value *message, struct text_turn_place *out)
{
    const struct text_turn_place start = {0};
    size_t end = part->bytes;
    const struct text_added *token = text_turn_place_end_token(tokenizer, part->text, 0, &end);
    if (token == NULL || end - token->bytes > text_turn_place_common(whole, part, &start)) {
        return false;
    }
    end -= token->bytes;
    size_t ended = end;
    token = text_turn_place_end_token(tokenizer, part->text, 0, &ended);
    if (token == NULL || message_ends_with(message, token)) {
        token = text_turn_place_token(tokenizer, whole->text + end, whole->bytes - end);
        ended = end + (token != NULL ? token->bytes : 0);
    }
    *out = (struct text_turn_place){.known = true, .whole = end, .part = end, .end = ended};
    return true;
}

/* Case 2: the part has a text before the turn that the whole omits, such as reasoning. The turn
 * ends with the first occurrence of the part's last token, if the texts before match. */
static bool find_same_token(const struct text_tokenizer *tokenizer,
                            const struct jinja_rendering *whole, const struct jinja_rendering *part,
                            struct text_turn_place *out)
{
    size_t part_end = part->bytes;
    const struct text_added *token = text_turn_place_end_token(tokenizer, part->text, 0, &part_end);
    const char *found = token != NULL
                            ? memmem(whole->text, whole->bytes, token->content, token->bytes)
                            : NULL;
    if (found == NULL) {
        return false;
    }
    const size_t end = (size_t)(found - whole->text) + token->bytes;
    if (end > part_end || memcmp(whole->text, part->text + part_end - end, end) != 0) {
        return false;
    }
    *out = (struct text_turn_place){.known = true, .whole = end, .part = part_end, .end = end};
    return true;
}

/* Case 3: both differences occur. The turn ends with the first special token after the text that
 * the part has before its last token. */
static bool find_same_text(const struct text_tokenizer *tokenizer,
                           const struct jinja_rendering *whole, const struct jinja_rendering *part,
                           struct text_turn_place *out)
{
    bool begins[256] = {false};
    size_t part_end = part->bytes;
    const struct text_added *token = text_turn_place_end_token(tokenizer, part->text, 0, &part_end);
    if (token == NULL) {
        return false;
    }
    const size_t said = part_end - token->bytes;
    for (size_t i = 0; (token = text_tokenizer_added(tokenizer, i)) != NULL; i++) {
        begins[(unsigned char)token->content[0]] |= token->special && token->bytes > 0;
    }
    for (size_t at = 1; at <= said && at < whole->bytes; at++) {
        if (!begins[(unsigned char)whole->text[at]] ||
            whole->text[at - 1] != part->text[said - 1] ||
            memcmp(whole->text, part->text + said - at, at) != 0) {
            continue;
        }
        token = text_turn_place_token(tokenizer, whole->text + at, whole->bytes - at);
        if (token != NULL) {
            *out = (struct text_turn_place){true, at, said, at + token->bytes};
            return true;
        }
    }
    return false;
}

bool text_turn_place_end(const struct text_tokenizer *tokenizer, const struct jinja_rendering *text,
                         const struct jinja_rendering *part, const struct core_json_value *message,
                         struct text_turn_place *out)
{
    const struct text_turn_place start = {0};
    const size_t same = text_turn_place_common(text, part, &start);
    if (same == part->bytes) {
        *out = (struct text_turn_place){.known = true, .whole = same, .part = same, .end = same};
        return true;
    }
    if (find_other_token(tokenizer, text, part, message, out) ||
        find_same_token(tokenizer, text, part, out) || find_same_text(tokenizer, text, part, out)) {
        return true;
    }
    *out = (struct text_turn_place){
        .end = text_turn_place_before_token(tokenizer, text->text, same)};
    return false;
}
