/* format.c: text % values and str.format. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/utf8.h"
#include "tools/text/jinja/chars.h"
#include "tools/text/jinja/function.h"

/* [[fill]align][sign][0][width][,][.precision][type] */
struct spec {
    char fill[4];
    size_t fill_bytes;
    char align; /* '<', '>', '^', '=' or '\0' */
    char sign;
    bool zero;
    bool comma;
    int64_t width;
    int64_t precision; /* -1: none */
    char type;
};

static size_t read_number(const char *text, size_t bytes, int64_t *out)
{
    size_t at = 0;
    *out = 0;
    while (at < bytes && text[at] >= '0' && text[at] <= '9' && *out < 100000) {
        *out = *out * 10 + (text[at++] - '0');
    }
    return at;
}

static bool one_of(char c, const char *set)
{
    return c != '\0' && strchr(set, c) != NULL;
}

static size_t add_commas(struct jinja_run *run, char text[512], size_t bytes)
{
    char made[512];
    size_t length = 0;
    size_t whole = 0;
    while (whole < bytes && text[whole] >= '0' && text[whole] <= '9') {
        whole++;
    }
    if (bytes + whole / 3 >= sizeof made) {
        jinja_fail(run, -EINVAL, "a formatted number has more than 511 characters");
        return 0;
    }
    for (size_t i = 0; i < bytes; i++) {
        if (i > 0 && i < whole && (whole - i) % 3 == 0) {
            made[length++] = ',';
        }
        made[length++] = text[i];
    }
    memcpy(text, made, length);
    return length;
}

/* Writes a real with `precision` digits as str.format() does without a type. Returns the length. */
static int general_text(double real, int precision, char text[512])
{
    const int digits = precision > 0 ? precision : 1;
    snprintf(text, 512, "%.*e", digits - 1, real);
    const char *mark = strchr(text, 'e');
    if (mark == NULL) { /* inf or nan */
        return (int)strlen(text);
    }
    const int exponent = atoi(mark + 1);
    if (exponent < -4 || exponent >= digits - 1) {
        size_t end = (size_t)(mark - text);
        while (memchr(text, '.', end) != NULL && (text[end - 1] == '0' || text[end - 1] == '.')) {
            end--;
        }
        return (int)end + snprintf(text + end, 512 - end, "e%+03d", exponent);
    }
    int length = snprintf(text, 512, "%.*f", digits - 1 - exponent, real);
    while (text[length - 1] == '0' && text[length - 2] != '.') {
        length--;
    }
    return length;
}

static int real_text(const struct spec *spec, double real, char text[512])
{
    const int precision = spec->precision >= 0 ? (int)spec->precision : 6;
    switch (spec->type) {
    case 'f': return snprintf(text, 512, "%.*f", precision, real);
    case 'F': return snprintf(text, 512, "%.*F", precision, real);
    case '%': return snprintf(text, 512, "%.*f%%", precision, real * 100);
    case 'e': return snprintf(text, 512, "%.*e", precision, real);
    case 'E': return snprintf(text, 512, "%.*E", precision, real);
    case 'g': return snprintf(text, 512, "%.*g", precision, real);
    case 'G': return snprintf(text, 512, "%.*G", precision, real);
    default: break;
    }
    return spec->precision >= 0 ? general_text(real, precision, text)
                                : (int)jinja_real_text(real, text);
}

static int whole_text(const struct spec *spec, struct jinja_value value, char text[512])
{
    const int64_t whole = jinja_integer_of(value);
    const uint64_t size = whole < 0 ? 0 - (uint64_t)whole : (uint64_t)whole;
    return spec->type == 'x'   ? snprintf(text, 512, "%" PRIx64, size)
           : spec->type == 'X' ? snprintf(text, 512, "%" PRIX64, size)
           : spec->type == 'o' ? snprintf(text, 512, "%" PRIo64, size)
                               : snprintf(text, 512, "%" PRIu64, size);
}

/* Writes a number without the sign. */
static size_t number_text(struct jinja_run *run, const struct spec *spec, struct jinja_value value,
                          char text[512])
{
    const bool whole = one_of(spec->type, "dxXo") ||
                       (spec->type == '\0' && value.kind != JINJA_REAL);
    int length = 0;
    if (whole && value.kind == JINJA_REAL) {
        jinja_fail(run, -EINVAL, "the format '%c' needs an int", spec->type);
    } else if (whole && spec->precision >= 0) {
        jinja_fail(run, -EINVAL, "a format of an int with a precision is not supported");
    } else if (spec->precision > 200) {
        jinja_fail(run, -EINVAL, "a precision above 200 is not supported");
    } else {
        length = whole ? whole_text(spec, value, text)
                       : real_text(spec, fabs(jinja_number(value)), text);
    }
    if (length >= 512) {
        jinja_fail(run, -EINVAL, "a formatted number has more than 511 characters");
    }
    return run->rc == 0 && spec->comma ? add_commas(run, text, (size_t)length) : (size_t)length;
}

