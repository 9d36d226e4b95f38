/* print.c: the output of a run, and values as text. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/json/json.h"
#include "tools/text/jinja/chars.h"
#include "tools/text/jinja/function.h"
#include "tools/text/jinja/value.h"

/* ---- the output, and values as Python writes them ---- */

void jinja_write(struct jinja_run *run, const char *text, size_t bytes)
{
    if (!jinja_step(run, 1 + bytes / 256)) {
        return;
    }
    if (run->out_room - run->out_bytes <= bytes) {
        const size_t room = run->out_room + bytes + run->out_room / 2 + 4096;
        if (room - run->out_room > run->bytes_max - run->bytes) {
            jinja_fail(run, -E2BIG, "the template needs more than %zu bytes of memory",
                       run->bytes_max);
            return;
        }
        char *more = core_charge_grow(run->out, room);
        if (more == NULL) {
            jinja_fail(run, -ENOMEM, "no memory to render a template");
            return;
        }
        run->bytes += room - run->out_room;
        run->out = more;
        run->out_room = room;
    }
    memcpy(run->out + run->out_bytes, text, bytes);
    run->out_bytes += bytes;
    run->out[run->out_bytes] = '\0';
}

size_t jinja_capture_begin(struct jinja_run *run)
{
    if (run->captures++ == 0) {
        run->capture_base = run->out_bytes;
    }
    return run->out_bytes;
}

struct jinja_value jinja_capture_end(struct jinja_run *run, size_t mark)
{
    run->captures--;
    struct jinja_value text = jinja_string("", 0);
    if (run->rc == 0 && run->out_bytes > mark) {
        text = jinja_string_copy(run, run->out + mark, run->out_bytes - mark);
    }
    run->out_bytes = mark;
    return text;
}

static void write_text(struct jinja_run *run, const char *text)
{
    jinja_write(run, text, strlen(text));
}

size_t jinja_real_text(double real, char out[40])
{
    if (isnan(real) || isinf(real)) {
        return (size_t)snprintf(out, 40, "%s", isnan(real) ? "nan" : real > 0 ? "inf" : "-inf");
    }
    char digits[40];
    int precision = 0;
    do {
        snprintf(digits, sizeof digits, "%.*e", precision, real);
    } while (strtod(digits, NULL) != real && ++precision < 17);
    const int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent < -4 || exponent >= 16) {
        const size_t mantissa = (size_t)(strchr(digits, 'e') - digits);
        return (size_t)snprintf(out, 40, "%.*se%c%02d", (int)mantissa, digits,
                                exponent < 0 ? '-' : '+', abs(exponent));
    }
    const int decimals = precision > exponent ? precision - exponent : 1;
    return (size_t)snprintf(out, 40, "%.*f", decimals, real);
}

static void write_escape(struct jinja_run *run, uint32_t point)
{
    char text[16];
    const char *format = point < 0x100 ? "\\x%02x" : point < 0x10000 ? "\\u%04x" : "\\U%08x";
    if (point == '\n' || point == '\r' || point == '\t') {
        snprintf(text, sizeof text, "\\%c", point == '\n' ? 'n' : point == '\r' ? 'r' : 't');
    } else {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(text, sizeof text, format, point);
#pragma GCC diagnostic pop
    }
    write_text(run, text);
}

static void write_quoted(struct jinja_run *run, struct jinja_value value)
{
    jinja_step_characters(run, value.bytes);
    const bool single = memchr(value.as.text, '\'', value.bytes) == NULL ||
                        memchr(value.as.text, '"', value.bytes) != NULL;
    const char quote = single ? '\'' : '"';
    jinja_write(run, &quote, 1);
    for (size_t at = 0; at < value.bytes && run->rc == 0;) {
        const char *place = value.as.text + at;
        const size_t length = jinja_char_bytes(place);
        const uint32_t point = jinja_char_point(place);
        if (point == (unsigned char)quote || point == '\\') {
            write_text(run, "\\");
        }
        if (jinja_char_is(point, JINJA_CHAR_PRINTABLE)) {
            jinja_write(run, place, length);
        } else {
            write_escape(run, point);
        }
        at += length;
    }
    jinja_write(run, &quote, 1);
}

