/* pattern.c: parses regular expressions in one pass, and matches them. Anything that pattern.h does
 * not describe is -ENOTSUP. */
#include "tools/text/tokenizer/pattern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"

struct set {
    uint64_t ascii[2];
    uint64_t kinds;
    struct token_stretch stretch[16];
    unsigned stretches;
};

struct reader {
    struct token_pattern *out;
    const char *at;
    const char *end;
    bool fold; /* inside (?i: ) */
};

static void set_add_kinds(struct set *set, uint64_t kinds, const struct token_unicode *unicode)
{
    set->kinds |= kinds;
    for (uint32_t c = 0; c < 128; c++) {
        set->ascii[c / 64] |= (kinds >> token_kind_of(unicode, c) & 1) << (c % 64);
    }
}

static bool set_add_range(struct set *set, uint32_t from, uint32_t to)
{
    for (uint32_t c = from; c <= to && c < 128; c++) {
        set->ascii[c / 64] |= UINT64_C(1) << (c % 64);
    }
    if (to >= 128) {
        if (set->stretches == sizeof set->stretch / sizeof set->stretch[0]) {
            return false;
        }
        set->stretch[set->stretches++] = (struct token_stretch){
            .from = from < 128 ? 128 : from, .to = to, .in = true};
    }
    return true;
}

/* Reads \p{Name}, after the p. */
static bool read_property(struct reader *in, uint64_t *kinds)
{
    if (in->at >= in->end || *in->at != '{') {
        return false;
    }
    const char *close = memchr(in->at, '}', (size_t)(in->end - in->at));
    if (close == NULL) {
        return false;
    }
    *kinds = token_kinds_named(in->at + 1, (size_t)(close - in->at - 1));
    in->at = close + 1;
    return *kinds != 0;
}

/* Reads an escape, after the backslash. *point is the character, or UINT32_MAX if there are
 * several. */
static bool read_escape(struct reader *in, bool in_class, struct set *set, uint32_t *point)
{
    static const char letters[] = "nrtfv";
    static const char values[] = "\n\r\t\f\v";
    if (in->at >= in->end || (unsigned char)*in->at >= 0x80) {
        return false;
    }
    char c = *in->at++;
    uint64_t kinds = 0;
    *point = UINT32_MAX;
    if (strchr("sSwWdDpP", c) != NULL) {
        bool outside = c < 'a';
        char lower = (char)(c | 32);
        if (lower == 'p' ? !read_property(in, &kinds) : false) {
            return false;
        }
        kinds = lower == 's'   ? token_kinds_flagged(TOKEN_FLAG_SPACE)
                : lower == 'w' ? token_kinds_word(in_class)
                : lower == 'd' ? token_kinds_named("Nd", 2)
                               : kinds;
        set_add_kinds(set, outside ? ~kinds : kinds, in->out->unicode);
        return true;
    }
    const char *known = strchr(letters, c);
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (known == NULL && letter) {
        return false;
    }
    *point = known != NULL ? (uint32_t)values[known - letters] : (uint32_t)c;
    return set_add_range(set, *point, *point);
}

/* Reads a character, a range or an escape. */
static bool read_member(struct reader *in, struct set *set)
{
    uint32_t from;
    unsigned bytes;
    if (*in->at == '[' || (*in->at == '&' && in->end - in->at > 1 && in->at[1] == '&')) {
        return false;
    }
    if (*in->at == '\\') {
        in->at++;
        if (!read_escape(in, true, set, &from)) {
            return false;
        }
    } else {
        from = token_point(in->at, &bytes);
        in->at += bytes;
    }
    if (from == UINT32_MAX || in->end - in->at < 2 || in->at[0] != '-' || in->at[1] == ']') {
        return from == UINT32_MAX || set_add_range(set, from, from);
    }
    in->at++;
    uint32_t to;
    if (*in->at == '\\') {
        in->at++;
        return read_escape(in, true, set, &to) && to != UINT32_MAX && to >= from &&
               set_add_range(set, from, to);
    }
    to = token_point(in->at, &bytes);
    in->at += bytes;
    return *in->at != '[' && to >= from && set_add_range(set, from, to);
}