static void write_filled(struct jinja_run *run, const struct spec *spec, const char *sign,
                         struct jinja_value text, char align)
{
    const int64_t count = (int64_t)(strlen(sign) + core_utf8_count(text.as.text, text.bytes));
    const int64_t room = spec->width > count ? spec->width - count : 0;
    jinja_step(run, (size_t)room / 8 + text.bytes / 16);
    const int64_t left = align == '<' ? 0 : align == '^' ? room / 2 : room;
    if (align == '=') {
        jinja_write(run, sign, strlen(sign));
    }
    for (int64_t i = 0; i < left && run->rc == 0; i++) {
        jinja_write(run, spec->fill, spec->fill_bytes);
    }
    if (align != '=') {
        jinja_write(run, sign, strlen(sign));
    }
    jinja_write_value(run, text);
    for (int64_t i = left; i < room && run->rc == 0; i++) {
        jinja_write(run, spec->fill, spec->fill_bytes);
    }
}

static void write_spec(struct jinja_run *run, const struct spec *spec, struct jinja_value value)
{
    char digits[512];
    if (jinja_is_number(value) && spec->type != 's') {
        const double of = jinja_number(value);
        const bool negative = of < 0 || (of == 0 && signbit(of));
        const char plus[2] = {spec->sign == '+' || spec->sign == ' ' ? spec->sign : '\0', '\0'};
        const size_t bytes = number_text(run, spec, value, digits);
        if (run->rc == 0) {
            write_filled(run, spec, negative ? "-" : plus, jinja_string(digits, bytes),
                         spec->align != '\0' ? spec->align
                         : spec->zero        ? '='
                                             : '>');
        }
        return;
    }
    if (one_of(spec->type, "bcdoxXeEfFgG%n")) {
        jinja_fail(run, -EINVAL, "the format '%c' needs a number, not %s", spec->type,
                   jinja_type_name(value));
        return;
    }
    struct jinja_value text = jinja_to_string(run, value);
    if (spec->precision >= 0) {
        text.bytes = (uint32_t)jinja_char_offset(text.as.text, text.bytes, (size_t)spec->precision);
    }
    write_filled(run, spec, "", text, spec->align != '\0' ? spec->align : '<');
}

/* ---- text % values ---- */

static struct jinja_value next_value(struct jinja_run *run, const struct jinja_value *values,
                                     size_t count, size_t *used)
{
    if (*used >= count) {
        return jinja_fail(run, -EINVAL, "a format has more conversions than values");
    }
    return values[(*used)++];
}

/* Returns the length of "(name)". */
static size_t read_name(struct jinja_run *run, const char *text, size_t bytes,
                        struct jinja_value dict, struct jinja_value *value)
{
    const char *end = memchr(text, ')', bytes);
    if (end == NULL || dict.kind != JINJA_DICT) {
        jinja_fail(run, -EINVAL, "%%(name) needs a dict, or is not closed");
        return bytes;
    }
    jinja_step(run, dict.as.dict->count / 8);
    const struct jinja_value *found = jinja_dict_get(dict.as.dict, text + 1,
                                                     (size_t)(end - text) - 1);
    if (found == NULL) {
        jinja_fail(run, -EINVAL, "the dict to format has no value for %%(%.*s", (int)(end - text),
                   text + 1);
        return bytes;
    }
    *value = *found;
    return (size_t)(end - text) + 1;
}

static size_t read_flags(const char *text, size_t bytes, struct spec *spec)
{
    size_t at = 0;
    for (; at < bytes && one_of(text[at], "-+ 0"); at++) {
        spec->align = text[at] == '-' ? '<' : spec->align;
        spec->sign = text[at] == '+' || (text[at] == ' ' && spec->sign != '+') ? text[at]
                                                                               : spec->sign;
        spec->zero |= text[at] == '0';
    }
    at += read_number(text + at, bytes - at, &spec->width);
    if (at < bytes && text[at] == '.') {
        at++;
        at += read_number(text + at, bytes - at, &spec->precision);
    }
    return at;
}