static void write_list(struct jinja_run *run, struct jinja_value value)
{
    const struct jinja_list *list = value.as.list;
    const bool tuple = value.kind == JINJA_TUPLE;
    const bool view = value.kind >= JINJA_KEYS && value.kind <= JINJA_ITEMS;
    write_text(run, view ? jinja_type_name(value) : "");
    write_text(run, view ? "([" : tuple ? "(" : "[");
    for (size_t i = 0; i < list->count && run->rc == 0; i++) {
        write_text(run, i > 0 ? ", " : "");
        jinja_write_repr(run, list->items[i]);
    }
    write_text(run, view ? "])" : !tuple ? "]" : list->count == 1 ? ",)" : ")");
}

static void write_dict(struct jinja_run *run, const struct jinja_dict *dict)
{
    write_text(run, "{");
    for (size_t i = 0; i < dict->count && run->rc == 0; i++) {
        write_text(run, i > 0 ? ", " : "");
        jinja_write_repr(run, dict->pairs[i].key);
        write_text(run, ": ");
        jinja_write_repr(run, dict->pairs[i].value);
    }
    write_text(run, "}");
}

void jinja_write_repr(struct jinja_run *run, struct jinja_value value)
{
    char text[64];
    if (!jinja_step(run, 1) || !jinja_deeper(run)) {
        return;
    }
    switch (value.kind) {
    case JINJA_UNDEFINED: write_text(run, "Undefined"); break;
    case JINJA_NONE: write_text(run, "None"); break;
    case JINJA_BOOL: write_text(run, value.as.truth ? "True" : "False"); break;
    case JINJA_INTEGER:
        snprintf(text, sizeof text, "%" PRId64, value.as.integer);
        write_text(run, text);
        break;
    case JINJA_REAL: jinja_write(run, text, jinja_real_text(value.as.real, text)); break;
    case JINJA_STRING: write_quoted(run, value); break;
    case JINJA_MARKUP:
        write_text(run, "Markup(");
        write_quoted(run, value);
        write_text(run, ")");
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_KEYS:
    case JINJA_VALUES:
    case JINJA_ITEMS: write_list(run, value); break;
    case JINJA_DICT: write_dict(run, value.as.dict); break;
    case JINJA_NAMESPACE:
        write_text(run, "<Namespace ");
        write_dict(run, value.as.dict);
        write_text(run, ">");
        break;
    case JINJA_GENERATOR:
    case JINJA_RANGE:
    case JINJA_LOOP:
    case JINJA_MACRO:
    case JINJA_METHOD:
    case JINJA_CYCLER:
    case JINJA_JOINER:
        jinja_fail(run, -EINVAL, "'%s' cannot be written as text", jinja_type_name(value));
        break;
    }
    run->depth--;
}

void jinja_write_value(struct jinja_run *run, struct jinja_value value)
{
    if (jinja_is_str(value)) {
        jinja_write(run, value.as.text, value.bytes);
    } else if (value.kind != JINJA_UNDEFINED) {
        jinja_write_repr(run, value);
    }
}

struct jinja_value jinja_to_string(struct jinja_run *run, struct jinja_value value)
{
    if (jinja_is_str(value)) {
        return jinja_string(value.as.text, value.bytes);
    }
    const size_t mark = jinja_capture_begin(run);
    jinja_write_value(run, value);
    return jinja_capture_end(run, mark);
}

static struct jinja_value from_object(struct jinja_run *run, const struct core_json_value *json)
{
    struct core_json_member member;
    struct jinja_value dict = jinja_dict(run);
    const size_t count = core_json_count(json);
    if (run->rc != 0) {
        return dict;
    }
    dict.as.dict->pairs = jinja_alloc(run, (count + 1) * sizeof *dict.as.dict->pairs);
    dict.as.dict->room = count;
    for (bool any = core_json_first(json, &member); any && run->rc == 0;
         any = core_json_next(&member)) { /* keys are unique */
        dict.as.dict->pairs[dict.as.dict->count++] = (struct jinja_pair){
            jinja_string(member.key, member.key_bytes), jinja_from_json(run, member.value, 0)};
    }
    return dict;
}

