/* match.c: runs a pattern at one place of a text. No allocation; recursion no deeper than a
 * branch has items. */
#include "tools/text/tokenizer/pattern.h"

struct subject {
    const struct token_pattern *pattern;
    const char *text;
    size_t bytes;
};

/* What is still to be matched: items, then the rest of the branch that a group stands in. */
struct rest {
    const struct token_item *item;
    const struct token_item *end;
    const struct rest *outer;
};

static size_t match_rest(const struct subject *in, struct rest rest, size_t at);

static bool looks(const struct subject *in, const struct token_item *item, size_t at)
{
    unsigned bytes;
    bool follows = at < in->bytes &&
                   (token_pattern_mask(in->pattern, in->text + at, &bytes) >> item->class & 1) != 0;
    return follows == item->positive;
}

/* Takes as many characters as it may, then gives them back one by one until the rest fits. */
static size_t match_run(const struct subject *in, struct rest rest, size_t at)
{
    const struct token_item *item = rest.item;
    uint64_t bit = UINT64_C(1) << item->class;
    uint32_t count = 0;
    unsigned bytes;
    while (count < item->max && at < in->bytes &&
           (token_pattern_mask(in->pattern, in->text + at, &bytes) & bit) != 0) {
        at += bytes;
        count++;
    }
    if (count < item->min) {
        return SIZE_MAX;
    }
    rest.item++;
    if (rest.item == rest.end && rest.outer == NULL) {
        return at;
    }
    for (;;) {
        size_t end = match_rest(in, rest, at);
        if (end != SIZE_MAX || count == item->min || item->possessive) {
            return end;
        }
        do {
            at--;
        } while (((unsigned char)in->text[at] & 0xC0) == 0x80);
        count--;
    }
}

static size_t match_group(const struct subject *in, struct rest rest, size_t at)
{
    const struct token_item *item = rest.item++;
    for (unsigned i = 0; i < item->branches; i++) {
        const struct token_branch *branch = &in->pattern->branch[item->branch + i];
        const struct token_item *first = &in->pattern->item[branch->item];
        size_t end = match_rest(
            in, (struct rest){.item = first, .end = first + branch->items, .outer = &rest}, at);
        if (end != SIZE_MAX) {
            return end;
        }
    }
    return item->min == 0 ? match_rest(in, rest, at) : SIZE_MAX;
}

static size_t match_rest(const struct subject *in, struct rest rest, size_t at)
{
    if (rest.item == rest.end) {
        return rest.outer == NULL ? at : match_rest(in, *rest.outer, at);
    }
    switch (rest.item->kind) {
    case TOKEN_ITEM_RUN: return match_run(in, rest, at);
    case TOKEN_ITEM_GROUP: return match_group(in, rest, at);
    case TOKEN_ITEM_LOOK: break;
    }
    if (!looks(in, rest.item, at)) {
        return SIZE_MAX;
    }
    rest.item++;
    return match_rest(in, rest, at);
}

size_t token_pattern_match(const struct token_pattern *pattern, const char *text, size_t bytes,
                           size_t at)
{
    const struct subject in = {.pattern = pattern, .text = text, .bytes = bytes};
    unsigned char c = (unsigned char)text[at];
    uint32_t branches = c < 128 ? pattern->starts_ascii[c] : pattern->starts_other;
    for (; branches != 0; branches &= branches - 1) {
        const struct token_branch *branch = &pattern->branch[__builtin_ctz(branches)];
        const struct token_item *first = &pattern->item[branch->item];
        size_t end = match_rest(&in, (struct rest){.item = first, .end = first + branch->items},
                                at);
        if (end != SIZE_MAX) {
            return end;
        }
    }
    return SIZE_MAX;
}
