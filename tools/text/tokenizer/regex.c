/* regex.c: rewrites regular expressions for PCRE2, and searches texts. */
#include "tools/text/tokenizer/regex.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/base/err.h"
#include "core/base/utf8.h"
#include "tools/text/tokenizer/pcre.h"

enum { GROUPS_MAX = 64 };

struct group {
    size_t begin; /* offset in `text` of the opening bracket */
    bool folded;  /* `folds` outside the group */
};

struct writer {
    const struct token_unicode *unicode; /* borrowed */
    const char *what;
    const char *regex;
    const char *at;
    const char *end;
    char *text; /* owned */
    size_t bytes;
    size_t room;
    bool folds;  /* inside (?i) */
    size_t atom; /* offset in `text` of the item that a quantifier would repeat */
    struct group groups[GROUPS_MAX]; /* the open groups */
    unsigned depth;
    int rc;
};

static void append_text(struct writer *writer, const char *text, size_t bytes)
{
    if (writer->rc == 0 && writer->bytes + bytes > writer->room) {
        const size_t room = (writer->room + bytes) * 2 + 256;
        char *more = core_charge_grow(writer->text, room);
        if (more == NULL) {
            writer->rc = core_err_set(-ENOMEM, "%s: no memory for a regular expression",
                                      writer->what);
            return;
        }
        writer->text = more;
        writer->room = room;
    }
    if (writer->rc == 0 && bytes > 0) {
        memcpy(writer->text + writer->bytes, text, bytes);
        writer->bytes += bytes;
    }
}

static void put_text(struct writer *writer, const char *text)
{
    append_text(writer, text, strlen(text));
}

static void refuse(struct writer *writer, const char *why)
{
    if (writer->rc == 0) {
        const size_t before = core_utf8_count(writer->regex, (size_t)(writer->at - writer->regex));
        writer->rc = core_err_set(-ENOTSUP, "%s: regular expression, character %zu: %s",
                                  writer->what, before, why);
    }
}

static bool is_in(const struct token_unicode *unicode, uint64_t kinds, uint32_t point)
{
    return (point < 0xD800 || point >= 0xE000) && (kinds >> token_kind_of(unicode, point) & 1) != 0;
}

/* Writes the characters of the kinds inside a class. */
static void put_ranges(struct writer *writer, uint64_t kinds)
{
    char range[40];
    for (uint32_t from = 0; from < 0x110000; from++) {
        if (!is_in(writer->unicode, kinds, from)) {
            continue;
        }
        uint32_t to = from;
        while (to + 1 < 0x110000 && is_in(writer->unicode, kinds, to + 1)) {
            to++;
        }
        snprintf(range, sizeof range,
                 to > from ? "\\x{%" PRIX32 "}-\\x{%" PRIX32 "}" : "\\x{%" PRIX32 "}", from, to);
        put_text(writer, range);
        from = to;
    }
}

/* Returns the kinds of characters that are not assigned or not printed. */
static uint64_t kinds_unseen(void)
{
    return token_kinds_named("Cc", 2) | token_kinds_named("Cn", 2) | token_kinds_named("Cs", 2);
}

static bool is_name(const char *name, size_t bytes, const char *wanted)
{
    return strlen(wanted) == bytes && memcmp(name, wanted, bytes) == 0;
}

/* Returns the kinds of a name in \p{...}; 0: unknown. */
static uint64_t kinds_of_property(const char *name, size_t bytes)
{
    if (is_name(name, bytes, "Space") || is_name(name, bytes, "White_Space")) {
        return token_kinds_flagged(TOKEN_FLAG_SPACE);
    }
    return is_name(name, bytes, "Digit")   ? token_kinds_named("Nd", 2)
           : is_name(name, bytes, "Punct") ? token_kinds_named("P", 1)
           : is_name(name, bytes, "Word")  ? token_kinds_word(false)
           : is_name(name, bytes, "Any")   ? UINT64_MAX
                                           : token_kinds_named(name, bytes);
}

