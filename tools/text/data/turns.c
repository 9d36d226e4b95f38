/* turns.c: finds the replies of the assistant by rendering beginnings of a conversation. */
#include "tools/text/data/turns.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/log.h"
#include "core/json/json.h"
#include "tools/text/data/array.h"
#include "tools/text/data/chat.h"
#include "tools/text/data/row.h"
#include "tools/text/data/turn_place.h"
#include "tools/text/tokenizer/tokenizer.h"

/* A beginning of the conversation, compared with the whole text. */
struct beginning {
    size_t messages;
    bool prompt;   /* rendered with the generation prompt */
    bool rendered; /* the members below are set */
    size_t bytes;  /* size of the text */
    size_t common; /* leading bytes that equal the whole */
};

int text_turns_init(struct text_turns *turns, _Atomic bool *said_ambiguous)
{
    *turns = (struct text_turns){.said_ambiguous = said_ambiguous};
    return jinja_run_create(NULL, &turns->run);
}

void text_turns_fini(struct text_turns *turns)
{
    jinja_run_destroy(turns->run);
    core_charge_free(turns->spans);
    core_charge_free(turns->prompt_text);
}

int text_turns_add(struct text_turns *turns, size_t begin, size_t end)
{
    int rc = array_reserve("turns of a conversation", &turns->spans, &turns->room, turns->count + 1,
                           sizeof *turns->spans);
    if (rc == 0) {
        turns->spans[turns->count++] = (struct jinja_span){begin, end};
    }
    return rc;
}

static void say_ambiguous(struct text_turns *turns)
{
    if (!atomic_exchange_explicit(turns->said_ambiguous, true, memory_order_relaxed)) {
        core_log(CORE_LOG_WARN,
                 "the chat template renders the beginning of a conversation differently from the "
                 "whole, so the assistant's text is inferred from what both have in common; {%% "
                 "generation %%} in the template would mark it exactly; this is reported once");
    }
}

static bool is_assistant(const struct core_json_value *message)
{
    return strcmp(core_json_string(core_json_find(message, "role"), NULL), "assistant") == 0;
}

static int read_prefix(struct text_turns *turns, const struct text_turns_whole *whole,
                       struct beginning *prefix, struct jinja_rendering *out)
{
    int rc = text_chat_render(whole->chat, turns->run, whole->row, prefix->messages, prefix->prompt,
                              out);
    if (rc == 0) {
        prefix->rendered = true;
        prefix->bytes = out->bytes;
        prefix->common = text_turn_place_common(whole->text, out, &(struct text_turn_place){0});
    }
    return rc;
}

/* Renders a beginning, unless it is known to equal the whole; sets `out` only if rendered. */
static int compare_prefix(struct text_turns *turns, const struct text_turns_whole *whole,
                          struct beginning *prefix, struct jinja_rendering *out)
{
    if (prefix->rendered && prefix->common == prefix->bytes) {
        return 0;
    }
    return read_prefix(turns, whole, prefix, out);
}

static bool is_prefix_of_whole(const struct beginning *prefix)
{
    return prefix->common == prefix->bytes;
}

static bool follows(const struct jinja_rendering *whole, const struct jinja_rendering *part,
                    const struct text_turn_place *from, const struct text_turn_place *to)
{
    const size_t gap = to->part - from->part;
    return from->known && to->part <= part->bytes && to->part >= from->part &&
           to->whole <= whole->bytes &&
           memcmp(part->text + from->part, whole->text + from->whole, gap) == 0;
}

/* Finds the prompt once per conversation; *out NULL: unknown. */
static int find_prompt(struct text_turns *turns, const struct text_turns_whole *whole,
                       const struct jinja_rendering **out)
{
    struct jinja_rendering part = {0};
    size_t at = 0;
    int rc = 0;
    if (!turns->prompt_asked) {
        rc = text_chat_render(whole->chat, turns->run, whole->row, 0, true, &part);
        turns->prompt_asked = true;
        turns->prompt.text = NULL;
        if (rc == 0 && text_turn_place_prompt(whole->tokenizer, whole->text, &part, &at)) {
            rc = array_reserve("bytes of a prompt", &turns->prompt_text, &turns->prompt_room,
                               part.bytes - at + 1, 1);
            if (rc != 0) {
                return rc;
            }
            turns->prompt = (struct jinja_rendering){.text = turns->prompt_text,
                                                     .bytes = part.bytes - at};
            memcpy(turns->prompt_text, part.text + at, part.bytes - at + 1);
        }
    }
    *out = turns->prompt.text != NULL ? &turns->prompt : NULL;
    return rc == -EINVAL ? 0 : rc; /* a template may refuse this rendering */
}

