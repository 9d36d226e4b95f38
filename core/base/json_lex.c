/* json_lex.c: the words of JSON: space and comments, strings, numbers, literals. */
#include "core/base/json_lex.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/json_scan.h"
#include "core/base/utf8.h"

int core_json_scan_refuse(const struct core_json_scan *scan, size_t offset, const char *format, ...)
{
    char what[512];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    struct core_json_place place = core_json_place_of(scan->text, offset);
    return core_err_set(-EINVAL, "%s:%zu:%zu: %s", scan->source, place.line, place.column, what);
}

static const char *const literals[] = {"true", "false", "null"};

/* One comment at scan->at, blanked; newlines stay. */
static int pass_comment(struct core_json_scan *scan)
{
    size_t begin = scan->at;
    const char *end = NULL;
    const char *rest = scan->text + begin;
    if (rest[0] == '/' && scan->bytes - begin > 1 && rest[1] == '*') {
        end = scan->bytes - begin >= 4 ? memmem(rest + 2, scan->bytes - begin - 2, "*/", 2) : NULL;
        if (end == NULL) {
            return core_json_scan_refuse(scan, begin, "this comment is never closed with */");
        }
        end += 2;
    } else if (rest[0] == '#' || (scan->bytes - begin > 1 && rest[1] == '/')) {
        end = memchr(rest, '\n', scan->bytes - begin);
        end = end != NULL ? end : scan->text + scan->bytes;
    } else {
        return core_json_scan_refuse(scan, begin, "found / where a comment would be // or /* */");
    }
    scan->at = (size_t)(end - scan->text);
    for (size_t i = begin; i < scan->at; i++) {
        if (scan->blank[i] != '\n' && scan->blank[i] != '\r') {
            scan->blank[i] = ' ';
        }
    }
    return 0;
}

int core_json_pass_space(struct core_json_scan *scan)
{
    for (; scan->at < scan->bytes; scan->at++) {
        char c = scan->text[scan->at];
        if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
            continue;
        }
        if (scan->blank == NULL || (c != '/' && c != '#')) {
            return 0;
        }
        int code = pass_comment(scan);
        if (code != 0) {
            return code;
        }
        scan->at--;
    }
    return 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The four digits after \u, or -1. */
static int hex_unit(const char *at, size_t bytes)
{
    int unit = 0;
    for (size_t i = 0; i < 4; i++) {
        int digit = i < bytes ? hex_digit(at[i]) : -1;
        if (digit < 0) {
            return -1;
        }
        unit = unit * 16 + digit;
    }
    return unit;
}

/* Are all eight bytes plain: ASCII, not below space, no quote, no backslash? */
static bool plain_eight(const char *at)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    const uint64_t tops = UINT64_C(0x8080808080808080);
    uint64_t word;
    memcpy(&word, at, sizeof word);
    uint64_t quote = word ^ (ones * '"');
    uint64_t slash = word ^ (ones * '\\');
    uint64_t odd = (word - ones * 0x20) | (quote - ones) | (slash - ones) | word;
    return (odd & tops) == 0;
}

/* What stands at `at`, for a message: the character, or the byte's number. */
const char *core_json_shown(const struct core_json_scan *scan, size_t at, char text[16])
{
    if (at >= scan->bytes) {
        return "the end of the text";
    }
    size_t length = core_utf8_sequence(scan->text + at, scan->bytes - at);
    unsigned char byte = (unsigned char)scan->text[at];
    if (length == 0 || byte < 0x20 || byte == 0x7F) {
        snprintf(text, 16, "byte 0x%02x", byte);
    } else {
        snprintf(text, 16, "%.*s", (int)length, scan->text + at);
    }
    return text;
}

