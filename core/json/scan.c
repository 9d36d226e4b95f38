/* scan.c: the scanner: values of tokens, elements of JSON, and a state machine that reads tokens. A
 * bit set holds the nesting. */
#include "core/json/scan.h"

#include <assert.h>
#include <errno.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/utf8.h"

/* ---- values of tokens ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the value of the four digits after \u, or -1. */
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

static unsigned unit_at(const char *at)
{
    return (unsigned)hex_unit(at, 4);
}

/* Returns the character of the \u escape or surrogate pair at *at, U+FFFD for a lone surrogate;
 * moves *at past it. */
static unsigned take_unicode(const char **at, const char *end)
{
    unsigned unit = unit_at(*at + 2);
    *at += 6;
    if (unit < 0xD800 || unit > 0xDFFF) {
        return unit;
    }
    if (unit <= 0xDBFF && end - *at >= 6 && (*at)[0] == '\\' && (*at)[1] == 'u') {
        unsigned low = unit_at(*at + 2);
        if (low >= 0xDC00 && low <= 0xDFFF) {
            *at += 6;
            return 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
        }
    }
    return 0xFFFD;
}

static size_t encode(unsigned point, char out[4])
{
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    size_t length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const unsigned char marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (point & 0x3F));
        point >>= 6;
    }
    out[0] = (char)(marks[length] | point);
    return length;
}

/* Decodes the escape at *at to UTF-8 and moves *at past it. Returns the bytes. */
static size_t take_escape(const char **at, const char *end, char out[4])
{
    static const char names[] = "bfnrt";
    static const char meant[] = "\b\f\n\r\t";
    char c = (*at)[1];
    if (c == 'u') {
        return encode(take_unicode(at, end), out);
    }
    const char *found = strchr(names, c);
    out[0] = found != NULL ? meant[found - names] : c;
    *at += 2;
    return 1;
}

/* Writes a string's next byte or decoded escape. Returns the bytes. */
static size_t take_piece(const char **at, const char *end, char out[4])
{
    if (**at == '\\') {
        return take_escape(at, end, out);
    }
    out[0] = *(*at)++;
    return 1;
}

size_t core_json_token_string(const struct core_json_token *token, char *out, size_t bytes)
{
    if (!token->escaped) {
        memcpy(out, token->text, token->bytes < bytes ? token->bytes : bytes);
        return token->bytes;
    }
    const char *end = token->text + token->bytes;
    size_t length = 0;
    for (const char *at = token->text; at < end;) {
        char piece[4];
        const size_t piece_bytes = take_piece(&at, end, piece);
        for (size_t i = 0; i < piece_bytes; i++, length++) {
            if (length < bytes) {
                out[length] = piece[i];
            }
        }
    }
    return length;
}

bool core_json_token_equals(const struct core_json_token *token, const char *text, size_t bytes)
{
    if (!token->escaped) {
        return token->bytes == bytes && memcmp(token->text, text, bytes) == 0;
    }
    const char *end = token->text + token->bytes;
    size_t seen = 0;
    for (const char *at = token->text; at < end;) {
        char piece[4];
        const size_t piece_bytes = take_piece(&at, end, piece);
        if (piece_bytes > bytes - seen || memcmp(piece, text + seen, piece_bytes) != 0) {
            return false;
        }
        seen += piece_bytes;
    }
    return seen == bytes;
}

int64_t core_json_token_integer(const struct core_json_token *token)
{
    assert(token->kind == CORE_JSON_TOKEN_INTEGER);
    bool minus = token->text[0] == '-';
    uint64_t value = 0;
    for (size_t i = minus; i < token->bytes; i++) {
        value = value * 10 + (uint64_t)(token->text[i] - '0');
    }
    return (int64_t)(minus ? 0 - value : value);
}

/* Computes a real as one product or quotient of exact numbers, which is rounded correctly; returns
 * false for others. */
