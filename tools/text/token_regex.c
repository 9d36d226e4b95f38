/* token_regex.c: an expression as `tokenizers` means it (Oniguruma's), written for PCRE2: classes of
 * characters become ranges by our own table, so that the Unicode of the library does not matter, and
 * what means another thing there is refused. At load, on one thread. */
#include "tools/text/token_regex.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"

struct writer {
    const struct token_unicode *unicode; /* borrowed from the caller */
    const char *what;
    const char *regex;
    const char *at;
    const char *end;
    char *text; /* owned */
    size_t bytes;
    size_t room;
    bool folds; /* somewhere (?i): ranges would be folded, so that properties stay as they are */
    int code;
};

static void put(struct writer *writer, const char *text, size_t bytes)
{
    if (writer->code == 0 && writer->bytes + bytes > writer->room) {
        const size_t room = (writer->room + bytes) * 2 + 256;
        char *more = realloc(writer->text, room);
        if (more == NULL) {
            writer->code = core_err_set(-ENOMEM, "%s: no memory for a regular expression",
                                        writer->what);
            return;
        }
        writer->text = more;
        writer->room = room;
    }
    if (writer->code == 0 && bytes > 0) {
        memcpy(writer->text + writer->bytes, text, bytes);
        writer->bytes += bytes;
    }
}

static void put_text(struct writer *writer, const char *text)
{
    put(writer, text, strlen(text));
}

static void refuse(struct writer *writer, const char *why)
{
    if (writer->code == 0) {
        writer->code = core_err_set(-ENOTSUP, "%s: regular expression, character %zu: %s",
                                    writer->what, (size_t)(writer->at - writer->regex), why);
    }
}

static bool is_in(const struct token_unicode *unicode, uint64_t kinds, uint32_t point)
{
    return (point < 0xD800 || point >= 0xE000) && (kinds >> token_kind_of(unicode, point) & 1) != 0;
}

/* The characters of the kinds, as members of a class. */
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

/* {Name}, {^Name} or one letter behind \p: the kinds; 0 where it is no category (a script, say). */
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
    return token_kinds_named(at, (size_t)(close - at));
}

static void copy(struct writer *writer, size_t bytes)
{
    const size_t left = (size_t)(writer->end - writer->at);
    put(writer, writer->at, bytes < left ? bytes : left);
    writer->at += bytes < left ? bytes : left;
}

/* A backslash and what it belongs to. */
static void write_escape(struct writer *writer, bool in_class)
{
    const char c = writer->at + 1 < writer->end ? writer->at[1] : '\0';
    const char lower = (char)(c | 32);
    const char *after = writer->at + 2;
    bool outside = c != lower;
    uint64_t kinds = 0;
    if (lower == 'h') { /* a hexadecimal digit there, white space in PCRE2 */
        refuse(writer, "\\h is not supported; write [0-9a-fA-F]");
        return;
    }
    if (c == '\0' || strchr("sdwp", lower) == NULL || writer->folds) {
        copy(writer, 2);
        return;
    }
    kinds = lower == 's'   ? token_kinds_flagged(TOKEN_FLAG_SPACE)
            : lower == 'd' ? token_kinds_named("Nd", 2)
            : lower == 'w' ? token_kinds_flagged(TOKEN_FLAG_WORD)
                           : read_property(writer, &after, &outside);
    if (kinds == 0) {
        copy(writer, 2);
        return;
    }
    put_text(writer, in_class ? "" : outside ? "[^" : "[");
    put_ranges(writer, in_class && outside ? ~kinds : kinds);
    put_text(writer, in_class ? "" : "]");
    writer->at = after;
}

/* [...], from its bracket on. */
static void write_class(struct writer *writer)
{
    copy(writer, 1);
    if (writer->at < writer->end && *writer->at == '^') {
        copy(writer, 1);
    }
    if (writer->at < writer->end && *writer->at == ']') {
        refuse(writer, "an empty class of characters");
    }
    while (writer->code == 0 && writer->at < writer->end && *writer->at != ']') {
        const char next = writer->at + 1 < writer->end ? writer->at[1] : '\0';
        if (*writer->at == '\\') {
            write_escape(writer, true);
        } else if (*writer->at == '[' && next == ':') {
            const char *close = memmem(writer->at, (size_t)(writer->end - writer->at), ":]", 2);
            copy(writer, close != NULL ? (size_t)(close + 2 - writer->at) : 1);
        } else if (*writer->at == '[' || (*writer->at == '&' && next == '&')) {
            refuse(writer, "a class of characters within another, or && in one, is not supported");
        } else {
            copy(writer, 1);
        }
    }
    copy(writer, 1);
}

static bool has_folding(const char *regex, size_t bytes)
{
    for (size_t i = 0; i + 2 < bytes; i++) {
        if (regex[i] == '(' && regex[i + 1] == '?') {
            size_t at = i + 2;
            while (at < bytes && strchr("mxs-", regex[at]) != NULL && regex[at] != '\0') {
                at++;
            }
            if (at < bytes && regex[at] == 'i') {
                return true;
            }
        }
    }
    return false;
}

int token_regex_translate(const struct token_unicode *unicode, const char *regex, size_t bytes,
                          const char *what, char **out, size_t *out_bytes)
{
    struct writer writer = {.unicode = unicode,
                            .what = what,
                            .regex = regex,
                            .at = regex,
                            .end = regex + bytes,
                            .folds = has_folding(regex, bytes)};
    while (writer.code == 0 && writer.at < writer.end) {
        if (*writer.at == '\\') {
            write_escape(&writer, false);
        } else if (*writer.at == '[') {
            write_class(&writer);
        } else {
            copy(&writer, 1);
        }
    }
    put(&writer, "", 1);
    if (writer.code != 0) {
        free(writer.text);
        return writer.code;
    }
    *out = writer.text;
    *out_bytes = writer.bytes - 1;
    return 0;
}