static void set_invert(struct set *set)
{
    set->ascii[0] = ~set->ascii[0];
    set->ascii[1] = ~set->ascii[1];
    set->kinds = ~set->kinds;
    for (unsigned i = 0; i < set->stretches; i++) {
        set->stretch[i].in = !set->stretch[i].in;
    }
}

/* Reads [...], after the bracket. */
static bool read_class(struct reader *in, struct set *set)
{
    bool inverted = in->at < in->end && *in->at == '^';
    in->at += inverted;
    bool any = false;
    while (in->at < in->end && *in->at != ']') {
        if (!read_member(in, set)) {
            return false;
        }
        any = true;
    }
    if (in->at++ >= in->end || !any) {
        return false;
    }
    if (inverted) {
        set_invert(set);
    }
    return true;
}

static bool read_letter(struct reader *in, struct set *set)
{
    unsigned bytes;
    uint32_t point = token_point(in->at, &bytes);
    uint32_t lower = point | 32;
    in->at += bytes;
    if (in->fold && point >= 128) {
        return false;
    }
    if (in->fold && lower >= 'a' && lower <= 'z') {
        /* Without case, U+017F (long s) and U+212A (Kelvin sign) match s and k. */
        uint32_t far = lower == 's' ? 0x17F : lower == 'k' ? 0x212A : lower;
        return set_add_range(set, lower, lower) && set_add_range(set, far, far) &&
               set_add_range(set, lower - 32, lower - 32);
    }
    return set_add_range(set, point, point);
}

/* Gives the class the next free bit. Returns false if there is no class here, or it is not
 * supported. */
static bool read_set(struct reader *in, uint8_t *class)
{
    struct token_pattern *out = in->out;
    struct set set = {0};
    uint32_t point;
    bool fine;
    if (*in->at == '[') {
        in->at++;
        fine = !in->fold && read_class(in, &set);
    } else if (*in->at == '\\') {
        in->at++;
        fine = !in->fold && read_escape(in, false, &set, &point);
    } else {
        fine = strchr("()|?*+{}.^$]", *in->at) == NULL && read_letter(in, &set);
    }
    if (!fine || out->classes == TOKEN_CLASSES_MAX ||
        out->stretches + set.stretches > sizeof out->stretch / sizeof out->stretch[0]) {
        return false;
    }
    uint64_t bit = UINT64_C(1) << out->classes;
    for (unsigned c = 0; c < 128; c++) {
        out->ascii[c] |= (set.ascii[c / 64] >> (c % 64) & 1) != 0 ? bit : 0;
    }
    for (unsigned i = 0; i < TOKEN_KINDS_MAX; i++) {
        out->kind[i] |= (set.kinds >> i & 1) != 0 ? bit : 0;
    }
    for (unsigned i = 0; i < set.stretches; i++) {
        set.stretch[i].mask = bit;
        out->stretch[out->stretches++] = set.stretch[i];
    }
    *class = (uint8_t)out->classes++;
    return true;
}

static uint32_t read_number(struct reader *in)
{
    uint32_t value = 0;
    while (in->at < in->end && *in->at >= '0' && *in->at <= '9' && value < 100000) {
        value = value * 10 + (uint32_t)(*in->at++ - '0');
    }
    return value;
}

/* Reads {n}, {n,} or {n,m}, after the brace. */
static bool read_counts(struct reader *in, struct token_item *item)
{
    const char *from = in->at;
    item->min = read_number(in);
    item->max = item->min;
    if (in->at == from || in->at >= in->end) {
        return false;
    }
    if (*in->at == ',') {
        in->at++;
        from = in->at;
        item->max = read_number(in);
        item->max = in->at == from ? TOKEN_ENDLESS : item->max;
    }
    return in->at < in->end && *in->at++ == '}' && item->min <= item->max && item->max > 0 &&
           (in->at >= in->end || strchr("+?*{", *in->at) == NULL);
}