/* Returns the kinds of a name in [:...:]; 0: not defined by the table of kinds. */
static uint64_t kinds_of_bracket(const char *name, size_t bytes)
{
    const uint64_t space = token_kinds_flagged(TOKEN_FLAG_SPACE);
    const uint64_t lines = token_kinds_named("Zl", 2) | token_kinds_named("Zp", 2);
    return is_name(name, bytes, "punct")   ? token_kinds_named("P", 1) | token_kinds_named("S", 1)
           : is_name(name, bytes, "space") ? space
           : is_name(name, bytes, "digit") ? token_kinds_named("Nd", 2)
           : is_name(name, bytes, "word")  ? token_kinds_word(true)
           : is_name(name, bytes, "cntrl") ? token_kinds_named("Cc", 2)
           : is_name(name, bytes, "graph") ? ~(space | kinds_unseen())
           : is_name(name, bytes, "print") ? ~(lines | kinds_unseen())
                                           : 0;
}

/* Reads {Name}, {^Name} or a letter after \p; 0: not a category, but maybe a script. */
static uint64_t read_property(const struct writer *writer, const char **after, bool *outside)
{
    const char *at = writer->at + 2;
    if (at >= writer->end) {
        return 0;
    }
    if (*at != '{') {
        *after = at + 1;
        return token_kinds_named(at, 1);
    }
    const char *close = memchr(at, '}', (size_t)(writer->end - at));
    if (close == NULL) {
        return 0;
    }
    const bool inverted = at[1] == '^';
    *outside ^= inverted;
    *after = close + 1;
    at += 1 + inverted;
    return kinds_of_property(at, (size_t)(close - at));
}

static void copy(struct writer *writer, size_t bytes)
{
    const size_t left = (size_t)(writer->end - writer->at);
    append_text(writer, writer->at, bytes < left ? bytes : left);
    writer->at += bytes < left ? bytes : left;
}

/* Writes \p{Han} or another script, without characters that scripts share. */
static void write_script(struct writer *writer)
{
    const char *close = memchr(writer->at, '}', (size_t)(writer->end - writer->at));
    const bool inverted = close != NULL && writer->at + 3 < close && writer->at[3] == '^';
    const char *name = writer->at + 3 + inverted;
    if (close == NULL || writer->at[2] != '{' ||
        !token_pcre_has_script(name, (size_t)(close - name))) {
        refuse(writer, "\\p supports general categories and scripts, and no other property");
        return;
    }
    put_text(writer, (writer->at[1] == 'P') != inverted ? "\\P{sc:" : "\\p{sc:");
    append_text(writer, name, (size_t)(close + 1 - name));
    writer->at = close + 1;
}

/* PCRE2 spells \uHHHH as \x{HHHH}. */
static void write_point(struct writer *writer)
{
    put_text(writer, "\\x{");
    writer->at += 2;
    copy(writer, 4);
    put_text(writer, "}");
}

/* Writes \b, a border between \w and something else, or without `border` \B, its opposite. */
static void write_border(struct writer *writer, bool border)
{
    const char *const parts[4] = {"(?:(?<=[", border ? "])(?![" : "])(?=[", "])|(?<![",
                                  border ? "])(?=[" : "])(?!["};
    for (size_t i = 0; i < 4; i++) {
        put_text(writer, parts[i]);
        put_ranges(writer, token_kinds_word(false));
    }
    put_text(writer, "]))");
    writer->at += 2;
}

static void write_escape(struct writer *writer, bool in_class)
{
    const char c = writer->at + 1 < writer->end ? writer->at[1] : '\0';
    const char lower = (char)(c | 32);
    const char *after = writer->at + 2;
    bool outside = c != lower;
    uint64_t kinds = 0;
    if (lower == 'h') { /* Oniguruma: a hexadecimal digit; PCRE2: white space */
        refuse(writer, "\\h is not supported; write [0-9a-fA-F]");
        return;
    }
    if (c == 'u') {
        write_point(writer);
        return;
    }
    if (lower == 'b' && !in_class) {
        write_border(writer, c == 'b');
        return;
    }
    if (c == '\0' || strchr("sdwp", lower) == NULL) {
        copy(writer, 2);
        return;
    }
    kinds = lower == 's'   ? token_kinds_flagged(TOKEN_FLAG_SPACE)
            : lower == 'd' ? token_kinds_named("Nd", 2)
            : lower == 'w' ? token_kinds_word(in_class)
                           : read_property(writer, &after, &outside);
    if (kinds == 0) {
        write_script(writer);
        return;
    }
    /* Oniguruma folds cases of kinds only in [...]. */
    const bool unfolds = writer->folds && !in_class;
    put_text(writer, unfolds ? "(?-i:" : "");
    put_text(writer, in_class ? "" : outside ? "[^" : "[");
    put_ranges(writer, in_class && outside ? ~kinds : kinds);
    put_text(writer, in_class ? "" : "]");
    put_text(writer, unfolds ? ")" : "");
    writer->at = after;
}