static bool small_real(const struct core_json_token *token, double *out)
{
    static const double tens[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                  1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    const char *at = token->text;
    const char *end = at + token->bytes;
    bool minus = *at == '-';
    uint64_t digits = 0;
    int power = 0;
    int count = 0;
    bool after_point = false;
    for (at += minus; at < end && (*at | 0x20) != 'e'; at++) {
        if (*at == '.') {
            after_point = true;
            continue;
        }
        digits = digits * 10 + (uint64_t)(*at - '0');
        power -= after_point;
        if (++count > 15) {
            return false;
        }
    }
    if (at < end) {
        bool down = at[1] == '-';
        int exponent = 0;
        for (at += 1 + (at[1] == '-' || at[1] == '+'); at < end; at++) {
            exponent = exponent * 10 + (*at - '0');
            if (exponent > 100) {
                return false;
            }
        }
        power += down ? -exponent : exponent;
    }
    if (power < -22 || power > 22) {
        return false;
    }
    double value = (double)digits;
    value = power < 0 ? value / tens[-power] : value * tens[power];
    *out = minus ? -value : value;
    return true;
}

double core_json_real_read(const char *text)
{
    /* a constant of libc: allocates no memory */
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    const double value = strtod_l(text, NULL, plain);
    freelocale(plain);
    return value;
}

double core_json_token_real(const struct core_json_token *token)
{
    assert(token->kind == CORE_JSON_TOKEN_INTEGER || token->kind == CORE_JSON_TOKEN_REAL);
    double value = 0;
    if (small_real(token, &value)) {
        return value;
    }
    char text[CORE_JSON_NUMBER_BYTES_MAX + 1];
    assert(token->bytes < sizeof text);
    memcpy(text, token->text, token->bytes);
    text[token->bytes] = '\0';
    return core_json_real_read(text);
}

struct core_json_place core_json_place_of(const char *text, size_t offset)
{
    struct core_json_place place = {.line = 1, .column = 1};
    const char *start = text;
    const char *end = text + offset;
    for (const char *at; (at = memchr(start, '\n', (size_t)(end - start))) != NULL;) {
        place.line++;
        start = at + 1;
    }
    place.column += (size_t)(end - start);
    return place;
}

/* ---- elements ---- */

/* pass_ functions skip an element, or refuse it with a message; pass_digits and pass_fraction
 * return the position after it. */

static int __attribute__((format(printf, 3, 4), cold))
refuse(const struct core_json_scan *scan, size_t offset, const char *format, ...)
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

static int pass_comment(struct core_json_scan *scan)
{
    size_t begin = scan->at;
    const char *end = NULL;
    const char *rest = scan->text + begin;
    if (rest[0] == '/' && scan->bytes - begin > 1 && rest[1] == '*') {
        end = scan->bytes - begin >= 4 ? memmem(rest + 2, scan->bytes - begin - 2, "*/", 2) : NULL;
        if (end == NULL) {
            return refuse(scan, begin, "this comment is never closed with */");
        }
        end += 2;
    } else if (rest[0] == '#' || (scan->bytes - begin > 1 && rest[1] == '/')) {
        end = memchr(rest, '\n', scan->bytes - begin);
        end = end != NULL ? end : scan->text + scan->bytes;
    } else {
        return refuse(scan, begin, "found / where a comment (// or /* */) was expected");
    }
    scan->at = (size_t)(end - scan->text);
    for (size_t i = begin; i < scan->at; i++) {
        if (scan->blank[i] != '\n' && scan->blank[i] != '\r') {
            scan->blank[i] = ' ';
        }
    }
    return 0;
}

static int pass_space(struct core_json_scan *scan)
{
    for (; scan->at < scan->bytes; scan->at++) {
        char c = scan->text[scan->at];
        if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
            continue;
        }
        if (scan->blank == NULL || (c != '/' && c != '#')) {
            return 0;
        }
        int rc = pass_comment(scan);
        if (rc != 0) {
            return rc;
        }
        scan->at--;
    }
    return 0;
}

/* Returns whether eight bytes are ASCII from space on, without quotes and backslashes. */
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

/* Returns the character, the byte's number or the end of the text, for a message. */
static const char *shown(const struct core_json_scan *scan, size_t at, char text[16])
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

