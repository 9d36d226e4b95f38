/* turns.c: what the assistant wrote, told by the beginnings of a conversation. */
#include "tools/text/turns.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/log.h"
#include "tools/text/chat.h"
#include "tools/text/room.h"
#include "tools/text/row.h"
#include "tools/text/tokenizer.h"

/* So many conversations without any beginning found on the way, and it is not tried any more. */
enum { MISSES_MAX = 4 };

int text_turns_init(struct text_turns *turns, _Atomic bool *said_ambiguous)
{
    *turns = (struct text_turns){.said_ambiguous = said_ambiguous};
    return text_template_run_create(NULL, &turns->run);
}

void text_turns_fini(struct text_turns *turns)
{
    text_template_run_destroy(turns->run);
    free(turns->spans);
    free(turns->prefixes);
}

int text_turns_add(struct text_turns *turns, size_t begin, size_t end)
{
    int code = text_room_grow("a conversation", &turns->spans, &turns->room, turns->count + 1,
                              sizeof *turns->spans);
    if (code == 0) {
        turns->spans[turns->count++] = (struct text_template_span){begin, end};
    }
    return code;
}

static size_t common(const struct text_rendering *left, const struct text_rendering *right)
{
    size_t same = 0;
    while (same < left->bytes && same < right->bytes && left->text[same] == right->text[same]) {
        same++;
    }
    return same;
}

/* The special token that a turn ends with, white space behind it aside, which belongs to the template;
 * NULL: none. `end` is then the place behind the token. */
static const struct text_added *find_end_token(const struct text_tokenizer *tokenizer,
                                               const char *text, size_t begin, size_t *end)
{
    size_t at = *end;
    while (at > begin && strchr(" \n\r\t", text[at - 1]) != NULL) {
        at--;
    }
    const struct text_added *added;
    for (size_t i = 0; (added = text_tokenizer_added(tokenizer, i)) != NULL; i++) {
        if (added->special && added->bytes > 0 && at - begin >= added->bytes &&
            memcmp(text + at - added->bytes, added->content, added->bytes) == 0) {
            *end = at;
            return added;
        }
    }
    return NULL;
}

static void say_ambiguous(struct text_turns *turns)
{
    if (!atomic_exchange_explicit(turns->said_ambiguous, true, memory_order_relaxed)) {
        core_log(
            CORE_LOG_WARN,
            "the chat template writes the beginning of a conversation otherwise than the whole, "
            "so that what the assistant wrote is told by what both have in common; "
            "{%% generation %%} in the template would say it. Said once");
    }
}

static bool is_assistant(const struct core_json_value *message)
{
    return strcmp(core_json_string(core_json_find(message, "role"), NULL), "assistant") == 0;
}

/* The beginnings that are asked for, ascending: in front of each turn of the assistant, without and with
 * the prompt, but where nothing stands there, and up to its end, but where that is the whole. */
static size_t list_prefixes(struct text_turns *turns, const struct core_json_value *messages)
{
    size_t count = 0;
    const size_t all = core_json_count(messages);
    for (size_t i = 0; i < all; i++) {
        if (!is_assistant(core_json_at(messages, i))) {
            continue;
        }
        if (i > 0) {
            turns->prefixes[count++] = (struct text_template_prefix){.messages = i};
            turns->prefixes[count++] = (struct text_template_prefix){.messages = i, .prompt = true};
        }
        if (i + 1 < all) {
            turns->prefixes[count++] = (struct text_template_prefix){.messages = i + 1};
        }
    }
    return count;
}

/* Finds those that can be told on the way through the whole, where that is less work. */
static void find_on_the_way(struct text_turns *turns, const struct text_turns_whole *whole,
                            size_t count)
{
    struct text_template_prefixes asked = {
        .whole = whole->text, .items = turns->prefixes, .count = count};
    size_t work = 0;
    size_t known = 0;
    for (size_t i = 0; i < count; i++) {
        work += turns->prefixes[i].messages;
    }
    if (work <= 4 * core_json_count(whole->row->messages) || turns->misses >= MISSES_MAX) {
        return;
    }
    text_chat_prefixes(whole->chat, turns->run, whole->row, &asked);
    for (size_t i = 0; i < count; i++) {
        known += turns->prefixes[i].known;
    }
    turns->misses = known > 0 ? 0 : turns->misses + 1;
}

/* Renders a beginning by itself. */
static int read_prefix(struct text_turns *turns, const struct text_turns_whole *whole,
                       struct text_template_prefix *prefix, struct text_rendering *out)
{
    int code = text_chat_render(whole->chat, turns->run, whole->row, prefix->messages,
                                prefix->prompt, out);
    if (code == 0) {
        prefix->known = true;
        prefix->bytes = out->bytes;
        prefix->common = common(whole->text, out);
    }
    return code;
}