/* The bytes of a string that are not plain ASCII: an escape, a longer character, or a mistake. */
static int pass_odd(struct core_json_scan *scan, size_t *at, size_t begin, bool *escaped)
{
    const char *here = scan->text + *at;
    size_t left = scan->bytes - *at;
    if (*here == '\\') {
        *escaped = true;
        if (left > 1 && here[1] == 'u') {
            if (hex_unit(here + 2, left - 2) < 0) {
                return core_json_scan_refuse(scan, *at, "\\u needs four hexadecimal digits");
            }
            *at += 6;
            return 0;
        }
        if (left > 1 && here[1] != '\0' && strchr("\"\\/bfnrt", here[1]) != NULL) {
            *at += 2;
            return 0;
        }
        return core_json_scan_refuse(
            scan, *at,
            "unknown escape in a string; allowed: \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
    }
    if (*here == '\n' || *here == '\r') {
        return core_json_scan_refuse(scan, begin,
                                     "this string is not closed before the end of its line");
    }
    if ((unsigned char)*here < 0x20) {
        return core_json_scan_refuse(scan, *at, "byte 0x%02x in a string; write it as \\u%04x",
                                     *here, *here);
    }
    size_t length = core_utf8_sequence(here, left);
    if (length == 0) {
        return core_json_scan_refuse(scan, *at, "invalid UTF-8 (byte 0x%02x)",
                                     (unsigned char)*here);
    }
    *at += length;
    return 0;
}

int core_json_pass_string(struct core_json_scan *scan, struct core_json_token *token)
{
    size_t begin = scan->at;
    size_t at = begin + 1;
    bool escaped = false;
    for (;;) {
        while (at + 8 <= scan->bytes && plain_eight(scan->text + at)) {
            at += 8;
        }
        if (at >= scan->bytes) {
            return core_json_scan_refuse(scan, begin, "this string is never closed");
        }
        char c = scan->text[at];
        if (c == '"') {
            break;
        }
        if (c >= 0x20 && c < 0x7F && c != '\\') {
            at++;
            continue;
        }
        int code = pass_odd(scan, &at, begin, &escaped);
        if (code != 0) {
            return code;
        }
    }
    token->escaped = escaped;
    token->text = scan->text + begin + 1;
    token->bytes = at - begin - 1;
    scan->at = at + 1;
    return 0;
}

static size_t pass_digits(const struct core_json_scan *scan, size_t at)
{
    while (at < scan->bytes && scan->text[at] >= '0' && scan->text[at] <= '9') {
        at++;
    }
    return at;
}

/* The fraction and the exponent of a number, from `at`; 0 where a digit is missing. */
static size_t pass_fraction(const struct core_json_scan *scan, size_t at)
{
    if (at < scan->bytes && scan->text[at] == '.') {
        size_t end = pass_digits(scan, at + 1);
        if (end == at + 1) {
            return 0;
        }
        at = end;
    }
    if (at < scan->bytes && (scan->text[at] | 0x20) == 'e') {
        at++;
        if (at < scan->bytes && (scan->text[at] == '+' || scan->text[at] == '-')) {
            at++;
        }
        size_t end = pass_digits(scan, at);
        if (end == at) {
            return 0;
        }
        at = end;
    }
    return at;
}

int core_json_pass_number(struct core_json_scan *scan, struct core_json_token *token)
{
    size_t begin = scan->at;
    size_t digits = begin + (scan->text[begin] == '-');
    size_t whole = pass_digits(scan, digits);
    size_t end = whole > digits ? pass_fraction(scan, whole) : 0;
    if (end == 0) {
        return core_json_scan_refuse(scan, begin, "a number lacks a digit here");
    }
    if (scan->text[digits] == '0' && whole > digits + 1) {
        return core_json_scan_refuse(scan, begin, "a number must not begin with a superfluous 0");
    }
    if (end - begin > CORE_JSON_NUMBER_BYTES_MAX) {
        return core_json_scan_refuse(scan, begin, "a number of %zu characters; at most %d are read",
                                     end - begin, CORE_JSON_NUMBER_BYTES_MAX);
    }
    token->text = scan->text + begin;
    token->bytes = end - begin;
    token->kind = end == whole ? CORE_JSON_TOKEN_INTEGER : CORE_JSON_TOKEN_REAL;
    if (whole - digits >= 19 && end == whole) {
        /* 2^63 written out; what is longer or later in order does not fit. */
        const char *limit = scan->text[begin] == '-' ? "9223372036854775808"
                                                     : "9223372036854775807";
        if (whole - digits > 19 || memcmp(scan->text + digits, limit, 19) > 0) {
            token->kind = CORE_JSON_TOKEN_REAL;
        }
    }
    if (token->kind == CORE_JSON_TOKEN_REAL) {
        double value = core_json_token_real(token);
        if (value - value != 0) {
            return core_json_scan_refuse(
                scan, begin, "%.*s%s is beyond the largest number that can be held (1.8e308)",
                (int)(token->bytes > 40 ? 40 : token->bytes), token->text,
                token->bytes > 40 ? "..." : "");
        }
    }
    scan->at = end;
    return 0;
}

int core_json_pass_literal(struct core_json_scan *scan, struct core_json_token *token)
{
    for (unsigned i = 0; i < 3; i++) {
        size_t length = strlen(literals[i]);
        if (scan->bytes - scan->at >= length &&
            memcmp(scan->text + scan->at, literals[i], length) == 0) {
            token->kind = (enum core_json_token_kind)(CORE_JSON_TOKEN_TRUE + i);
            token->text = scan->text + scan->at;
            token->bytes = length;
            scan->at += length;
            return 0;
        }
    }
    size_t end = scan->at;
    while (end < scan->bytes && end - scan->at < 32 &&
           (((scan->text[end] | 0x20) >= 'a' && (scan->text[end] | 0x20) <= 'z') ||
            scan->text[end] == '_')) {
        end++;
    }
    char text[16];
    if (end - scan->at > 1) {
        return core_json_scan_refuse(scan, scan->at,
                                     "found %.*s where a value must stand (text goes in double "
                                     "quotes; true, false and null are written in small letters)",
                                     (int)(end - scan->at), scan->text + scan->at);
    }
    return core_json_scan_refuse(scan, scan->at, "found %s where a value must stand",
                                 core_json_shown(scan, scan->at, text));
}
