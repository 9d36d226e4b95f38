/* chars.c: UTF-8 characters, their classes and case. */
#include "tools/text/jinja/chars.h"

#include <errno.h>

#include "tools/text/tokenizer/form.h"
#include "tools/text/tokenizer/unicode.h"

size_t jinja_char_bytes(const char *at)
{
    const unsigned char lead = (unsigned char)*at;
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

size_t jinja_char_before(const char *begin, const char *end)
{
    size_t length = 1;
    while (end - begin > (ptrdiff_t)length &&
           ((unsigned char)end[-(ptrdiff_t)length] & 0xC0) == 0x80) {
        length++;
    }
    return length;
}

uint32_t jinja_char_point(const char *at)
{
    unsigned bytes;
    return token_point(at, &bytes);
}

size_t jinja_char_write(uint32_t point, char out[4])
{
    return token_point_write(point, out);
}

size_t jinja_char_offset(const char *text, size_t bytes, size_t index)
{
    size_t at = 0;
    for (; index > 0 && at < bytes; index--) {
        at += jinja_char_bytes(text + at);
    }
    return at;
}

static bool is_space(uint32_t point)
{
    return (point >= 9 && point <= 13) || (point >= 0x1C && point <= 0x20) || point == 0x85 ||
           point == 0xA0 || point == 0x1680 || (point >= 0x2000 && point <= 0x200A) ||
           point == 0x2028 || point == 0x2029 || point == 0x202F || point == 0x205F ||
           point == 0x3000;
}

static bool is_class(uint32_t point, enum jinja_char_class class_)
{
    enum token_category category = TOKEN_CATEGORY_CN;
    token_form_category(point, &category);
    switch (class_) {
    case JINJA_CHAR_ALPHA: return category >= TOKEN_CATEGORY_LL && category <= TOKEN_CATEGORY_LU;
    case JINJA_CHAR_DECIMAL: return category == TOKEN_CATEGORY_ND;
    case JINJA_CHAR_NUMERIC: return category >= TOKEN_CATEGORY_ND && category <= TOKEN_CATEGORY_NO;
    case JINJA_CHAR_UPPER: return category == TOKEN_CATEGORY_LU;
    case JINJA_CHAR_LOWER: return category == TOKEN_CATEGORY_LL;
    case JINJA_CHAR_PRINTABLE: return category > TOKEN_CATEGORY_CO && category < TOKEN_CATEGORY_ZL;
    case JINJA_CHAR_SPACE: break;
    }
    return is_space(point);
}

bool jinja_char_is(uint32_t point, enum jinja_char_class class_)
{
    if (point >= 0x80) {
        return is_class(point, class_);
    }
    const bool upper = point >= 'A' && point <= 'Z';
    const bool lower = point >= 'a' && point <= 'z';
    const bool digit = point >= '0' && point <= '9';
    switch (class_) {
    case JINJA_CHAR_ALPHA: return upper || lower;
    case JINJA_CHAR_DECIMAL:
    case JINJA_CHAR_NUMERIC: return digit;
    case JINJA_CHAR_UPPER: return upper;
    case JINJA_CHAR_LOWER: return lower;
    case JINJA_CHAR_PRINTABLE: return point >= 0x20 && point < 0x7F;
    case JINJA_CHAR_SPACE: break;
    }
    return is_space(point);
}

int jinja_char_upper(uint32_t point, uint32_t out[2])
{
    if (point < 0x80) {
        out[0] = point >= 'a' && point <= 'z' ? point - 32 : point;
        return 1;
    }
    return token_form_upper(point, out);
}

int jinja_char_lower(uint32_t point, uint32_t out[2])
{
    if (point < 0x80) {
        out[0] = point >= 'A' && point <= 'Z' ? point + 32 : point;
        return 1;
    }
    return token_form_lower(point, out);
}