static bool read_quantifier(struct reader *in, struct token_item *item)
{
    item->min = 1;
    item->max = 1;
    if (in->at >= in->end || *in->at == '\0' || strchr("?*+{", *in->at) == NULL) {
        return true;
    }
    char c = *in->at++;
    if (c == '{') {
        return read_counts(in, item);
    }
    item->min = c == '+';
    item->max = c == '?' ? 1 : TOKEN_ENDLESS;
    item->possessive = in->at < in->end && *in->at == '+';
    in->at += item->possessive;
    return in->at >= in->end || *in->at == '\0' || strchr("?*{", *in->at) == NULL;
}

static bool starts_with(const struct reader *in, const char *text)
{
    size_t bytes = strlen(text);
    return (size_t)(in->end - in->at) >= bytes && memcmp(in->at, text, bytes) == 0;
}

static bool read_item(struct reader *in, struct token_item *item)
{
    bool look = starts_with(in, "(?!") || starts_with(in, "(?=");
    item->kind = look ? TOKEN_ITEM_LOOK : TOKEN_ITEM_RUN;
    if (look) {
        item->positive = in->at[2] == '=';
        in->at += 3;
        return in->at < in->end && read_set(in, &item->class) && in->at < in->end &&
               *in->at++ == ')';
    }
    return read_set(in, &item->class) && read_quantifier(in, item);
}

static bool read_group_branches(struct reader *in, struct token_item *group)
{
    struct token_pattern *out = in->out;
    group->branch = (uint16_t)out->branches;
    for (bool more = true; more; in->at += more) {
        if (out->branches == TOKEN_BRANCHES_MAX) {
            return false;
        }
        struct token_branch branch = {.item = (uint16_t)out->items};
        while (in->at < in->end && *in->at != '|' && *in->at != ')') {
            struct token_item item = {0};
            if (out->items == TOKEN_ITEMS_MAX || !read_item(in, &item)) {
                return false;
            }
            out->item[out->items++] = item;
            branch.items++;
        }
        out->branch[out->branches++] = branch;
        group->branches++;
        more = in->at < in->end && *in->at == '|';
    }
    return in->at < in->end && *in->at++ == ')';
}

static bool read_group(struct reader *in, struct token_item *item)
{
    item->kind = TOKEN_ITEM_GROUP;
    bool folds = starts_with(in, "(?i:");
    if (!folds && !starts_with(in, "(?:") && starts_with(in, "(?")) {
        return false;
    }
    in->at += folds ? 4 : starts_with(in, "(?:") ? 3 : 1;
    in->fold = folds;
    bool fine = read_group_branches(in, item);
    in->fold = false;
    return fine && read_quantifier(in, item) && item->max == 1 && !item->possessive;
}

static bool takes_character(const struct token_pattern *pattern, const struct token_item *item)
{
    bool all = item->min > 0 && item->kind != TOKEN_ITEM_LOOK;
    for (unsigned i = 0; i < item->branches && all; i++) {
        const struct token_branch *branch = &pattern->branch[item->branch + i];
        all = branch->items > 0 && takes_character(pattern, &pattern->item[branch->item]);
    }
    return all;
}

/* The items of a branch must be adjacent, so they are appended after those of its groups. */
static bool read_branch(struct reader *in, struct token_branch *branch)
{
    struct token_item items[32];
    unsigned count = 0;
    bool takes_any = false; /* PCRE2 runs branches that may match nothing */
    while (in->at < in->end && *in->at != '|') {
        struct token_item item = {0};
        bool group = *in->at == '(' && !starts_with(in, "(?!") && !starts_with(in, "(?=");
        if (count == 32 || !(group ? read_group(in, &item) : read_item(in, &item))) {
            return false;
        }
        takes_any |= takes_character(in->out, &item);
        items[count++] = item;
    }
    if (!takes_any || in->out->items + count > TOKEN_ITEMS_MAX) {
        return false;
    }
    branch->item = (uint16_t)in->out->items;
    branch->items = (uint16_t)count;
    memcpy(in->out->item + in->out->items, items, count * sizeof items[0]);
    in->out->items += count;
    return true;
}