/* Skips or refuses an escape, a control character or a character beyond ASCII. */
static int pass_odd(struct core_json_scan *scan, size_t *at, size_t begin, bool *escaped)
{
    const char *here = scan->text + *at;
    size_t left = scan->bytes - *at;
    if (*here == '\\') {
        *escaped = true;
        if (left > 1 && here[1] == 'u') {
            if (hex_unit(here + 2, left - 2) < 0) {
                return refuse(scan, *at, "\\u needs four hexadecimal digits");
            }
            *at += 6;
            return 0;
        }
        if (left > 1 && here[1] != '\0' && strchr("\"\\/bfnrt", here[1]) != NULL) {
            *at += 2;
            return 0;
        }
        if (left == 1) {
            return refuse(scan, begin, "this string is never closed");
        }
        return refuse(
            scan, *at,
            "unknown escape in a string; allowed: \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
    }
    if (*here == '\n' || *here == '\r') {
        return refuse(scan, begin, "this string is not closed before the end of its line");
    }
    if ((unsigned char)*here < 0x20) {
        return refuse(scan, *at, "byte 0x%02x in a string; write it as \\u%04x", *here, *here);
    }
    size_t length = core_utf8_sequence(here, left);
    if (length == 0) {
        return refuse(scan, *at, "invalid UTF-8 (byte 0x%02x)", (unsigned char)*here);
    }
    *at += length;
    return 0;
}

static int pass_string(struct core_json_scan *scan, struct core_json_token *token)
{
    size_t begin = scan->at;
    size_t at = begin + 1;
    bool escaped = false;
    for (;;) {
        while (at + 8 <= scan->bytes && plain_eight(scan->text + at)) {
            at += 8;
        }
        if (at >= scan->bytes) {
            return refuse(scan, begin, "this string is never closed");
        }
        char c = scan->text[at];
        if (c == '"') {
            break;
        }
        if (c >= 0x20 && c < 0x7F && c != '\\') {
            at++;
            continue;
        }
        int rc = pass_odd(scan, &at, begin, &escaped);
        if (rc != 0) {
            return rc;
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

/* Skips a number's fraction and exponent. Returns 0 if a digit is missing. */
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

static int pass_number(struct core_json_scan *scan, struct core_json_token *token)
{
    size_t begin = scan->at;
    size_t digits = begin + (scan->text[begin] == '-');
    size_t whole = pass_digits(scan, digits);
    size_t end = whole > digits ? pass_fraction(scan, whole) : 0;
    if (end == 0) {
        return refuse(scan, begin, "a digit is missing in this number");
    }
    if (scan->text[digits] == '0' && whole > digits + 1) {
        return refuse(scan, begin, "a number must not begin with an unnecessary 0");
    }
    if (end - begin > CORE_JSON_NUMBER_BYTES_MAX) {
        return refuse(scan, begin, "a number of %zu characters is too long; the maximum is %d",
                      end - begin, CORE_JSON_NUMBER_BYTES_MAX);
    }
    token->text = scan->text + begin;
    token->bytes = end - begin;
    token->kind = end == whole ? CORE_JSON_TOKEN_INTEGER : CORE_JSON_TOKEN_REAL;
    if (whole - digits >= 19 && end == whole) {
        /* An integer beyond int64 becomes a real. */
        const char *limit = scan->text[begin] == '-' ? "9223372036854775808"
                                                     : "9223372036854775807";
        if (whole - digits > 19 || memcmp(scan->text + digits, limit, 19) > 0) {
            token->kind = CORE_JSON_TOKEN_REAL;
        }
    }
    if (token->kind == CORE_JSON_TOKEN_REAL) {
        double value = core_json_token_real(token);
        if (value - value != 0) {
            return refuse(scan, begin, "%.*s%s is larger than the largest number (1.8e308)",
                          (int)(token->bytes > 40 ? 40 : token->bytes), token->text,
                          token->bytes > 40 ? "..." : "");
        }
    }
    scan->at = end;
    return 0;
}

static int pass_literal(struct core_json_scan *scan, struct core_json_token *token)
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
        return refuse(scan, scan->at,
                      "found %.*s; expected a value (text needs double quotes; true, false and "
                      "null are lower case)",
                      (int)(end - scan->at), scan->text + scan->at);
    }
    return refuse(scan, scan->at, "found %s; expected a value", shown(scan, scan->at, text));
}

/* ---- tokens ---- */

enum expects {
    VALUE,        /* a value must come */
    FIRST_KEY,    /* a key or the end of an object */
    FIRST_VALUE,  /* a value or the end of an array */
    KEY,          /* after a comma */
    COMMA_OR_END, /* after a member or element */
    NOTHING,      /* the only value is complete */
};

void core_json_scan_init(struct core_json_scan *scan, const char *text, size_t bytes,
                         const char *source)
{
    *scan = (struct core_json_scan){
        .text = text, .source = source, .bytes = bytes, .expects = VALUE};
}

void core_json_scan_init_lenient(struct core_json_scan *scan, char *text, size_t bytes,
                                 const char *source)
{
    core_json_scan_init(scan, text, bytes, source);
    scan->blank = text;
    if (bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        memset(text, ' ', 3);
    }
}

static bool in_object(const struct core_json_scan *scan)
{
    unsigned level = scan->depth - 1;
    return (scan->objects[level / 64] >> (level % 64) & 1) != 0;
}

static int open_level(struct core_json_scan *scan, struct core_json_token *token, bool object)
{
    if (scan->depth == CORE_JSON_DEPTH_MAX) {
        return refuse(scan, scan->at, "nested deeper than %d levels", CORE_JSON_DEPTH_MAX);
    }
    unsigned level = scan->depth++;
    uint64_t bit = UINT64_C(1) << (level % 64);
    scan->objects[level / 64] &= ~bit;
    scan->objects[level / 64] |= object ? bit : 0;
    token->kind = object ? CORE_JSON_TOKEN_OBJECT_BEGIN : CORE_JSON_TOKEN_ARRAY_BEGIN;
    scan->expects = object ? FIRST_KEY : FIRST_VALUE;
    scan->at++;
    return 0;
}

static void close_level(struct core_json_scan *scan, struct core_json_token *token)
{
    token->kind = in_object(scan) ? CORE_JSON_TOKEN_OBJECT_END : CORE_JSON_TOKEN_ARRAY_END;
    scan->depth--;
    scan->expects = scan->depth == 0 ? NOTHING : COMMA_OR_END;
    scan->at++;
}

static int pass_value(struct core_json_scan *scan, struct core_json_token *token, char c)
{
    if (c == '{' || c == '[') {
        return open_level(scan, token, c == '{');
    }
    scan->expects = scan->depth == 0 ? NOTHING : COMMA_OR_END;
    if (c == '"') {
        token->kind = CORE_JSON_TOKEN_STRING;
        return pass_string(scan, token);
    }
    return c == '-' || (c >= '0' && c <= '9') ? pass_number(scan, token)
                                              : pass_literal(scan, token);
}

static int pass_key(struct core_json_scan *scan, struct core_json_token *token)
{
    char text[16];
    if (scan->at >= scan->bytes || scan->text[scan->at] != '"') {
        return refuse(scan, scan->at, "found %s; expected a key in double quotes",
                      shown(scan, scan->at, text));
    }
    token->kind = CORE_JSON_TOKEN_KEY;
    int rc = pass_string(scan, token);
    if (rc == 0) {
        rc = pass_space(scan);
    }
    if (rc != 0) {
        return rc;
    }
    if (scan->at >= scan->bytes || scan->text[scan->at] != ':') {
        return refuse(scan, scan->at, "found %s; expected : after key \"%.*s\"",
                      shown(scan, scan->at, text), (int)(token->bytes > 60 ? 60 : token->bytes),
                      token->text);
    }
    scan->at++;
    scan->expects = VALUE;
    return 0;
}

/* Skips a comma between members, or stops at the closing bracket. Blanks a trailing comma of
 * lenient text. */
static int pass_comma(struct core_json_scan *scan)
{
    char text[16];
    char end = in_object(scan) ? '}' : ']';
    char c = scan->at < scan->bytes ? scan->text[scan->at] : '\0';
    if (c == end) {
        return 0;
    }
    if (c != ',') {
        return refuse(scan, scan->at, "found %s; expected a comma or %c",
                      shown(scan, scan->at, text), end);
    }
    size_t comma = scan->at++;
    int rc = pass_space(scan);
    if (rc != 0) {
        return rc;
    }
    if (scan->at < scan->bytes && scan->text[scan->at] == end) {
        if (scan->blank == NULL) {
            return refuse(scan, comma, "a comma with nothing after it");
        }
        scan->blank[comma] = ' ';
        return 0;
    }
    scan->expects = in_object(scan) ? KEY : VALUE;
    return 0;
}

int core_json_scan_next(struct core_json_scan *scan, struct core_json_token *token)
{
    token->escaped = false;
    int rc = pass_space(scan);
    if (rc == 0 && scan->expects == COMMA_OR_END) {
        rc = pass_comma(scan);
    }
    if (rc != 0) {
        return rc;
    }
    char c = scan->at < scan->bytes ? scan->text[scan->at] : '\0';
    token->text = scan->text + scan->at;
    token->bytes = 1;
    if (scan->expects == NOTHING) {
        char text[16];
        token->kind = CORE_JSON_TOKEN_END;
        token->bytes = 0;
        return scan->at >= scan->bytes
                   ? 0
                   : refuse(scan, scan->at, "found %s after the end of the value",
                            shown(scan, scan->at, text));
    }
    bool closes = scan->expects == COMMA_OR_END || (scan->expects == FIRST_KEY && c == '}') ||
                  (scan->expects == FIRST_VALUE && c == ']');
    if (closes) {
        close_level(scan, token);
        return 0;
    }
    if (scan->expects == FIRST_KEY || scan->expects == KEY) {
        return pass_key(scan, token);
    }
    return pass_value(scan, token, c);
}

int core_json_scan_skip(struct core_json_scan *scan, const struct core_json_token *token)
{
    struct core_json_token next = *token;
    if (token->kind == CORE_JSON_TOKEN_KEY) {
        int rc = core_json_scan_next(scan, &next);
        if (rc != 0) {
            return rc;
        }
    }
    if (next.kind != CORE_JSON_TOKEN_OBJECT_BEGIN && next.kind != CORE_JSON_TOKEN_ARRAY_BEGIN) {
        return 0;
    }
    for (unsigned depth = scan->depth; scan->depth >= depth;) {
        int rc = core_json_scan_next(scan, &next);
        if (rc != 0) {
            return rc;
        }
    }
    return 0;
}