/* Returns the length of the conversion. */
static size_t write_conversion(struct jinja_run *run, const char *text, size_t bytes,
                               struct jinja_value values, size_t *used)
{
    const bool many = values.kind == JINJA_TUPLE;
    const size_t count = many ? values.as.list->count : 1;
    struct spec spec = {.fill = " ", .fill_bytes = 1, .precision = -1};
    struct jinja_value value = jinja_undefined("");
    size_t at = 0;
    const bool named = bytes > 0 && text[0] == '(';
    if (named) {
        at = read_name(run, text, bytes, values, &value);
        *used = count;
    }
    at += read_flags(text + at, bytes - at, &spec);
    const char type = at < bytes ? text[at] : '\0';
    if (type == '%' && at == 0) {
        jinja_write(run, "%", 1);
        return at + 1;
    }
    value = named || run->rc != 0
                ? value
                : next_value(run, many ? values.as.list->items : &values, count, used);
    if (run->rc != 0) {
        return bytes;
    }
    spec.type = type == 'i' || type == 'u' ? 'd' : type;
    if (type == 'r') {
        const size_t mark = jinja_capture_begin(run);
        jinja_write_repr(run, value);
        value = jinja_capture_end(run, mark);
        spec.type = 's';
    } else if (spec.type == 'd' && value.kind == JINJA_REAL) {
        value = jinja_whole(run, value.as.real);
    }
    if (!one_of(spec.type, "sdxXofFeEgG")) {
        jinja_fail(run, -EINVAL, "the format '%%%c' is not supported", type);
        return bytes;
    }
    if (spec.type != 's' && spec.zero && spec.align == '\0') {
        spec.fill[0] = '0';
    }
    if (spec.type == 's' && spec.align == '\0') {
        spec.align = '>';
    }
    write_spec(run, &spec, value);
    return at + 1;
}

struct jinja_value jinja_format_percent(struct jinja_run *run, struct jinja_value text,
                                        struct jinja_value values)
{
    const size_t count = values.kind == JINJA_TUPLE ? values.as.list->count : 1;
    size_t used = 0;
    const size_t mark = jinja_capture_begin(run);
    for (size_t at = 0; at < text.bytes && run->rc == 0;) {
        const char *found = memchr(text.as.text + at, '%', text.bytes - at);
        const size_t plain = found != NULL ? (size_t)(found - text.as.text) - at : text.bytes - at;
        jinja_write(run, text.as.text + at, plain);
        at += plain;
        if (found != NULL) {
            at += 1 + write_conversion(run, found + 1, text.bytes - at - 1, values, &used);
        }
    }
    if (run->rc == 0 && used < count && values.kind != JINJA_DICT) {
        jinja_fail(run, -EINVAL, "a format has fewer conversions than values");
    }
    return jinja_capture_end(run, mark);
}

/* ---- text.format(values) ---- */

static void read_spec(struct jinja_run *run, const char *text, size_t bytes, struct spec *spec)
{
    size_t at = 0;
    *spec = (struct spec){.fill = " ", .fill_bytes = 1, .precision = -1};
    const size_t first = bytes > 0 ? jinja_char_bytes(text) : 0;
    bool filled = false;
    if (bytes > first && one_of(text[first], "<>^=")) {
        memcpy(spec->fill, text, first);
        spec->fill_bytes = first;
        spec->align = text[first];
        filled = true;
        at = first + 1;
    } else if (bytes > 0 && one_of(text[0], "<>^=")) {
        spec->align = text[at++];
    }
    if (at < bytes && one_of(text[at], "+- ")) {
        spec->sign = text[at++];
    }
    if (at < bytes && text[at] == '0') {
        at++;
        spec->zero = true;
        if (!filled) {
            spec->fill[0] = '0';
        }
    }
    at += read_number(text + at, bytes - at, &spec->width);
    if (at < bytes && text[at] == ',') {
        at++;
        spec->comma = true;
    }
    if (at < bytes && text[at] == '.') {
        const size_t length = read_number(text + at + 1, bytes - at - 1, &spec->precision);
        at += length > 0 ? 1 + length : 0;
    }
    spec->type = at < bytes ? text[at++] : '\0';
    if (at < bytes || (spec->type != '\0' && !one_of(spec->type, "sdxXofFeEgG%")) ||
        (spec->comma && (spec->zero || one_of(spec->type, "sxXo")))) {
        jinja_fail(run, -EINVAL, "the format '%.*s' is not supported", (int)bytes, text);
    }
}

/* Fails the run if Python refuses the format for a value of this type. */
static void check_spec(struct jinja_run *run, const struct spec *spec, struct jinja_value value)
{
    const bool text = value.kind == JINJA_STRING;
    const bool refused = jinja_is_number(value)
                             ? spec->type == 's'
                             : !text || spec->sign != '\0' || spec->comma || spec->align == '=';
    if (refused) {
        jinja_fail(run, -EINVAL, "this format is not defined for a value of type %s",
                   jinja_type_name(value));
    }
}

