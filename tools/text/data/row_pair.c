/* row_pair.c: reads {"prompt", "chosen", "rejected"} and {"chosen", "rejected"}. */
#include "tools/text/data/row_pair.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "core/base/err.h"
#include "core/json/json.h"
#include "tools/text/data/row.h"
#include "tools/text/data/row_chat.h"

static int refuse_missing(const struct text_row_pair *pair)
{
    static const char wanted[] =
        "with --loss dpo, each row is {\"prompt\", \"chosen\", \"rejected\"}, "
        "or only the last two if both begin with the prompt";
    if (pair->chosen == NULL && pair->rejected == NULL) {
        return core_err_set(-EINVAL, "the row has no chosen and rejected; %s", wanted);
    }
    return core_err_set(-EINVAL, "%s: is missing; %s", pair->chosen == NULL ? "chosen" : "rejected",
                        wanted);
}

/* Checks that the parts are all texts or all lists. */
static int check_kinds(const struct text_row_pair *pair)
{
    const struct {
        const char *key;
        const struct core_json_value *value;
    } parts[] = {{"chosen", pair->chosen}, {"rejected", pair->rejected}, {"prompt", pair->prompt}};
    const enum core_json_kind first = core_json_kind(pair->chosen);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].value == NULL) {
            continue;
        }
        const enum core_json_kind kind = core_json_kind(parts[i].value);
        if (kind != CORE_JSON_STRING && kind != CORE_JSON_ARRAY) {
            return core_err_set(-EINVAL, "%s: is %s; expected a string or a list of messages",
                                parts[i].key, core_json_kind_name(kind));
        }
        if (kind != first) {
            return core_err_set(-EINVAL,
                                "%s: is %s, but chosen is %s; all must be strings, or all lists of "
                                "messages%s",
                                parts[i].key, core_json_kind_name(kind), core_json_kind_name(first),
                                parts[i].value == pair->prompt
                                    ? " (omit prompt if both answers begin with it)"
                                    : "");
        }
    }
    return 0;
}

/* ---- texts ---- */

/* A space at the end of the common prompt belongs to the first token of the answers. No answer is
 * empty. */
static size_t find_prompt(const char *chosen, const char *rejected, size_t least)
{
    size_t same = 0;
    while (same < least && chosen[same] == rejected[same]) {
        same++;
    }
    const bool differ = same < least;
    same -= !differ;
    while (same > 0 && ((unsigned char)chosen[same] & 0xc0) == 0x80) { /* inside a character */
        same--;
    }
    return differ && same > 0 && chosen[same - 1] == ' ' ? same - 1 : same;
}

static int read_texts(struct text_row *row, const struct text_row_pair *pair)
{
    row->kind = TEXT_ROW_PAIR;
    row->completion = core_json_string(pair->chosen, &row->completion_bytes);
    row->rejected = core_json_string(pair->rejected, &row->rejected_bytes);
    if (row->completion_bytes == 0 || row->rejected_bytes == 0) {
        return core_err_set(-EINVAL, "%s: is empty",
                            row->completion_bytes == 0 ? "chosen" : "rejected");
    }
    if (pair->prompt != NULL) {
        row->text = core_json_string(pair->prompt, &row->text_bytes);
        return 0;
    }
    row->text = row->completion;
    row->text_bytes = find_prompt(
        row->completion, row->rejected,
        row->completion_bytes < row->rejected_bytes ? row->completion_bytes : row->rejected_bytes);
    row->completion += row->text_bytes;
    row->completion_bytes -= row->text_bytes;
    row->rejected += row->text_bytes;
    row->rejected_bytes -= row->text_bytes;
    return 0;
}

/* ---- messages ---- */

static bool is_number(enum core_json_kind kind)
{
    return kind == CORE_JSON_INTEGER || kind == CORE_JSON_REAL;
}

static bool equal_strings(const struct core_json_value *left, const struct core_json_value *right)
{
    size_t bytes;
    size_t other_bytes;
    const char *text = core_json_string(left, &bytes);
    const char *other = core_json_string(right, &other_bytes);
    return bytes == other_bytes && memcmp(text, other, bytes) == 0;
}

/* Compares as Python does: members in any order, 1 is 1.0. */
static bool are_equal(const struct core_json_value *left, const struct core_json_value *right)
{
    struct core_json_member member;
    const enum core_json_kind kind = core_json_kind(left);
    if (is_number(kind) && is_number(core_json_kind(right))) {
        const double a = core_json_real(left);
        const double b = core_json_real(right);
        return !(a < b) && !(a > b);
    }
    if (kind != core_json_kind(right) || core_json_count(left) != core_json_count(right)) {
        return false;
    }
    if (kind == CORE_JSON_STRING) {
        return equal_strings(left, right);
    }
    if (kind == CORE_JSON_BOOL) {
        return core_json_bool(left) == core_json_bool(right);
    }
    for (size_t i = 0; kind == CORE_JSON_ARRAY && i < core_json_count(left); i++) {
        if (!are_equal(core_json_at(left, i), core_json_at(right, i))) {
            return false;
        }
    }
    bool any = kind == CORE_JSON_OBJECT && core_json_first(left, &member);
    for (; any; any = core_json_next(&member)) {
        const struct core_json_value *other = core_json_find(right, member.key);
        if (other == NULL || !are_equal(member.value, other)) {
            return false;
        }
    }
    return true;
}

/* The last message of a conversation is not in the prompt. */
static size_t count_prompt(const struct text_row *row)
{
    size_t same = 0;
    const struct core_json_value *chosen = core_json_root(row->made);
    const struct core_json_value *rejected = core_json_root(row->made_rejected);
    while (same + 1 < core_json_count(chosen) && same + 1 < core_json_count(rejected) &&
           are_equal(core_json_at(chosen, same), core_json_at(rejected, same))) {
        same++;
    }
    return same;
}

static int read_chats(struct text_row *row, const struct text_row_pair *pair)
{
    const struct text_row_turns prompt = {
        .key = "prompt", .list = pair->prompt, .system = pair->system};
    /* If the answers repeat the prompt, the system turn precedes each of them. */
    const struct core_json_value *system = pair->prompt == NULL ? pair->system : NULL;
    const struct text_row_turns chosen = {.key = "chosen", .list = pair->chosen, .system = system};
    const struct text_row_turns rejected = {
        .key = "rejected", .list = pair->rejected, .system = system};
    const bool apart = pair->prompt != NULL;
    row->kind = TEXT_ROW_CHAT_PAIR;
    int rc = text_row_chat_make(apart ? &prompt : &chosen, apart ? &chosen : NULL, &row->made);
    if (rc != 0 || (rc = text_row_chat_make(apart ? &prompt : &rejected, apart ? &rejected : NULL,
                                            &row->made_rejected)) != 0) {
        return rc;
    }
    row->prompt_messages = apart ? core_json_count(pair->prompt) + text_row_chat_adds(&prompt)
                                 : count_prompt(row);
    return row->prompt_messages > 0
               ? 0
               : core_err_set(-EINVAL, "chosen and rejected have no message in common before their "
                                       "last ones, and there is no prompt");
}

int text_row_pair_read(struct text_row *row, const struct text_row_pair *pair)
{
    if (pair->chosen == NULL || pair->rejected == NULL) {
        return refuse_missing(pair);
    }
    int rc = check_kinds(pair);
    if (rc != 0) {
        return rc;
    }
    return core_json_kind(pair->chosen) == CORE_JSON_STRING ? read_texts(row, pair)
                                                            : read_chats(row, pair);
}