/* Returns all classes if a look-ahead decides or the branch may be empty. */
static uint64_t first_classes(const struct token_pattern *pattern, struct token_branch branch)
{
    uint64_t classes = 0;
    for (unsigned i = 0; i < branch.items; i++) {
        const struct token_item *item = &pattern->item[branch.item + i];
        if (item->kind == TOKEN_ITEM_LOOK) {
            return UINT64_MAX;
        }
        for (unsigned k = 0; item->kind == TOKEN_ITEM_GROUP && k < item->branches; k++) {
            classes |= first_classes(pattern, pattern->branch[item->branch + k]);
        }
        classes |= item->kind == TOKEN_ITEM_RUN ? UINT64_C(1) << item->class : 0;
        if (item->min > 0) {
            return classes;
        }
    }
    return UINT64_MAX;
}

static bool read_pattern(struct reader *in)
{
    struct token_pattern *out = in->out;
    unsigned top = 1;
    for (const char *at = in->at; at < in->end; at++) {
        top += *at == '|'; /* at least as many as there are branches */
    }
    out->branches = top > TOKEN_TOP_MAX ? TOKEN_TOP_MAX : top;
    for (bool more = true; more; in->at += more) {
        if (out->top == TOKEN_TOP_MAX || !read_branch(in, &out->branch[out->top])) {
            return false;
        }
        out->top++;
        more = in->at < in->end && *in->at == '|';
    }
    for (unsigned i = 0; i < out->top; i++) {
        uint64_t first = first_classes(out, out->branch[i]);
        out->starts_other |= UINT32_C(1) << i;
        for (unsigned c = 0; c < 128; c++) {
            bool may = first == UINT64_MAX || (out->ascii[c] & first) != 0;
            out->starts_ascii[c] |= (uint32_t)may << i;
        }
    }
    return in->at == in->end;
}

int token_pattern_create(const struct token_unicode *unicode, const char *regex, size_t bytes,
                         struct token_pattern **out)
{
    struct token_pattern *pattern = core_charge_zeroed(1, sizeof *pattern);
    if (pattern == NULL) {
        return core_err_set(-ENOMEM, "no memory for a pattern of %zu bytes", bytes);
    }
    pattern->unicode = unicode;
    struct reader in = {.out = pattern, .at = regex, .end = regex + bytes};
    if (memchr(regex, '\0', bytes) != NULL || !read_pattern(&in)) {
        core_charge_free(pattern);
        return -ENOTSUP;
    }
    *out = pattern;
    return 0;
}

void token_pattern_destroy(struct token_pattern *pattern)
{
    core_charge_free(pattern);
}

/* ---- matching: without allocation; the items of the pattern limit the recursion ---- */

struct subject {
    const struct token_pattern *pattern;
    const char *text;
    size_t bytes;
};

/* The items still to match: those of a branch, then those after its group. */
struct rest {
    const struct token_item *item;
    const struct token_item *end;
    const struct rest *outer;
};

static size_t match_rest(const struct subject *in, struct rest rest, size_t at);

static bool look_ahead_matches(const struct subject *in, const struct token_item *item, size_t at)
{
    unsigned bytes;
    bool follows = at < in->bytes &&
                   (token_pattern_mask(in->pattern, in->text + at, &bytes) >> item->class & 1) != 0;
    return follows == item->positive;
}

/* Takes as many characters as possible. Unless possessive, gives them back until the rest
 * matches. */
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
    if (!look_ahead_matches(in, rest.item, at)) {
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