static struct jinja_value from_array(struct jinja_run *run, const struct core_json_value *json,
                                     size_t items_max)
{
    struct jinja_value list = jinja_list(run, JINJA_LIST);
    const size_t all = core_json_count(json);
    const size_t count = items_max > 0 && items_max < all ? items_max : all;
    for (size_t i = 0; i < count && run->rc == 0; i++) {
        jinja_list_add(run, list.as.list, jinja_from_json(run, core_json_at(json, i), 0));
    }
    return list;
}

struct jinja_value jinja_from_json(struct jinja_run *run, const struct core_json_value *json,
                                   size_t items_max)
{
    size_t bytes;
    struct jinja_value value = jinja_none();
    if (!jinja_step(run, 1) || !jinja_deeper(run)) {
        return value;
    }
    switch (core_json_kind(json)) {
    case CORE_JSON_NULL: break;
    case CORE_JSON_BOOL: value = jinja_bool(core_json_bool(json)); break;
    case CORE_JSON_INTEGER: value = jinja_integer(core_json_integer(json)); break;
    case CORE_JSON_REAL:
        value = core_json_is_large(json)
                    ? jinja_fail(run, -EINVAL,
                                 "an integer beyond 64 bits, about %g, is not supported",
                                 core_json_real(json))
                    : jinja_real(core_json_real(json));
        break;
    case CORE_JSON_STRING: {
        const char *text = core_json_string(json, &bytes);
        value = jinja_string(text, bytes);
        break;
    }
    case CORE_JSON_ARRAY: value = from_array(run, json, items_max); break;
    case CORE_JSON_OBJECT: value = from_object(run, json); break;
    }
    run->depth--;
    return value;
}

/* ---- tojson, as json.dumps of Python writes it ---- */

struct writer {
    struct jinja_run *run;
    struct jinja_value comma;
    struct jinja_value colon;
    struct jinja_value indent; /* one level; UNDEFINED: one line */
    size_t depth;
    bool ascii;
    bool sorted;
};

static void append_text(struct writer *writer, const char *text)
{
    jinja_write(writer->run, text, strlen(text));
}

static void write_unit(struct writer *writer, unsigned unit)
{
    char text[16];
    snprintf(text, sizeof text, "\\u%04x", unit);
    append_text(writer, text);
}

static void write_character(struct writer *writer, const char *at, size_t length)
{
    static const char letters[] = "\"\\\b\f\n\r\t";
    static const char *const escapes[] = {"\\\"", "\\\\", "\\b", "\\f", "\\n", "\\r", "\\t"};
    const uint32_t point = jinja_char_point(at);
    const char *found = point != 0 && point < 0x80 ? strchr(letters, (int)point) : NULL;
    if (found != NULL) {
        append_text(writer, escapes[found - letters]);
    } else if (point < 0x20 || (writer->ascii && point >= 0x7F && point < 0x10000)) {
        write_unit(writer, point);
    } else if (writer->ascii && point >= 0x10000) {
        write_unit(writer, 0xD800 + ((point - 0x10000) >> 10));
        write_unit(writer, 0xDC00 + ((point - 0x10000) & 0x3FF));
    } else {
        jinja_write(writer->run, at, length);
    }
}

static void write_string(struct writer *writer, struct jinja_value value)
{
    append_text(writer, "\"");
    jinja_step_characters(writer->run, value.bytes);
    for (size_t at = 0; at < value.bytes && writer->run->rc == 0;) {
        const size_t length = jinja_char_bytes(value.as.text + at);
        write_character(writer, value.as.text + at, length);
        at += length;
    }
    append_text(writer, "\"");
}

static void break_line(struct writer *writer)
{
    if (writer->indent.kind == JINJA_STRING) {
        append_text(writer, "\n");
        for (size_t i = 0; i < writer->depth; i++) {
            jinja_write_value(writer->run, writer->indent);
        }
    }
}

static void write_json(struct writer *writer, struct jinja_value value);

static void write_items(struct writer *writer, const struct jinja_list *list)
{
    append_text(writer, "[");
    writer->depth++;
    for (size_t i = 0; i < list->count && writer->run->rc == 0; i++) {
        if (i > 0) {
            jinja_write_value(writer->run, writer->comma);
        }
        break_line(writer);
        write_json(writer, list->items[i]);
    }
    writer->depth--;
    if (list->count > 0) {
        break_line(writer);
    }
    append_text(writer, "]");
}

