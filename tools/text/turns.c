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

static int grow(void *array, size_t *room, size_t count, size_t size)
{
    void **owned = array;
    if (count <= *room) {
        return 0;
    }
    void *more = realloc(*owned, (count + count / 2) * size);
    if (more == NULL) {
        return core_err_set(-ENOMEM, "no memory for a conversation of %zu turns", count);
    }
    *owned = more;
    *room = count + count / 2;
    return 0;
}

int text_turns_add(struct text_turns *turns, size_t begin, size_t end)
{
    int code = grow(&turns->spans, &turns->room, turns->count + 1, sizeof *turns->spans);
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

/* White space behind a token that ends a turn belongs to the template. */
static size_t without_space(const struct text_turns_whole *whole, size_t begin, size_t end)
{
    size_t at = end;
    const char *text = whole->text->text;
    while (at > begin && strchr(" \n\r\t", text[at - 1]) != NULL) {
        at--;
    }
    const struct text_added *added;
    for (size_t i = 0; (added = text_tokenizer_added(whole->tokenizer, i)) != NULL; i++) {
        if (added->special && added->bytes > 0 && at - begin >= added->bytes &&
            memcmp(text + at - added->bytes, added->content, added->bytes) == 0) {
            return at;
        }
    }
    return end;
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

/* The beginnings that are asked for, ascending: in front of each turn of the assistant, but where
 * nothing stands there, and up to its end, but where that is the whole. */
static size_t list_prefixes(struct text_turns *turns, const struct core_json_value *messages)
{
    size_t count = 0;
    const size_t all = core_json_count(messages);
    for (size_t i = 0; i < all; i++) {
        if (!is_assistant(core_json_at(messages, i))) {
            continue;
        }
        if (i > 0) {
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

/* How far a beginning's text is the whole's. */
static int measure(struct text_turns *turns, const struct text_turns_whole *whole,
                   const struct text_template_prefix *prefix, size_t *out)
{
    size_t bytes = prefix->bytes;
    size_t same = prefix->common;
    if (!prefix->known) {
        struct text_rendering part = {0};
        int code = text_chat_render(whole->chat, turns->run, whole->row, prefix->messages,
                                    prefix->prompt, &part);
        if (code != 0) {
            return code;
        }
        bytes = part.bytes;
        same = common(whole->text, &part);
    }
    if (same < bytes) {
        say_ambiguous(turns);
    }
    *out = same;
    return 0;
}

/* The turn of message `index`; the next beginning is the first that belongs to it. */
static int find_turn(struct text_turns *turns, const struct text_turns_whole *whole, size_t index,
                     const struct text_template_prefix **next)
{
    size_t begin = 0;
    size_t end = whole->text->bytes;
    int code = 0;
    if (index > 0) {
        code = measure(turns, whole, (*next)++, &begin);
    }
    if (code == 0 && index + 1 < core_json_count(whole->row->messages)) {
        code = measure(turns, whole, (*next)++, &end);
    }
    if (code != 0) {
        return core_err_prefix(code, "messages[%zu]: what the assistant wrote cannot be told",
                               index);
    }
    end = without_space(whole, begin < end ? begin : end, end);
    return begin < end ? text_turns_add(turns, begin, end) : 0;
}

int text_turns_find(struct text_turns *turns, const struct text_turns_whole *whole)
{
    const struct core_json_value *messages = whole->row->messages;
    const size_t all = core_json_count(messages);
    turns->count = 0;
    int code = grow(&turns->prefixes, &turns->prefixes_room, 2 * all, sizeof *turns->prefixes);
    code = code == 0 ? text_template_run_keep(turns->run, messages) : code;
    if (code == 0) {
        find_on_the_way(turns, whole, list_prefixes(turns, messages));
    }
    const struct text_template_prefix *next = turns->prefixes;
    for (size_t i = 0; i < all && code == 0; i++) {
        if (is_assistant(core_json_at(messages, i))) {
            code = find_turn(turns, whole, i, &next);
        }
    }
    text_template_run_keep(turns->run, NULL);
    return code;
}
