/* lex_string.c: Python's escapes: \n, \x41, \u20ac, \U0001f600, octal, and an end of line. */
#include "tools/text/template/lex_string.h"

#include <errno.h>
#include <string.h>

#include "tools/text/template/chars.h"

static int hex(char c)
{
    return c >= '0' && c <= '9'                     ? c - '0'
           : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                    : -1;
}

/* `count` digits of hexadecimal at text; fails the run where they are none. */
static size_t put_hex(struct text_template_run *run, const char *text, size_t bytes, size_t count,
                      char *out)
{
    uint32_t point = 0;
    for (size_t i = 0; i < count; i++) {
        const int digit = i < bytes ? hex(text[i]) : -1;
        if (digit < 0) {
            template_fail(run, -EINVAL, "an escape in a string needs %zu hexadecimal digits",
                          count);
            return 0;
        }
        point = point << 4 | (uint32_t)digit;
    }
    if (point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) {
        template_fail(run, -EINVAL, "an escape in a string is no character");
        return 0;
    }
    return template_char_write(point, out);
}

/* The escape at text[0] == '\\'; how much of the text it took. */
static size_t put_escape(struct text_template_run *run, const char *text, size_t bytes, char *out,
                         size_t *length)
{
    static const char letters[] = "\\'\"abfnrtv";
    static const char meant[] = "\\'\"\a\b\f\n\r\t\v";
    const char letter = bytes > 1 ? text[1] : '\0';
    const char *found = letter != '\0' ? strchr(letters, letter) : NULL;
    const size_t count = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (letter == '\n') {
        *length = 0;
        return 2;
    }
    if (found != NULL) {
        out[0] = meant[found - letters];
        *length = 1;
        return 2;
    }
    if (count > 0) {
        *length = put_hex(run, text + 2, bytes - 2, count, out);
        return 2 + (bytes - 2 < count ? bytes - 2 : count);
    }
    if (letter >= '0' && letter <= '7') {
        uint32_t point = 0;
        size_t digits = 0;
        while (digits < 3 && digits + 1 < bytes && text[1 + digits] >= '0' &&
               text[1 + digits] <= '7') {
            point = point << 3 | (uint32_t)(text[1 + digits++] - '0');
        }
        *length = template_char_write(point, out);
        return 1 + digits;
    }
    if (letter == 'N') {
        template_fail(run, -EINVAL, "names of characters, \\N{...}, are not understood");
    }
    out[0] = '\\';
    *length = 1;
    return 1;
}

struct template_value template_unescape(struct text_template_run *run, const char *text,
                                        size_t bytes)
{
    char *out;
    size_t length = 0;
    struct template_value value = template_string_room(run, bytes + 4, &out);
    for (size_t at = 0; at < bytes && run->code == 0;) {
        size_t made = 1;
        if (text[at] == '\\') {
            at += put_escape(run, text + at, bytes - at, out + length, &made);
        } else {
            out[length] = text[at++];
        }
        length += made;
    }
    value.bytes = (uint32_t)length;
    return value;
}