/* Oniguruma and PCRE2 agree on ascii and xdigit. */
static void write_bracket(struct writer *writer)
{
    const char *close = memmem(writer->at, (size_t)(writer->end - writer->at), ":]", 2);
    if (close == NULL) {
        copy(writer, 1);
        return;
    }
    const bool outside = writer->at[2] == '^';
    const char *name = writer->at + 2 + outside;
    const size_t bytes = close > name ? (size_t)(close - name) : 0;
    const uint64_t kinds = kinds_of_bracket(name, bytes);
    if (kinds != 0) {
        put_ranges(writer, outside ? ~kinds : kinds);
    } else if (is_name(name, bytes, "blank") && !outside) {
        put_text(writer, "\\t");
        put_ranges(writer, token_kinds_named("Zs", 2));
    } else if (is_name(name, bytes, "ascii") || is_name(name, bytes, "xdigit")) {
        append_text(writer, writer->at, (size_t)(close + 2 - writer->at));
    } else {
        refuse(writer, "a class of this name is not supported; write \\p{L}, \\p{Lu} or the like");
        return;
    }
    writer->at = close + 2;
}

static void write_class(struct writer *writer)
{
    copy(writer, 1);
    if (writer->at < writer->end && *writer->at == '^') {
        copy(writer, 1);
    }
    if (writer->at < writer->end && *writer->at == ']') {
        refuse(writer, "a class of characters is empty");
    }
    while (writer->rc == 0 && writer->at < writer->end && *writer->at != ']') {
        const char next = writer->at + 1 < writer->end ? writer->at[1] : '\0';
        if (*writer->at == '\\') {
            write_escape(writer, true);
        } else if (*writer->at == '[' && next == ':') {
            write_bracket(writer);
        } else if (*writer->at == '[' || (*writer->at == '&' && next == '&')) {
            refuse(writer, "a class of characters must not contain another class or &&");
        } else {
            copy(writer, 1);
        }
    }
    copy(writer, 1);
}

/* Writes the options after (?, up to : or ). Oniguruma's m is PCRE2's s, and i sets `folds`. */
static void write_options(struct writer *writer)
{
    const char *at = writer->at;
    bool on = true;
    bool folds = writer->folds;
    while (at < writer->end && *at != '\0' && strchr("imx-", *at) != NULL) {
        on = *at == '-' ? false : on;
        folds = *at == 'i' ? on : folds;
        at++;
    }
    if (at == writer->end || (*at != ':' && *at != ')')) {
        return; /* another kind of group */
    }
    for (; writer->at < at; writer->at++) {
        append_text(writer, *writer->at == 'm' ? "s" : writer->at, 1);
    }
    writer->folds = folds;
    if (*at == ')') { /* the options hold for the rest of the surrounding group */
        copy(writer, 1);
        writer->depth--;
    }
}

static void write_group(struct writer *writer)
{
    if (writer->depth == GROUPS_MAX) {
        refuse(writer, "groups are nested too deeply");
        return;
    }
    writer->groups[writer->depth++] = (struct group){writer->bytes, writer->folds};
    const bool more = writer->end - writer->at > 1 && writer->at[1] == '?';
    copy(writer, more ? 2 : 1);
    if (more) {
        write_options(writer);
    }
}

static void end_group(struct writer *writer)
{
    if (writer->depth > 0) {
        writer->depth--;
        writer->atom = writer->groups[writer->depth].begin;
        writer->folds = writer->groups[writer->depth].folded;
    }
    copy(writer, 1);
}