/* Moves a place past the generation prompt, if the whole text has it there. */
static int skip_prompt(struct text_turns *turns, const struct text_turns_whole *whole,
                       struct text_turn_place *at)
{
    const struct jinja_rendering *prompt = NULL;
    int rc = find_prompt(turns, whole, &prompt);
    if (rc == 0 && prompt != NULL && prompt->bytes <= whole->text->bytes - at->whole &&
        memcmp(whole->text->text + at->whole, prompt->text, prompt->bytes) == 0) {
        at->whole += prompt->bytes;
        at->part += prompt->bytes;
    }
    return rc;
}

/* Moves a place past the generation prompt, also if a token that ends the previous message is
 * before the prompt. */
static int skip_token(struct text_turns *turns, const struct text_turns_whole *whole,
                      struct text_turn_place *at)
{
    const size_t begin = at->whole;
    const struct text_added *token = text_turn_place_token(
        whole->tokenizer, whole->text->text + begin, whole->text->bytes - begin);
    int rc = skip_prompt(turns, whole, at);
    if (rc == 0 && at->whole == begin && token != NULL) {
        struct text_turn_place after = {true, begin + token->bytes, at->part + token->bytes, 0};
        rc = skip_prompt(turns, whole, &after);
        *at = after.whole > begin + token->bytes ? after : *at;
    }
    return rc;
}

/* Returns the end of the messages before a turn, or SIZE_MAX if the texts differ; *cut: only the
 * last token differs. */
static size_t find_front(const struct text_turns_whole *whole, const struct beginning *prefix,
                         const struct jinja_rendering *part, const struct text_turn_place *from,
                         bool *cut)
{
    *cut = false;
    if (is_prefix_of_whole(prefix)) {
        return from->whole == from->part ? prefix->bytes : SIZE_MAX;
    }
    if (!from->known || from->part > part->bytes) {
        return SIZE_MAX;
    }
    const size_t shared = from->part + text_turn_place_common(whole->text, part, from);
    size_t end = part->bytes;
    if (shared == end) {
        return shared;
    }
    const struct text_added *token = text_turn_place_end_token(whole->tokenizer, part->text,
                                                               from->part, &end);
    *cut = token != NULL && end - token->bytes <= shared;
    return *cut ? end - token->bytes : SIZE_MAX;
}

/* Finds where a turn begins if only the last token of the earlier messages differs before the
 * turn. */
static int find_cut_begin(struct text_turns *turns, const struct text_turns_whole *whole,
                          struct beginning *front, const struct text_turn_place from[2],
                          struct jinja_rendering *part, struct text_turn_place *out)
{
    size_t begin[2] = {0};
    bool prompted = false;
    for (size_t i = 0; i < 2; i++) {
        if (from[i].known && from[i].part <= part->bytes) {
            const size_t same = text_turn_place_common(whole->text, part, &from[i]);
            begin[i] = text_turn_place_before_token(whole->tokenizer, part->text,
                                                    from[i].part + same);
        }
    }
    int rc = compare_prefix(turns, whole, front, part);
    *out = (struct text_turn_place){0};
    for (size_t i = 0; i < 2 && rc == 0 && !out->known; i++) {
        bool cut;
        const size_t end = find_front(whole, front, part, &from[i], &cut);
        if (end <= begin[i]) {
            const size_t at = cut ? end : begin[i];
            *out = (struct text_turn_place){true, from[i].whole + at - from[i].part, at, 0};
            rc = cut ? skip_token(turns, whole, out) : 0;
            prompted = out->part > at;
        }
    }
    if (rc == 0 && !prompted) {
        say_ambiguous(turns);
    }
    return rc;
}

/* Skips the generation prompt in the whole text if rendering with it added nothing. */
static int pass_prompt(struct text_turns *turns, const struct text_turns_whole *whole,
                       struct beginning prefixes[2], struct text_turn_place *out)
{
    struct jinja_rendering part = {0};
    const struct jinja_rendering *text = whole->text;
    if (text_turn_place_token(whole->tokenizer, text->text + out->whole,
                              text->bytes - out->whole) == NULL) {
        return 0;
    }
    int rc = compare_prefix(turns, whole, &prefixes[0], &part);
    return rc == 0 && prefixes[0].bytes == prefixes[1].bytes ? skip_prompt(turns, whole, out) : rc;
}

/* A turn begins after the generation prompt if the text up to there matches, else after the part of
 * the prompt that matches. */
static int find_begin(struct text_turns *turns, const struct text_turns_whole *whole,
                      struct beginning prefixes[2], const struct text_turn_place *before,
                      struct text_turn_place *out)
{
    struct jinja_rendering part = {0};
    struct beginning *prompted = &prefixes[1];
    int rc = compare_prefix(turns, whole, prompted, &part);
    if (rc != 0) {
        return rc;
    }
    *out = (struct text_turn_place){
        .known = true, .whole = prompted->bytes, .part = prompted->bytes};
    if (is_prefix_of_whole(prompted)) {
        return pass_prompt(turns, whole, prefixes, out);
    }
    out->whole = before->whole + (part.bytes - before->part);
    if (part.bytes > before->part && follows(whole->text, &part, before, out)) {
        return pass_prompt(turns, whole, prefixes, out);
    }
    const struct text_turn_place from[2] = {{.known = true}, *before};
    return find_cut_begin(turns, whole, &prefixes[0], from, &part, out);
}