/* Fields without a number or name take the next argument. */
struct numbering {
    size_t next;
    bool manual; /* a field had a number */
};

/* Evaluates nothing, a number or a name, then .attributes and [items]. */
static struct jinja_value field_value(struct jinja_run *run, const char *text, size_t bytes,
                                      const struct jinja_arguments *arguments,
                                      struct numbering *next)
{
    int64_t index = 0;
    size_t at = 0;
    while (at < bytes && !one_of(text[at], ".[")) {
        at++;
    }
    struct jinja_value value = jinja_undefined("");
    if (at == 0 || read_number(text, at, &index) == at) {
        next->manual = next->manual || at > 0;
        if (next->manual && (at == 0 || next->next > 0)) {
            return jinja_fail(run, -EINVAL, "format has fields with and without numbers");
        }
        index = at == 0 ? (int64_t)next->next++ : index;
        if (index >= (int64_t)arguments->count) {
            return jinja_fail(run, -EINVAL, "format has no argument %" PRId64, index);
        }
        value = arguments->items[index];
    } else {
        const struct jinja_value *found = arguments->named != NULL
                                              ? jinja_dict_get(arguments->named, text, at)
                                              : NULL;
        if (found == NULL) {
            return jinja_fail(run, -EINVAL, "format has no argument '%.*s'", (int)at, text);
        }
        value = *found;
    }
    while (at < bytes && run->rc == 0) {
        const bool item = text[at++] == '[';
        const size_t begin = at;
        while (at < bytes && (item ? text[at] != ']' : !one_of(text[at], ".["))) {
            at++;
        }
        const bool number = item && at > begin &&
                            read_number(text + begin, at - begin, &index) == at - begin;
        value = number ? jinja_item(run, value, jinja_integer(index))
                : item ? jinja_item(run, value, jinja_string(text + begin, at - begin))
                       : jinja_attribute(run, value, text + begin, at - begin);
        if (at == begin || (item && at == bytes)) {
            return jinja_fail(run, -EINVAL, "the field '%.*s' is not complete", (int)bytes, text);
        }
        at += item;
    }
    return value;
}

static void write_field(struct jinja_run *run, const char *text, size_t bytes,
                        const struct jinja_arguments *arguments, struct numbering *next)
{
    struct spec spec;
    const char *colon = memchr(text, ':', bytes);
    const size_t front = colon != NULL ? (size_t)(colon - text) : bytes;
    const char *bang = memchr(text, '!', front);
    const size_t name = bang != NULL ? (size_t)(bang - text) : front;
    if (memchr(text, '{', bytes) != NULL ||
        (bang != NULL && (front != name + 2 || !one_of(bang[1], "rs")))) {
        jinja_fail(run, -EINVAL, "the field '%.*s' is not supported", (int)bytes, text);
        return;
    }
    struct jinja_value value = field_value(run, text, name, arguments, next);
    if (run->rc == 0 && (bang != NULL || colon == NULL || front + 1 == bytes)) {
        const size_t mark = jinja_capture_begin(run);
        if (bang != NULL && bang[1] == 'r') {
            jinja_write_repr(run, value);
        } else {
            jinja_write_value(run, value);
        }
        value = jinja_capture_end(run, mark);
    }
    read_spec(run, colon != NULL ? colon + 1 : "", colon != NULL ? bytes - front - 1 : 0, &spec);
    if (run->rc == 0) {
        check_spec(run, &spec, value);
    }
    if (run->rc == 0) {
        write_spec(run, &spec, value);
    }
}

struct jinja_value jinja_format_braces(struct jinja_run *run, struct jinja_value text,
                                       const struct jinja_arguments *arguments)
{
    struct numbering next = {0};
    const size_t mark = jinja_capture_begin(run);
    for (size_t at = 0; at < text.bytes && run->rc == 0;) {
        const char c = text.as.text[at];
        const bool twice = at + 1 < text.bytes && text.as.text[at + 1] == c;
        if (c != '{' && c != '}') {
            jinja_write(run, text.as.text + at++, 1);
        } else if (twice) {
            jinja_write(run, &c, 1);
            at += 2;
        } else {
            const char *end = c == '{' ? memchr(text.as.text + at, '}', text.bytes - at) : NULL;
            if (end == NULL) {
                jinja_fail(run, -EINVAL, "'%c' in a format string has no counterpart", c);
                break;
            }
            const size_t bytes = (size_t)(end - text.as.text) - at - 1;
            write_field(run, text.as.text + at + 1, bytes, arguments, &next);
            at += bytes + 2;
        }
    }
    return jinja_capture_end(run, mark);
}