/* Is the beginning's text the whole's as well? Where not, `out` is that text. */
static int compare_prefix(struct text_turns *turns, const struct text_turns_whole *whole,
                          struct text_template_prefix *prefix, struct text_rendering *out)
{
    if (prefix->known && prefix->common == prefix->bytes) {
        return 0;
    }
    return read_prefix(turns, whole, prefix, out);
}

static bool agrees(const struct text_template_prefix *prefix)
{
    return prefix->common == prefix->bytes;
}

/* A place that was found in the whole and in a beginning, which may write earlier turns otherwise. */
struct place {
    bool known;
    size_t whole;
    size_t part;
};

/* Is what stands in front of a place, from an earlier one on, the same in both texts? */
static bool follows(const struct text_rendering *whole, const struct text_rendering *part,
                    const struct place *from, const struct place *to)
{
    const size_t gap = to->part - from->part;
    return from->known && to->part <= part->bytes && to->part > from->part &&
           to->whole <= whole->bytes &&
           memcmp(part->text + from->part, whole->text + from->whole, gap) == 0;
}

/* Back to the beginning of a token of the prompt that both texts share a part of. */
static size_t before_token(const struct text_tokenizer *tokenizer, const char *text, size_t at)
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

/* Right behind the prompt of a turn's beginning: where that is the whole's text, or where what it has
 * behind the turn before is what the whole has there. Else behind what both have of the prompt, if
 * nothing before it differs; and else it is not known. */
static int find_begin(struct text_turns *turns, const struct text_turns_whole *whole,
                      struct text_template_prefix prefixes[2], const struct place *before,
                      struct place *out)
{
    struct text_rendering part = {0};
    struct text_template_prefix *prompted = &prefixes[1];
    int code = compare_prefix(turns, whole, prompted, &part);
    if (code != 0) {
        return code;
    }
    *out = (struct place){.known = true, .whole = prompted->bytes, .part = prompted->bytes};
    if (agrees(prompted)) {
        return 0;
    }
    out->whole = before->whole + (part.bytes - before->part);
    if (part.bytes > before->part && follows(whole->text, &part, before, out)) {
        return 0;
    }
    say_ambiguous(turns);
    out->whole = before_token(whole->tokenizer, part.text, prompted->common);
    out->part = out->whole;
    code = compare_prefix(turns, whole, &prefixes[0], &part);
    out->known = code == 0 && agrees(&prefixes[0]) && prefixes[0].bytes <= out->whole;
    return code;
}

/* A first turn begins behind the first prompt, as the end of the whole is prompted, or where there is
 * none with the text; else it is not known. */
static int find_first_begin(struct text_turns *turns, const struct text_turns_whole *whole,
                            struct place *out)
{
    struct text_rendering part = {0};
    const struct text_rendering *text = whole->text;
    int code = text_chat_render(whole->chat, turns->run, whole->row, 0, true, &part);
    if (code != 0 && code != -EINVAL) {
        return code;
    }
    const char *found = NULL;
    const size_t bytes = part.bytes > text->bytes ? part.bytes - text->bytes : 0;
    if (code == 0 && part.bytes >= text->bytes && common(text, &part) == text->bytes) {
        found = memmem(text->text, text->bytes, part.text + text->bytes, bytes);
    }
    *out = (struct place){.known = found != NULL};
    if (found == NULL) {
        say_ambiguous(turns);
        return 0;
    }
    out->whole = (size_t)(found - text->text) + bytes;
    out->part = out->whole;
    return 0;
}

/* A turn of which the beginning has all but its last token as the whole has it: which ends the text
 * there, and is left out or is another one where the conversation goes on. */
static bool find_other_token(const struct text_tokenizer *tokenizer,
                             const struct text_rendering *whole, const struct text_rendering *part,
                             struct place *out)
{
    size_t end = part->bytes;
    const struct text_added *token = find_end_token(tokenizer, part->text, 0, &end);
    if (token == NULL || end - token->bytes > common(whole, part)) {
        return false;
    }
    const size_t part_end = end;
    end -= token->bytes;
    if (find_end_token(tokenizer, part->text, 0, &end) == NULL) {
        for (size_t i = 0; (token = text_tokenizer_added(tokenizer, i)) != NULL; i++) {
            if (token->special && token->bytes > 0 && token->bytes <= whole->bytes - end &&
                memcmp(whole->text + end, token->content, token->bytes) == 0) {
                end += token->bytes;
                break;
            }
        }
    }
    *out = (struct place){.known = true, .whole = end, .part = part_end};
    return true;
}

