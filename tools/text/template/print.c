/* print.c: the output of a run, and values as Python writes them. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/charge.h"
#include "core/json/json.h"
#include "tools/text/template/chars.h"
#include "tools/text/template/value.h"

void template_write(struct text_template_run *run, const char *text, size_t bytes)
{
    if (!template_step(run, 1 + bytes / 256)) {
        return;
    }
    if (run->out_room - run->out_bytes <= bytes) {
        const size_t room = run->out_room + bytes + run->out_room / 2 + 4096;
        if (room - run->out_room > run->bytes_max - run->bytes) {
            template_fail(run, -E2BIG, "the template needs more than %zu bytes of memory",
                          run->bytes_max);
            return;
        }
        char *more = core_charge_grow(run->out, room);
        if (more == NULL) {
            template_fail(run, -ENOMEM, "no memory to render a template");
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

size_t template_capture_begin(struct text_template_run *run)
{
    if (run->captures++ == 0) {
        run->capture_base = run->out_bytes;
    }
    return run->out_bytes;
}

struct template_value template_capture_end(struct text_template_run *run, size_t mark)
{
    run->captures--;
    struct template_value text = template_string("", 0);
    if (run->code == 0 && run->out_bytes > mark) {
        text = template_string_copy(run, run->out + mark, run->out_bytes - mark);
    }
    run->out_bytes = mark;
    return text;
}

static void write_text(struct text_template_run *run, const char *text)
{
    template_write(run, text, strlen(text));
}

size_t template_real_text(double real, char out[40])
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

static void write_escape(struct text_template_run *run, uint32_t point)
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

static void write_quoted(struct text_template_run *run, struct template_value value)
{
    template_step_characters(run, value.bytes);
    const bool single = memchr(value.as.text, '\'', value.bytes) == NULL ||
                        memchr(value.as.text, '"', value.bytes) != NULL;
    const char quote = single ? '\'' : '"';
    template_write(run, &quote, 1);
    for (size_t at = 0; at < value.bytes && run->code == 0;) {
        const char *place = value.as.text + at;
        const size_t length = template_char_bytes(place);
        const uint32_t point = template_char_point(place);
        if (point == (unsigned char)quote || point == '\\') {
            write_text(run, "\\");
        }
        if (template_char_is(point, TEMPLATE_CHAR_PRINTABLE)) {
            template_write(run, place, length);
        } else {
            write_escape(run, point);
        }
        at += length;
    }
    template_write(run, &quote, 1);
}

static void write_list(struct text_template_run *run, struct template_value value)
{
    const struct template_list *list = value.as.list;
    const bool tuple = value.kind == TEMPLATE_TUPLE;
    write_text(run, tuple ? "(" : "[");
    for (size_t i = 0; i < list->count && run->code == 0; i++) {
        write_text(run, i > 0 ? ", " : "");
        template_write_repr(run, list->items[i]);
    }
    write_text(run, !tuple ? "]" : list->count == 1 ? ",)" : ")");
}

static void write_dict(struct text_template_run *run, const struct template_dict *dict)
{
    write_text(run, "{");
    for (size_t i = 0; i < dict->count && run->code == 0; i++) {
        write_text(run, i > 0 ? ", " : "");
        template_write_repr(run, dict->pairs[i].key);
        write_text(run, ": ");
        template_write_repr(run, dict->pairs[i].value);
    }
    write_text(run, "}");
}

void template_write_repr(struct text_template_run *run, struct template_value value)
{
    char text[64];
    if (!template_step(run, 1) || !template_deeper(run)) {
        return;
    }
    switch (value.kind) {
    case TEMPLATE_UNDEFINED: write_text(run, "Undefined"); break;
    case TEMPLATE_NONE: write_text(run, "None"); break;
    case TEMPLATE_BOOL: write_text(run, value.as.truth ? "True" : "False"); break;
    case TEMPLATE_INTEGER:
        snprintf(text, sizeof text, "%" PRId64, value.as.integer);
        write_text(run, text);
        break;
    case TEMPLATE_REAL: template_write(run, text, template_real_text(value.as.real, text)); break;
    case TEMPLATE_STRING: write_quoted(run, value); break;
    case TEMPLATE_LIST:
    case TEMPLATE_TUPLE: write_list(run, value); break;
    case TEMPLATE_DICT: write_dict(run, value.as.dict); break;
    case TEMPLATE_NAMESPACE:
        write_text(run, "<Namespace ");
        write_dict(run, value.as.dict);
        write_text(run, ">");
        break;
    case TEMPLATE_LOOP:
    case TEMPLATE_MACRO:
    case TEMPLATE_METHOD:
    case TEMPLATE_GLOBAL:
    case TEMPLATE_CYCLER:
    case TEMPLATE_JOINER:
        template_fail(run, -EINVAL, "a %s cannot be written as text", template_type_name(value));
        break;
    }
    run->depth--;
}

void template_write_value(struct text_template_run *run, struct template_value value)
{
    if (value.kind == TEMPLATE_STRING) {
        template_write(run, value.as.text, value.bytes);
    } else if (value.kind != TEMPLATE_UNDEFINED) {
        template_write_repr(run, value);
    }
}

struct template_value template_to_string(struct text_template_run *run, struct template_value value)
{
    if (value.kind == TEMPLATE_STRING) {
        return value;
    }
    const size_t mark = template_capture_begin(run);
    template_write_value(run, value);
    return template_capture_end(run, mark);
}

static struct template_value from_object(struct text_template_run *run,
                                         const struct core_json_value *json)
{
    struct core_json_member member;
    struct template_value dict = template_dict(run);
    const size_t count = core_json_count(json);
    if (run->code != 0) {
        return dict;
    }
    dict.as.dict->pairs = template_alloc(run, (count + 1) * sizeof *dict.as.dict->pairs);
    dict.as.dict->room = count;
    for (bool any = core_json_first(json, &member); any && run->code == 0;
         any = core_json_next(&member)) { /* keys are unique */
        dict.as.dict->pairs[dict.as.dict->count++] = (struct template_pair){
            template_string(member.key, member.key_bytes),
            template_from_json(run, member.value, 0)};
    }
    return dict;
}

static struct template_value from_array(struct text_template_run *run,
                                        const struct core_json_value *json, size_t items_max)
{
    struct template_value list = template_list(run, TEMPLATE_LIST);
    const size_t all = core_json_count(json);
    const size_t count = items_max > 0 && items_max < all ? items_max : all;
    for (size_t i = 0; i < count && run->code == 0; i++) {
        template_list_add(run, list.as.list, template_from_json(run, core_json_at(json, i), 0));
    }
    return list;
}

struct template_value template_from_json(struct text_template_run *run,
                                         const struct core_json_value *json, size_t items_max)
{
    size_t bytes;
    struct template_value value = template_none();
    if (!template_step(run, 1) || !template_deeper(run)) {
        return value;
    }
    switch (core_json_kind(json)) {
    case CORE_JSON_NULL: break;
    case CORE_JSON_BOOL: value = template_bool(core_json_bool(json)); break;
    case CORE_JSON_INTEGER: value = template_integer(core_json_integer(json)); break;
    case CORE_JSON_REAL: value = template_real(core_json_real(json)); break;
    case CORE_JSON_STRING: {
        const char *text = core_json_string(json, &bytes);
        value = template_string(text, bytes);
        break;
    }
    case CORE_JSON_ARRAY: value = from_array(run, json, items_max); break;
    case CORE_JSON_OBJECT: value = from_object(run, json); break;
    }
    run->depth--;
    return value;
}