/* The first turn begins after the first generation prompt in the text, or after its longest part.
 * `first` NULL: the turn ends the text. */
static int find_first_begin(struct text_turns *turns, const struct text_turns_whole *whole,
                            struct beginning *first, struct text_turn_place *out)
{
    struct jinja_rendering part = {0};
    struct jinja_rendering text = *whole->text;
    const struct jinja_rendering *prompt = NULL;
    bool cut = false;
    int rc = first != NULL ? compare_prefix(turns, whole, first, &part) : 0;
    if (rc != 0 || (rc = find_prompt(turns, whole, &prompt)) != 0) {
        return rc;
    }
    text.bytes = first != NULL ? first->common : text.bytes;
    *out = (struct text_turn_place){0};
    out->known = prompt != NULL &&
                 text_turn_place_first(whole->tokenizer, &text, prompt, &out->whole, &cut);
    out->part = out->whole;
    if (!out->known || cut) {
        say_ambiguous(turns);
    }
    return 0;
}

/* The turn begins at places[1]; places[0] is the end of the previous turn. */
static int find_end(struct text_turns *turns, const struct text_turns_whole *whole,
                    struct beginning *prefix, const struct text_turn_place places[2],
                    struct text_turn_place *out)
{
    struct jinja_rendering part = {0};
    const struct text_turn_place *before = &places[0];
    const struct text_turn_place *begin = &places[1];
    int rc = compare_prefix(turns, whole, prefix, &part);
    if (rc != 0) {
        return rc;
    }
    const size_t bytes = prefix->bytes;
    *out = (struct text_turn_place){true, bytes, bytes, bytes};
    if (is_prefix_of_whole(prefix)) {
        return 0;
    }
    const bool same = prefix->common >= begin->whole;
    const size_t at = same ? begin->whole : begin->part;
    if (!same && !follows(whole->text, &part, before, begin)) {
        say_ambiguous(turns);
        *out = (struct text_turn_place){.end = begin->whole};
        return 0;
    }
    const struct jinja_rendering text = {.text = whole->text->text + begin->whole,
                                         .bytes = whole->text->bytes - begin->whole};
    part.text += at;
    part.bytes -= at;
    const struct core_json_value *message = core_json_at(whole->row->messages,
                                                         prefix->messages - 1);
    if (!text_turn_place_end(whole->tokenizer, &text, &part, message, out)) {
        say_ambiguous(turns);
    }
    out->whole += begin->whole;
    out->part += at;
    out->end += begin->whole;
    return 0;
}

/* `before`: in, the end of the previous turn; out, of this one. */
static int find_turn(struct text_turns *turns, const struct text_turns_whole *whole, size_t index,
                     struct text_turn_place *before)
{
    struct beginning fronts[2] = {{.messages = index}, {.messages = index, .prompt = true}};
    struct beginning through = {.messages = index + 1};
    struct text_turn_place places[2] = {*before};
    struct text_turn_place *begin = &places[1];
    struct text_turn_place end = {.end = whole->text->bytes};
    const bool goes_on = index + 1 < core_json_count(whole->row->messages);
    int rc = index == 0 ? find_first_begin(turns, whole, goes_on ? &through : NULL, begin)
                        : find_begin(turns, whole, fronts, before, begin);
    if (rc == 0 && goes_on && begin->known) {
        rc = find_end(turns, whole, &through, places, &end);
    }
    if (rc != 0) {
        return core_err_prefix(rc, "messages[%zu]: the assistant's text cannot be located", index);
    }
    *before = end;
    before->known = end.known && begin->known;
    const size_t last = turns->count > 0 ? turns->spans[turns->count - 1].end : 0;
    if (!begin->known || begin->whole < last || begin->whole >= end.end) {
        return 0;
    }
    text_turn_place_end_token(whole->tokenizer, whole->text->text, begin->whole, &end.end);
    return text_turns_add(turns, begin->whole, end.end);
}

int text_turns_find(struct text_turns *turns, const struct text_turns_whole *whole)
{
    const struct core_json_value *messages = whole->row->messages;
    const size_t all = core_json_count(messages);
    turns->count = 0;
    turns->prompt_asked = false;
    int rc = jinja_run_keep(turns->run, messages);
    struct text_turn_place before = {.known = true};
    for (size_t i = 0; i < all && rc == 0; i++) {
        if (is_assistant(core_json_at(messages, i))) {
            rc = find_turn(turns, whole, i, &before);
        }
    }
    jinja_run_keep(turns->run, NULL);
    return rc;
}