/* A turn that the beginning writes with something in front that the whole leaves out, thoughts: it ends
 * with the first token that ends it in the beginning, if all up to there is what that ends with. */
static bool find_same_token(const struct text_tokenizer *tokenizer,
                            const struct text_rendering *whole, const struct text_rendering *part,
                            struct place *out)
{
    size_t part_end = part->bytes;
    const struct text_added *token = find_end_token(tokenizer, part->text, 0, &part_end);
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
    *out = (struct place){.known = true, .whole = end, .part = part_end};
    return true;
}

/* Where the turn ends, by the beginning that ends with it; both texts begin with the turn. */
static void find_turn_end(struct text_turns *turns, const struct text_turns_whole *whole,
                          const struct text_rendering *text, const struct text_rendering *part,
                          struct place *out)
{
    const size_t same = common(text, part);
    if (same == part->bytes) {
        *out = (struct place){.known = true, .whole = same, .part = same};
    } else if (!find_other_token(whole->tokenizer, text, part, out) &&
               !find_same_token(whole->tokenizer, text, part, out)) {
        say_ambiguous(turns);
        *out = (struct place){.whole = same};
    }
}

/* Where the turn ends that begins at `begin`; `before` is the end of the turn before. */
static int find_end(struct text_turns *turns, const struct text_turns_whole *whole,
                    struct text_template_prefix *prefix, const struct place places[2],
                    struct place *out)
{
    struct text_rendering part = {0};
    const struct place *before = &places[0];
    const struct place *begin = &places[1];
    int code = compare_prefix(turns, whole, prefix, &part);
    if (code != 0) {
        return code;
    }
    *out = (struct place){.known = true, .whole = prefix->bytes, .part = prefix->bytes};
    if (agrees(prefix)) {
        return 0;
    }
    const bool same = prefix->common >= begin->whole;
    const size_t at = same ? begin->whole : begin->part;
    if (!same && !follows(whole->text, &part, before, begin)) {
        say_ambiguous(turns);
        *out = (struct place){.whole = begin->whole};
        return 0;
    }
    const struct text_rendering text = {.text = whole->text->text + begin->whole,
                                        .bytes = whole->text->bytes - begin->whole};
    part.text += at;
    part.bytes -= at;
    find_turn_end(turns, whole, &text, &part, out);
    out->whole += begin->whole;
    out->part += at;
    return 0;
}

/* The turn of message `index`; the next beginning is the first that belongs to it. */
static int find_turn(struct text_turns *turns, const struct text_turns_whole *whole, size_t index,
                     struct text_template_prefix **next, struct place *before)
{
    struct place places[2] = {*before};
    struct place *begin = &places[1];
    struct place end = {.whole = whole->text->bytes};
    int code = index == 0 ? find_first_begin(turns, whole, begin)
                          : find_begin(turns, whole, *next, before, begin);
    *next += index > 0 ? 2 : 0;
    if (code == 0 && index + 1 < core_json_count(whole->row->messages)) {
        code = begin->known ? find_end(turns, whole, *next, places, &end) : 0;
        (*next)++;
    }
    if (code != 0) {
        return core_err_prefix(code, "messages[%zu]: what the assistant wrote cannot be told",
                               index);
    }
    *before = end;
    before->known = end.known && begin->known;
    const size_t last = turns->count > 0 ? turns->spans[turns->count - 1].end : 0;
    if (!begin->known || begin->whole < last || begin->whole >= end.whole) {
        return 0;
    }
    find_end_token(whole->tokenizer, whole->text->text, begin->whole, &end.whole);
    return text_turns_add(turns, begin->whole, end.whole);
}

int text_turns_find(struct text_turns *turns, const struct text_turns_whole *whole)
{
    const struct core_json_value *messages = whole->row->messages;
    const size_t all = core_json_count(messages);
    turns->count = 0;
    int code = text_room_grow("a conversation", &turns->prefixes, &turns->prefixes_room, 3 * all,
                              sizeof *turns->prefixes);
    code = code == 0 ? text_template_run_keep(turns->run, messages) : code;
    if (code == 0) {
        find_on_the_way(turns, whole, list_prefixes(turns, messages));
    }
    struct text_template_prefix *next = turns->prefixes;
    struct place before = {.known = true};
    for (size_t i = 0; i < all && code == 0; i++) {
        if (is_assistant(core_json_at(messages, i))) {
            code = find_turn(turns, whole, i, &next, &before);
        }
    }
    text_template_run_keep(turns->run, NULL);
    return code;
}
