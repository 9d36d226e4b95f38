/* print.c: the output of a run, and values as Python writes them. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/json/json.h"
#include "tools/text/jinja/chars.h"
#include "tools/text/jinja/value.h"

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
    write_text(run, tuple ? "(" : "[");
    for (size_t i = 0; i < list->count && run->rc == 0; i++) {
        write_text(run, i > 0 ? ", " : "");
        jinja_write_repr(run, list->items[i]);
    }
    write_text(run, !tuple ? "]" : list->count == 1 ? ",)" : ")");
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
    case JINJA_LIST:
    case JINJA_TUPLE: write_list(run, value); break;
    case JINJA_DICT: write_dict(run, value.as.dict); break;
    case JINJA_NAMESPACE:
        write_text(run, "<Namespace ");
        write_dict(run, value.as.dict);
        write_text(run, ">");
        break;
    case JINJA_LOOP:
    case JINJA_MACRO:
    case JINJA_METHOD:
    case JINJA_GLOBAL:
    case JINJA_CYCLER:
    case JINJA_JOINER:
        jinja_fail(run, -EINVAL, "a %s cannot be written as text", jinja_type_name(value));
        break;
    }
    run->depth--;
}

void jinja_write_value(struct jinja_run *run, struct jinja_value value)
{
    if (value.kind == JINJA_STRING) {
        jinja_write(run, value.as.text, value.bytes);
    } else if (value.kind != JINJA_UNDEFINED) {
        jinja_write_repr(run, value);
    }
}

struct jinja_value jinja_to_string(struct jinja_run *run, struct jinja_value value)
{
    if (value.kind == JINJA_STRING) {
        return value;
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
    case CORE_JSON_REAL: value = jinja_real(core_json_real(json)); break;
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