/* Unlike in PCRE2, {,m} begins at 0, {n,m}+ repeats the repetition, and {n}? is optional. */
static void write_counts(struct writer *writer)
{
    const char *close = memchr(writer->at, '}', (size_t)(writer->end - writer->at));
    const size_t inside = close != NULL ? (size_t)(close - writer->at) - 1 : 0;
    if (inside == 0 || strspn(writer->at + 1, "0123456789,") < inside) {
        copy(writer, 1); /* a brace as a character */
        return;
    }
    const bool fixed = memchr(writer->at, ',', inside + 1) == NULL;
    const bool wraps = close + 1 < writer->end && (close[1] == '+' || (close[1] == '?' && fixed));
    const size_t atom = writer->bytes - writer->atom;
    if (wraps) {
        put_text(writer, "(?:");
        if (writer->rc == 0) {
            memmove(writer->text + writer->atom + 3, writer->text + writer->atom, atom);
            memcpy(writer->text + writer->atom, "(?:", 3);
        }
    }
    copy(writer, 1);
    put_text(writer, *writer->at == ',' ? "0" : "");
    copy(writer, inside + 1);
    put_text(writer, wraps ? ")" : "");
}

/* Writes the next element outside of classes. */
static void write_next(struct writer *writer)
{
    const char c = *writer->at;
    if (c == '{') {
        write_counts(writer);
    } else if (c == ')') {
        end_group(writer);
    } else if (strchr("?*+|^$", c) != NULL && c != '\0') {
        copy(writer, 1);
    } else {
        writer->atom = writer->bytes;
        if (c == '(') {
            write_group(writer);
        } else if (c == '\\') {
            write_escape(writer, false);
        } else if (c == '[') {
            write_class(writer);
        } else {
            unsigned bytes = 1;
            token_point(writer->at, &bytes);
            copy(writer, bytes);
        }
    }
}

int token_regex_translate(const struct token_unicode *unicode, const char *regex, size_t bytes,
                          const char *what, char **out, size_t *out_bytes)
{
    struct writer writer = {
        .unicode = unicode, .what = what, .regex = regex, .at = regex, .end = regex + bytes};
    while (writer.rc == 0 && writer.at < writer.end) {
        write_next(&writer);
    }
    append_text(&writer, "", 1);
    if (writer.rc != 0) {
        core_charge_free(writer.text);
        return writer.rc;
    }
    *out = writer.text;
    *out_bytes = writer.bytes - 1;
    return 0;
}

/* ---- searching ---- */

int token_search_create(const struct token_unicode *unicode, const char *regex, size_t bytes,
                        bool literal, const char *what, struct token_search *out)
{
    *out = (struct token_search){0};
    if (literal) {
        out->literal = core_charge_alloc(bytes + 1);
        if (out->literal == NULL) {
            return core_err_set(-ENOMEM, "%s: no memory for %zu bytes", what, bytes);
        }
        memcpy(out->literal, regex, bytes);
        out->literal_bytes = bytes;
        return 0;
    }
    int rc = token_pattern_create(unicode, regex, bytes, &out->pattern);
    if (rc != -ENOTSUP) {
        return rc;
    }
    char *text = NULL;
    rc = token_regex_translate(unicode, regex, bytes, what, &text, &bytes);
    if (rc != 0) {
        return rc;
    }
    rc = token_pcre_create(text, bytes, what, &out->pcre);
    core_charge_free(text);
    return rc;
}

void token_search_free(struct token_search *search)
{
    core_charge_free(search->literal);
    token_pattern_destroy(search->pattern);
    token_pcre_destroy(search->pcre);
    *search = (struct token_search){0};
}

int token_search_find(const struct token_search *search, struct token_pcre_scratch *scratch,
                      const char *text, size_t bytes, size_t from, size_t bounds[2])
{
    if (search->pcre != NULL) {
        return token_pcre_find(search->pcre, scratch, text, bytes, from, bounds);
    }
    if (search->literal != NULL) {
        const char *at = search->literal_bytes == 0
                             ? NULL
                             : memmem(text + from, bytes - from, search->literal,
                                      search->literal_bytes);
        bounds[0] = at == NULL ? 0 : (size_t)(at - text);
        bounds[1] = bounds[0] + search->literal_bytes;
        return at != NULL;
    }
    for (size_t at = from; at < bytes;) {
        size_t end = token_pattern_match(search->pattern, text, bytes, at);
        if (end != SIZE_MAX) {
            bounds[0] = at;
            bounds[1] = end;
            return 1;
        }
        unsigned length;
        token_pattern_mask(search->pattern, text + at, &length);
        at += length;
    }
    return 0;
}
