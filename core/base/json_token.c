/* json_token.c: what a token of the scanner is worth: plain text, an integer, a double, a place. */
#include <assert.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json_scan.h"

static unsigned hex(char c)
{
    return c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a' + 10);
}

/* The scanner has checked that four digits stand here. */
static unsigned unit_at(const char *at)
{
    return hex(at[0]) << 12 | hex(at[1]) << 8 | hex(at[2]) << 4 | hex(at[3]);
}

/* The character of the \u escape at `at`, a surrogate pair as one; moves `at` behind it. */
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

static size_t encode(unsigned code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (code & 0x3F));
        code >>= 6;
    }
    out[0] = (char)(marks[length] | code);
    return length;
}

/* One character (or a run of plain ones is left to the caller): the escape at `at`, decoded. */
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

size_t core_json_token_string(const struct core_json_token *token, char *out, size_t bytes)
{
    if (!token->escaped) {
        memcpy(out, token->text, token->bytes < bytes ? token->bytes : bytes);
        return token->bytes;
    }
    const char *end = token->text + token->bytes;
    size_t length = 0;
    for (const char *at = token->text; at < end;) {
        char piece[4] = {*at};
        size_t piece_bytes = 1;
        if (*at == '\\') {
            piece_bytes = take_escape(&at, end, piece);
        } else {
            at++;
        }
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
        char piece[4] = {*at};
        size_t piece_bytes = 1;
        if (*at == '\\') {
            piece_bytes = take_escape(&at, end, piece);
        } else {
            at++;
        }
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

/* Up to 15 digits and a power of ten that a double holds exactly: one product or quotient of two
 * exact numbers, hence correctly rounded. Returns false where that does not reach. */
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
    bool behind_point = false;
    for (at += minus; at < end && (*at | 0x20) != 'e'; at++) {
        if (*at == '.') {
            behind_point = true;
            continue;
        }
        digits = digits * 10 + (uint64_t)(*at - '0');
        power -= behind_point;
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
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* a constant of libc, no memory */
    value = strtod_l(text, NULL, plain);
    freelocale(plain);
    return value;
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