static void write_key(struct writer *writer, struct jinja_value key)
{
    if (jinja_is_str(key)) {
        write_string(writer, key);
        return;
    }
    if (!jinja_is_number(key) && key.kind != JINJA_NONE) {
        jinja_fail(writer->run, -EINVAL, "a key of JSON cannot be '%s'", jinja_type_name(key));
        return;
    }
    append_text(writer, "\"");
    write_json(writer, key);
    append_text(writer, "\"");
}

static void write_pairs(struct writer *writer, const struct jinja_dict *dict)
{
    const struct jinja_pair *pairs = dict->pairs;
    if (writer->sorted) {
        pairs = jinja_sorted(writer->run, dict->pairs, dict->count, false);
    }
    append_text(writer, "{");
    writer->depth++;
    for (size_t i = 0; i < dict->count && writer->run->rc == 0; i++) {
        if (i > 0) {
            jinja_write_value(writer->run, writer->comma);
        }
        break_line(writer);
        write_key(writer, pairs[i].key);
        jinja_write_value(writer->run, writer->colon);
        write_json(writer, pairs[i].value);
    }
    writer->depth--;
    if (dict->count > 0) {
        break_line(writer);
    }
    append_text(writer, "}");
}

static void write_real(struct writer *writer, double real)
{
    char text[40];
    if (isnan(real) || isinf(real)) {
        append_text(writer, isnan(real) ? "NaN" : real > 0 ? "Infinity" : "-Infinity");
    } else {
        jinja_write(writer->run, text, jinja_real_text(real, text));
    }
}

static void write_json(struct writer *writer, struct jinja_value value)
{
    struct jinja_run *run = writer->run;
    if (!jinja_step(run, 1) || !jinja_deeper(run)) {
        return;
    }
    switch ((int)value.kind) {
    case JINJA_NONE: append_text(writer, "null"); break;
    case JINJA_BOOL: append_text(writer, value.as.truth ? "true" : "false"); break;
    case JINJA_INTEGER: jinja_write_repr(run, value); break;
    case JINJA_REAL: write_real(writer, value.as.real); break;
    case JINJA_STRING:
    case JINJA_MARKUP: write_string(writer, value); break;
    case JINJA_LIST:
    case JINJA_TUPLE: write_items(writer, value.as.list); break;
    case JINJA_DICT: write_pairs(writer, value.as.dict); break;
    default:
        jinja_fail(run, -EINVAL, "a value of type %s cannot be written as JSON",
                   jinja_type_name(value));
        break;
    }
    run->depth--;
}

/* Reads a number of spaces, or a text. */
static struct jinja_value read_indent(struct jinja_run *run,
                                      const struct jinja_arguments *arguments)
{
    struct jinja_value indent = jinja_argument(arguments, 1, "indent", jinja_none());
    if (jinja_is_str(indent)) {
        return jinja_to_string(run, indent);
    }
    if (indent.kind == JINJA_NONE) {
        return jinja_undefined("");
    }
    return jinja_operate(run, "*", jinja_string(" ", 1), indent);
}

struct jinja_value jinja_to_json(struct jinja_run *run, struct jinja_value value,
                                 const struct jinja_arguments *arguments)
{
    struct writer writer = {
        .run = run,
        .comma = jinja_string(", ", 2),
        .colon = jinja_string(": ", 2),
        .indent = read_indent(run, arguments),
        .ascii = jinja_argument_truth(arguments, 0, "ensure_ascii", false),
        .sorted = jinja_argument_truth(arguments, 3, "sort_keys", false),
    };
    const struct jinja_value separators = jinja_argument(arguments, 2, "separators", jinja_none());
    if (writer.indent.kind == JINJA_STRING) {
        writer.comma.bytes = 1; /* a newline follows */
    }
    if (separators.kind != JINJA_NONE) {
        const struct jinja_list *pair = jinja_iterate(run, separators);
        if (pair == NULL || pair->count != 2 || !jinja_is_str(pair->items[0]) ||
            !jinja_is_str(pair->items[1])) {
            return jinja_fail(run, -EINVAL, "separators are two strings");
        }
        writer.comma = jinja_to_string(run, pair->items[0]);
        writer.colon = jinja_to_string(run, pair->items[1]);
    }
    const size_t mark = jinja_capture_begin(run);
    write_json(&writer, value);
    return jinja_capture_end(run, mark);
}
